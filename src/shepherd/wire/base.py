"""The interface of every HTTP protocol, and the readers that turn JSON into checked values.

A module with the functions of `Codec` is a codec. `Fields` reads one JSON object: `null` is absent, unknown fields are
ignored, and a value of the wrong type is an error that names the field, the value and what is expected. A wrong value
is never silently replaced by a default. This file knows no protocol.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from shepherd.core import Event, InvalidRequest, Refused, Reply, Request, ShepherdError
from shepherd.core.dataclasses import dataclass
from shepherd.core.encoding import json_fault

Json = dict[str, Any]

MAX_DEPTH = 128
"""Levels of arrays and objects. Real requests stay below 30; templates and encoders recurse once per level."""
MAX_VALUES = 500_000
"""Of one body, about: arrays, objects, and their elements. Python's JSON parser blocks all other threads, up to
0.2 s for so many. A conversation of 10,000 messages has 60,000, a prompt in tokens its length."""
MAX_ELEMENTS = 20_000
"""Of one array of objects: messages, items, parts, calls. Templates take 0.1 ms for each; conversations of a million
tokens have fewer."""
MAX_TOOLS = 1_024
"""Of one request. The model reads each, and each becomes a grammar; agents with many servers have a few hundred."""

OptionsT = TypeVar("OptionsT")
T = TypeVar("T")
BodyT = TypeVar("BodyT", Json, list[Any])


@dataclass(frozen=True, slots=True)
class Decoded(Generic[OptionsT]):
    """The request in a body, and how to write the answer."""

    requests: tuple[Request, ...]
    """One for each choice of the answer, at least one."""
    stream: bool
    options: OptionsT
    """Read by the encoder of the same protocol only."""

    @property
    def request(self) -> Request:
        """The first of them: the others differ at most in the prompt and the seed."""
        return self.requests[0]


class Encoder(Protocol):
    """Writes the answer to one body: either `encode` for every event, or `encode_replies` once. The events of each
    choice come in the order of the grammar.

    If it has a method `note_time(event)`, the server calls it for every event of a whole answer as it comes.
    """

    media_type: str
    """Of a stream."""
    ping: bytes
    """Bytes without meaning, to send at any time after the first event; empty if the protocol has none."""

    def encode(self, event: Event, choice: int = 0) -> bytes:
        """The bytes for `event`: none for notices and for unfinished calls. `choice`: the index of its request."""
        ...

    def encode_replies(self, replies: Sequence[Reply]) -> Json | list[Json]:
        """The whole answer as one body, a reply for each request; equal to the stream of the same events."""
        ...

    def encode_failure(self, error: Exception) -> bytes:
        """The bytes that end a stream that has begun with an error."""
        ...


class Codec(Protocol[OptionsT]):
    """One protocol; modules are codecs. `encoder` is the class of its encoders."""

    def decode_request(self, body: Json) -> Decoded[OptionsT]:
        """The decoded request. Raises: `InvalidRequest`, and nothing else, for any JSON object."""
        ...

    def encoder(self, options: OptionsT, *, id: str, created: int, model: str) -> Encoder:
        """A new encoder. `id` is the answer's, `created` in Unix seconds, `model` the name that the client used."""
        ...

    def encode_error(self, error: Exception) -> tuple[int, Json]:
        """HTTP status and body for an answer that has not begun. Reveals nothing of an unexpected exception."""
        ...


def decode_json(body: bytes) -> Json:
    """The JSON object in the body of a request, without lone surrogates.

    Raises: `InvalidRequest` that says where the body breaks which rule.
    """
    return _decode(body, dict, "object")


def decode_array(body: bytes) -> list[Any]:
    """The same for a body that is an array."""
    return _decode(body, list, "array")


