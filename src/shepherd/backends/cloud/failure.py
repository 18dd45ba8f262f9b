"""Why a provider did not answer: its words, read once, and the error of `core` that they become.

    status, headers, body ─ read ─▶ Failed(kind, words, delay) ─┬▶ tried again (`retryable`, `delay_s`)
    Failure in a stream   ─┘                                    └▶ error_of ─▶ RateLimited, ContextFull, Refused ...

The status alone decides nothing: one provider answers 400 to a wrong key, another 429 where money is missing. The kind
comes from code, type and words first. Bodies are objects, texts, lists, HTML pages, or nothing. Source of the words:
recorded answers of six kinds of provider.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Literal

from shepherd.core import (
    BadReply,
    ContextFull,
    InvalidRequest,
    RateLimited,
    Refused,
    ShepherdError,
    TimedOut,
    Unavailable,
    Unreachable,
    Unsupported,
)
from shepherd.core.dataclasses import dataclass
from shepherd.wire.base import parse_json

FailureKind = Literal[
    "auth",
    "permission",
    "not_found",
    "quota_exhausted",
    "request_too_large",
    "context_length",
    "rate_limit",
    "overloaded",
    "server_error",
    "invalid_request",
    "unreachable",
    "timeout",
    "broken",
]
"""`broken`: an answer that is none, or that ends before its end. The last three have no words of a provider."""
TRANSIENT: frozenset[FailureKind] = frozenset({"rate_limit", "overloaded", "server_error", "unreachable", "broken"})
STATUSES: dict[FailureKind, int] = {
    "auth": 401,
    "permission": 403,
    "not_found": 404,
    "quota_exhausted": 402,
    "request_too_large": 413,
}
"""What a `Refused` of the kind has: clients must not take a wrong key for a wrong request, or no money for a limit of
the rate, which they would try again."""
MAX_WORDS = 2_000
"""Characters of a provider's message that are shown."""


@dataclass(frozen=True, slots=True)
class Failed:
    kind: FailureKind
    words: str
    """Of the provider, in one line."""
    status: int = 0
    """HTTP; 0 = there was no answer."""
    field: str = ""
    """The field of the body that is wrong."""
    retryable: bool = False
    """Whether the same request may succeed at the same provider."""
    delay_s: float | None = None
    """How long the provider asks to wait."""
    request_id: str = ""
    is_unsupported: bool = False
    """The request is wrong for this provider or its model, and may be right elsewhere."""
    needed: int = 0
    limit: int = 0
    """Tokens; 0 = not known. A provider that reports only the excess has a `needed` and no limit."""

    @property
    def is_route(self) -> bool:
        """Whether the path does not exist, rather than the model."""
        return self.status in (404, 405) and "model" not in self.words.lower()


