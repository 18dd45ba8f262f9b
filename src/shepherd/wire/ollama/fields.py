"""What Ollama's two ways of generating share, `/api/chat` and `/api/generate`: how to answer, how long to keep the
model, and the shape of errors.

Ollama's own fields stand in the body, the sampler's in `options`. What only says how to run a model (`num_gpu`,
`num_thread`, `num_batch`, ...) is the configuration's business here and is passed over like any unknown field.
"""

from __future__ import annotations

import base64
import binascii
import logging
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from shepherd.core import Image, InvalidRequest, ReasoningLevel, ShepherdError, UnknownModel
from shepherd.core.limit import INT64_MAX
from shepherd.wire.base import Fields, Json, Range, shown, wrong
from shepherd.wire.openai.format import ANY_OBJECT
from shepherd.wire.openai.shapes import UNEXPECTED
from shepherd.wire.sampling import decode_sampling, decode_stop

logger = logging.getLogger(__name__)

FOR_EVER = -1.0
"""`Request.extra["keep_alive"]`, in seconds, of a model that is never to be unloaded."""
LONGEST_S = 2.0**31
"""68 years; what is longer is for ever, and no date of any calendar either."""


def encode_error(error: Exception) -> tuple[int, Json]:
    """HTTP status and body. Of an exception that nobody foresaw, nothing is told."""
    if isinstance(error, UnknownModel):
        # Clients look for the words "not found".
        known = f"; known: {', '.join(error.known)}" if error.known else ""
        return error.status, {"error": f"model {error.model!r} not found{known}"}
    if not isinstance(error, ShepherdError):
        return 500, {"error": UNEXPECTED}
    # A provider's odd status (a redirect, say) must not become ours.
    return error.status if 400 <= error.status <= 599 else 502, {"error": error.message}


def decode_common(body: Fields) -> dict[str, Any]:
    """What both ways say alike, as arguments of a `Request`. Raises: `InvalidRequest`."""
    options = body.find_object("options") or Fields({}, "options")
    schema = _decode_format(body)
    extra: Json = {} if schema is None else {"constrained_by": "format"}
    if (keep_alive := decode_keep_alive(body)) is not None:
        extra["keep_alive"] = keep_alive
    if (n_ctx := options.find_integer("num_ctx")) is not None:
        # What does not fit is refused in words, never cut: the wish itself is no reason to fail.
        logger.debug("options.num_ctx is %d: passed over, the cache says how long a conversation may be", n_ctx)
        extra["num_ctx"] = n_ctx
    return {
        "model": body.find_string("model") or "",  # none = whatever the routes give to nobody in particular
        "sampling": decode_sampling(options),
        "max_tokens": _decode_num_predict(options),
        "stop": decode_stop(options),
        "reasoning": _decode_think(body),
        "schema": schema,
        "logprobs": _decode_logprobs(body),
        "on_full": {None: None, True: "evict", False: "error"}[body.find_boolean("truncate")],
        "extra": extra,
    }


def streams(body: Fields) -> bool:
    """Whether the answer is a stream: it is unless the body says no."""
    return body.find_boolean("stream") is not False


def _decode_num_predict(options: Fields) -> int | None:
    said = options.find_integer("num_predict", Range(-2, INT64_MAX))
    return said if said is not None and said > 0 else None  # 0, -1 and -2 are Ollama's words for "no limit"


_LEVELS: dict[str, ReasoningLevel] = {"low": "low", "medium": "medium", "high": "high", "max": "high"}


def _decode_think(body: Fields) -> ReasoningLevel | None:
    match body.find_any("think"):
        case None:
            return None
        case False:
            return "off"
        case True:
            return "medium"
        case str() as level if level in _LEVELS:
            return _LEVELS[level]
        case other:
            raise wrong(body.at("think"), f"true, false or one of {', '.join(_LEVELS)}", other)


def _decode_format(body: Fields) -> Json | None:
    match body.find_any("format"):
        case None | "":
            return None
        case "json":
            return ANY_OBJECT
        case dict() as schema:
            return schema
        case other:
            raise wrong(body.at("format"), '"json" or a JSON schema: an object', other)


def _decode_logprobs(body: Fields) -> int | None:
    n_top = body.find_integer("top_logprobs", Range(0, 20))
    return (n_top or 0) if body.find_boolean("logprobs") else None


# ---- how long a model is kept


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(rf"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:{'|'.join(_UNITS)}))+")
_STEP = re.compile(rf"([\d.]+)({'|'.join(_UNITS)})")


def decode_keep_alive(body: Fields) -> float | None:
    """Seconds; 0 = unload as soon as it has answered, `FOR_EVER` for any negative value. Raises: `InvalidRequest`."""
    said = body.find_any("keep_alive")
    if said is None:
        return None
    seconds = _seconds(said)
    if seconds is None or not math.isfinite(seconds):
        expected = 'a number of seconds or a duration such as "5m" (0 = unload at once, -1 = keep for ever)'
        raise wrong(body.at("keep_alive"), expected, said)
    return seconds if 0 <= seconds < LONGEST_S else FOR_EVER


def _seconds(said: object) -> float | None:
    if isinstance(said, bool):
        return None
    if isinstance(said, int | float):
        return float(said) if abs(said) < 1e300 else None
    if not isinstance(said, str) or len(said) > 100:
        return None
    if _DURATION.fullmatch(said):
        total = sum(float(number) * _UNITS[unit] for number, unit in _STEP.findall(said))
        return -total if said.startswith("-") else total
    return float(said) if re.fullmatch(r"[+-]?\d+(\.\d+)?", said) else None  # clients send "-1" and "300", too


# ---- images


_SIGNATURES: Sequence[tuple[bytes, int, str]] = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF8", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"BM", 0, "image/bmp"),
)
"""How files of each kind begin, from which byte on."""


def decode_images(body: Fields) -> tuple[Image, ...]:
    """The images, which are base64 without a word about their kind. Raises: `InvalidRequest`."""
    return tuple(
        _decode_image(text, f"{body.at('images')}[{index}]")
        for index, text in enumerate(body.find_strings("images") or ())
    )


def _decode_image(text: str, path: str) -> Image:
    if text.startswith("data:"):  # some clients leave the head of a data URL on it
        text = text.partition(",")[2]
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{path} must be an image in base64, not {shown(text)}: {error}", field=path) from error
    if not data:
        raise InvalidRequest(f"{path} holds an image of 0 bytes", field=path)
    kinds = (kind for sign, at, kind in _SIGNATURES if data[at : at + len(sign)] == sign)
    return Image(next(kinds, "application/octet-stream"), data)


# ---- a body that asks for nothing


Errand = Literal["", "load", "unload"]
"""What a body wants that has nothing to answer: that the model be there, or be gone. Empty for all others."""


def side_task_of(extra: Json) -> Errand:
    """What a body without anything to answer wants: it depends on how long the model is to be kept."""
    return "unload" if extra.get("keep_alive") == 0 else "load"