def _decode(body: bytes, kind: type[BodyT], expected: str) -> BodyT:
    if not body.strip():
        raise InvalidRequest(f"the body is empty; send a JSON {expected}")
    check_values(body, "the body")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not valid UTF-8: byte {error.start} is 0x{body[error.start]:02x}") from error
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"the body is not valid JSON: line {error.lineno}, column {error.colno}: {json_fault(error)}"
        ) from error
    except RecursionError as error:
        raise InvalidRequest(f"the body is nested deeper than {MAX_DEPTH} levels") from error
    except InvalidRequest:
        raise
    except ValueError as error:  # Python refuses to convert integers of more than 4,300 digits
        raise InvalidRequest("the body holds an integer of more than 4300 digits") from error
    if not isinstance(value, kind):
        raise InvalidRequest(f"the body must be a JSON {expected}, not {shown(value)}")
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise InvalidRequest(f"the body is nested deeper than {MAX_DEPTH} levels")
    # UTF-8 cannot hold a surrogate, so only an escape can have brought one: most bodies need no walk.
    return without_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


def check_values(text: bytes, what: str, field: str | None = None) -> None:
    """Raises: `InvalidRequest` for a JSON text of more than `MAX_VALUES` values; `what` names it."""
    if _has_more_values(text, MAX_VALUES):
        raise InvalidRequest(
            f"{what} holds more than {MAX_VALUES} JSON values; send fewer or shorter arrays, or several requests",
            field=field,
        )


def public_error(error: Exception) -> tuple[int, str]:
    """HTTP status and message of an error, for a client. Reveals nothing of an unexpected exception.

    A 401 or 403 of a provider becomes 502 with the provider's words: the key is the server's, and a client that gets a
    401 reports its own key as wrong, or asks its user to log in again.
    """
    if not isinstance(error, ShepherdError):
        return 500, "the server made an error while answering; its log holds the details"
    # The odd status of a provider (a redirect, say) must not become ours.
    is_ours = 400 <= error.status <= 599 and not (isinstance(error, Refused) and error.status in (401, 403))
    return error.status if is_ours else 502, error.message


def compact(body: Any) -> bytes:
    """JSON without blanks, in ASCII."""
    return COMPACT.encode(body).encode("ascii")


COMPACT = json.JSONEncoder(separators=(",", ":"))
"""Made once: `json.dumps` with options makes one at each call."""


