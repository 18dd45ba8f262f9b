"""`shepherd top`: what it makes of a server's figures, and what happens when there is no server to ask."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.scripted_service import ScriptedService, saying
from tests.unit.cli.conftest import shepherd

from shepherd.cli.command.top import (
    CacheSpeed,
    Sample,
    Watch,
    board,
    hit_ratio,
    in_order,
    requests_per_s,
    sample_json,
    speed,
)
from shepherd.core import BadReply, EngineDown, InvalidRequest, NotAllowed, ShepherdError, TimedOut, Unreachable
from shepherd.core.status import CacheUsage, Health, ProviderSpending, ReplicaStatus, Spent
from shepherd.engine.stats import CacheStats, SequenceStats
from shepherd.server.endpoints.caches import decode_caches, decode_server, decode_spending, encode_caches

Listening = Callable[..., AbstractContextManager[int]]

LIVE = SequenceStats(4, "generate", "a-very-long-name-of-a-session", 600, 412, 550, 50, 33, 41.27, 0.0)
FRESH = SequenceStats(0, "prefill", None, 100, 0, 0, 100, 0, 0.0, 0.0)
SIDE = SequenceStats(7, "generate", "s2", 300, 0, 280, 20, 9, 0.0, 0.0, background=True)
RECENT = SequenceStats(2, "idle", "s2", 200, 0, 10, 20, 30, 250.4, 75.0)
OLD = SequenceStats(1, "idle", "s1", 100, 0, 1, 2, 3, 0.0, 7300.0)
MAIN = CacheStats(
    1000,
    used=950,
    live=2,
    waiting=1,
    jobs=7,
    cached_tokens=900,
    prefilled_tokens=100,
    generated_tokens=60,
    evictions=3,
    evicted_tokens=412,
    ram_bytes=3 * 2**20,
    disk_bytes=2048,
    sequences=(OLD, RECENT, FRESH, LIVE),
)


def sample(at_s: float, server: Mapping[str, int] | None = None, /, **caches: CacheStats) -> Sample:
    body = json.loads(json.dumps(encode_caches(caches, dict.fromkeys(caches, "lamb"), server)))
    return Sample(at_s, body, decode_caches(body), decode_server(body))


def drawn(now: Sample, before: Sample | None = None, *, width: int = 120) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(board(now, before))
    return [line.rstrip() for line in capture.get().splitlines()]


# -- what is made of two samples --------------------------------------------------------------------------------------


def test_a_speed_is_the_difference_of_two_counts_over_the_time_between_them() -> None:
    later = replace(MAIN, prefilled_tokens=600, generated_tokens=160)
    assert speed("main", sample(12.0, main=later), sample(10.0, main=MAIN)) == CacheSpeed(250.0, 50.0)


@pytest.mark.parametrize(
    "before",
    [
        None,
        sample(9.0, other=MAIN),
        sample(10.0, main=MAIN),
        sample(9.0, main=replace(MAIN, prefilled_tokens=101)),
        sample(9.0, main=replace(MAIN, generated_tokens=61)),
        sample(9.0, main=replace(MAIN, jobs=8)),
    ],
    ids=["first look", "new cache", "no time", "restart", "restart", "restart"],
)
def test_a_speed_is_not_known_without_a_sample_to_compare_with(before: Sample | None) -> None:
    assert speed("main", sample(10.0, main=MAIN), before) == CacheSpeed()


COUNTS = st.integers(0, 10**6)


@given(COUNTS, COUNTS, st.floats(0.01, 100))
def test_a_speed_is_never_negative(old: int, new: int, seconds: float) -> None:
    before = sample(0.0, main=CacheStats(9, prefilled_tokens=old, generated_tokens=old))
    found = speed("main", sample(seconds, main=CacheStats(9, prefilled_tokens=new, generated_tokens=new)), before)
    assert found == (CacheSpeed() if new < old else CacheSpeed((new - old) / seconds, (new - old) / seconds))


def test_the_hit_ratio_is_that_of_all_prompt_tokens() -> None:
    assert hit_ratio(MAIN) == 0.9
    assert hit_ratio(CacheStats(10)) is None


@given(st.permutations(MAIN.sequences))
def test_live_sequences_come_first_then_those_used_last(sequences: list[SequenceStats]) -> None:
    assert in_order(tuple(sequences)) == [FRESH, LIVE, RECENT, OLD]


@pytest.mark.parametrize(
    ("old", "new", "rate"),
    [({"requests": 3}, {"requests": 8}, 2.5), ({"requests": 9}, {"requests": 1}, None), (None, {"requests": 1}, None)],
    ids=["as usual", "restart", "older server"],
)
def test_requests_per_second_are_the_difference_of_two_counts(
    old: Mapping[str, int] | None, new: Mapping[str, int], rate: float | None
) -> None:
    before, now = sample(10.0, old, main=MAIN), sample(12.0, new, main=MAIN)
    assert requests_per_s(now, before) == rate
    assert sample_json(now, before)["server"] == {**new, "requests_per_s": rate}
    assert "server" not in sample_json(before, None) or old


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_the_board_shows_caches_and_their_sequences() -> None:
    later = replace(MAIN, prefilled_tokens=600, generated_tokens=160)
    lines = drawn(sample(12.0, main=later, fast=CacheStats(512)), sample(10.0, main=MAIN))
    assert lines == [
        "main  lamb  ▕███████████████████████░▏ 950/1000 cells (95%)",
        "  prefill 250 tokens/s · decode 50.0 tokens/s · 2 live · 1 waiting",
        "  hits 60.0% · 3 evictions (412 tokens) · RAM 3.0 MiB · disk 2.0 KiB",
        " SEQ  STATE     SESSION         TOKENS  EVICTED  CACHED  NEW  GENERATED  TOKENS/S   IDLE",
        "   0  prefill   -                  100        0       0  100          0         -",
        "   4  generate  a-very-long-n…     600      412     550   50         33      41.3",
        "   2  idle      s2                 200        0      10   20         30       250  1 min",
        "   1  idle      s1                 100        0       1    2          3         -    2 h",
        "",
        "fast  lamb  ▕░░░░░░░░░░░░░░░░░░░░░░░░▏ 0/512 cells (0%)",
        "  prefill - tokens/s · decode - tokens/s · 0 live · 0 waiting",
        "  hits - · 0 evictions (0 tokens) · RAM 0 B · disk 0 B",
        "  no conversation",
    ]


def test_the_share_of_drafts_that_was_accepted_is_shown_where_there_were_some() -> None:
    lines = drawn(sample(12.0, main=replace(MAIN, drafted_tokens=400, accepted_tokens=330)))
    assert lines[1].endswith("1 waiting · drafts 82% accepted")


def test_a_side_task_is_shown_as_one() -> None:
    lines = drawn(sample(12.0, main=replace(MAIN, sequences=(SIDE, replace(SIDE, state="idle")))))
    assert [line.split()[1] for line in lines[-2:]] == ["background", "idle"]


def test_the_last_line_of_the_board_is_about_the_server() -> None:
    counts = {"requests": 12, "active": 2, "refused": 1, "recalled_tokens": 380}
    lines = drawn(sample(12.0, counts, main=MAIN, fast=MAIN), sample(10.0, {**counts, "requests": 5}, main=MAIN))
    summary = "2 active · 3.5 requests/s · 12 answered · 1 refused · 380 tokens recalled · 1 model loaded"
    assert lines[-2:] == ["", f"Server  {summary}"]
    assert drawn(sample(1.0, counts))[0] == "This server has no cache."


def test_providers_have_a_line_with_what_they_cost_today() -> None:
    spending = {
        "claude": ProviderSpending(Spent(9_000, 2_000, 1_000, 0.25), Spent(), 100_000, 2.0),
        "mine\x1b": ProviderSpending(Spent(5, 0, 5), Spent()),
    }
    body = json.loads(json.dumps(encode_caches({}, {}, {}, spending)))
    assert decode_spending(body) == spending
    lines = drawn(Sample(0.0, body, {}, {}, decode_spending(body)))
    assert lines[1:] == ["claude: 12,000 of 100,000 tokens, 0.25 of 2.00 today", "mine␛: 10 tokens today"]
    assert decode_spending({"caches": {}}) == {}
    with pytest.raises(InvalidRequest, match=r"providers\.a\.today"):
        decode_spending({"providers": {"a": {}}})


def test_a_server_without_caches_says_so() -> None:
    assert drawn(sample(0.0)) == ["This server has no cache."]


def test_names_from_outside_steer_neither_terminal_nor_markup() -> None:
    nasty = "\x1b[2J[red]x\n\r\x9b"
    stats = CacheStats(10, sequences=(replace(LIVE, session=nasty),))
    text = "\n".join(drawn(sample(0.0, **{nasty: stats})))
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert text.count("[2J[red]x") == 2


@given(st.builds(CacheStats, sequences=st.lists(st.builds(SequenceStats), max_size=3).map(tuple)), st.integers(20, 200))
def test_any_figures_can_be_drawn_and_told(stats: CacheStats, width: int) -> None:
    try:
        now = sample(1.0, a=stats)
    except InvalidRequest:  # no figures at all: infinities, and numbers that no machine counts to
        return
    assert drawn(now, width=width)
    assert sample_json(now, None)["caches"]["a"]["n_ctx"] == stats.n_ctx


def test_programs_are_told_what_the_server_said_and_the_speeds() -> None:
    later = replace(MAIN, prefilled_tokens=600, generated_tokens=160)
    now = sample(12.0, main=later)
    found = sample_json(now, sample(10.0, main=MAIN))
    added = {"prefill_per_s": 250.0, "decode_per_s": 50.0, "hit_ratio": 0.6}
    assert found == {"caches": {"main": {**now.body["caches"]["main"], **added}}}


# -- asking -----------------------------------------------------------------------------------------------------------


def server_of(answer: Callable[[httpx2.Request], httpx2.Response]) -> Watch:
    ticks = count()
    client = httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://user:pass@h:1/")
    return Watch(client, clock=lambda: float(next(ticks)))


def failing(error: Exception) -> Callable[[httpx2.Request], httpx2.Response]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise error

    return answer


def replying(status: int, content: bytes = b"") -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda request: httpx2.Response(status, content=content, request=request)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (failing(httpx2.ConnectError("no")), Unreachable, "no server answers at http://h:1; start one with 'shepherd"),
        (failing(httpx2.ReadTimeout("slow")), TimedOut, "http://h:1 has not answered for 5 s"),
        (failing(httpx2.RemoteProtocolError("\x1b[31mbad")), Unreachable, "the request to http://h:1 failed: ␛[31mbad"),
        (failing(httpx2.ReadError("")), Unreachable, "the request to http://h:1 failed: ReadError"),
        (replying(401), NotAllowed, "give its key with --api-key KEY"),
        (replying(404), BadReply, "it is no Shepherd server, or an old one"),
        (replying(307), ShepherdError, "answers /v1/caches with status 307"),
        (replying(500, b"{}"), ShepherdError, "answers /v1/caches with status 500"),
        (replying(503, b'{"error": {"message": "still loading\\u001b"}}'), EngineDown, "http://h:1: still loading␛"),
        (replying(503, b"<html>"), EngineDown, "http://h:1: it is not ready"),
        (replying(200, b"<html>"), BadReply, "is it a Shepherd server?"),
        (replying(200, b"[" * 100_000), BadReply, "is it a Shepherd server?"),
        (replying(200, b'{"caches": {"\\u001b": 3}}'), BadReply, "(caches.␛ must be an object, not 3)"),
        (replying(200, b"\xff\xfe"), BadReply, "is it a Shepherd server?"),
    ],
)
def test_what_is_wrong_with_a_server_is_said_in_one_sentence(
    answer: Callable[[httpx2.Request], httpx2.Response], kind: type[ShepherdError], said: str
) -> None:
    with pytest.raises(kind) as caught:
        server_of(answer).sample()
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert "pass" not in caught.value.message
    assert "\x1b" not in caught.value.message


def test_a_server_that_goes_away_is_waited_for_and_what_was_seen_stays() -> None:
    def body(generated: int) -> bytes:
        return json.dumps(encode_caches({"main": replace(MAIN, generated_tokens=generated)}, {})).encode()

    replies: Iterator[Any] = iter(
        [
            httpx2.Response(200, content=body(100)),
            httpx2.Response(200, content=body(130)),
            httpx2.ConnectError("gone"),
            httpx2.Response(200, content=body(140)),
            httpx2.Response(200, content=body(150)),
        ]
    )

    def answer(request: httpx2.Request) -> httpx2.Response:
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, httpx2.Response)
        return reply

    watch = server_of(answer)
    seen = []
    for _ in range(5):
        watch.poll()
        assert watch.now is not None
        seen.append((watch.problem is None, speed("main", watch.now, watch.before).decode))
        console = Console(width=150, color_system=None)
        with console.capture() as capture:
            console.print(watch.picture())
        assert "main" in capture.get()
        assert ("trying again" in capture.get()) == (watch.problem is not None)
    assert seen == [(True, None), (True, 30.0), (False, None), (True, None), (True, 10.0)]


def test_a_server_that_never_was_there_is_an_error_and_one_that_is_loading_is_not() -> None:
    with pytest.raises(Unreachable):
        server_of(failing(httpx2.ConnectError("no"))).poll()
    watch = server_of(replying(503, b'{"error": {"message": "loading"}}'))
    watch.poll()
    assert watch.now is None
    assert watch.problem is not None


# -- the command ------------------------------------------------------------------------------------------------------


def service_of(**stats: CacheStats) -> ScriptedService:
    usage: Mapping[str, CacheUsage] = {
        name: CacheUsage(cache.n_ctx, cache.used, "lamb") for name, cache in stats.items()
    }
    return ScriptedService(saying("Hi"), health=Health("ok", "llamacpp", "lamb.gguf", usage), stats=stats)


def test_in_a_pipe_it_looks_once_and_nothing_is_cut_off(empty_home: Path, listening: Listening) -> None:
    with listening(service_of(main=MAIN)) as port:
        for arguments in ([], ["--once"]):
            result = shepherd("top", "--url", f"http://127.0.0.1:{port}/v1/", *arguments)
            assert result.exit_code == 0, result.output
            assert result.stdout.startswith("main  lamb  ▕")
            assert "disk 2.0 KiB\n" in result.stdout
            assert re.search(r"\n +4  generate  a-very-long-n…  +600 ", result.stdout)
            assert "\x1b" not in result.stdout


def test_one_object_per_look_for_programs(empty_home: Path, listening: Listening) -> None:
    with listening(service_of(main=MAIN)) as port:
        result = shepherd("top", "--url", f"127.0.0.1:{port}", "--json", "--once")
    (line,) = result.stdout.splitlines()
    sample_json = json.loads(line)
    assert sample_json["time"] > 1.7e9
    assert sample_json["caches"]["main"]["hit_ratio"] == 0.9
    assert sample_json["caches"]["main"]["prefill_per_s"] is None
    assert [each["seq"] for each in sample_json["caches"]["main"]["sequences"]] == [1, 2, 0, 4]


def test_the_configured_server_is_asked_with_the_configured_key(empty_home: Path, listening: Listening) -> None:
    with listening(service_of(main=MAIN), api_keys=("hush",)) as port:
        (empty_home / "shepherd.toml").write_text(f'[server]\nhost = "0.0.0.0"\nport = {port}\napi_keys = ["hush"]\n')
        assert shepherd("top").stdout.startswith("main  lamb")
        (empty_home / "shepherd.toml").write_text(f"[server]\nport = {port}\n")
        assert shepherd("top", "--api-key", "hush").stdout.startswith("main  lamb")
        refused = shepherd("top")
    assert refused.exit_code == 1
    assert refused.stderr == (f"shepherd: http://127.0.0.1:{port} refuses access; give its key with --api-key KEY\n")


def test_the_configured_key_goes_to_no_other_server(empty_home: Path, listening: Listening) -> None:
    (empty_home / "shepherd.toml").write_text('[server]\napi_keys = ["hush"]\n')
    with listening(service_of(main=MAIN), api_keys=("hush",)) as port:
        address = f"http://127.0.0.1:{port}"
        assert shepherd("top", "--url", address).exit_code == 1
        assert shepherd("top", "--url", address, "--api-key", "hush").exit_code == 0
        assert shepherd("--api-key", "hush", "top", "--url", address).exit_code == 0


def test_no_server_is_one_sentence_and_status_1(empty_home: Path) -> None:
    result = shepherd("top", "--port", "1")
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("shepherd: no server answers at http://127.0.0.1:1; start one with 'shepherd serve'")


@pytest.mark.parametrize(
    ("host", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("[::]", "[::1]"), ("127.0.0.2", "127.0.0.2"), ("localhost",) * 2],
)
def test_a_server_that_listens_everywhere_is_asked_on_this_machine(empty_home: Path, host: str, asked: str) -> None:
    assert f"no server answers at http://{asked}:1;" in shepherd("top", "--host", host, "--port", "1").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "ftp://h"],
        ["--url", "http://"],
        ["--url", ""],
        ["--url", "http://h:port"],
        ["--url", "http://[::1"],
        ["--url", "a b"],
        ["--port", "0"],
        ["--interval", "3"],
        ["http://127.0.0.1:8000"],
    ],
)
def test_a_wrong_address_is_refused_with_status_2(empty_home: Path, arguments: list[str]) -> None:
    result = shepherd("top", *arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert "internal" not in result.output


def test_providers_have_a_line_each(empty_home: Path, listening: Listening) -> None:
    health = Health("ok", "llamacpp", "", providers={"openai": 12.34, "local-vllm": 0.0})
    with listening(ScriptedService(saying("Hi"), health=health)) as port:
        result = shepherd("top", "--url", f"127.0.0.1:{port}", "--once")
        assert "openai  rests for 12 s  0 answered · 0 failed · 0 replaced\n" in result.stdout
        assert "local-vllm  ready  0 answered" in result.stdout
        found = json.loads(shepherd("top", "--url", f"127.0.0.1:{port}", "--json", "--once").stdout)
    assert found["outcomes"]["openai"] == {"answered": 0, "failed": 0, "replaced": 0, "rests_s": 12.3}


def test_replicas_have_a_line_each_with_what_is_open_there(empty_home: Path, listening: Listening) -> None:
    groups = {"vllm": {"vllm-1": ReplicaStatus("ready", 3), "vllm-2": ReplicaStatus("draining", 1)}}
    health = Health("ok", "vllm", "", providers={"vllm-1": 0.0, "vllm-2": 0.0}, groups=groups)
    with listening(ScriptedService(saying("Hi"), health=health)) as port:
        result = shepherd("top", "--url", f"127.0.0.1:{port}", "--once")
    assert "vllm-1  ready  3 open · 0 answered" in result.stdout
    assert "vllm-2  taken out  1 open · 0 answered" in result.stdout
