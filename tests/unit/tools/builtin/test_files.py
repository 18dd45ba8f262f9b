"""The file tools: what they answer, what they change, and what they refuse in words."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.pictures import NAMES, picture

from shepherd.core import Image
from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.files import (
    MOST_BYTES,
    delete_file,
    edit_file,
    file_exists,
    list_directory,
    read_file,
    write_file,
)
from shepherd.tools.builtin.search import search_files
from shepherd.tools.results import ResultStore
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.signature import carry_out
from shepherd.tools.tool import Tool, ToolContext

BUDGET = 400


def count(text: str) -> int:
    return len(text.encode()) // 4 + 1


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path.resolve()


@pytest.fixture
def context(top: Path) -> ToolContext:
    work = str(top / "work")
    return ToolContext(roots=Roots.of([work], work), budget=BUDGET, count=count, kept=ResultStore())


async def call(context: ToolContext, tool: Tool, **arguments: Any) -> Result:
    result = await tool.run(context, arguments)
    assert result.success
    assert count(result.content) <= context.budget
    return result


async def refusal(context: ToolContext, tool: Tool, **arguments: Any) -> str:
    with pytest.raises(ToolError) as error:
        await tool.run(context, arguments)
    return error.value.message


def answer(result: Result) -> Mapping[str, Any]:
    value = json.loads(result.content)
    assert isinstance(value, dict)
    return value


# -- read_file --------------------------------------------------------------------------------------------------------


async def test_a_file_is_read_as_it_is(top: Path, context: ToolContext) -> None:
    text = "first\r\nsecond 日本\n\n\tlast without an end"
    (top / "work/a.txt").write_bytes(text.encode())
    assert await call(context, read_file, path="a.txt") == Result(text, summary="4 lines")
    assert (await call(context, read_file, path=str(top / "work/a.txt"))).content == text
    assert await call(context, read_file, path="a.txt", offset=2, limit=1) == Result(
        "second 日本\n", summary="line 2 of 4"
    )
    assert (await call(context, read_file, path="a.txt", offset=2, limit=99)).summary == "lines 2-4 of 4"
    assert (await call(context, read_file, path="a.txt", offset=0, limit=1)).content == "first\r\n"
    assert await refusal(context, read_file, path="a.txt", offset=5) == '"a.txt": it has 4 lines, and no line 5'
    assert "at least 1" in await refusal(context, read_file, path="a.txt", offset=-1)
    assert "at least 1" in await refusal(context, read_file, path="a.txt", limit=0)
    (top / "work/empty").write_text("")
    assert await call(context, read_file, path="empty") == Result("empty is empty", summary="empty")
    (top / "work/one").write_text("one\n")
    assert await refusal(context, read_file, path="one", offset=2) == '"one": it has 1 line, and no line 2'


async def read_on(context: ToolContext, path: str) -> str:
    """A whole file, by doing what each part says."""
    arguments: dict[str, Any] = {"path": path}
    text = ""
    for _ in range(10_000):
        part = (await call(context, read_file, **arguments)).content
        shown, note, rest = part.partition("[This is ")
        if not note:
            return text + part
        arguments = dict(_argument(each) for each in rest.split("read_file(")[1].split(")")[0].split(", "))
        text += shown if "column" not in arguments else shown.removesuffix("\n")
    raise AssertionError("it does not end")


def _argument(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, json.loads(value)


async def test_what_does_not_fit_is_read_on_as_the_note_says(top: Path, context: ToolContext) -> None:
    text = "".join(f"line {number} é\n" for number in range(1, 500)) + "x" * 6_000 + "\nend"
    (top / "work/long").write_text(text)
    first = await call(context, read_file, path="long")
    assert first.summary == "lines 1-116 of 501"
    assert first.content.endswith(
        'line 116 é\n[This is lines 1-116 of 501, read_file(path="long", offset=117) reads on.]'
    )
    assert await read_on(context, "long") == text
    assert context.kept is not None
    name, _ = context.kept.keep(text[:8_000])
    assert await read_on(context, name) == context.kept.get(name)
    latin = text.encode("latin-1")
    (top / "work/latin").write_bytes(latin)
    part = await call(context, read_file, path="latin", encoding="latin-1")
    assert 'offset=117, encoding="latin-1") reads on' in part.content


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.sampled_from("ab\n\r é日🐑\u0301"), min_size=1, max_size=3_000).map(lambda text: text * 3),
    budget=st.integers(130, 300),
)
def test_any_text_is_read_whole_in_parts(top: Path, context: ToolContext, text: str, budget: int) -> None:
    (top / "work/any").write_bytes(text.encode())
    assert asyncio.run(read_on(replace(context, budget=budget), "any")) == text


async def test_a_line_is_read_on_by_its_characters(top: Path, context: ToolContext) -> None:
    (top / "work/line").write_text("é" * 3_000_000 + "\nend\n")
    part = await call(context, read_file, path="line", column=2_999_999)
    assert part.content == "éé\nend\n"
    assert (await call(context, read_file, path="line", column=3_000_001)).content == "\nend\n"
    assert "the line has 3,000,000 characters; column 3,000,002" in await refusal(
        context, read_file, path="line", column=3_000_002
    )
    assert "the line has 3 characters; column 5" in await refusal(context, read_file, path="line", offset=2, column=5)


async def test_a_cut_is_made_between_characters_as_people_see_them(top: Path, context: ToolContext) -> None:
    family = "👩\u200d👩\u200d👧"
    (top / "work/line").write_text(family * 900)
    shown = (await call(context, read_file, path="line")).content.split("\n[This is ")[0]
    assert len(shown) > 100
    assert shown == family * (len(shown) // len(family))


async def test_a_sparse_file_of_5_gb_is_never_read_whole(top: Path, context: ToolContext) -> None:
    (top / "work/sparse").write_bytes(b"hello\n" * 2_000)
    os.truncate(top / "work/sparse", 5 << 30)
    part = await call(context, read_file, path="sparse")
    assert part.content.startswith("hello\nhello\n")
    assert 'offset=' in part.content  # fmt: skip
    assert (await call(context, read_file, path="sparse", offset=2_000, limit=1)).content == "hello\n"
    assert "is not in its first 256 MiB, which have 2,001 lines" in await refusal(
        context, read_file, path="sparse", offset=2_002
    )
    assert "over 1,048,576 bytes" in await refusal(context, read_file, path="sparse", encoding="base64")
    assert "too large for edit_file" in await refusal(context, edit_file, path="sparse", old="hello", new="x")
    (top / "work/holes").touch()
    os.truncate(top / "work/holes", 5 << 30)
    note = (await call(context, read_file, path="holes")).content
    assert note.startswith("holes is binary data of 5,368,709,120 bytes, not text")


@pytest.mark.parametrize(("name", "kind"), [("PNG", "a PNG image"), ("WEBP", "RIFF sound, film or image")])
async def test_a_picture_goes_along_with_its_result(top: Path, context: ToolContext, name: str, kind: str) -> None:
    data = picture(name)
    (top / "work/x.bin").write_bytes(data)
    result = await call(context, read_file, path="x.bin")
    assert result.content == f"x.bin is {kind} of 8 x 6 pixels, {len(data)} bytes"
    assert result.images == (Image(NAMES[name], data),)
    (top / "work/x.bin").write_bytes(data[: len(data) // 2])
    result = await call(context, read_file, path="x.bin")
    assert result.images == ()
    assert "not text" in result.content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image of 16 bytes"),
        (b"%PDF-1.7\nplain beginning", "a PDF document of 24 bytes"),
        (b"\x7fELF\x02\x01\x01\0", "a program or library (ELF) of 8 bytes"),
        (b"PK\x03\x04\x14\0", "a ZIP archive (or an office document, a package) of 6 bytes"),
        (bytes(range(256)), "binary data of 256 bytes"),
        (b"text with a \0 in it", "binary data of 19 bytes"),
    ],
)
async def test_a_binary_file_is_a_short_note(top: Path, context: ToolContext, content: bytes, said: str) -> None:
    (top / "work/x.bin").write_bytes(content)
    result = await call(context, read_file, path="x.bin")
    assert result.content == f'x.bin is {said}, not text; encoding="base64" would give the bytes themselves'
    encoded = await call(context, read_file, path="x.bin", encoding="base64")
    assert base64.b64decode(encoded.content) == content
    assert (await call(context, read_file, path="x.bin", encoding="text")).content == content.decode(errors="replace")
    assert "not text; it cannot be edited" in await refusal(context, edit_file, path="x.bin", old="a", new="b")


@pytest.mark.parametrize(
    ("content", "encoding", "text"),
    [
        (b"caf\xe9 au lait\n", "auto", "caf\ufffd au lait\n"),
        (b"caf\xe9 au lait\n", "latin-1", "café au lait\n"),
        (b"caf\xe9 au lait\n", "windows-1252", "café au lait\n"),
        (b"\xef\xbb\xbfmark\n", "auto", "mark\n"),
        (b"\xef\xbb\xbfmark\n", "UTF-8", "mark\n"),
        ("zwei\r\nZeilen\n".encode("utf-16"), "auto", "zwei\r\nZeilen\n"),
        ("zwei\n".encode("utf-32"), "text", "zwei\n"),
        ("日本\n".encode("shift_jis"), "shift_jis", "日本\n"),
    ],
)
async def test_text_is_read_in_its_encoding(
    top: Path, context: ToolContext, content: bytes, encoding: str, text: str
) -> None:
    (top / "work/text").write_bytes(content)
    assert (await call(context, read_file, path="text", encoding=encoding)).content == text


@pytest.mark.parametrize("encoding", ["rot13", "hex", "idna", "undefined", "x\0", "unicode_escape", "ñ", "x" * 99])
async def test_an_encoding_that_is_none_is_refused(top: Path, context: ToolContext, encoding: str) -> None:
    (top / "work/text").write_text("text")
    for tool in (read_file, write_file):
        said = await refusal(context, tool, path="text", encoding=encoding, **MORE.get(tool.name, {}))
        assert said.endswith("is not known; it may be auto, text, base64, or a character set such as latin-1")
    assert (top / "work/text").read_text() == "text"


async def test_what_is_no_file_is_never_read(top: Path, context: ToolContext) -> None:
    os.mkfifo(top / "work/fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(top / "work/socket"))
        for name, kind in {"fifo": "FIFO", "socket": "socket"}.items():
            for tool in (read_file, write_file, edit_file):
                said = await refusal(context, tool, path=name, **MORE.get(tool.name, {}))
                assert f'"{name}" is a {kind}, not a file' in said
            assert answer(await call(context, file_exists, path=name)) == {"exists": True, "type": kind}
    everywhere = replace(context, roots=Roots.of(["/"], str(top)))
    assert "is a device, not a file" in await refusal(everywhere, read_file, path="/dev/zero")
    assert "is a device, not a file" in await refusal(everywhere, write_file, path="/dev/null", content="x")
    assert (await call(everywhere, read_file, path="/proc/self/status")).content.startswith("Name:")
    assert "permission denied" in await refusal(everywhere, read_file, path="/proc/self/environ")
    assert "is a folder; list_directory shows" in await refusal(context, read_file, path=".")


async def test_without_folders_every_tool_says_so(context: ToolContext) -> None:
    for tool in ALL:
        more = MORE.get(tool.name, {})
        assert "this conversation has no folders" in await refusal(replace(context, roots=None), tool, path="a", **more)
    assert "stores no results" in await refusal(replace(context, kept=None), read_file, path="result:1")
    assert "no result is stored under" in await refusal(context, read_file, path="result:7")


ALL: Sequence[Tool] = [read_file, list_directory, file_exists, delete_file, write_file, edit_file]
MORE: Mapping[str, Mapping[str, str]] = {"write_file": {"content": "x"}, "edit_file": {"old": "a", "new": "b"}}
"""What a call needs besides a path."""


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "link", "folder/secret", "folder/new", "~/x", "sub/../../x"]
)
async def test_no_tool_and_no_preview_gets_outside(top: Path, context: ToolContext, tool: Tool, path: str) -> None:
    (top / "outside").mkdir()
    (top / "outside/secret").write_text("secret")
    (top / "work/link").symlink_to(top / "outside/secret")
    (top / "work/folder").symlink_to("../outside")
    (top / "work/sub").mkdir()
    more = MORE.get(tool.name, {})
    if tool is delete_file and path == "link":
        assert "link to" in (await call(context, tool, path=path)).diff
    else:
        assert "is outside the folders that tools may use" in await refusal(context, tool, path=path, **more)
        if tool.preview is not None:
            with pytest.raises(ToolError, match="is outside the folders"):
                tool.preview(context, {"path": path, **more})
    assert [(path.name, path.read_text()) for path in (top / "outside").iterdir()] == [("secret", "secret")]


# -- write_file -------------------------------------------------------------------------------------------------------


async def test_a_file_is_created_with_its_folders_then_overwritten(top: Path, context: ToolContext) -> None:
    made = await call(context, write_file, path="a/b/c.txt", content="one\ntwo\n")
    assert answer(made) == {"success": True, "path": "a/b/c.txt", "bytes": 8, "action": "created"}
    assert made.summary == "created a/b/c.txt (8 bytes)"
    assert made.diff == "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
    (top / "work/a/b/c.txt").chmod(0o640)
    again = await call(context, write_file, path="a/b/c.txt", content="one\n2é\n")
    assert answer(again)["action"] == "overwrote"
    assert answer(again)["bytes"] == 8
    assert again.diff == "--- a/a/b/c.txt\n+++ b/a/b/c.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2é"
    assert (top / "work/a/b/c.txt").read_bytes() == "one\n2é\n".encode()
    assert stat.S_IMODE((top / "work/a/b/c.txt").stat().st_mode) == 0o640
    assert os.listdir(top / "work/a/b") == ["c.txt"]


async def test_writing_through_a_link_changes_what_it_leads_to_and_not_the_link(
    top: Path, context: ToolContext
) -> None:
    (top / "work/real").write_text("old")
    (top / "work/link").symlink_to("real")
    await call(context, write_file, path="link", content="new")
    assert (top / "work/link").is_symlink()
    assert (top / "work/real").read_text() == "new"


async def test_a_hard_link_to_the_outside_is_replaced_and_not_written_through(top: Path, context: ToolContext) -> None:
    (top / "secret").write_text("a secret\n")
    os.link(top / "secret", top / "work/hard")
    await call(context, edit_file, path="hard", old="a", new="no")
    await call(context, write_file, path="hard", content="x")
    await call(context, delete_file, path="hard")
    assert (top / "secret").read_text() == "a secret\n"


async def test_bytes_and_character_sets_are_written(top: Path, context: ToolContext) -> None:
    data = bytes(range(256))
    text = base64.encodebytes(data).decode()
    done = await call(context, write_file, path="b", content=text, encoding="base64")
    assert answer(done)["bytes"] == 256
    assert (top / "work/b").read_bytes() == data
    done = await call(context, write_file, path="b", content="text")
    assert done.diff == "b: 256 bytes become 4 bytes"
    await call(context, write_file, path="l", content="café", encoding="latin-1")
    assert (top / "work/l").read_bytes() == b"caf\xe9"
    for wrong in ("é", "abc", "a===="):
        assert "is not base64" in await refusal(context, write_file, path="b", content=wrong, encoding="base64")
    assert "is not base64" in await refusal(context, write_file, path="b", content="no!", encoding="base64")
    assert "it has no sign for '日'" in await refusal(context, write_file, path="l", content="日", encoding="latin-1")
    assert "no sign for" in await refusal(context, write_file, path="l", content="\ud83d")
    assert "can be written at once" in await refusal(context, write_file, path="l", content="x" * (MOST_BYTES + 1))


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("folder", '"folder" is a folder; give the path of a file'),
        (".", '"." is a folder; give the path of a file'),
        ("new/", '"new/" is not the name of a file'),
        ("", '"" is not the name of a file'),
        ("file/x", '"file" is a file and not a folder'),
        ("new/../x", 'there is no "new/../x"'),
        ("new\nline", "control character"),
        ("n" * 256, "255 bytes"),
        ("file://x", "give the plain path"),
    ],
)
async def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    top: Path, context: ToolContext, path: str, sentence: str
) -> None:
    (top / "work/folder").mkdir()
    (top / "work/file").write_text("")
    assert sentence in await refusal(context, write_file, path=path, content="x")
    assert sorted(os.listdir(top / "work")) == ["file", "folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
async def test_a_read_only_file_is_not_replaced(top: Path, context: ToolContext) -> None:
    (top / "work/fixed").write_text("fixed")
    (top / "work/fixed").chmod(0o444)
    assert "permission denied" in await refusal(context, write_file, path="fixed", content="x")
    assert (top / "work/fixed").read_text() == "fixed"


async def test_previews_show_what_the_calls_then_do_and_change_nothing(top: Path, context: ToolContext) -> None:
    (top / "work/a").write_text("one\ntwo\n")

    def state() -> list[tuple[str, str]]:
        return sorted((str(path), path.read_text() if path.is_file() else "") for path in (top / "work").rglob("*"))

    calls: list[tuple[Tool, dict[str, Any]]] = [
        (write_file, {"path": "new/a", "content": "new\n"}),
        (write_file, {"path": "a", "content": "one\n2\n"}),
        (edit_file, {"path": "a", "old": "2", "new": "zwei"}),
        (delete_file, {"path": "a"}),
    ]
    for tool, arguments in calls:
        assert tool.preview is not None
        before = state()
        diff = tool.preview(context, arguments)
        assert state() == before
        assert diff == (await call(context, tool, **arguments)).diff
        assert state() != before
    assert "is a file and not a folder" in await refusal(context, write_file, path="new/a/b", content="x")
    with pytest.raises(ToolError, match="is a file and not a folder"):
        write_file.preview(context, {"path": "new/a/b", "content": "x"})  # type: ignore[misc]


# -- edit_file --------------------------------------------------------------------------------------------------------


async def edit(context: ToolContext, old: str, new: str, **more: Any) -> Result:
    return await call(context, edit_file, path="a", old=old, new=new, **more)


async def test_a_text_that_is_there_once_is_replaced(top: Path, context: ToolContext) -> None:
    (top / "work/a").write_text("one\ntwo\nthree\n")
    done = await edit(context, "two\n", "2\nzwei\n")
    assert answer(done) == {"success": True, "path": "a", "replacements": 1, "bytes": 17}
    assert done.summary == "edited a (+2 -1 lines)"
    assert done.diff == "--- a/a\n+++ b/a\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+zwei\n three"
    done = await edit(context, "e", "E", replace_all=True)
    assert answer(done)["replacements"] == 4
    assert (top / "work/a").read_text() == "onE\n2\nzwEi\nthrEE\n"


@pytest.mark.parametrize(
    ("old", "sentence"),
    [
        ("foo", "the old text occurs 3 times in \"a\", at the lines 1, 3, 4; give more of the text around it"),
        ("aa", "the old text occurs 2 times in \"a\", at the lines 6, 6; give more"),
        ("nowhere at all", 'the old text is not in "a"; read_file shows what is'),
        ("if x :\n\tfoo", "Lines 2-3 differ only in white space; exactly, there is:\nif  x :\n    foo"),
        ("  bar(1,2)", "The nearest line is 5; exactly:\nbar(1, 2)"),
        ("foo\\nif", 'It is there with line ends where you have written "\\n" as two characters'),
        ("", "the old text is empty; write_file writes a whole file"),
        ("NEW", "the old and the new text are the same"),
    ],
)  # fmt: skip
async def test_a_text_that_is_not_there_once_is_answered_with_how_to_do_better(
    top: Path, context: ToolContext, old: str, sentence: str
) -> None:
    text = "foo\nif  x :\n    foo\nfoo\nbar(1, 2)\naaa\n"
    (top / "work/a").write_text(text)
    assert sentence in await refusal(context, edit_file, path="a", old=old, new="NEW")
    assert (top / "work/a").read_text() == text


@pytest.mark.parametrize(
    "change",
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\r\nb\r\n", "b", "B\nC", b"a\r\nB\r\nC\r\n"),
        (b"a\nb\r\nc\n", "a\nb", "x", b"x\r\nc\n"),
        (b"\xef\xbb\xbfa\nb\n", "a", "x", b"\xef\xbb\xbfx\nb\n"),
        (b"caf\xe9\nb\n", "b", "x", b"caf\xe9\nx\n"),
        (b"no end", "end", "END", b"no END"),
        ("zwei\r\n".encode("utf-16"), "zwei", "drei", "drei\r\n".encode("utf-16")),
        ("zwei\n".encode("utf-32"), "zwei", "drei", "drei\n".encode("utf-32")),
        (b"\xfe\xff" + "zwei".encode("utf-16-be"), "zwei", "drei", b"\xfe\xff" + "drei".encode("utf-16-be")),
    ],
)
async def test_line_ends_marks_and_odd_bytes_are_kept(
    top: Path, context: ToolContext, change: tuple[bytes, str, str, bytes]
) -> None:
    before, old, new, after = change
    (top / "work/a").write_bytes(before)
    await edit(context, old, new)
    assert (top / "work/a").read_bytes() == after


async def test_what_cannot_be_edited_stays_as_it_is(top: Path, context: ToolContext) -> None:
    (top / "work/a").write_bytes(b"\xff\xfeodd")
    assert "begins like utf-16 and is not valid" in await refusal(context, edit_file, path="a", old="o", new="x")
    (top / "work/b").write_text("a" * 1_000_000)
    for tool in (edit_file.run, edit_file.preview):
        assert tool is not None
        with pytest.raises(ToolError, match="would become too large"):
            await carry_out(tool, context, {"path": "b", "old": "a", "new": "b" * 1_000_000, "replace_all": True})
    assert (top / "work/b").read_text() == "a" * 1_000_000
    assert 'there is no "c"' in await refusal(context, edit_file, path="c", old="o", new="x")


async def test_edits_of_one_file_at_the_same_time_are_all_in_it(top: Path, context: ToolContext) -> None:
    (top / "work/a").write_text("".join(f"line <{number}>\n" for number in range(40)))
    await asyncio.gather(*(edit(context, f"<{number}>", f"[{number}]") for number in range(40)))
    assert (top / "work/a").read_text() == "".join(f"line [{number}]\n" for number in range(40))


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.sampled_from("ab \n"), max_size=60),
    old=st.text(st.sampled_from("ab \n"), min_size=1, max_size=4),
    new=st.text(st.sampled_from("xy\n"), max_size=4),
)
def test_an_edit_is_what_replacing_does(top: Path, context: ToolContext, text: str, old: str, new: str) -> None:
    assume(old != new)
    path = top / "work/a"
    path.write_text(text)
    n_places = sum(text.startswith(old, at) for at in range(len(text)))
    if n_places == 1:
        asyncio.run(edit(context, old, new))
        assert path.read_text() == text.replace(old, new)
    else:
        with pytest.raises(ToolError):
            asyncio.run(edit(context, old, new))
        assert path.read_text() == text


# -- list_directory, file_exists, delete_file -------------------------------------------------------------------------


async def test_a_folder_is_listed_in_a_stable_order_with_what_everything_is(top: Path, context: ToolContext) -> None:
    work = top / "work"
    for name in ("b.txt", "A.txt", ".hidden", "odd\nname"):
        (work / name).write_text("12345")
    (work / "folder").mkdir()
    (work / "link").symlink_to("/etc/passwd")
    os.mkfifo(work / "pipe")
    assert await call(context, list_directory) == Result(
        ".hidden\nA.txt\nb.txt\nfolder/\nlink -> /etc/passwd\nodd\\nname\npipe",
        summary=".hidden, A.txt, b.txt, folder, link, odd\\nname, pipe",
    )
    assert (await call(context, list_directory, details=True)).content == (
        ".hidden  5 bytes\nA.txt  5 bytes\nb.txt  5 bytes\nfolder/\nlink -> /etc/passwd\nodd\\nname  5 bytes\n"
        "pipe  FIFO"
    )
    assert await call(context, list_directory, path="folder") == Result("folder is empty", summary="empty")
    assert "is a file, not a folder; read_file shows it" in await refusal(context, list_directory, path="b.txt")
    assert "outside" in await refusal(context, list_directory, path="link")


@pytest.mark.parametrize("path", ["current directory", "CWD", "current/files", "filesystem", "." * 200 + "x"])
async def test_a_folder_that_does_not_exist_is_an_error_that_says_what_there_is(
    top: Path, context: ToolContext, path: str
) -> None:
    (top / "work/a.txt").write_text("")
    for message in (
        await refusal(context, list_directory, path=path),
        await refusal(context, search_files, path=path, glob="*"),
    ):
        assert f'there is no "{path}"' in message
        assert "a.txt" in message or "/" in path


async def test_a_large_folder_is_cut_with_the_number_of_the_rest(top: Path, context: ToolContext) -> None:
    for number in range(1_200):
        (top / f"work/{number:04}").touch()
    wide = replace(context, budget=100_000)
    lines = (await call(wide, list_directory)).content.split("\n")
    assert lines[0] == "0000"
    assert lines[-2] == "0499"
    assert lines[-1] == '[700 more of 1,200; search_files(path=".", glob="a*") finds some]'
    narrow = (await call(context, list_directory)).content.split("\n")
    assert narrow[:50] == lines[:50]
    assert narrow[-1].startswith(f"[{1_200 - len(narrow) + 1:,} more of 1,200;")


async def test_whether_there_is_something_is_answered_and_never_raised(top: Path, context: ToolContext) -> None:
    (top / "work/file").write_text("x")
    (top / "work/folder").mkdir()
    (top / "work/broken").symlink_to("nothing")
    (top / "work/link").symlink_to("file")
    for path, said in {
        "file": {"exists": True, "type": "file"},
        "folder": {"exists": True, "type": "directory"},
        ".": {"exists": True, "type": "directory"},
        "link": {"exists": True, "type": "file"},
        "broken": {"exists": False},
        "nothing": {"exists": False},
        "no/thing": {"exists": False},
        "file/x": {"exists": False},
    }.items():
        assert answer(await call(context, file_exists, path=path)) == said


async def test_a_file_is_deleted_and_a_link_without_its_target(top: Path, context: ToolContext) -> None:
    (top / "outside").write_text("outside")
    (top / "work/file").write_text("x\n")
    (top / "work/inner").symlink_to("file")
    (top / "work/outer").symlink_to("../outside")
    (top / "work/folder").mkdir()
    (top / "work/to_folder").symlink_to("folder")
    for name in ("inner", "outer", "to_folder"):
        done = await call(context, delete_file, path=name)
        assert answer(done) == {"success": True, "path": name}
    assert sorted(os.listdir(top / "work")) == ["file", "folder"]
    assert "is a folder; delete_file deletes only files" in await refusal(context, delete_file, path="folder")
    assert "is a folder" in await refusal(context, delete_file, path=".")
    done = await call(context, delete_file, path="file")
    assert (done.summary, done.diff) == ("deleted file", "--- a/file\n+++ /dev/null\n@@ -1 +0,0 @@\n-x")
    assert 'there is no "file"' in await refusal(context, delete_file, path="file")
    assert (top / "outside").read_text() == "outside"


# -- how they are offered ---------------------------------------------------------------------------------------------


def test_names_arguments_and_aliases_are_those_that_models_know() -> None:
    shown = {tool.name: (list(tool.parameters["properties"]), tool.parameters.get("required", [])) for tool in ALL}
    assert shown == {
        "read_file": (["path", "offset", "limit", "column", "encoding"], ["path"]),
        "list_directory": (["path", "details"], []),
        "file_exists": (["path"], ["path"]),
        "delete_file": (["path"], ["path"]),
        "write_file": (["path", "content", "encoding"], ["path", "content"]),
        "edit_file": (["path", "old", "new", "replace_all"], ["path", "old", "new"]),
    }
    assert {tool.name: tool.aliases[0] for tool in ALL if tool.aliases[:1] and tool.aliases[0].istitle()} == {
        "read_file": "Read",
        "list_directory": "List",
        "write_file": "Write",
        "edit_file": "Edit",
    }
    assert all(tool.category == "filesystem" and tool.subject == "path" and tool.offered for tool in ALL)
    assert all(tool.argument_aliases["file_path"] == "path" for tool in ALL)
    assert {edit_file.argument_aliases[name] for name in ("old_string", "new_string")} == {"old", "new"}
    assert [tool.name for tool in ALL if tool.effect == "read"] == ["read_file", "list_directory", "file_exists"]
    assert [tool.name for tool in ALL if tool.preview is not None] == ["delete_file", "write_file", "edit_file"]
