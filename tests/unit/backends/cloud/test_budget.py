"""Spending: what is counted, for which day, by several processes; and what is refused when it is spent."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.providers_replay import Answer, Way, replaying
from tests.unit.backends.cloud.providing import CHAT, KEY, chunk, spoken, sse

from shepherd.backends.cloud.backend import CloudBackend
from shepherd.backends.cloud.budget import KEPT_DAYS, Budget, Meter, Prices, Spending, Used
from shepherd.backends.cloud.provider import KINDS, provider_of
from shepherd.core import BudgetExceeded, Message, RateLimited, Request, Text, TextDelta, Usage
from shepherd.core.status import Spent


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 23, 18, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


PRICES = Prices(input=3.0, cached=0.3, output=15.0)


def test_tokens_cost_what_the_prices_say_and_written_ones_count_as_input() -> None:
    usage = Usage(input=1_000_000, cache_read=2_000_000, cache_write=1_000_000, output=100_000)
    assert PRICES.spent(usage) == Spent(2_000_000, 2_000_000, 100_000, 6.0 + 0.6 + 1.5)


def test_a_restart_and_another_process_see_what_was_spent_today(tmp_path: Path) -> None:
    clock = Clock()
    one, other = Spending(tmp_path / "s", clock), Spending(tmp_path / "s", clock)
    one.add("a", Spent(10, 1, 2, 0.5))
    assert other.today("a") == Spent(10, 1, 2, 0.5)
    other.add("a", Spent(1, 1, 1, 0.25))
    other.add("b", Spent(5, 0, 0))
    assert one.today("a") == other.today("a") == Spent(11, 2, 3, 0.75)
    assert one.total("a") == Spent(10, 1, 2, 0.5), "the total is of this program"
    later = Spending(tmp_path / "s", clock)
    assert (later.today("a"), later.total("a")) == (Spent(11, 2, 3, 0.75), Spent())
    (file,) = (tmp_path / "s").iterdir()
    assert file.name == "2026-11-23.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_day_ends_at_midnight_and_old_files_go(tmp_path: Path) -> None:
    clock = Clock()
    spending = Spending(tmp_path, clock)
    spending.add("a", Spent(10, 0, 0))
    assert spending.seconds_left() == 6 * 3600
    clock.now += timedelta(hours=7)
    assert spending.today("a") == Spent()
    spending.add("a", Spent(3, 0, 0))
    assert spending.today("a") == Spent(3, 0, 0)
    assert spending.total("a") == Spent(13, 0, 0)
    clock.now += timedelta(days=KEPT_DAYS + 1)
    spending.add("a", Spent(1, 0, 0))
    assert len(list(tmp_path.iterdir())) == 1


def test_the_last_days_are_told_with_their_answers_whichever_program_wrote_them(tmp_path: Path) -> None:
    clock = Clock()
    spending = Spending(tmp_path, clock)
    spending.add("a", Spent(10, 1, 2, 0.5))
    spending.add("a", Spent(1, 0, 0), requests=4)
    clock.now += timedelta(days=2)
    Spending(tmp_path, clock).add("b", Spent(5, 0, 0))
    told = [
        ("2026-11-23", {"a": Used(5, Spent(11, 1, 2, 0.5))}),
        ("2026-11-24", {}),
        ("2026-11-25", {"b": Used(1, Spent(5, 0, 0))}),
    ]
    assert spending.days(3) == Spending(tmp_path, clock).days(3) == told
    assert spending.days(1) == told[-1:]
    assert len(spending.days(10**6)) == KEPT_DAYS


def test_a_file_of_a_day_is_read_in_pieces_and_only_once(tmp_path: Path) -> None:
    line = b'["a",1,1,1,0.0]\n'
    n = 2**20 // len(line) + 1000
    (tmp_path / "2026-11-22.jsonl").write_bytes(line * n)
    spending = Spending(tmp_path, Clock())
    day = [("2026-11-22", {"a": Used(n, Spent(n, n, n))}), ("2026-11-23", {})]
    assert spending.days(2) == day
    (tmp_path / "2026-11-22.jsonl").write_bytes(line.replace(b"1", b"9") * n)
    assert spending.days(2) == day


def test_damaged_lines_count_nothing_and_half_a_line_is_not_read_yet(tmp_path: Path) -> None:
    spending = Spending(tmp_path, Clock())
    spending.add("a", Spent(1, 0, 0))
    file = next(tmp_path.iterdir())
    with file.open("ab") as out:
        out.write(
            b'{"no":1}\nnull\n["a",1]\n["a",-5,0,0,0]\n["a",1,1,1,NaN]\n["a",1,1,1,Infinity]\n["a",1,1,1,0,-1]\n["a",1,1,1,0,1,1]\n\xff\xfe\n["a",2,0'
        )
    assert spending.today("a") == Spent(1, 0, 0)
    with file.open("ab") as out:
        out.write(b",0,0.0]\n")
    assert spending.today("a") == Spent(3, 0, 0)
    file.unlink()
    spending.add("a", Spent(4, 0, 0))
    assert spending.today("a") == Spent(4, 0, 0), "deleted, and begun again"


def test_a_folder_that_cannot_be_written_still_counts_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    spending = Spending(tmp_path / "file", Clock())
    for _ in range(2):
        spending.add("a", Spent(5, 0, 0))
    assert spending.today("a") == Spent(10, 0, 0)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(tokens=12), "12 of 12 tokens.*budget_tokens"),
        (Budget(money=0.5), r"0\.5 of 0\.5.*budget_money"),
        (Budget(tokens=0), "12 of 0 tokens"),
    ],
)
def test_what_is_spent_is_refused_until_midnight(tmp_path: Path, budget: Budget, words: str) -> None:
    spending = Spending(tmp_path, Clock())
    spending.add("a", Spent(10, 0, 2, 0.5))
    with pytest.raises(BudgetExceeded, match=words) as caught:
        Meter(spending, "a", budget).check()
    assert isinstance(caught.value, RateLimited)
    assert (caught.value.status, caught.value.code, caught.value.retryable) == (429, "budget_exceeded", False)
    assert caught.value.retry_after_s == 6 * 3600
    Meter(spending, "b", budget if budget.tokens else Budget(tokens=1)).check()


def backend_of(url: str, meter: Meter) -> CloudBackend:
    return CloudBackend(provider_of(KINDS["openai_compat"], name="mine", base_url=url, key=KEY), meter=meter)


HELLO = Request("m", (Message("user", (Text("Hello"),)),))


async def test_an_answer_is_counted_from_its_usage_and_the_next_one_is_refused(tmp_path: Path) -> None:
    spending = Spending(tmp_path, Clock())
    async with replaying(spoken()) as server:
        backend = backend_of(server.url, Meter(spending, "mine", Budget(tokens=900, prices=PRICES)))
        _ = [event async for event in backend.stream(HELLO)]
        assert spending.today("mine") == PRICES.spent(Usage(input=900, output=6))
        with pytest.raises(BudgetExceeded):
            _ = [event async for event in backend.stream(HELLO)]
        with pytest.raises(BudgetExceeded):
            await backend.embed("m", ["text"])
        await backend.aclose()
        assert len(server.requests) == 1, "nothing is sent"


async def test_an_answer_without_a_usage_is_estimated_and_vectors_are_counted(tmp_path: Path) -> None:
    spending = Spending(tmp_path, Clock())
    silent = sse(chunk({"content": "Twelve chars"}), chunk({}, "stop"))
    vectors = {"data": [{"index": 0, "embedding": [3.0, 4.0]}], "usage": {"prompt_tokens": 7}}
    made = Answer("/v1/embeddings", json.dumps(vectors).encode(), 200, {"content-type": "application/json"})
    async with replaying(spoken(body=silent), made) as server:
        backend = backend_of(server.url, Meter(spending, "mine"))
        _ = [event async for event in backend.stream(HELLO)]
        first = spending.today("mine")
        assert first.input > 0
        assert first.output == 3
        await backend.embed("m", ["text"])
        assert spending.today("mine") == first + Spent(7, 0, 0)
        await backend.aclose()


@pytest.mark.parametrize("way", [Way(hang_at=600), Way(break_at=601)])
async def test_an_answer_that_is_cut_off_or_cancelled_is_estimated(tmp_path: Path, way: Way) -> None:
    spending = Spending(tmp_path, Clock())
    async with replaying(spoken(way)) as server:
        backend = backend_of(server.url, Meter(spending, "mine"))
        got = ""
        try:
            async with aclosing(backend.stream(HELLO)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        got += event.text
                        if way.hang_at is not None:
                            break
        except Exception:
            assert way.break_at is not None
        await backend.aclose()
    spent = spending.today("mine")
    assert got
    assert spent.input >= 1
    assert 1 <= spent.output <= len(got)


async def test_a_refused_request_costs_nothing_and_one_that_is_cancelled_early_its_prompt(tmp_path: Path) -> None:
    spending = Spending(tmp_path, Clock())
    refused = Answer(CHAT, b'{"error": {"message": "no"}}', 401, {"content-type": "application/json"})
    async with replaying(refused, spoken(Way(hang_at=-1))) as server:
        backend = backend_of(server.url, Meter(spending, "mine"))
        with pytest.raises(Exception, match="no"):
            _ = [event async for event in backend.stream(HELLO)]
        assert spending.today("mine") == Spent()

        async def ask() -> None:
            async for _ in backend.stream(HELLO):
                pass

        task = asyncio.create_task(ask())
        while len(server.requests) < 2:  # noqa: ASYNC110 - the server has no event for this
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await backend.aclose()
    assert spending.today("mine").input > 0