def compact_json(value: Any) -> str:
    """JSON without blanks, its letters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; `None` where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_object(text: str | None) -> Json | None:
    """The object of a JSON text; `None` where it holds none."""
    value = None if text is None else parse_json(text)
    return value if isinstance(value, dict) else None


def shown(value: object, limit: int = 40) -> str:
    """A JSON value, shortened for an error message."""
    match value:
        case str():
            text = json.dumps(value[: limit + 1], ensure_ascii=False)
            return text if len(value) <= limit else f'{text[: limit + 1]}…"'
        case dict():
            return "an object"
        case list():
            return "an array" if value else "an empty array"
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case _:
            text = repr(value)
            return text if len(text) <= limit else f"{text[:limit]}…"


def field_error(path: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{path} {why}", field=path)


def wrong(path: str, expected: str, value: object) -> InvalidRequest:
    return field_error(path, f"must be {expected}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class Range:
    """Which numbers are allowed; `above` is exclusive."""

    low: float | None = None
    high: float | None = None
    above: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
        )

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return (
                f" from {self.low:g} to {self.high:g}" if abs(self.high) < 1e6 else f" from {self.low} to {self.high}"
            )
        if self.above is not None:
            return f" greater than {self.above:g}"
        return "" if self.low is None else f" of at least {self.low:g}"


ANY = Range()


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object, and the path that leads to it.

    Every reader returns `None` for what is absent or `null`, and raises `InvalidRequest` for the wrong type.
    """

    body: Json
    path: str = ""

    def at(self, key: str) -> str:
        """The path of a field, as error messages write it."""
        return f"{self.path}.{key}" if self.path else key

    def error(self, key: str, why: str) -> InvalidRequest:
        return field_error(self.at(key), why)

    def has(self, key: str) -> bool:
        return self.body.get(key) is not None

    def find_any(self, key: str) -> Any:
        return self.body.get(key)

    def find_json(self, key: str) -> Any:
        """As `find_any`, for a field whose text is JSON that is parsed later, such as the arguments of a call.

        Raises: `InvalidRequest` for a text of more than `MAX_VALUES` values.
        """
        value = self.find_any(key)
        if isinstance(value, str):
            check_values(value.encode("utf-8", "surrogatepass"), self.at(key), field=self.at(key))
        return value

    def _find(self, key: str, type_: type[T], expected: str) -> T | None:
        value = self.body.get(key)
        if value is not None and not isinstance(value, type_):
            raise wrong(self.at(key), expected, value)
        return value

    def find_string(self, key: str) -> str | None:
        return self._find(key, str, "a string")

    def get_string(self, key: str, why: str = "") -> str:
        """A string, present and not empty."""
        value = self.find_string(key)
        if not value:
            state = "missing" if value is None else "empty"
            raise self.error(key, f"is {state}{why and ': '}{why}")
        return value

    def get_text(self, key: str) -> str:
        """A string, present and maybe empty."""
        if (value := self.find_string(key)) is None:
            raise self.error(key, "is missing")
        return value

    def find_boolean(self, key: str) -> bool | None:
        return self._find(key, bool, "true or false")

    def find_number(self, key: str, allowed: Range = ANY) -> float | None:
        return None if (value := self.body.get(key)) is None else check_number(value, self.at(key), allowed)

    def find_integer(self, key: str, allowed: Range = ANY) -> int | None:
        """An integer; `3.0` counts as one, `true` does not."""
        value = self.body.get(key)
        if value is None:
            return None
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(whole, bool) or not isinstance(whole, int) or whole not in allowed:
            raise wrong(self.at(key), f"an integer{allowed}", value)
        return whole

    def find_array(self, key: str) -> list[Any] | None:
        return self._find(key, list, "an array")

    def find_object(self, key: str) -> Fields | None:
        value = self._find(key, dict, "an object")
        return None if value is None else Fields(value, self.at(key))

    def get_object(self, key: str) -> Fields:
        found = self.find_object(key)
        if found is None:
            raise self.error(key, "is missing")
        return found

    def objects(self, key: str, most: int = MAX_ELEMENTS) -> Iterator[Fields]:
        """The elements of an array of at most so many objects; none when it is absent."""
        values = self.find_array(key) or ()
        check_count(len(values), self.at(key), most)
        for index, value in enumerate(values):
            path = f"{self.at(key)}[{index}]"
            if not isinstance(value, dict):
                raise wrong(path, "an object", value)
            yield Fields(value, path)

    def find_strings(self, key: str) -> tuple[str, ...] | None:
        values = self.find_array(key)
        if values is None:
            return None
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise wrong(f"{self.at(key)}[{index}]", "a string", value)
        return tuple(values)


def check_count(n: int, path: str, most: int) -> None:
    """Raises: `InvalidRequest` for an array of more than `most` elements."""
    if n > most:
        raise field_error(path, f"has {n} elements; at most {most} are accepted: send fewer")


def check_number(value: object, path: str, allowed: Range = ANY) -> float:
    """`value` as a finite number in range. Raises: `InvalidRequest`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(path, f"a number{allowed}", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number not in allowed:
        raise wrong(path, f"a number{allowed}", value)
    return number


_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def without_surrogates(value: Any) -> Any:
    """`value` with U+FFFD in place of every lone surrogate."""
    match value:
        case str():
            return _SURROGATE.sub("\ufffd", value)
        case dict():
            return {without_surrogates(key): without_surrogates(child) for key, child in value.items()}
        case list():
            return [without_surrogates(child) for child in value]
        case _:
            return value


_SIGNS = (b"[", b"{", b",")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def _has_more_values(body: bytes, limit: int) -> bool:
    """Whether more than `limit` arrays, objects and commas stand in a JSON text, those inside of strings left out."""
    if sum(map(body.count, _SIGNS)) <= limit:  # strings included: enough for nearly all
        return False
    n, at = 0, 0
    for string in _STRING.finditer(body):
        n += sum(body.count(sign, at, string.start()) for sign in _SIGNS)
        at = string.end()
        if n > limit:
            return True
    return n + sum(body.count(sign, at) for sign in _SIGNS) > limit


def is_deeper(value: Json | list[Any], limit: int) -> bool:
    """Whether more than `limit` arrays and objects stand within each other."""
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"the body is not valid JSON: {name} is not a JSON value; use a number or null")
