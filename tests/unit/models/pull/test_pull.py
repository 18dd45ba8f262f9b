"""Whole pulls: the real client library of the hub against a hub on loopback, a registry, and plain addresses."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.cases import few
from tests.fakes.hub import Cut, Endless, Failure, Hub, Lie, NoRanges, Slow, Stall, Status
from tests.unit.models.pull.conftest import Puller

from shepherd.core import (
    BackendError,
    BadReply,
    InvalidRequest,
    NotAllowed,
    RateLimited,
    ShepherdError,
    TimedOut,
    Unreachable,
)
from shepherd.models import catalog, pulled
from shepherd.models.pull import pull as pulling
from shepherd.models.pull import staging
from shepherd.models.pull.hub import search
from shepherd.models.pull.network import Network
from shepherd.models.pull.pull import Event, Fetched, Held, Planned, Verifying
from shepherd.models.pull.source import parse
from shepherd.models.pull.staging import Unfinished
from shepherd.models.pull.transfer import CHUNK_BYTES, Waiting

Content = Callable[[int], bytes]
HTML = b"<!DOCTYPE html><html>Please log in</html>"


@pytest.fixture
def repo(hub: Hub, content: Content) -> str:
    files = {
        "README.md": b"# a model",
        "tiny-Q4_K_M.gguf": content(0),
        "tiny-Q8_0-00001-of-00002.gguf": content(1),
        "tiny-Q8_0-00002-of-00002.gguf": content(2),
        "mmproj-tiny-F16.gguf": content(3),
        "mmproj-tiny-F32.gguf": content(4),
        "tiny-Q6_K-00002-of-00002.gguf": content(5),
        "imatrix.gguf": content(6),
    }
    hub.put_repo("acme/tiny-GGUF", files)
    return "hf:acme/tiny-GGUF"


def nothing_is_there(pull: Puller) -> bool:
    return not list(pulled.pulled_models(pull.root)) and not list(pull.root.glob("[!.]*"))


async def test_a_model_of_the_hub_comes_whole_with_its_projector(
    hub: Hub, pull: Puller, repo: str, content: Content
) -> None:
    model, is_new = await pull(f"{repo}:Q4_K_M")
    assert is_new
    assert (model.name, model.origin, model.address) == (f"{repo}:Q4_K_M", "hf", f"{hub.url}/acme/tiny-GGUF")
    assert model.path.read_bytes() == content(0)
    assert model.projector is not None
    assert model.projector.name == "mmproj-tiny-F16.gguf"
    assert [file.sha256 for file in model.files] == [hashlib.sha256(content(i)).hexdigest() for i in (0, 3)]
    env = {"SHEPHERD_MODELS": str(pull.root)}
    assert catalog.find("hf:acme/tiny-gguf:q4_k_m", env=env, home=pull.root, cwd=pull.root) == model.path
    assert isinstance(pull.events[0], Planned)
    assert isinstance(pull.events[-1], Verifying)
    assert sorted(path.suffix for path in (pull.root / pulled.PARTIAL).iterdir()) == [".lock"]


async def test_all_shards_come_and_a_second_pull_transfers_nothing(hub: Hub, pull: Puller, repo: str) -> None:
    model, _ = await pull(f"{repo}:q8_0")
    assert [file.name for file in model.files][:2] == [f"tiny-Q8_0-0000{i}-of-00002.gguf" for i in (1, 2)]
    n_before = hub.n_sent("cdn")
    again, is_new = await pull(f"{repo}:Q8_0")
    assert (again, is_new, hub.n_sent("cdn")) == (model, False, n_before)


async def test_a_projector_that_is_here_already_is_not_transferred_again(hub: Hub, pull: Puller, repo: str) -> None:
    first, _ = await pull(f"{repo}:Q4_K_M")
    hub.seen.clear()
    second, _ = await pull(f"{repo}:Q8_0")
    assert hub.n_sent("cdn") == 2
    assert first.projector is not None
    assert second.projector is not None
    pulled.remove(pull.root, first.folder)
    assert list(pulled.pulled_models(pull.root)) == [second], "its projector is still there"


async def test_a_changed_repository_brings_the_new_file_and_replaces_the_old(
    hub: Hub, pull: Puller, repo: str, content: Content
) -> None:
    await pull(f"{repo}:Q4_K_M")
    hub.put_repo("acme/tiny-GGUF", {"tiny-Q4_K_M.gguf": content(7)})
    model, is_new = await pull(f"{repo}:Q4_K_M")
    assert is_new
    assert model.path.read_bytes() == content(7)
    assert model.projector is None
    assert list(pulled.pulled_models(pull.root)) == [model]


async def test_no_token_reaches_another_host(
    hub: Hub, pull: Puller, repo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add("acme/tiny-GGUF")
    with pytest.raises(NotAllowed, match=rf"gated: accept its licence at {hub.url}/acme/tiny-GGUF, then give a token"):
        await pull(f"{repo}:Q4_K_M")
    assert nothing_is_there(pull)
    hub.tokens.add("hf_secret")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    await pull(f"{repo}:Q4_K_M")
    by_kind = {path.split("/")[1]: headers.get("Authorization") for _, path, headers in hub.seen}
    assert by_kind["cdn"] is None
    assert by_kind["acme"] == by_kind["api"] == "Bearer hf_secret"
    assert not any(b"hf_secret" in path.read_bytes() for path in pull.root.rglob("*") if path.is_file())


PASSING: dict[str, list[tuple[str, Failure]]] = {
    "cut": [("cdn", Cut(1000)), ("cdn", Cut(0)), ("cdn", Cut(500_000))],
    "stall": [("cdn", Stall(200_000))],
    "cut and no ranges": [("cdn", Cut(1_500_000)), ("cdn", NoRanges())],
    "no ranges": [("cdn", NoRanges())],
    "500": [("resolve", Status(500)), ("cdn", Status(503)), ("cdn", Cut(100)), ("cdn", Status(502))],
    "429": [("resolve", Status(429, {"Retry-After": "7"})), ("cdn", Status(429))],
    "listing": [("api", Status(429, {"RateLimit": '"api";r=0;t=55'})), ("api", Status(500))],
    "cut signature": [("cdn", Cut(300_000)), ("cdn", Status(408))],
}


@pytest.mark.parametrize("failures", PASSING.values(), ids=PASSING)
async def test_what_passes_is_waited_for_and_the_file_is_whole(
    hub: Hub, pull: Puller, repo: str, content: Content, failures: list[tuple[str, Failure]]
) -> None:
    for kind, failure in failures:
        hub.fail(kind, failure)
    model, _ = await pull(f"{repo}:Q4_K_M", idle_s=0.5 if "stall" in str(failures).lower() else 20)
    assert model.path.read_bytes() == content(0)
    waits = [event for event in pull.events if isinstance(event, Waiting)]
    assert len(waits) == len(pull.pauses) == sum(1 for _, failure in failures if not isinstance(failure, NoRanges))
    if failures == PASSING["429"]:
        assert pull.pauses == [7.0, 2.0]
        assert "accepts no further requests for 7 s" in waits[0].why
    if failures == PASSING["listing"]:
        assert pull.pauses[0] == 55.0


async def test_a_cut_transfer_goes_on_where_it_ended(hub: Hub, pull: Puller, repo: str, content: Content) -> None:
    hub.fail("cdn", Cut(2 * CHUNK_BYTES + 5))
    await pull(f"{repo}:Q4_K_M")
    size = len(content(0))
    first, second = hub.ranges("cdn")[:2]
    assert first == f"bytes=0-{size - 1}"
    assert second == f"bytes={2 * CHUNK_BYTES + 5}-{size - 1}", "not a byte is sent again"


async def test_a_hub_that_never_gets_better_is_left_with_one_sentence_and_the_part_is_kept(
    hub: Hub, pull: Puller, repo: str, content: Content
) -> None:
    hub.fail("cdn", Cut(CHUNK_BYTES + 1), *[Status(503)] * 20)
    with pytest.raises(BackendError, match="fails at the moment"):
        await pull(f"{repo}:Q4_K_M", attempts=4)
    assert nothing_is_there(pull)
    assert pull.pauses == [1.0, 2.0, 4.0]
    (part,) = pull.root.rglob("*.part")
    assert part.stat().st_size == CHUNK_BYTES + 1
    hub._failures.clear()
    hub.seen.clear()
    model, _ = await pull(f"{repo}:Q4_K_M")
    assert hub.ranges("cdn")[0] == f"bytes={CHUNK_BYTES + 1}-{len(content(0)) - 1}"
    assert model.path.read_bytes() == content(0)


async def test_a_hub_that_asks_for_an_hour_is_not_waited_for(hub: Hub, pull: Puller, repo: str) -> None:
    hub.fail("resolve", Status(429, {"Retry-After": "3600"}))
    with pytest.raises(RateLimited, match=r"no further requests for 3600 s; it allows more to those who give a token"):
        await pull(f"{repo}:Q4_K_M")
    assert pull.pauses == []


LYING: dict[str, tuple[str, Failure, str]] = {
    "html for the file": ("cdn", Lie(HTML, "text/html"), "is a web page, not a GGUF file"),
    "too short": ("cdn", Lie(b"GGUF" + bytes(100)), "sends 104 bytes as tiny-Q4_K_M.gguf, which should have"),
    "html for the listing": ("api", Lie(HTML, "text/html"), "does not answer like a hub of Hugging Face"),
    "other JSON": ("api", Lie(b"[1]", "application/json"), "does not answer like a hub of Hugging Face"),
    "no commit": ("api", Lie(b'{"id": "acme/tiny-GGUF", "siblings": []}'), "does not answer like a hub"),
    "forbidden": ("cdn", Status(403), r"does not let you have tiny-Q4_K_M.gguf \(HTTP 403\)"),
    "gone": ("resolve", Status(404), "has no tiny-Q4_K_M.gguf"),
    "teapot": ("cdn", Status(418), r"refuses to send tiny-Q4_K_M.gguf \(HTTP 418\)"),
    "wrong range": ("cdn", Status(206, {"Content-Range": "bytes 5-9/10"}, b"GGUFx"), "sent 'bytes 5-9/10' of"),
    "empty": ("cdn", Status(204), "in an unknown way"),
    "packed": ("cdn", Status(200, {"Content-Encoding": "gzip"}, b"x"), "in an unknown way"),
    "loop": ("resolve", Status(302, {"Location": "/acme/tiny-GGUF/resolve/x/none.gguf"}), "has no tiny-Q4_K_M"),
}


@pytest.mark.parametrize("lie", LYING.values(), ids=LYING)
async def test_nothing_else_is_taken_for_the_model(
    hub: Hub, pull: Puller, repo: str, lie: tuple[str, Failure, str]
) -> None:
    kind, failure, sentence = lie
    hub.fail(kind, failure)
    with pytest.raises(ShepherdError, match=sentence) as caught:
        await pull(f"{repo}:Q4_K_M")
    assert "\n" not in caught.value.message
    assert nothing_is_there(pull)
    model, _ = await pull(f"{repo}:Q4_K_M")
    assert model.path.is_file(), "and the next pull is not misled by what the failed one left"


@pytest.mark.parametrize("size", [-1, 1])
async def test_a_listing_that_lies_about_the_size_is_found_out(
    hub: Hub, pull: Puller, repo: str, content: Content, size: int
) -> None:
    hub.lies["tiny-Q4_K_M.gguf"] = (len(content(0)) + size, hashlib.sha256(content(0)).hexdigest())
    with pytest.raises(BadReply):
        await pull(f"{repo}:Q4_K_M")
    assert nothing_is_there(pull)


async def test_a_wrong_checksum_is_found_out_and_the_file_is_removed(
    hub: Hub, pull: Puller, repo: str, content: Content
) -> None:
    hub.lies["tiny-Q4_K_M.gguf"] = (len(content(0)), "ab" * 32)
    with pytest.raises(BadReply, match="its source names abababababab"):
        await pull(f"{repo}:Q4_K_M")
    assert nothing_is_there(pull)
    assert not [path for path in pull.root.rglob("*") if path.suffix in (".part", ".gguf")]


async def test_bytes_that_were_damaged_between_two_pulls_are_found_out(hub: Hub, pull: Puller, repo: str) -> None:
    hub.fail("cdn", Cut(2 * CHUNK_BYTES), *[Status(503)] * 20)
    with pytest.raises(BackendError):
        await pull(f"{repo}:Q4_K_M")
    hub._failures.clear()
    (part,) = pull.root.rglob("*.part")
    with part.open("rb+") as file:
        file.seek(1000)
        file.write(b"damage")
    with pytest.raises(BadReply, match="it was removed"):
        await pull(f"{repo}:Q4_K_M")
    assert nothing_is_there(pull)
    await pull(f"{repo}:Q4_K_M")


async def test_a_file_that_only_begins_like_gguf_is_no_model(hub: Hub, pull: Puller) -> None:
    hub.put_repo("acme/bad", {"bad-Q4_0.gguf": b"GGUF" + bytes(range(256)) * 40})
    with pytest.raises(BadReply, match="no readable GGUF file, and was removed"):
        await pull("hf:acme/bad:Q4_0")
    assert nothing_is_there(pull)


async def test_a_repository_that_is_not_there_or_has_no_such_format_says_what_there_is(
    hub: Hub, pull: Puller, repo: str
) -> None:
    with pytest.raises(NotAllowed, match=r"has no repository acme/none, or keeps it private: check the name"):
        await pull("hf:acme/none")
    with pytest.raises(InvalidRequest, match=r"has no 'Q4_K_S'; it has .*Q4_K_M \(.*did you mean Q4_K_M"):
        await pull(f"{repo}:Q4_K_S")
    with pytest.raises(InvalidRequest, match="has no 'Q6_K'"):
        await pull(f"{repo}:Q6_K")
    hub.put_repo("acme/weights", {"model.safetensors": b"x"})
    with pytest.raises(InvalidRequest, match="has no GGUF file; look for one that has with: shepherd models search"):
        await pull("hf:acme/weights")


async def test_a_listing_cannot_lead_out_of_the_folder(hub: Hub, pull: Puller, content: Content) -> None:
    for name in ("..\\x-Q4_0.gguf", "a/.hidden-Q4_0.gguf", "a:b-Q4_0.gguf"):
        hub.put_repo("acme/bad", {name: content(1)})
        with pytest.raises(BadReply, match="which cannot be a file's name here"):
            await pull("hf:acme/bad:Q4_0")
    hub.put_repo("acme/bad", {"../../../x-Q4_0.gguf": content(1)})
    with pytest.raises(InvalidRequest, match="has no x-Q4_0"):  # no address leads above the repository
        await pull("hf:acme/bad:Q4_0")
    assert nothing_is_there(pull)


async def test_a_disk_without_room_is_seen_before_the_transfer(hub: Hub, pull: Puller, repo: str) -> None:
    hub.lies["tiny-Q4_K_M.gguf"] = (10**18, "ab" * 32)
    with pytest.raises(ShepherdError, match=r"are to come and .* are free; free some room, or name a folder") as caught:
        await pull(f"{repo}:Q4_K_M")
    assert caught.value.status == 507
    assert hub.n_sent("resolve") == 0


async def test_a_second_pull_of_the_same_waits_for_the_first(
    hub: Hub, pull: Puller, repo: str, content: Content
) -> None:
    other = Puller(pull.root, pull.env)
    hub.fail("cdn", Slow(500_000, 0.05))
    (model, is_new), (same, is_newer) = await asyncio.gather(pull(f"{repo}:Q4_K_M"), other(f"{repo}:Q4_K_M"))
    assert model == same
    assert sorted((is_new, is_newer)) == [False, True]
    assert any(isinstance(event, Held) for event in (*pull.events, *other.events))
    assert hub.n_sent("cdn") == 2


# a process that is killed


async def test_a_process_that_dies_between_record_and_rename_transfers_nothing_again(
    hub: Hub, pull: Puller, repo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pulling, "install", die)
    with pytest.raises(KeyboardInterrupt):
        await pull(f"{repo}:Q4_K_M")
    monkeypatch.undo()
    assert nothing_is_there(pull)
    hub.seen.clear()
    await pull(f"{repo}:Q4_K_M")
    assert hub.n_sent("cdn") == 0


# addresses


async def test_an_address_brings_its_file_and_an_unchanged_one_is_not_transferred_again(
    hub: Hub, pull: Puller, content: Content
) -> None:
    hub.files["models/some-model.gguf"] = content(1)
    model, is_new = await pull(f"{hub.url}/files/models/some-model.gguf?signature=secret")
    assert is_new
    assert (model.name, model.origin, model.path.read_bytes()) == ("some-model", "url", content(1))
    assert "secret" not in (model.folder / pulled.RECORD).read_text()
    assert model.files[0].sha256 == hashlib.sha256(content(1)).hexdigest()
    assert not (await pull(f"{hub.url}/files/models/some-model.gguf?signature=other"))[1]
    hub.files["models/some-model.gguf"] = content(2)
    assert (await pull(f"{hub.url}/files/models/some-model.gguf"))[0].path.read_bytes() == content(2)


async def test_an_address_of_a_shard_brings_all_of_them(hub: Hub, pull: Puller, content: Content) -> None:
    hub.files |= {f"m-0000{index}-of-00002.gguf": content(index) for index in (1, 2)}
    model, _ = await pull(f"{hub.url}/files/m-00002-of-00002.gguf")
    assert [(model.folder / file.name).read_bytes() for file in model.files] == [content(1), content(2)]
    del hub.files["m-00001-of-00002.gguf"]
    with pytest.raises(InvalidRequest, match="has no m-00001-of-00002"):
        await pull(f"{hub.url}/files/m-00001-of-00002.gguf")


async def test_an_address_of_a_page_is_one_sentence(hub: Hub, pull: Puller) -> None:
    hub.files["m.gguf"] = HTML
    with pytest.raises(BadReply, match="is a web page, not a GGUF file"):
        await pull(f"{hub.url}/files/m.gguf")
    hub.files["m.gguf"] = b"PK\3\4...."
    with pytest.raises(BadReply, match="does not begin with 'GGUF'"):
        await pull(f"{hub.url}/files/m.gguf")
    with pytest.raises(BackendError, match=r"the connection to 127\.0\.0\.1:9 failed"):
        await pull("http://127.0.0.1:9/m.gguf")
    assert nothing_is_there(pull)


async def test_a_file_that_changes_during_its_transfer_is_not_put_together_from_both(
    hub: Hub, pull: Puller, content: Content
) -> None:
    hub.files["m.gguf"] = content(0)
    hub.fail("files", NoRanges(), Cut(2 * CHUNK_BYTES), *[Status(503)] * 6)
    with pytest.raises(BackendError):
        await pull(f"{hub.url}/files/m.gguf")
    hub._failures.clear()
    assert [part.stat().st_size for part in pull.root.rglob("*.part")] != [0]
    changed = bytearray(content(0))
    changed[1000:1010] = bytes(10)
    hub.files["m.gguf"] = bytes(changed)
    model, _ = await pull(f"{hub.url}/files/m.gguf")
    assert model.path.read_bytes() == changed


# Ollama


async def test_a_model_of_a_registry_comes_with_its_projector_and_its_licence(
    hub: Hub, pull: Puller, content: Content
) -> None:
    layers = {"model": content(1), "projector": content(2), "license": b"MIT", "messages": b"[]"}
    hub.put_ollama("library/tiny/1b", layers)
    hub.fail("blobs", Cut(100))
    model, _ = await pull(f"ollama:{hub.host}/library/tiny:1b")
    assert model.name == f"ollama:{hub.host}/library/tiny:1b"
    assert [(file.name, file.role) for file in model.files] == [
        ("tiny-1b.gguf", "model"),
        ("mmproj-tiny-1b.gguf", "projector"),
        ("license.txt", "other"),
    ]
    assert model.path.read_bytes() == content(1)
    env = {"SHEPHERD_MODELS": str(pull.root)}
    assert catalog.find(model.name, env=env, home=pull.root, cwd=pull.root) == model.path


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (HTML, "does not answer like a registry of Ollama"),
        (b"{}", "does not answer like a registry of Ollama"),
        (b'{"layers": [{"mediaType": "x", "digest": "md5:1", "size": 3}]}', "does not answer like a registry"),
        (b'{"layers": []}', "has no GGUF file"),
    ],
)
async def test_a_manifest_that_is_none_is_one_sentence(hub: Hub, pull: Puller, manifest: bytes, sentence: str) -> None:
    hub.manifests["library/tiny/latest"] = manifest
    with pytest.raises(ShepherdError, match=sentence):
        await pull(f"ollama:{hub.host}/library/tiny")
    assert nothing_is_there(pull)


FILE = {"rfilename": "tiny-Q4_K_M.gguf", "size": 9, "lfs": {"size": 9, "sha256": "ab" * 32, "pointerSize": 1}}
ROW = {"id": "acme/tiny-GGUF", "downloads": 7, "tags": ["license:mit"], "gated": False}
LAYER = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{'ab' * 32}", "size": 9}
WRONG: tuple[Any, ...] = (None, True, -1, 10**30, "\ud800", [[]], {"x": 1})


def varied(whole: Any) -> Iterator[Any]:
    """The value, with each value in it replaced by each of another type, and taken away."""
    yield from WRONG
    places = whole.items() if isinstance(whole, dict) else enumerate(whole) if isinstance(whole, list) else ()
    for place, value in places:
        for other in varied(value):
            changed = copy.copy(whole)
            changed[place] = other
            yield changed
        if isinstance(whole, dict):
            yield {name: each for name, each in whole.items() if name != place}


async def test_a_wrong_type_anywhere_in_a_list_is_never_an_unexpected_error(hub: Hub, pull: Puller) -> None:
    lists = {
        ("api", "hf:acme/tiny-GGUF:Q4_K_M"): {"id": "acme/tiny-GGUF", "sha": "c0ffee", "siblings": [FILE]},
        ("manifests", f"ollama:{hub.host}/library/tiny"): {"schemaVersion": 2, "layers": [LAYER]},
    }
    for (kind, spec), whole in lists.items():
        for changed in few(varied(whole), 0.2, name=json.dumps):
            hub.fail(kind, Lie(json.dumps(changed).encode(), "application/json"))
            with pytest.raises(ShepherdError) as error:  # where nothing is wrong, the file is missing
                await pull(spec, attempts=1)
            assert len(error.value.message) < 500, changed
    for changed in few(varied([ROW]), 0.2, name=json.dumps):
        hub.fail("api", Lie(json.dumps(changed).encode(), "application/json"))
        with contextlib.suppress(ShepherdError):
            assert all(
                each.name for each in await asyncio.to_thread(search, "tiny", env=pull.env, network=pull.network)
            )


@pytest.mark.parametrize("gone", ["http://127.0.0.1:1", "http://no.such.host.invalid"])
async def test_a_hub_that_cannot_be_reached_is_asked_once_for_its_list(
    pull: Puller, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    with pytest.raises(Unreachable, match=r"the connection to .* failed \((?!\[Errno)[^)]+\); check the network"):
        await asyncio.to_thread(search, "tiny", env={"HF_ENDPOINT": gone}, network=pull.network)
    assert not caplog.records, "the library prints each of its tries"


async def test_the_models_of_a_search_are_named_as_the_hub_has_them(hub: Hub, pull: Puller) -> None:
    rows = [{**ROW, "id": f"acme/{at}-GGUF"} for at in range(30)]
    hub.fail("api", Lie(json.dumps(rows).encode(), "application/json"))
    found = await asyncio.to_thread(search, "tiny", env=pull.env, network=pull.network, n_most=20)
    assert [each.name for each in found] == [f"acme/{at}-GGUF" for at in range(20)]


async def test_a_repository_of_very_many_files_is_one_short_sentence(hub: Hub, pull: Puller) -> None:
    hub.put_repo("acme/tiny-GGUF", {f"{at}/tiny-Q4_K_M.gguf": b"" for at in range(300)})
    with pytest.raises(InvalidRequest, match=r"several models in Q4_K_M: name one of .* and 280 more") as error:
        await pull("hf:acme/tiny-GGUF:Q4_K_M")
    assert len(error.value.message) < 600
    with pytest.raises(InvalidRequest, match=r"has no 'Q9'; it has .* and 280 more"):
        await pull("hf:acme/tiny-GGUF:Q9")
    hub.put_repo("acme/tiny-GGUF", {f"{at}-Q4_K_M.gguf": b"" for at in range(2_001)} | {"README.md": b""})
    with pytest.raises(BadReply, match=r"has 2,001 GGUF files, and the limit is 2,000; pull one by its address"):
        await pull("hf:acme/tiny-GGUF")


COMPRESSED = Status(200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(2**20)))
ELSEWHERE = Endless(302, {"Location": "/api/models/acme/other"})


@pytest.mark.parametrize(
    ("kind", "failure", "most_bytes"),
    [
        ("manifests", Endless(), 4 * 2**20),
        ("manifests", Status(200, {}, bytes(2**22 + 1)), 4 * 2**20),
        ("manifests", COMPRESSED, 0),
        ("manifests", ELSEWHERE, 2**20),
        ("api", Endless(), 16 * 2**20),
        ("api", COMPRESSED, 0),
        ("api", ELSEWHERE, 16 * 2**20),
    ],
)
async def test_a_list_that_is_too_long_is_left_at_its_limit(
    hub: Hub, pull: Puller, kind: str, failure: Failure, most_bytes: int
) -> None:
    hub.fail(kind, failure)
    too_long = f"127.0.0.1 answers with more than {most_bytes:,} bytes where a short list is expected"
    with pytest.raises(BadReply, match=too_long if most_bytes else r"compresses its answer \(gzip\)"):
        await pull(f"ollama:{hub.host}/library/tiny" if kind == "manifests" else "hf:acme/tiny-GGUF")
    assert hub.n_endless <= most_bytes + 32 * 2**20, "what is more waits in the buffers of the connection"
    assert pull.pauses == []
    assert nothing_is_there(pull)


async def test_a_registry_without_the_model_and_a_blob_that_is_another_are_refused(
    hub: Hub, pull: Puller, content: Content
) -> None:
    with pytest.raises(InvalidRequest, match=r"has no model 127.*tiny:9b"):
        await pull(f"ollama:{hub.host}/library/tiny:9b")
    hub.put_ollama("library/tiny/1b", {"model": content(1)})
    digest = json.loads(hub.manifests["library/tiny/1b"])["layers"][0]["digest"].removeprefix("sha256:")
    damaged = bytearray(content(1))
    damaged[-1] ^= 1
    hub.blobs[digest] = bytes(damaged)
    with pytest.raises(BadReply, match="came with the SHA-256"):
        await pull(f"ollama:{hub.host}/library/tiny:1b")
    assert nothing_is_there(pull)


async def test_a_server_that_sends_nothing_is_left_in_time(hub: Hub, pull: Puller, repo: str) -> None:
    hub.fail("cdn", *[Stall(0)] * 3)
    with pytest.raises(TimedOut, match="sends nothing"):
        await pull(f"{repo}:Q4_K_M", idle_s=0.2, attempts=2)


async def test_progress_grows_to_the_whole(pull: Puller, repo: str, content: Content) -> None:
    await pull(f"{repo}:Q4_K_M")
    counts = [event.n_bytes for event in pull.events if isinstance(event, Fetched) and event.file.role == "model"]
    assert counts == sorted(counts)
    assert counts[-1] == len(content(0))


# files in Xet


async def test_a_file_in_xet_is_compared_with_the_checksum_of_the_redirect(
    hub: Hub, pull: Puller, repo: str, content: Content
) -> None:
    hub.is_xet = True
    model, _ = await pull(f"{repo}:Q4_K_M")
    assert model.path.read_bytes() == content(0)
    plan = next(event.plan for event in pull.events if isinstance(event, Planned))
    assert [file.sha256 for file in plan.files] == [hashlib.sha256(content(i)).hexdigest() for i in (0, 3)]
    assert not (await pull(f"{repo}:Q4_K_M"))[1]


async def test_other_bytes_than_the_redirect_to_xet_names_are_found_out(hub: Hub, pull: Puller, repo: str) -> None:
    hub.is_xet = True
    hub.lies["linked"] = (0, "ab" * 32)
    with pytest.raises(BadReply, match="its source names abababababab"):
        await pull(f"{repo}:Q4_K_M")
    assert nothing_is_there(pull)


# what a pull leaves


async def stop_half_way(hub: Hub, pull: Puller, text: str) -> Unfinished:
    hub.fail("cdn", Cut(CHUNK_BYTES + 1), *[Status(503)] * 20)
    with pytest.raises(BackendError):
        await pull(text, attempts=2)
    hub._failures.clear()
    (left,) = staging.unfinished(pull.root)
    return left


async def test_what_a_pull_has_left_is_known_by_name_and_size_and_goes(
    hub: Hub, pull: Puller, repo: str, content: Content
) -> None:
    left = await stop_half_way(hub, pull, f"{repo}:Q4_K_M")
    total = len(content(0)) + len(content(3))
    assert (left.name, left.spec, left.n_bytes, left.size_bytes) == (f"{repo}:Q4_K_M",) * 2 + (CHUNK_BYTES + 1, total)
    assert not left.is_running
    staging.discard(left)
    assert staging.unfinished(pull.root) == []
    assert [path.suffix for path in (pull.root / pulled.PARTIAL).iterdir()] == [".lock"]
    hub.seen.clear()
    await pull(f"{repo}:Q4_K_M")
    assert hub.ranges("cdn")[0].startswith("bytes=0-")
    assert staging.unfinished(pull.root) == []


async def test_nothing_is_removed_while_a_pull_works_on_it(hub: Hub, pull: Puller, repo: str) -> None:
    left = await stop_half_way(hub, pull, f"{repo}:Q4_K_M")
    found: list[bool] = []

    def look(event: Event) -> None:
        if isinstance(event, Fetched) and event.n_bytes:
            (now,) = staging.unfinished(pull.root)
            found.append(now.is_running)
            with pytest.raises(InvalidRequest, match=r"a pull of .* runs; stop it first"):
                staging.discard(left)

    await pulling.pull(parse(f"{repo}:Q4_K_M"), root=pull.root, env=pull.env, memory_bytes=None, show=look)
    assert found
    assert all(found)


async def test_what_a_pull_of_an_address_has_left_names_no_signature(hub: Hub, pull: Puller, content: Content) -> None:
    hub.files["m.gguf"] = content(0)
    hub.fail("files", NoRanges(), Cut(CHUNK_BYTES + 1), *[Status(503)] * 9)
    with pytest.raises(BackendError):
        await pull(f"{hub.url}/files/m.gguf?signature=secret", attempts=2)
    (left,) = staging.unfinished(pull.root)
    assert (left.name, left.spec) == ("m", f"{hub.url}/files/m.gguf")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"name": 1, "size_bytes": "x"}'])
async def test_a_plan_that_cannot_be_read_leaves_a_folder_that_can_be_removed(
    hub: Hub, pull: Puller, repo: str, damage: str
) -> None:
    left = await stop_half_way(hub, pull, f"{repo}:Q4_K_M")
    staging.plan_file(left.folder).write_text(damage)
    (unknown,) = staging.unfinished(pull.root)
    assert (unknown.name, unknown.spec, unknown.size_bytes) == (left.folder.name, "", 0)
    assert [staging.discard_named(pull.root, unknown.name.upper()) for _ in range(2)] == [True, False]
    assert staging.unfinished(pull.root) == []


# manifests of other kinds


def manifest_of(hub: Hub, *layers: tuple[str, bytes], **more: Any) -> bytes:
    """Layers by their whole media types."""
    rows = []
    for media, body in layers:
        digest = hashlib.sha256(body).hexdigest()
        hub.blobs[digest] = body
        rows.append({"mediaType": media, "digest": f"sha256:{digest}", "size": len(body)})
    return json.dumps({"schemaVersion": 2, **({"layers": rows} if rows else {}), **more}).encode()


KIND = "application/vnd.ollama.image."


async def test_layers_of_unknown_kinds_and_a_config_that_lies_change_nothing(
    hub: Hub, pull: Puller, content: Content
) -> None:
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:" + "0" * 64, "size": 9}
    layers = (
        (f"{KIND}holiday", b"x"),
        ("text/plain", b"y"),
        (f"{KIND}model", content(1)),
        (f"{KIND}model", content(2)),
    )
    hub.manifests["library/tiny/latest"] = manifest_of(hub, *layers, config=config | {"model_format": "safetensors"})
    model, _ = await pull(f"ollama:{hub.host}/library/tiny")
    assert [file.name for file in model.files] == ["tiny-latest.gguf"]
    assert model.path.read_bytes() == content(1), "of two models the first"
    assert hub.n_sent("blobs") == 1


ODD: dict[str, tuple[list[tuple[str, bytes]], dict[str, Any], str]] = {
    "safetensors": ([(f"{KIND}tensor", b"x"), (f"{KIND}json", b"{}")], {}, "its weights are in safetensors"),
    "cloud": ([(f"{KIND}license", b"MIT")], {}, "it runs at Ollama only, or is in another format"),
    "list": (
        [],
        {"manifests": [{"mediaType": "x", "digest": "sha256:" + "0" * 64}]},
        "its manifest is a list of others",
    ),
    "no model": ([(f"{KIND}model", HTML)], {}, "is a web page, not a GGUF file"),
    "config for a model": ([(f"{KIND}model", b'{"model_format": "gguf"}')], {}, "does not begin with 'GGUF'"),
}


@pytest.mark.parametrize(("layers", "more", "sentence"), ODD.values(), ids=ODD)
async def test_a_manifest_of_something_else_is_one_sentence(
    hub: Hub, pull: Puller, layers: list[tuple[str, bytes]], more: dict[str, Any], sentence: str
) -> None:
    hub.manifests["library/tiny/latest"] = manifest_of(hub, *layers, **more)
    with pytest.raises(ShepherdError, match=sentence) as caught:
        await pull(f"ollama:{hub.host}/library/tiny")
    assert "\n" not in caught.value.message
    assert nothing_is_there(pull)


async def test_a_model_with_an_adapter_says_where_the_adapter_is(hub: Hub, pull: Puller, content: Content) -> None:
    layers = ((f"{KIND}model", content(1)), (f"{KIND}adapter", content(2)))
    hub.manifests["library/tiny/latest"] = manifest_of(hub, *layers)
    digest = hashlib.sha256(content(2)).hexdigest()
    with pytest.raises(
        InvalidRequest, match=rf"with an adapter \(LoRA\).*/blobs/sha256:{digest} as a file.*adapters\]\]"
    ):
        await pull(f"ollama:{hub.host}/library/tiny")
    assert hub.n_sent("blobs") == 0


# refusals of the hub


async def test_a_refusal_says_where_the_licence_is_and_how_a_token_is_given(hub: Hub, pull: Puller, repo: str) -> None:
    hub.fail("resolve", Status(403, {"X-Error-Code": "GatedRepo"}), Status(403))
    page = f"{hub.url}/acme/tiny-GGUF"
    for sentence in (
        rf"gated: accept its licence at {page}, then give",
        rf"\(HTTP 403\); accept its licence at {page}",
    ):
        with pytest.raises(NotAllowed, match=rf"{sentence}.*HF_TOKEN.*shepherd keys set huggingface") as caught:
            await pull(f"{repo}:Q4_K_M")
        assert caught.value.status == 403


async def test_a_token_among_the_keys_opens_a_repository_and_one_of_the_environment_counts_before_it(
    hub: Hub, pull: Puller, repo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated.add("acme/tiny-GGUF")
    hub.tokens.add("hf_kept")
    pull.network = Network(hub_token="hf_kept")
    await pull(f"{repo}:Q4_K_M")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(NotAllowed, match="gated"):
        await pull(f"{repo}:Q8_0")


# many deaths, and a disk that is full
