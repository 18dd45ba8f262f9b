"""Why an answer ended, in any word of any gateway: a cut, a filter or a failure never looks like a whole answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from shepherd.core import Event, Message, Reply, Request, fold
from shepherd.wire.anthropic import client as anthropic
from shepherd.wire.client import Endpoint, Failure
from shepherd.wire.ending import ending_of, word_of
from shepherd.wire.gemini import client as gemini
from shepherd.wire.ollama import client as ollama
from shepherd.wire.openai import chat
from shepherd.wire.openai import client as openai
from shepherd.wire.openai.responses import client as responses

ENDPOINT = Endpoint("m", "up:m")
ASK = Request("m", (Message.user("Hello."),))
MEANINGS: dict[str, tuple[str, ...]] = {
    "end": ("stop", "STOP", "end_turn", "endTurn", "EOS", "eos_token", "COMPLETE", "FinishReason.STOP", "done"),
    "length": (
        "length", "LENGTH", "Length", "MAX_TOKENS", "max-tokens", "maxTokens", "max_output_tokens", "model_length",
        "TOKEN_LIMIT", "model_context_window_exceeded", "FinishReason.MAX_TOKENS", "abort", "cancelled", "repetition",
    ),
    "filtered": (
        "content_filter", "CONTENT_FILTER", "content_filtered", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "SPII",
        "BLOCKLIST", "refusal", "IMAGE_SAFETY", "guardrail_intervened", "ERROR_TOXIC", "sensitive",
    ),
}  # fmt: skip
FAILURES = ("error", "ERROR", "insufficient_system_resource", "network_error", "TIMEOUT")
UNREADABLE = ("MALFORMED_FUNCTION_CALL", "malformed_model_output", "UNEXPECTED_TOOL_CALL")
UNKNOWN = ("OTHER", "FINISH_REASON_UNSPECIFIED", "a_new_reason", "7", "終わり", "...")


def answer(protocol: str, word: Any, text: str) -> Iterator[Event]:
    """The events of an answer with this reason, in a protocol's own form."""
    match protocol:
        case "openai.chat":
            body: Any = {"choices": [{"message": {"content": text}, "finish_reason": word}]}
            return openai.decoder(ASK, ENDPOINT).whole(body)
        case "anthropic":
            blocks = [{"type": "text", "text": text}] if text else []
            return anthropic.decoder(ASK, ENDPOINT).whole({"content": blocks, "stop_reason": word})
        case "gemini":
            parts = [{"text": text}] if text else []
            body = {"candidates": [{"content": {"parts": parts}, "finishReason": word}]}
            return gemini.decoder(ASK, ENDPOINT).whole(body)
        case "ollama":
            return ollama.decoder(ASK, ENDPOINT).whole(
                {"message": {"content": text}, "done": True, "done_reason": word}
            )
    content = [{"type": "output_text", "text": text}] if text else []
    body = {"status": "incomplete", "output": [{"type": "message", "content": content}]}
    return responses.decoder(ASK, ENDPOINT).whole(body | {"incomplete_details": {"reason": word}})


BY_WORD = ["openai.chat", "anthropic", "gemini", "ollama"]


@pytest.mark.parametrize("protocol", [*BY_WORD, "openai.responses"])
def test_a_word_means_the_same_in_every_protocol(protocol: str) -> None:
    for meaning, words in MEANINGS.items():
        for word in words:
            if protocol == "openai.responses" and meaning == "end":
                continue  # its answers are incomplete by their status
            reply = fold(answer(protocol, word, "Once"))
            assert (reply.reason, reply.message.text) == (meaning, "Once"), word


@pytest.mark.parametrize("protocol", BY_WORD)
def test_a_word_that_nobody_knows_is_no_end_and_is_logged(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    for word in UNKNOWN:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            reply = fold(answer(protocol, word, "Once"))
        assert (reply.reason, reply.message.text) == ("length", "Once")
        (line,) = caplog.messages
        assert repr(word) in line
        assert "up:m" in line


@pytest.mark.parametrize("protocol", BY_WORD)
def test_a_failure_is_an_error_and_so_is_an_empty_answer_that_the_provider_could_not_read(protocol: str) -> None:
    for word in FAILURES:
        with pytest.raises(Failure, match=word):
            fold(answer(protocol, word, "Once"))
    for word in UNREADABLE:
        with pytest.raises(Failure, match=word):
            fold(answer(protocol, word, ""))
        assert fold(answer(protocol, word, "Once")).reason == "length"


def said_in_chat(reply: Reply) -> Any:
    encoder = chat.encoder(chat.ChatOptions(), id="c", created=1, model="m")
    body = encoder.encode_replies([reply])
    assert isinstance(body, dict)
    return body["choices"][0]


def test_a_client_of_chat_sees_the_provider_s_own_word_beside_ours() -> None:
    for word, ours in (("MAX_TOKENS", "length"), ("a_new_reason", "length"), ("STOP", "stop")):
        choice = said_in_chat(fold(answer("openai.chat", word, "Once")))
        assert (choice["finish_reason"], choice["native_finish_reason"]) == (ours, word)
    for word in ("stop", "length", "content_filter"):
        assert "native_finish_reason" not in said_in_chat(fold(answer("openai.chat", word, "Once")))


def test_a_reason_may_be_an_object_or_a_number_and_null_is_none() -> None:
    given: tuple[Any, ...] = ({"type": "length"}, 2, "x" * 99, None, "", "null", "None", True, [], {})
    assert [word_of(each) for each in given] == ["length", "2", "x" * 80, *[""] * 7]
    assert ending_of("2") is None


def test_a_filter_and_a_cut_stay_what_they_are_if_a_plain_reason_follows() -> None:
    for first, second, reason in (("length", "stop", "length"), ("stop", "length", "length"), ("stop", "stop", "end")):
        decoder = openai.decoder(ASK, ENDPOINT)
        events = [
            event
            for word in (None, first, second)
            for event in decoder.feed(
                "", json.dumps({"choices": [{"delta": {"content": "a"}, "finish_reason": word}]}).encode()
            )
        ]
        assert fold([*events, *decoder.close()]).reason == reason
