"""The soak in small, and its checkers, each shown what it is there to find."""

import asyncio
import json
import math
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from bench.soak import plot, soak
from bench.soak.checks import HIDDEN, Colds, Findings, Said, Token, check_memory, compare
from bench.soak.growth import Allowance, judge
from bench.soak.surfaces import Answer, Ask, Hang, Malformed, Turn, ask
from bench.soak.traffic import LULL_S, may_not_be_full
from bench.soak.watch import read_metrics
from rich.console import Console
from tests.cases import amount

# -- what grows --------------------------------------------------------------------------------------------------------

ALLOWED = Allowance(share=0.02, least=4.0)
TIMES = [5.0 * at for at in range(1440)]
"""Two hours."""


def levels(shape: Callable[[float], float], noise: float, seed: int) -> list[float]:
    """A series of megabytes around `shape` of the hours, whose noise is alike from sample to sample."""
    rnd = random.Random(seed)
    found, drift = [], 0.0
    for time_s in TIMES:
        drift = 0.9 * drift + rnd.gauss(0, noise)
        found.append(shape(time_s / 3600) + drift)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_series_that_gains_ten_megabytes_in_the_last_third_grows(seed: int) -> None:
    verdict = judge(TIMES, levels(lambda hours: 200 + 15 * hours, 1.0, seed), ALLOWED)
    assert verdict.word == "grows"
    assert verdict.low < 10 < verdict.high


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_series_that_stays_is_flat(seed: int) -> None:
    assert judge(TIMES, levels(lambda _: 200, 2.0, seed), ALLOWED).word == "flat"


@pytest.mark.parametrize("seed", range(20))
def test_a_series_that_fills_up_and_stays_is_bounded(seed: int) -> None:
    verdict = judge(TIMES, levels(lambda hours: 280 - 80 * math.exp(-5 * hours), 1.0, seed), ALLOWED)
    assert verdict.word == "bounded"


def test_a_file_that_is_cut_off_again_and_again_is_flat() -> None:
    assert judge(TIMES, [100 + at % 30 for at in range(len(TIMES))], Allowance(least=20)).word == "flat"


