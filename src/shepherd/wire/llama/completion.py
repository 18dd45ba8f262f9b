"""The server half of llama-server's `POST /completion`: texts to continue, in its own form.

    {"prompt": "Once", "n_predict": 8} ─▶ {"content": " upon", "stop": true, "timings": {...}, ...}

Continue and most scripts for llama.cpp speak it. A client sends prompts that it has rendered itself: their control
tokens are recognised. OpenAI's body for the same purpose is `openai/completions`.
"""

from __future__ import annotations

from dataclasses import replace

from shepherd.core import Completion, InvalidRequest, Request, TextOrTokens
from shepherd.wire.base import Decoded, Fields, Json
from shepherd.wire.llama.answer import AnswerOptions, Encoder, encode_error
from shepherd.wire.openai.completions import MAX_CHOICES
from shepherd.wire.openai.format import RESPONSE_FORMAT
from shepherd.wire.openai.settings import RETURN_PROGRESS, TIMINGS_PER_TOKEN
from shepherd.wire.sampling import GENERATION, computing_of, limit_of, repeat_request, sampling_of, token_limit
from shepherd.wire.sse import MEDIA_TYPE
from shepherd.wire.table import BOOLEAN, STRINGS, Field, FieldKind, body_schema, integer, read_fields
from shepherd.wire.texts import TEXTS, decode_texts, refuse_media

__all__ = ["MEDIA_TYPE", "Encoder", "decode_request", "encode_error", "encoder"]

MAX_PROBABILITIES = 100
"""Alternatives to each token."""


def _decode_prompts(body: Fields, key: str) -> tuple[TextOrTokens, ...]:
    return decode_texts(body, key, "send a text, or tokens")


FIELDS = (
    *GENERATION,
    Field("prompt", FieldKind(_decode_prompts, TEXTS), "A text, tokens, or an array of either; control tokens count."),
    Field("n_predict", token_limit(0), "Tokens at most; -1 = no limit.", also=("max_tokens", "max_completion_tokens")),
    Field("n_probs", integer(0, MAX_PROBABILITIES), "Alternatives to each token.", default=0, also=("logprobs",)),
    Field("post_sampling_probs", BOOLEAN, "n_probs are what the token was drawn from, not the model's.", default=False),
    Field("n", integer(1, MAX_CHOICES), "Answers to each prompt.", default=1, also=("n_cmpl",)),
    Field("return_tokens", BOOLEAN, "The tokens of the answer besides its text.", default=False),
    Field("response_fields", STRINGS, "The only fields of a whole answer, such as timings/predicted_n.", default=()),
    RETURN_PROGRESS,
    TIMINGS_PER_TOKEN,
    RESPONSE_FORMAT,
)
BODY = body_schema(*FIELDS, required=["prompt"], example={"prompt": "Once upon a time", "n_predict": 32})


def decode_request(body: Json) -> Decoded[AnswerOptions]:
    refuse_media(Fields(body))
    given = read_fields(Fields(body), FIELDS)
    prompts, n, form = given["prompt"], given["n"], given["response_format"]
    if n * len(prompts) > MAX_CHOICES:
        raise InvalidRequest(
            f"prompt and n ask for {n * len(prompts)} answers; at most {MAX_CHOICES} can be asked for at a time",
            field="prompt" if n == 1 else "n",
        )
    wants_tokens = given["return_tokens"]
    request = Request(
        model=given["model"],
        sampling=sampling_of(given),
        max_tokens=limit_of(given["n_predict"]),
        stop=given["stop"],
        lora=given["lora"],
        **computing_of(given),
        schema=form.schema,
        strict_schema=form.strict,
        grammar=form.grammar,
        logprobs=given["n_probs"] if given["n_probs"] or wants_tokens else None,
        scores_drawn=given["post_sampling_probs"] and given["n_probs"] > 0,
        report=True,
        archive=False,  # no turn of any conversation
        recall=False,
        extra={"constrained_by": form.path} if form.path else {},
    )
    requests = tuple(
        choice
        for prompt in prompts
        for choice in repeat_request(replace(request, completion=Completion(prompt, special=True)), n)
    )
    options = AnswerOptions(
        n_choices=len(requests),
        max_tokens=request.max_tokens,
        settings=_settings(given),
        probabilities=given["n_probs"] > 0,
        drawn=request.scores_drawn,
        tokens=wants_tokens,
        return_progress=given["return_progress"],
        timings_per_token=given["timings_per_token"],
        fields=tuple(given["response_fields"]),
    )
    return Decoded(requests, given["stream"], options)


def _settings(given: Json) -> Json:
    """What the body sets beside sampling, by llama-server's names."""
    return {
        "n_predict": -1 if given["n_predict"] is None else given["n_predict"],
        "n_probs": given["n_probs"],
        "stop": list(given["stop"]),
        "stream": given["stream"],
    }


encoder = Encoder
