"""Answers come back whole from clients that cannot carry all of them, to their owner and their model only."""

from __future__ import annotations

from dataclasses import replace

from shepherd.backends.cloud.kept import KeptAnswers, kept_message
from shepherd.core import Message, Opaque, Reasoning, Request, Text, TextDelta, ToolCall, ToolResult, replay

SEARCH = Opaque("anthropic", '{"type":"server_tool_use"}')
ANSWER = Message(
    "assistant",
    (
        Reasoning("I look.", "anthropic:sig=="),
        SEARCH,
        Text("Let me look."),
        ToolCall("t1", "look", '{"at": 1,  "b": 2}', signature="gemini:x"),
        ToolCall("t2", "look", "{}"),
    ),
    "prov:m",
)


def of_client(*ids: str, text: str = "Let me look.", arguments: str = '{"b":2,"at":1}') -> Message:
    """The answer as a client of chat completions sends it back."""
    calls = (ToolCall(ids[0], "look", arguments), ToolCall(ids[1], "look", "{}"))
    return Message("assistant", (Text(text), *calls))


def asking(message: Message, owner: str = "me") -> Request:
    results = tuple(ToolResult(call.id, (Text("r"),)) for call in message.calls)
    return Request("m", (Message.user("q"), message, Message("tool", results)), owner=owner)


def asked_by(owner: str, question: str = "q") -> Request:
    return Request("m", (Message.user(question),), owner=owner)


def test_the_answer_comes_back_as_it_was() -> None:
    kept = KeptAnswers()
    kept.keep(asked_by("me"), ANSWER)
    assert kept.restored(asking(of_client("t1", "t2")), "prov:m").messages[1] == ANSWER
    assert kept.restored(asking(of_client("t1", "t2", text=" Let me look.\n")), "prov:m").messages[1] == ANSWER


def test_a_client_may_have_ids_of_its_own() -> None:
    kept = KeptAnswers()
    kept.keep(asked_by("me"), ANSWER)
    request = asking(of_client("call_0", "call_1"))
    restored = kept.restored(request, "prov:m").messages[1]
    assert [call.id for call in restored.calls] == ["call_0", "call_1"]
    assert restored.parts[:3] == ANSWER.parts[:3]
    assert restored.calls[0].arguments == ANSWER.calls[0].arguments


def test_nothing_is_restored_where_it_does_not_belong() -> None:
    kept = KeptAnswers()
    kept.keep(asked_by("me"), ANSWER)
    same = of_client("t1", "t2")
    own = replace(same, parts=(Reasoning("mine", "anthropic:other"), *same.parts))
    for request, origin in (
        (asking(same, owner="you"), "prov:m"),
        (asking(same), "prov:other"),
        (asking(same), "other:m"),
        (asking(replace(same, origin="other:m")), "prov:m"),
        (asking(of_client("t1", "t2", text="Other text")), "prov:m"),
        (asking(of_client("t1", "t2", arguments='{"at":2,"b":2}')), "prov:m"),
        (asking(own), "prov:m"),
        (asking(Message.user("Let me look.")), "prov:m"),
    ):
        assert kept.restored(request, origin) is request


def test_text_alone_is_found_by_what_it_says() -> None:
    kept = KeptAnswers()
    answer = Message("assistant", (SEARCH, Text("Found it.")), "prov:m")
    kept.keep(asked_by("me"), answer)
    kept.keep(asked_by("me"), Message("assistant", (Text("plain"),), "prov:m"))
    said = (Message.assistant("Found it."), Message.assistant("plain"))
    request = Request("m", (Message.user("q"), *said), owner="me")
    assert kept.restored(request, "prov:m").messages[1:] == (answer, Message.assistant("plain"))
    other = Request("m", (Message.user("another question"), *said), owner="me")
    assert kept.restored(other, "prov:m") is other, "the same words, and another conversation"


def test_a_client_that_carries_thoughts_but_not_every_seal_gets_them_all_back() -> None:
    kept = KeptAnswers()
    kept.keep(asked_by("me"), ANSWER)
    client = of_client("t1", "t2")
    for carried in ((Reasoning("I look."),), (Reasoning("I look.", "anthropic:sig=="),), (SEARCH,)):
        message = replace(client, parts=(*carried, *client.parts))
        assert kept.restored(asking(message), "prov:m").messages[1] == ANSWER
    request = asking(replace(ANSWER, origin=None))
    assert kept.restored(request, "prov:m") is request


def test_it_is_bounded_for_each_owner() -> None:
    kept = KeptAnswers(n_bytes=10_000, n_owners=2)
    kept.keep(asked_by("other"), ANSWER)
    for number in range(50):
        call = ToolCall(f"n{number}", "look", "{}", signature="gemini:" + "s" * 1000)
        kept.keep(asked_by("me"), Message("assistant", (call,), "prov:m"))

    def is_held(owner: str, id: str) -> bool:
        message = Message("assistant", (ToolCall(id, "look", "{}"),))
        restored = kept.restored(Request("m", (message,), owner=owner), "prov:m").messages[0]
        return restored.calls[0].signature is not None

    assert is_held("me", "n49")
    assert kept.restored(asking(of_client("t1", "t2"), owner="other"), "prov:m").messages[1] == ANSWER
    kept.keep(asked_by("third"), ANSWER)
    assert not is_held("me", "n49")


def test_only_answers_that_may_lose_something_are_folded() -> None:
    events = [*replay(ANSWER)]
    assert kept_message(events) == ANSWER
    plain = [*replay(Message("assistant", (Reasoning("hm"), Text("a")), "prov:m"))]
    assert kept_message(plain) is None
    long = [events[0], *[TextDelta("ab")] * 20_000, *events[1:]]
    message = kept_message(long)
    assert message is not None
    assert message.parts[0] == Text("ab" * 20_000)
