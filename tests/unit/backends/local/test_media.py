"""Which images of a conversation are shown: wrong ones and old ones become notes, in the same way at every request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import recordings
from tests.cases import examples
from tests.pictures import NAMES, WRONG, picture

from shepherd.backends.local.media import (
    AudioLimits,
    ImageLimits,
    MediaLimits,
    find_fault,
    marked,
    media_of,
)
from shepherd.core import Audio, Image, Message, Text, ToolCall, ToolResult
from shepherd.core.messages import newest_input
from shepherd.dialects.render.conversation import noted

LIMITS = MediaLimits(ImageLimits())
BOTH = MediaLimits(ImageLimits(), AudioLimits())
RIGHT = picture()
USER, ANSWER = Message.user("Hi"), Message.assistant("Hello.")
SHOT = Message("user", (Text("Look."), Image("image/png", RIGHT)))
RESULT = Message("tool", (ToolResult("1", (Text("x"), Image("image/png", RIGHT))),))
SYSTEM = Message.system("Be brief.")


def reasons(messages: tuple[Message, ...]) -> list[str]:
    return [image.left_out for message in messages for image in media_of(message)]


RIGHT_FILES = [Image(NAMES[name], picture(name)) for name in sorted(NAMES)]
RIGHT_SOUNDS = [Audio(kind, recordings.recording(kind)) for kind in recordings.NAMES]


@pytest.mark.parametrize("part", [*RIGHT_FILES, *RIGHT_SOUNDS], ids=lambda part: part.media_type)
def test_a_file_of_every_format_is_given_as_what_its_bytes_are(part: Image | Audio) -> None:
    assert find_fault(part, BOTH) is None
    (message,) = marked([Message("user", (replace(part, media_type="x/lie"),))], BOTH)
    assert message.parts == (part,)


WRONG_FILES = {**WRONG, **{f"sound: {what}": wrong for what, wrong in recordings.WRONG.items()}}


@pytest.mark.parametrize("what", sorted(WRONG_FILES))
def test_a_wrong_file_becomes_a_note_that_says_why(what: str) -> None:
    data, status, says = WRONG_FILES[what]
    is_sound = what.startswith("sound: ")
    part = Audio("audio/wav", data(), path="a") if is_sound else Image("image/png", data(), path="a")
    fault = find_fault(part, BOTH)
    assert fault is not None
    assert fault.status == status
    assert says in f"{fault.what}; {fault.remedy}"
    before = (Message("user", (part, Text("Hm."))), RESULT)
    after = marked(before, BOTH)
    assert reasons(after) == [f"it {fault.what}", ""]
    assert marked(after, BOTH) == after
    assert after[1] is before[1]
    note = noted(next(media_of(after[0])))
    assert note.startswith("[image: image/png, " if isinstance(part, Image) else "[audio: audio/wav, ")
    assert note.endswith(f"; it {fault.what}; not {'shown' if isinstance(part, Image) else 'played'}]")


@pytest.mark.parametrize(
    ("messages", "at"),
    [
        ((SHOT,), 0),
        ((USER, ANSWER, SHOT), 2),
        ((SHOT, SYSTEM), 0),
        ((USER, SHOT), 1),
        ((SHOT, ANSWER), None),
        ((SHOT, ANSWER, RESULT), None),
        ((USER, ANSWER, RESULT, SHOT), None),
        ((USER, Message("assistant", (ToolCall("1", "f", "{}"),)), RESULT), None),
        ((SYSTEM,), None),
        ((), None),
    ],
)
def test_the_newest_message_is_the_one_that_the_model_answers(messages: tuple[Message, ...], at: int | None) -> None:
    assert newest_input(messages) == at


def test_an_address_that_was_not_fetched_is_a_note() -> None:
    message = Message("user", (Image(url="https://x.example/a.png"), Image(url="https://x.example/b", data=RIGHT)))
    (shown,) = marked([message], LIMITS)
    assert reasons((shown,)) == ["its address was not fetched", ""]
    assert noted(next(media_of(shown))) == "[image: from x.example; its address was not fetched; not shown]"


def test_old_images_leave_a_quarter_of_the_limit_at_a_time() -> None:
    left = [reasons(marked([SHOT] * n, LIMITS)).count("") for n in range(20, 32)]
    assert left == [20, 16, 17, 18, 19, 20, 16, 17, 18, 19, 20, 16]


KINDS = st.sampled_from(
    [USER, ANSWER, SHOT, RESULT, Message("user", (Image("image/png", b"<html>"), Image("", RIGHT)))]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(KINDS, max_size=40), st.integers(1, 9))
def test_the_notes_of_a_growing_conversation_change_only_when_a_block_of_old_images_leaves(
    messages: list[Message], most: int
) -> None:
    limits = MediaLimits(ImageLimits(max_count=most))
    before: list[str] = []
    n_changes = 0
    for n in range(len(messages) + 1):
        now = reasons(marked(messages[:n], limits))
        shown = [at for at, why in enumerate(now) if not why]
        right = [at for at, why in enumerate(now) if not why.startswith("it ")]
        assert len(shown) <= most
        assert shown == right[len(right) - len(shown) :]  # the newest
        assert len(right) <= most or len(shown) > most - 1 - max(1, most // 4)
        n_changes += now[: len(before)] != before
        before = now
    n_right = len([why for why in before if not why.startswith("it ")])
    assert n_changes <= -(-max(0, n_right - most) // max(1, most // 4))


def test_images_and_recordings_are_counted_apart() -> None:
    limits = MediaLimits(ImageLimits(max_count=1), AudioLimits(max_count=2))
    message = Message("user", (Image("image/png", RIGHT), Audio("audio/wav", recordings.wav()), Text("x")))
    image, sound = "only the newest images are shown, at most 1", "only the newest recordings are played, at most 2"
    assert reasons(marked([message] * 3, limits)) == [image, sound, image, "", "", ""]


def test_what_a_model_has_no_sense_for_stays_as_it_is() -> None:
    message = Message("user", (Image("image/png", b"<html>"), Audio("audio/wav", b"<html>")))
    for limits, left in (
        (MediaLimits(), ["", ""]),
        (MediaLimits(images=ImageLimits()), ["it is an HTML page", ""]),
        (MediaLimits(audio=AudioLimits()), ["", "it is an HTML page"]),
    ):
        assert reasons(marked([message], limits)) == left
