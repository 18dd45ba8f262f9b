"""The log of a chat's events: a reader may come at any number, and gets the same rest."""

import asyncio
from collections.abc import Iterable

from shepherd.app.chats import event_log
from shepherd.app.chats.event_log import EventLog, LoggedEvent


def spelled(events: Iterable[LoggedEvent]) -> list[tuple[str, str]]:
    """The events with neighbouring texts joined."""
    found: list[tuple[str, str]] = []
    for event in events:
        text = str(event.data.get("text", event.data))
        if found and "text" in event.data and found[-1][0] == event.type:
            found[-1] = (event.type, found[-1][1] + text)
        else:
            found.append((event.type, text))
    return found


def written() -> EventLog:
    log = EventLog()
    log.put("turn", {"index": 0})
    for piece in ("Hel", "lo", "", " wörld", "\U0001f411!"):
        log.put_text("text", piece)
    log.put("call", {"id": "a"})
    log.put_text("arguments", '{"path"', id="a")
    log.put_text("arguments", ': "b"}', id="a")
    log.put_text("text", "x" * (event_log.RUN_CHARS + 5))
    log.put_text("text", "end")
    log.put("end", {"reason": "done"})
    return log


def test_a_reader_that_comes_back_at_any_number_has_missed_nothing_and_gets_nothing_twice() -> None:
    log = written()
    whole = log.since(0)
    assert [event.number for event in whole] == sorted({event.number for event in whole})
    assert spelled(whole)[1] == ("text", "Hello wörld\U0001f411!")
    for number in range(log.number + 1):
        before = written()
        had = [event for event in before.since(0) if event.number <= number]
        cut = next((event for event in whole if event.number > number), None)
        begun = sum(len(event.data["text"]) for event in whole[: len(had) + 1] if "text" in event.data)
        assert begun >= 0
        if cut is not None and "text" in cut.data:
            n_had = number - (had[-1].number if had else 0)
            had.append(LoggedEvent(number, cut.type, {**cut.data, "text": cut.data["text"][:n_had]}))
        assert spelled([each for each in had if each.data.get("text", "?")] + log.since(number)) == spelled(whole)


def test_progress_is_replaced_by_newer_progress_and_only_by_that() -> None:
    log = EventLog()
    for done in range(3):
        log.put("progress", {"done": done}, replaces=True)
    assert [(event.number, event.data) for event in log.since(0)] == [(3, {"done": 2})]
    assert [event.data for event in log.since(1)] == [{"done": 2}]
    log.put("text", {})
    log.put("progress", {"done": 9}, replaces=True)
    assert [event.type for event in log.since(0)] == ["progress", "text", "progress"]


def test_a_new_turn_and_a_log_that_is_full_drop_what_is_old() -> None:
    log = written()
    log.begin()
    assert log.since(0) == []
    log.put("turn", {"index": 2})
    assert [event.type for event in log.since(0)] == ["turn"]
    assert not log.has(0)
    size = event_log.MOST_KEPT_CHARS // 4
    for number in range(6):
        log.put("returned", {"content": f"{number}" * size})
    kept = [event.data["content"][0] for event in log.since(0)]
    assert kept == ["3", "4", "5"]
    assert log.has(log.number)


async def test_a_reader_waits_for_what_comes_next() -> None:
    log = EventLog()
    waiting = [asyncio.create_task(log.wait(0, 60)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    log.put_text("text", "a")
    await asyncio.gather(*waiting)
    await log.wait(log.number, 0)
