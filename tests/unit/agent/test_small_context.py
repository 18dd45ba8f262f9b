"""A turn with more calls than its context has room for: what is answered leaves, whole exchanges at a time."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing

import pytest
from tests.fake_engine import PLAIN, RECURRENT, FakeVocabulary
from tests.unit.agent.test_turn import valid
from tests.unit.backends.local.serving import making

from shepherd.agent.session import Session
from shepherd.agent.turn import CallReturned
from shepherd.core import Evicted, Finished, Text, ToolCall, ToolResult, ToolSpec
from shepherd.tools.base import CallOutcome

N_CALLS = 12
HEADER = "<|im_start|>assistant\n"


def counting(vocabulary: FakeVocabulary) -> Callable[[Sequence[int]], int]:
    """A model that goes through pages: it asks for the one behind the last page it sees, and ends behind the last."""

    def next_token(tokens: Sequence[int]) -> int:
        text = b"".join(map(vocabulary.piece, tokens)).decode("utf-8", "replace")
        before, _, begun = text.rpartition(HEADER)
        pages = re.findall(r"page (\d+)", before.rpartition("<|im_start|>user")[2])
        n = int(pages[-1]) + 1 if pages else 0
        call = {"name": "read_page", "arguments": {"n": n}}
        answer = f"<tool_call>\n{json.dumps(call)}\n</tool_call>" if n < N_CALLS else "Read."
        return answer.encode()[len(begun)] if len(begun) < len(answer) else vocabulary.ids["<|im_end|>"]

    return next_token


class Book:
    """Tools that read pages of a hundred characters."""

    session: str | None = None
    specs = (ToolSpec("read_page"),)

    async def run(
        self, call: ToolCall, *, share: int = 1, tell: Callable[[str], None] = lambda line: None
    ) -> CallOutcome:
        n = json.loads(call.arguments)["n"]
        return CallOutcome(ToolResult(call.id, (Text(f"page {n} {'.' * 100}"),), call.name))


@pytest.fixture(params=[PLAIN, RECURRENT], ids=["attention", "recurrent"])
async def chat(request: pytest.FixtureRequest) -> AsyncIterator[Session]:
    vocabulary = FakeVocabulary()
    async with making() as make:
        backend, _ = make(vocabulary=vocabulary, model=counting(vocabulary), n_ctx=900, memory=request.param)
        yield Session(backend, model="fake", n_ctx=900, toolbox=Book(), on_full="evict")


async def test_the_question_and_the_newest_pages_stay_and_the_transcript_keeps_everything(chat: Session) -> None:
    left, n_returned, widest = 0, 0, 0
    async with aclosing(chat.chat("Read all of the book.")) as happenings:
        async for happening in happenings:
            match happening:
                case Evicted(messages=n):
                    left += n
                    assert n % 2 == 0, "a call and its result leave together"
                case CallReturned():
                    n_returned += 1
                case Finished(usage=usage):
                    widest = max(widest, usage.total)
    assert (n_returned, chat.messages[-1].text) == (N_CALLS, "Read.")
    assert valid(chat.messages)
    assert len(chat.messages) == 2 + 2 * N_CALLS
    assert left > 4
    assert widest <= 900
    assert chat.to_saved().unreported == left, "the model is told with the next message"
    window = await chat.window()
    (turn,) = (row for row in window.rows if row.kind == "turn")
    assert (turn.state, turn.kept) == ("partly", True)
