"""A provider over a real connection: cut, slow, broken, silent, wrong. Typed errors, no hang, no lost text, no key."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import logging
import shutil
import ssl
import subprocess
import time
import traceback
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.cases import amount
from tests.providers_replay import Answer, Way, replaying
from tests.unit.backends.cloud.providing import (
    CHAT,
    KEY,
    SPOKEN,
    WHOLE,
    WORDS,
    asking,
    chunk,
    listing,
    refusal,
    spoken,
    sse,
    staged,
)

from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.backends.cloud.transport import Deadlines, Transport
from shepherd.core import (
    BadReply,
    Finished,
    InvalidRequest,
    RateLimited,
    Refused,
    Request,
    ShepherdError,
    Started,
    TextDelta,
    TimedOut,
    Unavailable,
    Unreachable,
    fold,
)

TEXT = "".join(WORDS)
ONCE = Timeouts(attempts=1)
JSON = {"content-type": "application/json"}
HTML = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


async def test_text_that_is_cut_anywhere_arrives_whole() -> None:
    ways = [Way(), *(Way(seed) for seed in range(amount(6, 60))), Way(1, longest=1), Way(7, longest=3, pause_s=0.0001)]
    async with staged(*map(spoken, ways)) as stage:
        for way in ways:
            assert await stage.ask() is None, way
            assert stage.text == TEXT, way
            assert fold(stage.events).usage.prompt == 900
        assert stage.server.faults == []
        assert stage.server.n_connections == 1  # the connection is used again


async def test_text_goes_out_before_the_answer_ends() -> None:
    at = SPOKEN.index(b'" wide')
    async with staged(spoken(Way(hang_at=at))) as stage, aclosing(stage.backend.stream(asking())) as events:
        assert isinstance(await anext(events), Started)
        assert await anext(events) == TextDelta("Hello")


async def test_the_time_to_the_first_token_begins_when_the_request_is_sent() -> None:
    async with staged(spoken()) as stage:
        begun = time.perf_counter_ns()
        task = asyncio.create_task(stage.ask())
        while not stage.server.requests:  # noqa: ASYNC110 - an event of another
            await asyncio.sleep(0)
        arrived = time.perf_counter_ns()
        assert await task is None
        (started,) = (event for event in stage.events if isinstance(event, Started))
        assert begun <= started.at_ns <= arrived


async def test_cancelling_closes_the_connection_at_once() -> None:
    for at in (-1, 0, SPOKEN.index(b'" wide')):
        async with staged(spoken(Way(hang_at=at))) as stage:
            task = asyncio.create_task(stage.ask())
            while not stage.server.requests or (at > 0 and not stage.text):  # noqa: ASYNC110 - two events of others
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(stage.server.requests[0].has_left.wait(), 10)


async def test_what_had_arrived_before_a_break_is_not_lost() -> None:
    ends = [SPOKEN.index(json.dumps(word, ensure_ascii=False).encode()[1:]) for word in WORDS]
    places = sorted({*range(0, len(SPOKEN), amount(97, 5)), *ends})
    for at in places:
        for way in (Way(break_at=at), Way(at, break_at=at), Way(end_at=at)):
            async with staged(spoken(way), timeouts=ONCE) as stage:
                error = await stage.ask()
                whole = [word for word, end in zip(WORDS, ends, strict=True) if end + len(word.encode()) + 60 < at]
                assert TEXT.startswith(stage.text)
                assert stage.text.startswith("".join(whole)), (at, way)
                assert len(stage.server.requests) == 1
                if way.break_at is not None:
                    assert isinstance(error, BadReply), (at, way, error)
                else:
                    assert error is None or isinstance(error, BadReply), (at, way, error)


async def test_a_failure_before_the_first_content_is_repeated_and_none_after_it() -> None:
    limited = refusal(429, {"error": {"message": "slow down"}}, retry_after="3")
    inside = spoken(body=sse({"error": {"message": "overloaded", "code": 503}}, done=False))
    late = spoken(body=sse(chunk({"content": "Hel"}), {"error": {"message": "overloaded", "code": 503}}, done=False))
    broken = spoken(Way(break_at=10))
    async with staged(limited, refusal(502, HTML), inside, spoken()) as stage:
        assert await stage.ask() is None
        assert stage.text == TEXT
        assert stage.waits == [3.0, 0.5, 1.0]
        assert [type(event) for event in stage.events].count(Started) == 1
    async with staged(broken, spoken()) as stage:
        assert await stage.ask() is None
        assert stage.text == TEXT
    async with staged(late, spoken()) as stage:
        assert isinstance(await stage.ask(), Unavailable)
        assert stage.text == "Hel"
        assert (len(stage.server.requests), stage.waits) == (1, [])


async def test_an_answer_that_started_and_failed_starts_once() -> None:
    begun = sse(chunk({"role": "assistant", "content": ""}), {"error": {"message": "overloaded"}}, done=False)
    async with staged(spoken(body=begun), spoken()) as stage:
        assert await stage.ask() is None
        assert [type(event) for event in stage.events].count(Started) == 1
        assert stage.text == TEXT


async def test_patience_ends() -> None:
    limited = refusal(429, {"error": {"message": "slow"}}, retry_after="3")
    async with staged(*[limited] * 9, timeouts=Timeouts(attempts=3)) as stage:
        error = await stage.ask()
        assert isinstance(error, RateLimited)
        assert (len(stage.server.requests), stage.waits) == (3, [3.0, 3.0])
    async with staged(*[limited] * 9, timeouts=Timeouts(attempts=9, total_s=7)) as stage:
        assert isinstance(await stage.ask(), RateLimited)
        assert stage.waits == [3.0, 3.0]
    async with staged(refusal(429, {"error": {"message": "slow"}}, retry_after="3600")) as stage:
        error = await stage.ask()
        assert isinstance(error, RateLimited)
        assert error.retry_after_s == 3600
        assert stage.waits == []


async def test_the_answers_of_proxies_and_of_the_confused() -> None:
    answers = [
        (refusal(502, HTML), Unavailable, "502 Bad Gateway"),
        (spoken(body=HTML, headers={"content-type": "text/html"}), BadReply, "502 Bad Gateway"),
        (spoken(body=b""), BadReply, "empty"),
        (spoken(body=b"   \n\n"), BadReply, "empty"),
        (spoken(body=b"\x00\xff garbage \xc3\x28\n" * 50), BadReply, "protocol"),
        (spoken(body=b"data: {not json\n\n"), BadReply, "protocol"),
        (spoken(body=b"data: [1,2]\n\ndata: 7\n\n"), BadReply, "protocol"),
        (spoken(body=b"{" * 100_000, headers=JSON), BadReply, "protocol"),
        (spoken(body=b"[]", headers=JSON), BadReply, "protocol"),
        (spoken(body=b'"text"', headers=JSON), BadReply, "protocol"),
        (spoken(body=b'{"error": {"message": "no money", "code": "insufficient_quota"}}'), Refused, "no money"),
        (refusal(400, {"error": {"message": "bad field", "param": "stop"}}), InvalidRequest, "bad field"),
        (refusal(401, b""), Refused, "status 401"),
        (refusal(307, b"", location="https://evil.example/steal?x=1"), BadReply, "https://evil.example,"),
        (refusal(204, b""), BadReply, "status 204"),
        (refusal(500, b"x" * 3_000_000), Unavailable, "xxx"),
    ]  # fmt: skip
    async with staged(*(answer for answer, _, _ in answers), timeouts=ONCE) as stage:
        for answer, kind, words in answers:
            error = await stage.ask()
            assert type(error) is kind, (answer.body[:50], error)
            assert words in str(error)
            assert str(error).startswith("prov: ")
            assert len(str(error)) < 3_000


async def test_the_first_byte_shows_what_an_answer_is() -> None:
    whole = json.dumps(WHOLE).encode()
    kinds = ("text/event-stream", "application/json", "text/plain", "application/octet-stream", "nonsense")
    pretty = b"\xef\xbb\xbf\r\n " + json.dumps(WHOLE, indent=2).encode()
    for body, kind in itertools.product((whole, pretty, SPOKEN, SPOKEN.replace(b"\n", b"\r\n"), b"\n" + SPOKEN), kinds):
        async with staged(spoken(Way(3), body, headers={"content-type": kind})) as stage:
            assert await stage.ask() is None, (body[:20], kind)
            assert stage.text == TEXT


async def test_a_delta_of_ten_megabytes() -> None:
    text = "wool " * (2 * 2**20)
    async with staged(spoken(Way(1, longest=2**20), sse(chunk({"content": text}), chunk({}, "stop")))) as stage:
        assert await stage.ask() is None
        assert stage.text == text


async def test_a_provider_that_never_answers() -> None:
    deadlines = Deadlines(idle=0.05)
    for way in (Way(hang_at=-1), Way(hang_at=0), Way(hang_at=5)):
        async with staged(spoken(way), deadlines=deadlines) as stage:
            error = await stage.ask()
            assert isinstance(error, TimedOut)
            assert "0.05 s" in str(error)
            assert len(stage.server.requests) == 1
    at = SPOKEN.index(b'" wide')
    async with staged(spoken(Way(hang_at=at)), deadlines=deadlines) as stage:
        assert isinstance(await stage.ask(), TimedOut)
        assert stage.text == "Hello"


async def test_a_drip_of_bytes_without_a_record_ends() -> None:
    ticks = itertools.count(0, 100.0)
    drip = b": ping\n\n" * 30
    async with staged(spoken(Way(1, longest=8, pause_s=0.001), drip), clock=lambda: next(ticks)) as stage:
        error = await stage.ask()
        assert isinstance(error, TimedOut)
    for body in (b" " * 500, b"{" + b" " * 500):
        way = Way(2, longest=2, pause_s=0.005, linger=True)
        async with staged(spoken(way, body), deadlines=Deadlines(record=0.1)) as stage:
            assert isinstance(await stage.ask(), TimedOut)


async def test_an_answer_that_has_ended_is_not_waited_for() -> None:
    async with staged(spoken(Way(linger=True))) as stage:
        assert await stage.ask() is None
        assert isinstance(stage.events[-1], Finished)


async def test_a_reader_that_leaves_at_the_end_leaves_the_connection_whole() -> None:
    async with staged(*[spoken(Way(n)) for n in range(3)]) as stage:
        for _ in range(3):
            async with aclosing(stage.backend.stream(asking())) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        break
        assert stage.server.n_connections == 1


async def test_a_cookie_never_comes_back() -> None:
    marked = {"content-type": "text/event-stream", "set-cookie": "visitor=42; Path=/"}
    async with staged(spoken(headers=marked), spoken()) as stage:
        for _ in range(2):
            assert await stage.ask() is None
        assert ["cookie" in each.headers for each in stage.server.requests] == [False, False]


async def test_compressed_answers() -> None:
    packed = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    body = gzip.compress(SPOKEN)
    async with staged(
        spoken(Way(1), body, headers=packed), spoken(Way(1), SPOKEN, headers=packed), timeouts=ONCE
    ) as stage:
        assert await stage.ask() is None
        assert stage.text == TEXT
        assert isinstance(await stage.ask(), BadReply)
        assert stage.server.requests[0].headers["accept-encoding"] == "identity"


async def test_no_server_and_no_encryption() -> None:
    async with staged(spoken()) as stage:
        served = stage.server.url
        for address in ("http://127.0.0.1:1", served.replace("http://127.0.0.1", "https://localhost")):
            provider = provider_of(KINDS["openai_compat"], base_url=address, key=KEY)
            transport = Transport(provider, deadlines=Deadlines(connect=0.2))
            backend = CloudBackend(provider, transport=transport, timeouts=ONCE)
            with pytest.raises(Unreachable, match="no connection"):
                [event async for event in backend.stream(asking())]
            await backend.aclose()


async def test_proxies_and_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    provider = provider_of(KINDS["openai_compat"], base_url="https://h.invalid", key=KEY)
    for proxy, ca_file in (("nonsense://user:hunter22@h", None), (None, str(tmp_path / "none")), (None, __file__)):
        backend = CloudBackend(provider, transport=Transport(provider, proxy=proxy, ca_file=ca_file))
        with pytest.raises(Unreachable, match="cannot be used") as error:
            [event async for event in backend.stream(asking())]
        assert "hunter22" not in str(error.value)
        await backend.aclose()


def chain(error: BaseException | None) -> str:
    shown = []
    while error is not None:
        shown += [repr(error), str(error), str(vars(error)), *traceback.format_exception(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


async def test_no_key_is_logged_raised_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}", "type": KEY, "code": KEY, "param": "x"}}
    answers = [
        refusal(401, echo),
        refusal(400, echo),
        refusal(429, echo, retry_after="900"),
        refusal(500, json.dumps(echo).encode() + KEY.encode()),
        refusal(302, b"", location=f"https://h/{KEY}?key={KEY}"),
        spoken(body=f"data: {KEY}\n\n".encode()),
        spoken(body=sse(echo)),
        spoken(body=f"<html>{KEY}".encode()),
        spoken(Way(break_at=3)),
        spoken(Way(hang_at=0)),
        spoken(body=f'{{"x": {KEY}'.encode()),
        refusal(404, echo),
    ]
    seen: list[str] = []
    async with staged(*answers, timeouts=ONCE, deadlines=Deadlines(idle=0.1), protocol="openai.chat") as stage:
        for _ in answers:
            error = await stage.ask()
            assert isinstance(error, ShepherdError)
            seen += [str(error), error.message, str(getattr(error, "body", "")), chain(error)]
        assert all(each.headers["authorization"] == f"Bearer {KEY}" for each in stage.server.requests)
        assert all(KEY not in each.path + each.query + each.body.decode() for each in stage.server.requests)
        seen += [repr(stage.backend.provider), str(stage.backend.provider)]
    shown = "\n".join([*seen, caplog.text])
    assert KEY not in shown, [line for line in shown.splitlines() if KEY in line][:5]


def called(pieces: list[str]) -> list[Any]:
    begun = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"x":"'}}]}
    more = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in [*pieces, '"}']]
    return [begun, *more]


ECHOES: dict[str, Callable[[list[str]], list[Any]]] = {
    "text": lambda pieces: [{"content": piece} for piece in ["your key is ", *pieces, ", and more"]],
    "thought": lambda pieces: [{"reasoning_content": piece} for piece in ["key: ", *pieces]],
    "arguments": called,
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
async def test_a_key_that_a_provider_repeats_is_hidden_however_it_is_cut(
    echo: Callable[[list[str]], list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    middles = range(1, len(KEY))
    cuttings = [
        [KEY],
        list(KEY),
        *([KEY[:at], KEY[at:]] for at in middles),
        *([f"s{KEY[:at]}", KEY[at:]] for at in middles),
    ]
    bodies = [sse(*map(chunk, echo(pieces)), chunk({}, "stop")) for pieces in cuttings]
    async with staged(*(spoken(body=body) for body in bodies)) as stage:
        for pieces in cuttings:
            assert await stage.ask() is None
            shown, whole = repr(stage.events), repr(fold(stage.events))
            assert KEY not in shown + whole, pieces
            joined = "".join(getattr(event, "text", "") for event in stage.events)
            assert KEY not in joined, (pieces, joined)
            assert "***" in joined, (pieces, joined)
    assert KEY not in caplog.text


async def test_a_key_that_a_provider_repeats_is_hidden_in_every_other_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    named = {"x-request-id": f"r-{KEY}", "content-type": "text/event-stream"}
    escaped = KEY.replace("-", "\\u002d")
    answers = [
        spoken(body=sse({**chunk({"content": "a"}), "model": KEY, "id": KEY}, chunk({}, "stop")), headers=named),
        spoken(body=json.dumps({**WHOLE, "model": KEY}).encode(), headers=JSON),
        spoken(body=sse(chunk({"content": "a"}), {"error": {"message": f"wrong key {KEY}", "code": KEY}})),
        refusal(401, {"error": {"message": f"wrong key {KEY}", "param": KEY, "type": KEY}}),
        refusal(500, f"<html><title>{KEY}</title></html>".encode()),
        refusal(400, f'{{"error": "wrong key {escaped}"}}'.encode()),
        listing({"data": [{"id": f"m-{KEY}"}]}),
    ]
    async with staged(*answers, timeouts=ONCE) as stage:
        for _ in answers[:-1]:
            error = await stage.ask()
            assert KEY not in f"{stage.events!r} {error!r} {chain(error)}"
        assert [card.id for card in await stage.backend.models()] == ["m-***"]
    assert KEY not in caplog.text


async def test_a_proxy_of_the_configuration() -> None:
    async with replaying(Answer(f"http://api.invalid{CHAT}", SPOKEN)) as server:
        provider = provider_of(KINDS["openai_compat"], base_url="http://api.invalid", key=KEY)
        backend = CloudBackend(provider, transport=Transport(provider, proxy=server.url))
        events = [event async for event in backend.stream(Request("m", asking().messages))]
        await backend.aclose()
        assert isinstance(events[-1], Finished)
        assert server.requests[0].headers["host"] == "api.invalid"


OPENSSL = shutil.which("openssl")


def certified(folder: Path) -> tuple[str, ssl.SSLContext]:
    """A certificate for this machine that only itself has signed."""
    key, certificate = str(folder / "key.pem"), str(folder / "cert.pem")
    assert OPENSSL is not None
    made = [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(made, check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    return certificate, tls
