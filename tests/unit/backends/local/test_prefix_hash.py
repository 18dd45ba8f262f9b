"""Hashes of a history: equal where the whole of it is, however often and for whatever they are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.local.prefix_hash import prefix_hashes
from shepherd.core import Audio, BadCall, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from shepherd.dialects.render.replay import meaning

WORD = st.sampled_from(["", "a", " a", "ab", "a\n"])
PART: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, WORD),
    st.builds(Reasoning, WORD),
    st.builds(ToolCall, WORD, WORD, st.sampled_from(['{"a": 1, "b": 2}', '{"b":2,"a":1}', "{", "{}"])),
    st.builds(BadCall, WORD, WORD),
    st.builds(ToolResult, WORD, st.lists(st.builds(Text, WORD), max_size=2).map(tuple)),
    st.builds(Image, st.just("image/png"), st.sampled_from([b"x", b"y"])),
    st.builds(Audio, st.just("audio/wav"), st.sampled_from([b"x", b"y"])),
)
MESSAGE = st.builds(
    Message, st.sampled_from(["user", "assistant", "tool", "system"]), st.lists(PART, max_size=3).map(tuple)
)
HISTORY = st.lists(MESSAGE, max_size=4)


def said(message: Message, *, exact: bool) -> object:
    """What a hash of the message must tell apart, as a plain value."""
    parts: list[object] = []
    for part in message.parts:
        match part:
            case ToolCall():
                parts.append(("call", part.id if exact else "", meaning(part)))
            case ToolResult():
                parts.append(("result", part.call_id if exact else "", part.parts))
            case Image() | Audio():
                parts.append(("media", part))
            case BadCall():
                parts.append(("bad", part.raw))
            case _:
                pass  # texts and thoughts count together
    text = message.text.strip() if message.role == "assistant" else message.text
    return message.role, text, parts, message.reasoning.strip() if exact else ""


@given(HISTORY, HISTORY, st.booleans())
def test_two_histories_have_the_hashes_in_common_that_they_have_messages(
    mine: list[Message], other: list[Message], exact: bool
) -> None:
    def n_same(a: Sequence[object], b: Sequence[object]) -> int:
        return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

    theirs = [*mine[:2], *other]
    hashes = [prefix_hashes(messages, exact=exact) for messages in (mine, theirs)]
    values = [[said(message, exact=exact) for message in messages] for messages in (mine, theirs)]
    assert n_same(*hashes) == n_same(*values)


@given(HISTORY, st.booleans())
def test_what_a_message_has_kept_of_itself_is_no_part_of_it(history: list[Message], exact: bool) -> None:
    fresh = [replace(message) for message in history]
    first = prefix_hashes(history, "mine", exact=exact)
    assert prefix_hashes(history, "mine", exact=exact) == first, "computed once, the same from then on"
    assert prefix_hashes(fresh, "mine", exact=exact) == first
    assert history == fresh
    assert repr(history) == repr([replace(message) for message in history])
    assert not history or prefix_hashes(history, "theirs", exact=exact) != first


@pytest.mark.parametrize("kind", [Image, Audio])
def test_files_of_one_size_are_told_apart(kind: type[Image | Audio]) -> None:
    one, other, same = (Message("user", (kind("x/y", data),)) for data in (b"x", b"y", b"x"))
    assert prefix_hashes([one], "") == prefix_hashes([same], "") != prefix_hashes([other], "")
    in_result = [Message("tool", (ToolResult("a", (kind("x/y", data),)),)) for data in (b"x", b"y")]
    assert prefix_hashes(in_result[:1], "") != prefix_hashes(in_result[1:], "")
