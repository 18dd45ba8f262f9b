"""What leaves before turns and after them, and what a client clears: decided in pure code, carried out in place."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.fake_engine import RECURRENT
from tests.unit.backends.local.serving import Make, reply
from tests.unit.backends.local.test_backend import held

from shepherd.backends.local.backend import LocalOptions
from shepherd.backends.local.leaving import leaving, stale_results
from shepherd.core import ContextFull, Message, Reasoning, Request, Text, ToolCall, ToolResult
from shepherd.core.edits import WHOLE, AppliedEdit, Edit, LeavingPolicy

LINES = "\n".join(f"line {n} of the file" for n in range(60))


def exchange(id: str, name: str, arguments: str, result: str, *, is_error: bool = False) -> tuple[Message, Message]:
    return (
        Message("assistant", (ToolCall(id, name, arguments),)),
        Message("tool", (ToolResult(id, (Text(result),), name, is_error),)),
    )


def read(id: str, path: str = "a.py", text: str = LINES) -> tuple[Message, Message]:
    return exchange(id, "read_file", f'{{"path": "{path}"}}', text)


def shell(id: str, command: str) -> tuple[Message, Message]:
    return exchange(id, "bash", f'{{"command": "{command}"}}', "3 failed")


def session(*exchanges: tuple[Message, Message]) -> tuple[Message, ...]:
    return (Message.user("Mend the parser."), *(message for pair in exchanges for message in pair))


# -- what is stale ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exchanges", "stale"),
    [
        ([read("1"), read("2")], {2}),
        ([read("1"), read("2", "b.py")], set()),
        ([read("1"), read("2"), read("3")], {2, 4}),
        ([read("1"), exchange("2", "edit_file", '{"path": "a.py", "old": "x"}', "done")], {2}),
        ([read("1"), exchange("2", "edit_file", '{"path": "a.py", "old": "x"}', "no such text", is_error=True)], set()),
        ([read("1"), exchange("2", "edit_file", '{"path": "b.py", "old": "x"}', "done")], set()),
        ([shell("1", "make"), exchange("2", "bash", '{ "command":"make"}', "ok")], {2}),
        ([shell("1", "make"), shell("2", "ls")], set()),
        # a part of a file does not replace the whole of it; the whole replaces its parts
        ([read("1"), exchange("2", "read_file", '{"path": "a.py", "offset": 5}', "line 5")], set()),
        ([exchange("1", "read_file", '{"path": "a.py", "offset": 5}', "line 5"), read("2")], {2}),
        ([exchange("1", "Write", '{"file_path": "a", "content": "1"}', "ok"), read("2", "a")], set()),
        ([exchange("1", "f", "no JSON", "1"), exchange("2", "f", "no JSON", "1")], {2}),
    ],
)  # fmt: skip
def test_a_later_call_makes_results_stale(exchanges: Sequence[tuple[Message, Message]], stale: set[int]) -> None:
    messages = session(*exchanges)
    assert {at for at, _ in stale_results(messages)} == stale
    written = {at for at, _ in stale_results(messages)} - {at for at, _ in stale_results(messages, replaced=True)}
    assert bool(written) == any(pair[0].calls[0].name == "edit_file" for pair in exchanges if stale), "only by writing"


def test_the_order_of_what_leaves_early_and_late() -> None:
    thought = Message("assistant", (Reasoning("hm " * 300), *read("9", "c.py")[0].parts))
    messages = session(
        read("1"), read("2"), (thought, read("9", "c.py")[1]), exchange("3", "todo_write", '{"items": ["1"]}', "ok"),
        read("4", "b.py", "short"), read("5", "d.py"), read("6", "e.py"),
    )  # fmt: skip
    found = leaving(messages, LeavingPolicy(newest_exchanges=2))
    assert {place: early.weight for place, early in found.early.items()} == {(2, 0): 3, (4, 0): 1, (5, 0): 2, (6, 0): 1}
    assert found.late == {0: -3, 7: -2, 8: -2, 11: -1, 12: -1, 13: -1, 14: -1}
    off = LeavingPolicy(stale_results=0, thoughts=0, long_results=0, newest_exchanges=0, task=False, plan=False)
    assert leaving(messages, off).early == {}
    assert leaving(messages, off).late == {}
    assert leaving((Message.user("Hello"), Message.assistant("Hi.")), LeavingPolicy()).late == {}, "a chat has no task"


# -- in the cells -----------------------------------------------------------------------------------------------------


@pytest.fixture
def options() -> LocalOptions:
    return LocalOptions(
        on_full="evict",
        n_window=20_000,
        reserve=16,
        leaving=LeavingPolicy(newest_exchanges=1, first_lines=2, least_chars=100),
    )


async def test_a_stale_result_leaves_before_any_turn_and_the_task_stays(make: Make, options: LocalOptions) -> None:
    backend, runtime = make(*["Fine."] * 9, n_ctx=4096, options=options)
    messages: tuple[Message, ...] = (Message.user("Mend the parser."),)
    for n, path in enumerate(("a.py", "b.py", "a.py", "c.py", "d.py"), 1):
        messages += read(str(n), path, f"FILE{n}\n" + LINES[:900])
        answer = await reply(backend, Request("fake", messages))
        assert answer.usage.input < 1100, "nothing is computed again"
        assert answer.usage.prompt == await backend.count(Request("fake", messages)), "usage is that of the window"
    text = held(runtime)
    assert "Mend the parser." in text
    assert "FILE1" in text, "the first line stays"
    whole = [n for n in range(1, 6) if f"FILE{n}\n{LINES[:900]}" in text]
    assert whole == [4, 5], "the stale result, then the oldest long ones"
    assert all(f"FILE{n}\n" in text for n in range(1, 6)), "their first lines stay"


async def test_a_stale_result_leaves_before_an_older_one(make: Make, options: LocalOptions) -> None:
    backend, runtime = make(*["Fine."] * 9, n_ctx=2400, options=options)
    messages: tuple[Message, ...] = (Message.user("Mend the parser."),)
    files = [f"FILE{n}\n" + LINES[:size] for n, size in enumerate((400, 1200, 300, 300), 1)]
    for n, (path, file) in enumerate(zip(("old.py", "a.py", "a.py", "d.py"), files, strict=True), 1):
        messages += read(str(n), path, file)
        await reply(backend, Request("fake", messages))
    assert [file in held(runtime) for file in files] == [True, False, True, True]


async def test_a_conversation_longer_than_its_window_is_refused(make: Make, options: LocalOptions) -> None:
    backend, _ = make("Fine.", n_ctx=1024, options=replace(options, n_window=2048))
    long = session(*(read(str(n), f"f{n}.py", LINES[:300]) for n in range(12)))
    with pytest.raises(ContextFull) as refused:
        await reply(backend, Request("fake", long))
    assert refused.value.limit == 2048
    assert (await reply(backend, Request("fake", long[:5]))).message.text == "Fine."


# -- what a client clears ---------------------------------------------------------------------------------------------

RESULTS = Edit("results", trigger_tokens=0, keep=1)


async def test_cleared_results_leave_in_place_and_nothing_is_computed_again(make: Make) -> None:
    backend, runtime = make(*["Fine."] * 4, n_ctx=8192)
    messages = session(read("1"), read("2", "b.py"), read("3", "c.py"))
    whole = await reply(backend, Request("fake", messages))
    edited = await backend.edit(Request("fake", messages), (RESULTS,))
    assert edited.applied == (AppliedEdit("results", 2, 2 * len(LINES)),)
    assert (edited.n_before, edited.n_after) == (whole.usage.prompt, whole.usage.prompt - 2 * len(LINES))
    more = (*messages, whole.message, Message.user("And now?"))
    request = Request("fake", more, cleared=edited.cleared)
    assert await backend.count(request) == await backend.count(Request("fake", more)) - 2 * len(LINES)
    answer = await reply(backend, request)
    assert answer.usage.input < 40, "only the new message is computed"
    assert answer.usage.prompt == await backend.count(request)
    assert held(runtime).count(LINES) == 1
    # the next request finds the hole that it has made
    last = replace(request, messages=(*more, answer.message, Message.user("Thanks.")))
    answer = await reply(backend, last)
    assert answer.usage.input < 40
    assert (await backend.edit(last, (RESULTS,))).applied == (), "nothing is cleared twice"


async def test_a_cold_cache_never_computes_what_is_cleared(make: Make) -> None:
    backend, runtime = make("Fine.", n_ctx=2048)  # the whole conversation would not fit
    messages = (*session(read("1"), read("2", "b.py"), read("3", "c.py")), Message.user("Go on."))
    edited = await backend.edit(Request("fake", messages), (replace(RESULTS, keep=1),))
    answer = await reply(backend, Request("fake", messages, cleared=edited.cleared))
    assert answer.usage.input == edited.n_after
    assert held(runtime).count(LINES) == 1


async def test_a_memory_without_holes_keeps_what_is_cleared_as_long_as_it_fits(make: Make) -> None:
    backend, runtime = make("Fine.", "Fine.", n_ctx=8192, memory=RECURRENT)
    messages = (*session(read("1"), read("2", "b.py")), Message.user("Go on."))
    edited = await backend.edit(Request("fake", messages), (RESULTS,))
    answer = await reply(backend, Request("fake", messages, cleared=edited.cleared))
    assert answer.message.text == "Fine."
    assert held(runtime).count(LINES) == 2


@pytest.mark.parametrize(
    ("edit", "cleared"),
    [
        (RESULTS, {(2, 0), (4, 0)}),
        (replace(RESULTS, keep=0), {(2, 0), (4, 0), (6, 0)}),
        (replace(RESULTS, keep=None), set()),
        (replace(RESULTS, keep=5), set()),
        (replace(RESULTS, excluded=frozenset({"read_file"})), set()),
        (replace(RESULTS, trigger_tokens=10**6), set()),
        (replace(RESULTS, trigger_calls=2), {(2, 0), (4, 0)}),
        (replace(RESULTS, trigger_calls=3), set()),
        (replace(RESULTS, least_tokens=10**5), set()),
        (replace(RESULTS, inputs=True), {(1, 0), (2, 0), (3, 0), (4, 0)}),
        (replace(RESULTS, inputs=frozenset({"other"})), {(2, 0), (4, 0)}),
        (Edit("thoughts", trigger_tokens=0, keep=0), set()),  # the template shows none
        (Edit("compact", trigger_tokens=0), {(n, WHOLE) for n in range(1, 5)}),
        (Edit("compact", trigger_tokens=4000), set()),
        (Edit("compact", trigger_tokens=3000), {(n, WHOLE) for n in range(1, 5)}),
    ],
)
async def test_edits(make: Make, edit: Edit, cleared: set[tuple[int, int]]) -> None:
    backend, _ = make("Fine.", n_ctx=8192)
    messages = session(read("1"), read("2", "b.py"), read("3", "c.py"))
    edited = await backend.edit(Request("fake", messages), (edit,))
    assert set(edited.cleared) == cleared
    assert bool(edited.applied) == bool(cleared)
    n = await backend.count(Request("fake", messages))
    assert edited.n_before == n
    assert edited.n_after == await backend.count(Request("fake", messages, cleared=edited.cleared))


async def test_a_window_that_stays_longer_than_its_threshold_is_not_compacted_with_every_request(
    make: Make,
) -> None:
    edit = Edit("compact", trigger_tokens=1000)
    system = Message.system("Be kind. " * 200)
    turn = (Message.user("Why is that so? " * 5), Message.assistant("Because it is. " * 5))
    for n_ctx, n_turns in ((16_384, 24), (2_560, 8)):
        backend, _ = make("Fine.", n_ctx=n_ctx)
        messages, cleared, compacted = [system], frozenset[tuple[int, int]](), list[int]()
        for _ in range(n_turns):
            messages += turn
            asked = Request("fake", (*messages, Message.user("Go on.")), cleared=cleared)
            edited = await backend.edit(asked, (edit,))
            compacted.append(sum(each.tokens for each in edited.applied))
            cleared = edited.cleared
        if n_ctx == 16_384:
            assert [n for n in compacted[1:] if 0 < n < 500] == []
            assert 2 <= sum(n > 0 for n in compacted) <= n_turns // 2
        else:
            assert compacted[-1] > 0, "before the window is full"


async def test_edits_work_one_after_the_other(make: Make) -> None:
    backend, _ = make("Fine.", n_ctx=8192)
    messages = session(read("1"), read("2", "b.py"), read("3", "c.py"))
    both = (replace(RESULTS, keep=2), Edit("compact", trigger_tokens=3000))
    edited = await backend.edit(Request("fake", messages), both)
    assert [each.kind for each in edited.applied] == ["results"], "behind it the prompt is short enough"
    await asyncio.sleep(0)
