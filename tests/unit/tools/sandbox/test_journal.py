"""What tools change in files can be put back, turn by turn, and what cannot is named."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from shepherd.tools.base import ToolError
from shepherd.tools.builtin.files import MOST_BYTES, delete_file, edit_file, write_file
from shepherd.tools.sandbox import journal as journals
from shepherd.tools.sandbox.journal import FileJournal
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.tool import Tool, ToolContext


class Work:
    """A folder, the tools that change it, and the journal of one conversation."""

    def __init__(self, top: Path, *, base: Path | None = None, **limits: int) -> None:
        self.top = top.resolve() / "work"
        self.top.mkdir(exist_ok=True)
        self.base = base
        self.journal = FileJournal(base, [str(self.top)], **limits)
        self.journal.open("c")
        self.context = ToolContext(roots=Roots.of([str(self.top)], str(self.top), self.journal))

    async def call(self, tool: Tool, **arguments: Any) -> None:
        assert (await tool.run(self.context, arguments)).success

    async def write(self, path: str, content: str) -> None:
        await self.call(write_file, path=path, content=content)

    def tree(self) -> dict[str, tuple[str, int, bytes | str]]:
        """Every name below the folder: what it is, its mode, and its content."""
        found: dict[str, tuple[str, int, bytes | str]] = {}
        for path in sorted(self.top.rglob("*")):
            name, mode = path.relative_to(self.top).as_posix(), path.lstat().st_mode & 0o777
            if path.is_symlink():
                found[name] = "link", 0, os.readlink(path)
            elif path.is_dir():
                found[name] = "folder", mode, ""
            else:
                found[name] = "file", mode, path.read_bytes()
        return found

    def again(self) -> None:
        """Another program continues the conversation."""
        self.journal = FileJournal(self.base, [str(self.top)])
        self.journal.open("c")
        self.context = ToolContext(roots=Roots.of([str(self.top)], str(self.top), self.journal))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path, base=tmp_path / "kept")


@contextmanager
def fresh() -> Iterator[Work]:
    with tempfile.TemporaryDirectory() as folder:
        yield Work(Path(folder), base=Path(folder) / "kept")


# -- the law ----------------------------------------------------------------------------------------------------------

PATHS = st.sampled_from(["a", "b", "run.sh", "link", "d/a", "d/e/b", "old/a", "a/inside"])
TEXTS = st.sampled_from(["", "one", "two", "one two one", "Größe", "\ufeffone\r\n"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), PATHS, TEXTS),
    st.tuples(st.just("edit"), PATHS, TEXTS),
    st.tuples(st.just("delete"), PATHS, st.just("")),
)
TURNS = st.lists(st.lists(OPERATIONS, max_size=4), min_size=1, max_size=5)


async def carry_out(work: Work, kind: str, path: str, text: str) -> None:
    """One call of a model, which may be wrong."""
    try:
        if kind == "write":
            await work.write(path, text)
        elif kind == "edit":
            await work.call(edit_file, path=path, old="one", new=f"1{text}", replace_all=True)
        else:
            await work.call(delete_file, path=path)
    except ToolError:
        pass


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(turns=TURNS, to=st.integers(0, 4), is_resumed=st.booleans(), more=TURNS)
async def test_after_rewinding_to_any_turn_the_tree_is_as_it_was_before_it(
    turns: list[list[tuple[str, str, str]]], to: int, is_resumed: bool, more: list[list[tuple[str, str, str]]]
) -> None:
    with fresh() as work:
        (work.top / "run.sh").write_text("one\n")
        (work.top / "run.sh").chmod(0o755)
        (work.top / "old").mkdir()
        (work.top / "old" / "a").write_bytes(b"one\0two")
        (work.top / "old" / "a").chmod(0o600)
        (work.top / "link").symlink_to("run.sh")
        trees = []
        for n, operations in enumerate(turns):
            work.journal.begin(2 * n)
            trees.append(work.tree())
            for operation in operations:
                await carry_out(work, *operation)
        to = min(to, len(turns) - 1)
        if is_resumed:
            work.again()
        assert not any(step.is_foreign or step.problem for step in work.journal.plan(2 * to))
        work.journal.put_back(2 * to)
        assert work.tree() == trees[to]
        assert work.journal.plan(2 * to) == []
        # The conversation goes on from there, and its new turns can be rewound, too.
        for n, operations in enumerate(more, start=to):
            work.journal.begin(2 * n)
            for operation in operations:
                await carry_out(work, *operation)
        work.journal.put_back(0)
        assert work.tree() == trees[0]


# -- turns ------------------------------------------------------------------------------------------------------------


async def test_the_changes_of_a_question_that_was_taken_back_were_there_before_the_next_one(work: Work) -> None:
    work.journal.begin(0)
    await work.write("a", "first")
    work.journal.begin(2)
    await work.write("b", "taken back")
    work.journal.begin(2)  # after /undo, another question has the same place
    await work.write("c", "instead")
    for _ in range(2):
        assert [Path(step.path).name for step in work.journal.plan(2)] == ["c"]
        assert [Path(step.path).name for step in work.journal.plan(0)] == ["a", "b", "c"]
        work.again()


async def test_conversations_are_kept_apart_and_the_oldest_go(tmp_path: Path) -> None:
    work = Work(tmp_path, base=tmp_path / "kept")
    for n in range(journals.MOST_CONVERSATIONS + 3):
        work.journal.open(f"../c{n}")
        await work.write("a", str(n))
    assert len([*(tmp_path / "kept").glob("*/")]) == journals.MOST_CONVERSATIONS
    assert all(each.stat().st_mode & 0o077 == 0 for each in (tmp_path / "kept").rglob("*"))
    work.journal.open("../c0")
    assert work.journal.plan(0) == []


async def test_without_a_place_for_later_programs_nothing_is_left(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.journal.begin(0)
    await work.write("a", "1")
    work.journal.put_back(0)
    assert work.tree() == {}
    await work.write("a", "1")
    folder = work.journal._folder
    assert folder.is_dir()
    work.journal.close()
    assert not folder.exists()


async def test_a_file_with_its_old_content_gets_its_old_mode_back(work: Work) -> None:
    (work.top / "run.sh").write_text("one")
    (work.top / "run.sh").chmod(0o750)
    work.journal.begin(0)
    await work.call(delete_file, path="run.sh")
    await work.write("run.sh", "one")
    assert (work.top / "run.sh").stat().st_mode & 0o777 != 0o750
    work.journal.put_back(0)
    assert work.tree() == {"run.sh": ("file", 0o750, b"one")}


# -- what others do ---------------------------------------------------------------------------------------------------


async def test_what_others_have_changed_since_is_marked(work: Work) -> None:
    for name in "abc":
        (work.top / name).write_text("before")
    work.journal.begin(0)
    for name in "abc":
        await work.write(name, "ours")
    await work.write("d", "ours")
    (work.top / "a").write_text("theirs")
    (work.top / "b").unlink()
    (work.top / "d").write_text("theirs")
    assert {Path(step.path).name for step in work.journal.plan(0) if step.is_foreign} == {"a", "b", "d"}
    work.journal.put_back(0)
    assert {name: content for name, (_, _, content) in work.tree().items()} == dict.fromkeys("abc", b"before")


async def test_what_others_have_changed_between_two_changes_of_ours_is_marked(work: Work) -> None:
    work.journal.begin(0)
    await work.write("a", "ours")
    (work.top / "a").write_text("theirs")
    work.journal.begin(2)
    await work.write("a", "ours again")
    assert [step.is_foreign for step in work.journal.plan(2)] == [False]
    assert [step.is_foreign for step in work.journal.plan(0)] == [True]


async def test_what_others_change_after_the_plan_was_shown_is_not_lost(work: Work) -> None:
    (work.top / "a").write_text("before")
    work.journal.begin(0)
    await work.write("a", "ours")
    shown = work.journal.plan(0)
    (work.top / "a").write_text("theirs")
    with pytest.raises(ToolError, match="another program has changed these files meanwhile"):
        work.journal.put_back(0, shown)
    assert (work.top / "a").read_text() == "theirs"
    assert len(work.journal.put_back(0, work.journal.plan(0))) == 1


async def test_a_folder_of_ours_that_holds_files_of_others_stays(work: Work) -> None:
    work.journal.begin(0)
    await work.write("d/e/a", "ours")
    (work.top / "d" / "b").write_text("theirs")
    work.journal.put_back(0)
    assert set(work.tree()) == {"d", "d/b"}


async def test_folders_that_others_have_removed_are_made_again(work: Work) -> None:
    (work.top / "d" / "e").mkdir(parents=True)
    (work.top / "d" / "e" / "a").write_text("before")
    work.journal.begin(0)
    await work.call(delete_file, path="d/e/a")
    (work.top / "d" / "e").rmdir()
    (work.top / "d").rmdir()
    work.journal.put_back(0)
    assert (work.top / "d" / "e" / "a").read_text() == "before"


async def test_a_link_in_the_place_of_a_folder_is_not_followed(work: Work, tmp_path: Path) -> None:
    for name in ("d", "elsewhere"):
        (work.top / name).mkdir()
        (work.top / name / "a").write_text("before")
    work.journal.begin(0)
    await work.write("d/a", "ours")
    (work.top / "d").rename(work.top / "moved")
    (work.top / "d").symlink_to("elsewhere")
    (step,) = work.journal.plan(0)
    assert step.problem == '"d/a": a link leads elsewhere now'
    (work.top / "d").unlink()
    (work.top / "d").symlink_to(tmp_path)
    (step,) = work.journal.plan(0)
    assert "outside the folders that tools may use" in step.problem
    assert work.journal.put_back(0) == []
    assert (work.top / "elsewhere" / "a").read_text() == "before"


async def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(work: Work) -> None:
    (work.top / "a").write_text("before")
    (work.top / "other").write_text("other")
    work.journal.begin(0)
    await work.write("a", "ours")
    (work.top / "a").unlink()
    (work.top / "a").symlink_to("other")
    (step,) = work.journal.plan(0)
    assert step.is_foreign
    work.journal.put_back(0)
    assert not (work.top / "a").is_symlink()
    assert {path.name: path.read_text() for path in work.top.iterdir()} == {"a": "before", "other": "other"}


# -- two programs in one conversation ----------------------------------------------------------------------------------


async def test_of_two_turns_at_the_same_time_each_goes_back_alone(work: Work) -> None:
    work.journal.begin(0)
    await work.write("common", "1")
    work.journal.settle(2)
    here, other = work.journal, Work(work.top.parent, base=work.base)
    other.journal.settle(2)
    other.journal.begin(2)
    await other.write("theirs", "1")
    here.begin(2)
    await work.write("ours", "1")
    await other.write("theirs too", "1")
    other.journal.settle(4)  # its program was the first to save
    here.fork("copy")
    here.settle(4)

    def changed(journal: FileJournal, *turns: int) -> list[int]:
        return [journal.n_changed(turn, turn + 2) for turn in turns]

    assert (changed(here, 0, 2), changed(other.journal, 0, 2)) == ([1, 1], [1, 2])
    for name, conversation in (("copy", "copy"), ("c", "c")):  # and as a later program finds them
        later = FileJournal(work.base, [str(work.top)])
        later.open(conversation)
        assert changed(later, 0, 2) == changed(here if name == "copy" else other.journal, 0, 2)
    assert {Path(step.path).name for step in here.put_back(2)} == {"ours"}
    assert set(work.tree()) == {"common", "theirs", "theirs too"}
    assert {Path(step.path).name for step in other.journal.put_back(0)} == {"common", "theirs", "theirs too"}
    assert work.tree() == {}


async def test_a_copy_has_the_former_contents_that_it_needs_and_no_more(work: Work) -> None:
    for name in "abc":
        (work.top / name).write_text(f"{name} before")
    work.journal.begin(0)
    await work.write("a", "new")
    work.journal.settle(2)
    other = Work(work.top.parent, base=work.base)
    other.journal.begin(2)
    await other.write("b", "new")
    work.journal.begin(2)
    await work.write("c", "new")
    work.journal.fork("copy")
    folders = {file.parent: len([*file.parent.iterdir()]) - 1 for file in work.base.rglob(journals.NAME)}  # type: ignore[union-attr]
    assert sorted(folders.values()) == [2, 2]
    assert {Path(step.path).name for step in work.journal.put_back(0)} == {"a", "c"}
    assert {name: content for name, (_, _, content) in work.tree().items()} == {
        "a": b"a before", "b": b"new", "c": b"c before",
    }  # fmt: skip
    assert [Path(step.path).name for step in other.journal.put_back(2)] == ["b"]


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_a_file_that_is_too_large_is_changed_and_named(work: Work) -> None:
    (work.top / "big").write_bytes(bytes(MOST_BYTES + 1))
    work.journal.begin(0)
    await work.write("big", "small")
    why = "it has 16,777,217 bytes, and up to 16,777,216 are kept"
    assert work.journal.take_notices() == [f'"big" is changed, and /rewind cannot put it back: {why}']
    assert work.journal.take_notices() == []
    (step,) = work.journal.plan(0)
    assert step.problem == why
    assert work.journal.put_back(0) == []
    assert (work.top / "big").read_text() == "small"


async def test_where_the_room_of_a_conversation_is_used_up_the_next_file_is_named(tmp_path: Path) -> None:
    work = Work(tmp_path, base=tmp_path / "kept", most_bytes=1 << 20)
    for name, content in (("a", b"a" * 2**20), ("same", b"a" * 2**20), ("b", b"b")):
        (work.top / name).write_bytes(content)
        await work.write(name, "new")
    (notice,) = work.journal.take_notices()
    assert notice == (
        '"b" is changed, and /rewind cannot put it back: the 1 MiB for former contents in one conversation are used up'
    )


async def test_a_pipe_that_was_deleted_cannot_be_made_again(work: Work) -> None:
    os.mkfifo(work.top / "pipe")
    work.journal.begin(0)
    await work.call(delete_file, path="pipe")
    (step,) = work.journal.plan(0)
    assert step.problem == "a FIFO cannot be made again"


# -- damage -----------------------------------------------------------------------------------------------------------


async def test_a_line_that_was_cut_off_is_no_change(work: Work) -> None:
    work.journal.begin(0)
    await work.write("a", "1")
    (file,) = work.base.rglob(journals.NAME)  # type: ignore[union-attr]
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        work.again()
        assert work.journal.plan(0) == []
    file.write_bytes(whole)
    work.again()
    assert len(work.journal.plan(0)) == 1


async def test_what_follows_a_line_that_was_cut_off_is_kept(work: Work) -> None:
    work.journal.begin(0)
    await work.write("a", "1")
    (file,) = work.base.rglob(journals.NAME)  # type: ignore[union-attr]
    file.write_bytes(file.read_bytes() + b'{"path": "/')
    work.again()
    await work.write("b", "1")
    work.again()
    assert [Path(step.path).name for step in work.journal.plan(0)] == ["a", "b"]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
async def test_a_name_with_a_rare_line_end_is_one_line_of_the_list(work: Work, end: str) -> None:
    work.journal.begin(0)
    await work.write(f"a{end}b", "1")
    await work.write("c", "1")
    work.again()
    assert [Path(step.path).name for step in work.journal.plan(0)] == [f"a{end}b", "c"]


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b"null", b"\xff", b'{"path": "/etc/passwd"}', b'{"turn": "x"}', b"[" * 100_000]
)
async def test_a_damaged_list_is_a_warning_and_nothing_is_put_back(
    work: Work, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await work.write("a", "1")
    (file,) = work.base.rglob(journals.NAME)  # type: ignore[union-attr]
    file.write_bytes(line + b"\n")
    work.again()
    assert work.journal.plan(0) == []
    assert "damaged" in caplog.text


async def test_content_that_was_changed_in_the_store_is_not_written(work: Work) -> None:
    (work.top / "a").write_text("before")
    work.journal.begin(0)
    await work.write("a", "ours")
    (blob,) = (each for each in work.base.rglob("*") if len(each.name) == 64)  # type: ignore[union-attr]
    blob.write_text("forged")
    with pytest.raises(ToolError, match="its former content is missing or damaged"):
        work.journal.put_back(0)
    assert (work.top / "a").read_text() == "ours"


# -- two programs on one conversation ---------------------------------------------------------------------------------


async def test_what_one_program_changes_the_other_one_knows_and_neither_loses_the_others(work: Work) -> None:
    page, terminal = FileJournal(work.base, [str(work.top)]), FileJournal(work.base, [str(work.top)])
    for name in "abc":
        (work.top / name).write_text("before")
    for journal in (page, terminal):
        journal.open("c")

    async def write(journal: FileJournal, turn: int, name: str) -> None:
        journal.begin(turn)
        work.context = ToolContext(roots=Roots.of([str(work.top)], str(work.top), journal))
        await work.write(name, "after")

    await write(page, 0, "a")
    await write(terminal, 2, "b")
    await write(page, 4, "c")
    assert [journal.n_changed(0, 9) for journal in (page, terminal)] == [3, 3]
    terminal.put_back(4)
    assert (work.top / "c").read_text() == "before"
    assert page.plan(4) == []
    page.put_back(0)
    assert [(work.top / name).read_text() for name in "abc"] == ["before"] * 3
    work.again()
    assert work.journal.plan(0) == []


async def test_a_turn_of_another_program_keeps_its_number(work: Work) -> None:
    page, terminal = FileJournal(work.base, [str(work.top)]), FileJournal(work.base, [str(work.top)])
    for journal, turn in ((terminal, 2), (page, 4)):
        journal.open("c", turn)
    for journal, name in ((page, "a"), (terminal, "b")):
        work.context = ToolContext(roots=Roots.of([str(work.top)], str(work.top), journal))
        await work.write(name, "after")
    assert [page.n_changed(turn, turn + 1) for turn in (2, 4)] == [1, 1]
    work.again()
    assert [work.journal.n_changed(turn, turn + 1) for turn in (2, 4)] == [1, 1]