def test_a_counter_that_gains_a_little_less_than_it_may_is_not_growing() -> None:
    assert judge(TIMES, [40 + at // 600 for at in range(len(TIMES))], Allowance(least=3)).word == "flat"


def test_a_short_series_says_nothing() -> None:
    assert judge(TIMES[:50], TIMES[:50], ALLOWED).word == "too short"
    assert judge([], [], ALLOWED).word == "too short"


def test_figures_are_read_with_their_labels() -> None:
    text = '# HELP a b\na_total 3.0\nb{cache="main",tier="ram"} 1.5e+06\n'
    assert read_metrics(text) == {"a_total": 3.0, 'b{cache="main",tier="ram"}': 1_500_000.0}


# -- what is wrong -----------------------------------------------------------------------------------------------------

TOKENS = [
    Token("The", -0.1, {"The": -0.1, "A": -3.0}),
    Token(" dog", -0.70, {" dog": -0.70, " cat": -0.72, " cow": -2.0}),
    Token(" sleeps", -0.71, {"<|im_end|>": -0.70, " sleeps": -0.71, " barks": -4.0}),
]
"""Of "The dog", which ends there."""


@pytest.mark.parametrize(
    ("warm", "outcome"),
    [
        ("The dog", "same"),
        ("The cat", "tie"),
        ("The cat sleeps", "tie"),
        ("The cow", "wrong"),
        ("A dog", "wrong"),
        ("The pig", "wrong"),
        ("", "wrong"),
        ("The dog sleeps", "tie"),
        ("The dog barks", "wrong"),
    ],
)
def test_two_answers_may_differ_where_two_tokens_were_equally_likely_only(warm: str, outcome: str) -> None:
    assert compare(warm, "The dog", TOKENS)[0] == outcome


def test_a_longer_token_that_was_as_likely_is_a_tie() -> None:
    tokens = [Token("a", -0.70, {"a": -0.70, "an": -0.71}), Token(" dog", -0.1, {" dog": -0.1, "n": -9.0})]
    outcome, gap = compare("an owl", "a dog", tokens)
    assert outcome == "tie"
    assert gap == pytest.approx(0.01)


def test_where_the_cold_server_shows_no_token_nothing_is_judged_and_before_that_all_is() -> None:
    assert compare("I see.", "", [HIDDEN])[0] == "unjudged"
    assert compare("The dog sleeps well", "The dog sleeps", [*TOKENS, HIDDEN])[0] == "unjudged"
    assert compare("The pig", "The dog sleeps", [*TOKENS, HIDDEN])[0] == "wrong"


def test_an_end_that_was_as_likely_is_a_tie() -> None:
    tokens = [Token("Yes", -0.1, {"Yes": -0.1}), Token(".", -0.7, {".": -0.7, "<|im_end|>": -0.71})]
    assert compare("Yes", "Yes.", tokens)[0] == "tie"


def answering(text: str, n_prompt: int = 9, logprobs: Any = None) -> httpx.AsyncClient:
    """A client of a server that gives the same answer to everything."""

    def answer(_: httpx.Request) -> httpx.Response:
        choice = {"message": {"content": text}, "finish_reason": "stop", "logprobs": logprobs}
        usage = {"prompt_tokens": n_prompt, "completion_tokens": 2}
        return httpx.Response(200, json={"id": "x", "choices": [choice], "usage": usage})

    return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://cold")


ASKED = Ask("chat", "lamb", (Turn("user", "Who barks?"),))
WARM = Answer(200, "The dog", finish="stop", n_prompt=9)


async def outcomes_of(client: httpx.AsyncClient, findings: Findings, *answers: Answer) -> dict[str, int]:
    async with client:
        colds = Colds(client, findings, share=1.0, seed=1, patience_s=30)
        for answer in answers:
            colds.offer(ASKED, answer)
        comparing = asyncio.create_task(colds.run())
        await colds.drain(30)
        comparing.cancel()
    return dict(colds.outcomes)


async def test_a_wrong_answer_is_noticed() -> None:
    logprobs = {
        "content": [
            {"token": text, "logprob": -0.1, "top_logprobs": [{"token": text, "logprob": -0.1}]}
            for text in ("The", " cat")
        ]
    }
    findings = Findings()
    assert await outcomes_of(answering("The cat", logprobs=logprobs), findings, WARM) == {"comparable": 1, "wrong": 1}
    assert findings.told[0]["asked"]["turns"] == [["user", "Who barks?"]]


async def test_an_answer_whose_tokens_are_not_shown_is_not_judged() -> None:
    findings = Findings()
    assert await outcomes_of(answering(""), findings, WARM) == {"comparable": 1, "unjudged": 1}


async def test_the_same_answer_is_right_and_one_to_another_prompt_says_nothing() -> None:
    findings = Findings()
    assert await outcomes_of(answering("The dog"), findings, WARM) == {"comparable": 1, "same": 1}
    assert await outcomes_of(answering("The cat", n_prompt=8), findings, WARM) == {"comparable": 1, "other prompt": 1}
    assert not findings.told


async def test_what_had_less_in_view_is_not_compared_and_a_full_queue_is_passed_over() -> None:
    findings = Findings()
    unlike = [Answer(200, "The dog", evicted=True), Answer(200, "The", left=True), Answer(429)]
    assert await outcomes_of(answering("The dog"), findings, *unlike, *[WARM] * 20) == {
        "comparable": 20, "same": 16, "passed over": 4,
    }  # fmt: skip


# -- what is lost ------------------------------------------------------------------------------------------------------


def remembered(path: Path, bodies: list[tuple[str, str]], n_gone: int = 0) -> Path:
    """A memory's file with these messages, as far as a stranger looks at it."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE message(id INTEGER PRIMARY KEY, role TEXT, body TEXT, state INTEGER)")
        connection.executemany("INSERT INTO message(role, body, state) VALUES(?, ?, 0)", bodies)
        connection.execute("CREATE TABLE about(name TEXT, value ANY)")
        connection.execute("INSERT INTO about VALUES('gone', ?)", (n_gone,))
    connection.close()
    return path


def spoken(said: Said, n: int, model: str = "soak-kept") -> list[tuple[str, str]]:
    """So many questions of Ann's, all answered; what her memory has to hold."""
    kept = []
    for at in range(n):
        said.acknowledge(
            Ask("chat", model, (Turn("user", f"Question {at}?"),), user="ann"), Answer(200, f"Answer {at}.")
        )
        kept += [("user", f"Question {at}?"), ("assistant", f"Answer {at}.")]
    return kept


def lost(said: Said, path: Path, limit_bytes: int = 100) -> list[str]:
    findings = Findings()
    check_memory(said, {"ann": path}, limit_bytes, findings)
    return [finding["text"] for finding in findings.told]


def test_a_lost_message_is_noticed(tmp_path: Path) -> None:
    said = Said()
    kept = spoken(said, 9)
    assert lost(said, remembered(tmp_path / "whole", kept)) == []
    assert lost(said, remembered(tmp_path / "part", kept[:4] + kept[5:])) == ["Question 2?"]
    assert lost(said, remembered(tmp_path / "small", kept[2:], n_gone=2), 10**9) == ["Question 0?", "Answer 0."]
    assert len(lost(said, tmp_path / "none")) == 18
    question = Ask("chat", "soak-kept", (Turn("user", "And then?"),), user="ann")
    said.acknowledge(question, Answer(200, "[invalid tool call: no JSON]"))
    assert lost(said, remembered(tmp_path / "notice", [*kept, ("user", "And then?")])) == []


def test_a_full_memory_may_give_up_its_oldest_messages_only(tmp_path: Path) -> None:
    said = Said()
    kept = spoken(said, 20)
    assert lost(said, remembered(tmp_path / "old gone", kept[20:], n_gone=20)) == []
    assert lost(said, remembered(tmp_path / "new gone", kept[:30] + kept[31:], n_gone=1)) == ["Question 15?"]
    for _ in range(30):  # the same again: of these answers there is always one
        said.acknowledge(Ask("chat", "soak-kept-evict", (Turn("user", "And?"),), user="ann"), Answer(200, "Yes."))
        kept.append(("assistant", "Yes."))
    assert lost(said, remembered(tmp_path / "often said", kept[20:], n_gone=50)) == []
    evicting = Said()
    spoken(evicting, 20, "soak-kept-evict")
    assert lost(evicting, tmp_path / "new gone") == []


def test_what_was_forgotten_must_not_come_back(tmp_path: Path) -> None:
    said = Said()
    kept = spoken(said, 2)
    said.forget("ann")
    assert lost(said, remembered(tmp_path / "gone", [])) == []
    assert lost(said, remembered(tmp_path / "there", kept)) == ["Question 0?", "Question 1?"]


# -- what hangs or is broken -------------------------------------------------------------------------------------------


def streaming(*pieces: bytes, ends: bool = True) -> httpx.AsyncClient:
    """A client of a server that streams this; one that does not end is silent behind it."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if not ends:
            await asyncio.get_running_loop().create_future()

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body())

    return httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://warm")


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


TEXT = event(choices=[{"delta": {"content": "The"}}])
END = event(choices=[{"delta": {}, "finish_reason": "stop"}], usage={"prompt_tokens": 9, "completion_tokens": 1})
FULL = event(error={"message": "no room", "type": "rate_limit_error", "code": "429"})
STRANGE_END = event(
    choices=[{"delta": {}, "finish_reason": "stop"}],
    usage={"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}},
)
DONE = b"data: [DONE]\n\n"
STREAMED = Ask("chat", "lamb", (Turn("user", "Who barks?"),), stream=True)


async def test_a_request_that_stalls_hangs_and_signs_of_life_are_no_progress() -> None:
    for pieces in ((), (TEXT,), (TEXT, b": ping\n\n")):
        async with streaming(*pieces, ends=False) as client:
            with pytest.raises(Hang, match="nothing came for"):
                await ask(client, STREAMED, 0.05)


async def test_a_stream_is_read_to_its_end() -> None:
    async with streaming(TEXT, b": evicted 2 messages, 10 tokens\n\n", END, DONE) as client:
        answer = await ask(client, STREAMED, 30)
    assert (answer.text, answer.finish, answer.n_prompt, answer.evicted) == ("The", "stop", 9, True)


async def test_a_client_may_leave_in_the_middle() -> None:
    async with streaming(TEXT, ends=False) as client:
        answer = await ask(client, Ask("chat", "lamb", STREAMED.turns, stream=True, leave_after=0), 30)
    assert answer.left


async def test_what_waited_for_room_under_signs_of_life_may_be_refused_in_its_stream() -> None:
    async with streaming(b": ping\n\n", event(choices=[{"delta": {"role": "assistant"}}]), FULL, DONE) as client:
        assert (await ask(client, STREAMED, 30)).status == 429


@pytest.mark.parametrize(
    ("pieces", "what"),
    [
        ((TEXT, END), "has no end"),
        ((TEXT, DONE), "does not say why"),
        ((TEXT, event(error={"message": "no"}), DONE), "an error in the middle"),
        ((TEXT, FULL, DONE), "an error in the middle"),
        ((b"data: {\n\n",), "no JSON"),
        ((event(choices=[{"delta": {"content": 3}}]), DONE), "TypeError"),
        ((STRANGE_END, DONE), "4 cached tokens of 3"),
    ],
)
async def test_an_answer_that_is_none_is_noticed(pieces: tuple[bytes, ...], what: str) -> None:
    async with streaming(*pieces) as client:
        with pytest.raises(Malformed, match=what):
            await ask(client, STREAMED, 30)


def test_only_what_may_be_too_long_may_be_refused_as_such() -> None:
    short, long = Turn("user", "word " * 20), Turn("user", "word " * 900)
    assert may_not_be_full(Ask("chat", "soak-plain", (short,)))
    assert not may_not_be_full(Ask("chat", "soak-plain", (long, Turn("assistant", "Yes."), short)))
    assert may_not_be_full(Ask("chat", "soak-plain-evict", (long, Turn("assistant", "Yes."), short)))


# -- all of it ---------------------------------------------------------------------------------------------------------


REQUESTS = amount(36, 200)
EVICTING = 112
"""Random numbers with which each of the first three clients soon fills a context that lets old turns leave."""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A soak of as many requests as a quiet machine answers in a minute and a half; a quick run asks fewer."""
    plan = soak.Plan(
        seconds=1e6,
        clients=amount(3, 6),
        seed=EVICTING,
        requests=REQUESTS,
        lull_every=amount(12, 60),
        lull_s=amount((0.5, 1.0), LULL_S),
        per_second=20.0,
        patience_s=300.0,
        cold_share=amount(40, 30) / 100,
    )
    return asyncio.run(soak.soak(plan, tmp_path_factory.mktemp("soak")))


@pytest.mark.model
@pytest.mark.timeout(900)
def test_the_server_lets_go_of_what_the_traffic_needed(result: dict[str, Any]) -> None:
    assert soak.failures(result) == []
    assert result["settled"]["children"]["at the end"] == 0


@pytest.mark.model
@pytest.mark.timeout(900)
def test_a_result_is_drawn_and_shown(result: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    path.write_text(json.dumps({"machine": {"cpu": "", "date": ""}, **result}))
    assert plot.draw(path).read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "shown").open("w") as file:
        soak.show(result, Console(file=file))


@pytest.mark.model
@pytest.mark.timeout(900)
def test_nothing_hangs_is_wrong_or_lost(result: dict[str, Any]) -> None:
    assert result["plan"]["ended"] == "requests"
    assert result["findings"] == []
    assert result["stopped"]["status"] == 0
    assert result["answers"]["answered"] > REQUESTS / 2
    assert result["answers"]["evicted"] > 0
    assert result["answers"]["lulls"] > 0
    assert result["compared"]["same"] > REQUESTS / 20
    assert sum(seen["acknowledged"] for seen in result["memory"].values()) > REQUESTS / 4
