"""A history becomes one that every provider accepts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.core import BadCall, Document, Message, Opaque, Part, Reasoning, Role, Text, ToolCall, ToolResult
from shepherd.wire.client import Endpoint
from shepherd.wire.history import NO_RESULT, for_provider, plain

ENDPOINT = Endpoint("claude", "anthropic:claude")
PDF = Document("a.pdf", "application/pdf", b"%PDF-1")
SEARCH = Opaque(
    "anthropic", '{"type": "server_tool_use"}', (ToolCall("s1", "web_search", "{}"), ToolResult("s1", (Text("found"),)))
)


def _call(id: str, signature: str | None = None) -> ToolCall:
    return ToolCall(id, "add", "{}", signature=signature)


def _result(id: str, text: str = "4") -> Message:
    return Message("tool", (ToolResult(id, (Text(text),), "add"),))


def test_calls_and_results_are_paired() -> None:
    asked = Message("assistant", (_call("a"), _call("b")))
    messages = (_result("z", "lost"), asked, _result("b", "B"), _result("b", "again"), Message.user("Go on."))
    front, call, results, rest, last = for_provider(messages, "anthropic", ENDPOINT)
    assert front == Message.user("lost")
    assert call == asked
    assert [part.call_id for part in results.parts if isinstance(part, ToolResult)] == ["a", "b"]
    assert results.parts == (
        ToolResult("a", (Text(NO_RESULT),), "add", is_error=True),
        ToolResult("b", (Text("B"),), "add"),
    )
    assert (rest, last) == (Message.user("again"), Message.user("Go on."))


def test_every_call_has_an_id_of_its_own() -> None:
    """Servers that count from 0 in every answer; Anthropic refuses an id that comes twice."""
    first, second = Message("assistant", (_call("0"),)), Message("assistant", (_call("0"), _call("0_2"), _call("0")))
    history = (first, _result("0", "A"), second, _result("0", "B"), _result("0_2", "C"), _result("0", "D"))
    sent = for_provider(history, "anthropic", ENDPOINT)
    assert sent[:2] == (first, _result("0", "A"))
    ids = [call.id for call in sent[2].calls]
    results = [part for part in sent[3].parts if isinstance(part, ToolResult)]
    assert len({"0", *ids}) == 4
    assert [part.call_id for part in results] == ids
    assert [part.parts for part in results] == [(Text("B"),), (Text("C"),), (Text("D"),)]
    assert for_provider(history[:2], "anthropic", ENDPOINT) == sent[:2]


@pytest.mark.parametrize(
    ("origin", "signature", "stays"),
    [
        (None, "anthropic:x", True),
        ("anthropic:claude", "anthropic:x", True),
        ("anthropic:another", "anthropic:x", False),
        (None, "gemini:x", False),
        ("gemini:pro", "gemini:x", False),
    ],
)
def test_signatures_go_back_only_to_where_they_came_from(origin: str | None, signature: str, stays: bool) -> None:
    thought, hidden = Reasoning("Hm.", signature), Reasoning("", signature, redacted=True)
    message = Message("assistant", (thought, hidden, _call("a", signature)), origin)
    sent, _ = for_provider((message,), "anthropic", ENDPOINT)
    expected = (thought, hidden, _call("a", signature)) if stays else (Reasoning("Hm."), _call("a"))
    assert sent.parts == expected


def test_a_block_of_one_protocol_stays_there_and_is_read_elsewhere() -> None:
    message = Message("assistant", (Text("I look."), SEARCH, Text("Done.")))
    assert for_provider((message,), "anthropic", ENDPOINT) == (message,)
    before, result, after = plain((message,))
    assert before.parts == (Text("I look."), ToolCall("s1", "web_search", "{}"))
    assert result == Message("tool", (ToolResult("s1", (Text("found"),)),))
    assert after == Message.assistant("Done.")


def test_a_document_goes_only_to_a_model_that_reads_it() -> None:
    message = Message("user", (Text("Read this."), PDF))
    (noted,) = plain((message,))
    assert noted.text == "Read this.\n[document: a.pdf, application/pdf, 1 kB; it cannot be read here]"
    (kept,) = for_provider((message,), "anthropic", Endpoint("claude", "x", reads_documents=True))
    assert kept == message


def test_a_call_that_could_not_be_read_is_still_answered() -> None:
    message = Message("assistant", (BadCall("add(", "no end", "a", "add"), BadCall("(((", "no name", "b")))
    call, results = for_provider((message, _result("a")), "anthropic", ENDPOINT)
    assert call.parts == (ToolCall("a", "add", "{}"), Text("((("))
    assert results == _result("a")


_IDS = st.sampled_from("abc")
_PARTS: dict[Role, st.SearchStrategy[Part]] = {
    "user": st.builds(Text, st.just("Hi.")),
    "assistant": st.one_of(st.builds(_call, _IDS), st.just(Text("Yes.")), st.just(SEARCH)),
    "tool": st.builds(lambda id: ToolResult(id, (Text("4"),)), _IDS),
}
_MESSAGES = st.lists(
    st.sampled_from(sorted(_PARTS)).flatmap(
        lambda role: st.lists(_PARTS[role], min_size=1, max_size=3, unique_by=repr).map(
            lambda p: Message(role, tuple(p))
        )
    ),
    max_size=8,
)


@given(_MESSAGES)
def test_any_history_is_paired_and_stays_so(messages: list[Message]) -> None:
    made = for_provider(messages, "gemini", ENDPOINT)
    for before, message in zip((None, *made), made, strict=False):
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if message.role == "tool":
            assert before is not None
            assert results == [call.id for call in before.calls]
        else:
            assert not results
    assert not made or not made[-1].calls
    assert for_provider(made, "gemini", ENDPOINT) == made
