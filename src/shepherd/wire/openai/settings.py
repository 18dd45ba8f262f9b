"""Fields that chat, completions and Responses share, and what they become in a request."""

from __future__ import annotations

from shepherd.core import ReasoningLevel
from shepherd.core.request import salted
from shepherd.wire.base import Fields, Json, field_error
from shepherd.wire.openai.format import Format
from shepherd.wire.sampling import computing_of, limit_of, sampling_of
from shepherd.wire.table import BOOLEAN, STRING, Field, FieldKind, inside

EFFORTS: dict[str, ReasoningLevel] = {
    "none": "off",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}

_USAGE = Field("include_usage", BOOLEAN, "Send the token counts before the end of the stream.", default=False)
STREAM_OPTIONS = Field("stream_options", inside(_USAGE))
RETURN_PROGRESS = Field(
    "return_progress", BOOLEAN, "Report in the stream how much of the prompt is read (llama-server).", default=False
)
TIMINGS_PER_TOKEN = Field(
    "timings_per_token", BOOLEAN, "Each piece of a stream says how fast the answer is (llama-server).", default=False
)
VERBOSE = Field(
    "verbose", BOOLEAN, "Add __verbose to a whole answer: the prompt as it was read, the sampling.", default=False
)
CACHE_KEY = Field("prompt_cache_key", STRING, "Names the conversation.")
USER = Field("user", STRING, "Names the user.")


def _salt(body: Fields, key: str) -> str | None:
    salt = body.find_string(key)
    if salt == "":
        raise field_error(key, "is empty; send a text that others cannot guess, or leave it out")
    return salt


SALT = Field(
    "cache_salt",
    FieldKind(_salt, {"type": ["string", "null"], "minLength": 1}),
    "What is cached is shared by requests with the same salt only.",
)
NAMES = (CACHE_KEY, SALT, USER)


def _template_arguments(body: Fields, key: str) -> Json | None:
    arguments = body.find_object(key)
    if arguments is None:
        return None
    for name in SWITCHES:
        arguments.find_boolean(name)
    return arguments.body


SWITCHES = ("enable_thinking", "thinking")
"""Qwen's switch of thinking, and that of Granite and DeepSeek."""
_SWITCH = {"type": "object", "properties": {name: {"type": "boolean"} for name in SWITCHES}}
TEMPLATE_ARGUMENTS = Field(
    "chat_template_kwargs", FieldKind(_template_arguments, _SWITCH), "Values for the chat template."
)


def reasoning_level(
    given: Json, effort: str | None, *more: bool | None, efforts: dict[str, ReasoningLevel] = EFFORTS
) -> ReasoningLevel | None:
    """How much the model thinks, from a word of `efforts`, the switches of the template's arguments, and `more`."""
    arguments = given["chat_template_kwargs"] or {}
    switches = (*map(arguments.get, SWITCHES), *more)
    if False in switches:  # the most explicit word wins
        return "off"
    if effort is not None:
        return efforts[effort]
    return "on" if True in switches else None


def request_settings(given: Json, form: Format, max_tokens: int | None) -> Json:
    """Arguments of `Request`, from the values of a table that holds `GENERATION` and the rows above."""
    user = given["user"] or None
    arguments = given.get("chat_template_kwargs")
    return {
        "model": given["model"],
        "sampling": sampling_of(given),
        "max_tokens": limit_of(max_tokens),
        "stop": given["stop"],
        "lora": given["lora"],
        **computing_of(given),
        "schema": form.schema,
        "strict_schema": form.strict,
        "grammar": form.grammar,
        "session": given.get("session_id") or given["prompt_cache_key"] or user,
        "user": user,
        "owner": salted(given["cache_salt"]) if given["cache_salt"] else "",
        "extra": {
            **({} if arguments is None else {"chat_template_kwargs": arguments}),
            **({"constrained_by": form.path} if form.path else {}),
        },
    }