class ProviderFailed(Exception):
    """An attempt has failed; `backend.py` tries again or raises the error of `core`."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.kind)
        self.failed = failed


def error_of(
    failed: Failed, *, provider: str, n_ctx: int | None = None, key_hint: str = "", hide: Callable[[str], str] = str
) -> ShepherdError:
    """The error for users. `key_hint`: where the key is set; `hide` removes secrets."""
    known = f" (request {failed.request_id})" if failed.request_id else ""
    message = hide(f"{provider}: {failed.words}{known}")
    error: ShepherdError
    match failed.kind:
        case "context_length":
            limit = failed.limit or n_ctx or 0
            needed = failed.needed if failed.limit else limit + failed.needed if failed.needed and limit else 0
            error = ContextFull(needed=needed or limit + 1 if limit else 0, limit=limit, reported=message)
        case "invalid_request":
            kind = Unsupported if failed.is_unsupported else InvalidRequest
            error = kind(message, field=hide(failed.field) or None)
        case "rate_limit":
            error = RateLimited(message, backend=provider, retry_after_s=failed.delay_s)
        case "overloaded" | "server_error":
            error = Unavailable(message, backend=provider, retry_after_s=failed.delay_s)
        case "unreachable":
            error = Unreachable(message, backend=provider)
        case "timeout":
            error = TimedOut(message, backend=provider)
        case "broken":
            error = BadReply(message, backend=provider)
        case _:
            message += f"; {key_hint}" if failed.kind == "auth" and key_hint else ""
            error = Refused(message, backend=provider, status=STATUSES[failed.kind], body=hide(failed.words))
    error.request_id = hide(failed.request_id)
    return error


def read(status: int, headers: Mapping[str, str], body: bytes | Any, *, now: datetime | None = None) -> Failed:
    """The failure of an answer. `body`: the bytes, or the JSON of a record in a stream, where `status` is 200
    or what the record names. `headers` must ignore case, or be in lower case."""
    found = _Words(_json_of(body) if isinstance(body, bytes) else body)
    status = found.status if status < 400 and found.status else status
    words = found.message or _phrase(status)
    if found.text and found.text not in words:
        words = f"{words}: {found.text}"
    kind = _kind(status, found, words.lower())
    retryable = kind in TRANSIENT
    if (advice := headers.get("x-should-retry", "")) in ("true", "false"):
        retryable = advice == "true"
    needed, limit = _numbers(found, words) if kind == "context_length" else (0, 0)
    return Failed(
        kind,
        _one_line(words),
        status,
        found.field,
        retryable,
        _delay(headers, found, now or datetime.now(UTC)),
        request_id_of(headers) or _one_line(found.request_id)[:200],
        kind == "invalid_request" and bool(found.names & _NOT_HERE or _UNSUPPORTED.search(words.lower())),
        needed,
        limit,
    )


# -- words -----------------------------------------------------------------------------------------------------------


class _Words:
    def __init__(self, body: Any) -> None:
        self.message = self.field = self.request_id = ""
        self.names = set[str]()
        """Codes and types, of every level, in lower case."""
        self.status = 0
        self.text = ""
        """What a provider behind the provider reports."""
        self.retry_delay = ""
        self.counts: tuple[int, int] = (0, 0)
        self._read(body, 4)

    def _read(self, body: Any, depth: int) -> None:
        if depth == 0:
            return
        if isinstance(body, str):
            self._read_text(body, depth)
        elif isinstance(body, list):
            self._read(next((each for each in body if isinstance(each, dict)), " ".join(map(str, body))), depth - 1)
        elif isinstance(body, dict):
            self._read_object(body, depth)

    def _read_text(self, text: str, depth: int) -> None:
        if text.lstrip()[:1] in ("{", "[") and isinstance(inner := parse_json(text), dict | list):
            self._read(inner, depth - 1)
        self.message = self.message or text

    def _read_object(self, body: dict[str, Any], depth: int) -> None:
        self.names |= {_word(body.get(name)).lower() for name in ("code", "type", "status", "reason")}
        self.field = self.field or _word(body.get("param"))
        self.request_id = self.request_id or _word(body.get("request_id"))
        for name in ("status_code", "status", "code"):
            value = body.get(name)
            if not self.status and isinstance(value, int | str) and re.fullmatch(r"[45]\d\d", str(value)):
                self.status = int(value)
        for detail in body["details"] if isinstance(body.get("details"), list) else ():
            if isinstance(detail, dict):
                self.names.add(_word(detail.get("reason")).lower())
                self.retry_delay = self.retry_delay or _word(detail.get("retryDelay"))
        if isinstance(metadata := body.get("metadata"), dict):
            self.text = self.text or str(metadata.get("raw") or "")[:MAX_WORDS].strip()
        if isinstance(needed := body.get("n_prompt_tokens"), int) and isinstance(limit := body.get("n_ctx"), int):
            self.counts = needed, limit
        inner = next((body[key] for key in ("error", "response", "message", "detail", "errors") if body.get(key)), None)
        if isinstance(inner, dict | list) and not (isinstance(inner, list) and "msg" in str(inner)):
            self._read(inner, depth - 1)
        elif isinstance(inner, list):  # FastAPI: each with `loc` and `msg`
            self.message = self.message or "; ".join(
                f"{each.get('loc')}: {each.get('msg')}" for each in inner if isinstance(each, dict)
            )
        elif inner is not None:
            self._read_text(str(inner), depth)


def _word(value: Any) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _json_of(body: bytes) -> Any:
    """JSON, the first record of a stream, or the words of a page."""
    text = body.decode("utf-8", "replace").strip("\ufeff \t\r\n")
    if (found := parse_json(text)) is not None:
        return found
    for line in text.splitlines()[:20]:
        if line.startswith(("data:", "error:")) and isinstance(found := parse_json(line.partition(":")[2]), dict):
            return found
    if text.startswith("<"):
        return page_words(text)
    return text


def page_words(text: str) -> str:
    """What an HTML page shows: its title, or the beginning of its text."""
    text = text[:100_000]
    title = re.search(r"<title[^>]*>([^<]*)", text, re.IGNORECASE)
    if title and title[1].strip():
        return html.unescape(title[1].strip())
    text = re.sub(r"<(script|style)\b[^>]*>[^<]*", " ", text, flags=re.IGNORECASE)
    return html.unescape(re.sub(r"<[^>]*>", " ", text)).strip()[:300]


def _one_line(words: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in words[: 2 * MAX_WORDS]).strip()
    return line if len(line) <= MAX_WORDS else line[:MAX_WORDS] + "..."


def _phrase(status: int) -> str:
    try:
        return f"status {status}, {HTTPStatus(status).phrase}"
    except ValueError:
        return f"status {status}" if status else "the provider reports an error without a word"


def request_id_of(headers: Mapping[str, str]) -> str:
    """What the provider calls the request; empty if it sends no name."""
    names = ("request-id", "x-request-id", "x-goog-request-id", "cf-ray")
    return _one_line(next(filter(None, (headers.get(name) for name in names)), ""))[:200]


# -- kinds -----------------------------------------------------------------------------------------------------------

_CODES: dict[FailureKind, frozenset[str]] = {
    "context_length": frozenset(
        {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}
    ),
    "auth": frozenset({"invalid_api_key", "api_key_invalid", "authentication_error", "unauthenticated"}),
    "quota_exhausted": frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"}),
    "not_found": frozenset({"model_not_found", "not_found_error", "not_found"}),
    "request_too_large": frozenset({"request_too_large"}),
    "rate_limit": frozenset({"rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "too_many_requests"}),
    "overloaded": frozenset({"overloaded_error", "engine_overloaded", "server_is_overloaded", "unavailable"}),
    "permission": frozenset({"permission_error", "permission_denied", "unsupported_country_region_territory"}),
    "server_error": frozenset({"internal", "deadline_exceeded", "internal_server_error", "internal_error"}),
    "invalid_request": frozenset(
        {"invalid_request_error", "invalid_argument", "invalid-argument", "badrequesterror", "failed_precondition"}
    ),
}
_TOO_LARGE = re.compile(r"request too large.*(tokens per|tpm)")
_CONTEXT = re.compile(
    r"prompt (is )?too long|maximum (context|prompt) length|exceeds? (the |its )?(available |model'?s? )?context|"
    r"exceeds (the )?maximum number of tokens|exceeded max context|input length and `?max_tokens`? exceed|"
    r"input is too long|too many (input )?tokens|longer than the (model'?s |maximum model )?(context|length)|"
    r"context length exceeded|greater than the context length|tokens? \+ .{0,40}new_tokens.{0,20} must be <="
)
_AUTH = re.compile(
    r"(incorrect|invalid|missing|expired|no) (api[ _-]?key|auth)|api key (not valid|expired)|"
    r"missing authentication|no auth credentials"
)
_MONEY = re.compile(
    r"used all available credits|insufficient (credits|balance|funds)|credit balance is too low|"
    r"monthly spending limit|more credits, or fewer"
)
_NO_MODEL = re.compile(
    r"model\W.{0,200}(does not exist|not found|has been deprecated)|not a valid model|(no such|unknown) model"
)
_BUSY = re.compile(r"overloaded|high demand|no capacity|currently unavailable|at capacity")


_NOT_HERE = frozenset({"unsupported_value", "unsupported_parameter", "unsupported_file", "tool_use_failed"})
_UNSUPPORTED = re.compile(
    r"unsupported|not support|unrecognized|unknown (parameter|field)|not permitted|deprecated|not (enabled|available)|"
    r"requires --enable"
)


def _kind(status: int, found: _Words, words: str) -> FailureKind:

    def named(kind: FailureKind) -> bool:
        return bool(found.names & _CODES[kind])

    if named("context_length"):
        return "context_length"
    if _TOO_LARGE.search(words) or named("request_too_large"):
        return "request_too_large"
    is_rate = status == 429 or named("rate_limit")
    if named("quota_exhausted") or status == 402 or _MONEY.search(words):
        return "quota_exhausted"
    if is_rate:
        return "rate_limit"
    if status < 500 and _CONTEXT.search(words):
        return "context_length"
    if named("auth") or status == 401 or (status < 500 and _AUTH.search(words)):
        return "auth"
    if named("not_found") or status == 404 or (status < 500 and _NO_MODEL.search(words)):
        return "not_found"
    if named("overloaded") or status == 529 or (status in (0, 200, 500, 502, 503) and _BUSY.search(words)):
        return "overloaded"
    if named("permission") or status == 403:
        return "permission"
    if status == 413:
        return "request_too_large"
    if status >= 500 or status in (408, 409) or named("server_error"):
        return "server_error"
    if status >= 400 or named("invalid_request") or "tool_use_failed" in found.names:
        return "invalid_request"
    return "server_error"  # a record in a stream


# -- numbers ---------------------------------------------------------------------------------------------------------

_OVERFLOWS = (
    re.compile(r"(?P<needed>\d+) tokens > (?P<limit>\d+) maximum"),
    re.compile(r"(?P<needed>\d+) \+ (?P<more>\d+) > (?P<limit>\d+)"),
    re.compile(r"maximum (context|prompt) length (is|of) (?P<limit>\d+).{0,200}?(?P<needed>\d{2,}) (input )?tokens"),
    re.compile(r"\((?P<needed>\d+)(?: tokens)?\).{0,80}(?:exceeds?|longer than) .{0,80}\((?P<limit>\d+)(?: tokens)?\)"),
    re.compile(r"length (?P<needed>\d+)\) is longer than .{0,40}length of (?P<limit>\d+)"),
    re.compile(r"n_keep: (?P<needed>\d+) >= n_ctx: (?P<limit>\d+)"),
    re.compile(r"contains (?P<needed>\d+) tokens.{0,80}model with (?P<limit>\d+) maximum"),
    re.compile(r"must be <= (?P<limit>\d+)\. given: (?P<needed>\d+)", re.IGNORECASE),
    re.compile(r"context length by (?P<needed>\d+) tokens"),
)


def _numbers(found: _Words, words: str) -> tuple[int, int]:
    if found.counts != (0, 0):
        return found.counts
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", words)
    for pattern in _OVERFLOWS:
        if match := pattern.search(plain):
            numbers = {name: int(value or 0) for name, value in match.groupdict().items()}
            return numbers["needed"] + numbers.get("more", 0), numbers.get("limit", 0)
    return 0, 0


_AGAIN = re.compile(r"(?:try again|retry|available) (?:in|after) ((?:\d+(?:\.\d+)?\s*(?:ms|[hms])[a-z]*\s*)+)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _delay(headers: Mapping[str, str], found: _Words, now: datetime) -> float | None:
    """Seconds: of the headers, of Gemini's `RetryInfo`, of the words."""
    if (delay := _number(headers.get("retry-after-ms"))) is not None:
        return delay / 1000
    if after := headers.get("retry-after"):
        if (delay := _number(after)) is not None:
            return delay
        try:
            return max(0.0, (parsedate_to_datetime(after) - now).total_seconds())
        except (ValueError, TypeError, OverflowError):
            pass
    if (delay := _number(found.retry_delay.removesuffix("s"))) is not None:
        return delay
    if match := _AGAIN.search(f"{found.message} {found.text}".lower()):
        return sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"([\d.]+)\s*(ms|[hms])", match[1]))
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
