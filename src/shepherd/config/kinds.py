"""The kinds of values that a key accepts: numbers, texts, paths, tables; each with its phrase for error messages.
Durations and amounts may be words: `"1h30m"`, `"24 GiB"`, `"80%"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from shepherd.core import OnFull, limit
from shepherd.core.dataclasses import dataclass, field, fields, replace
from shepherd.core.edits import LeavingPolicy
from shepherd.models.pulled import PREFIXES

EMPTY_JSON: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PathBase:
    """The folders against which the relative paths of one layer are resolved."""

    folder: Path
    cwd: Path
    home: Path

    def resolve(self, text: str) -> str:
        path = self.home / text[2:] if text == "~" or text.startswith("~/") else Path(text)
        return str(self.folder / path)

    def resolve_model(self, text: str) -> str:
        """A path; unchanged where it is a spec, or a name that is no file here, which the catalogue looks up."""
        if is_spec(text) or text.startswith("~"):
            return text if is_spec(text) else self.resolve(text)
        roots = (self.folder, self.folder / "models", self.cwd, self.cwd / "models")
        found = next((str(root / text) for root in roots if (root / text).exists()), None)
        return found or (self.resolve(text) if text.startswith(("/", "./", "../")) or text.endswith(".gguf") else text)


def is_spec(text: str) -> bool:
    """Whether `text` names a model and can be no path."""
    return text == "embedded" or text.startswith(PREFIXES)


@dataclass(frozen=True, slots=True)
class Kind:
    expected: str
    accept: Callable[[Any, PathBase], Any]
    """From the value in a file to the final one. Raises: `ValueError`."""
    parse: Callable[[str], Any] = str
    """From the text of a variable or a flag to the value in a file. Raises: `ValueError`."""
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    keys: Mapping[str, Kind | Table]
    form: Literal["one", "named", "list", "map"] = "one"
    """`map`: any key, all of the kind of the key `NAME`."""


def key(kind: Kind | Table, default: Any = None, *, shown: bool = True) -> Any:
    """A dataclass field that is a key of the configuration."""
    if default is EMPTY_JSON:
        return field(default_factory=dict, repr=shown, metadata={"kind": kind})
    return field(default=default, repr=shown, metadata={"kind": kind})


def keys_of(cls: type) -> dict[str, Kind | Table]:
    return {each.name: each.metadata["kind"] for each in fields(cls) if each.metadata}


def _check(holds: bool, value: Any) -> Any:
    if not holds:
        raise ValueError(value)
    return value


def _text(value: Any, base: PathBase) -> str:
    return str(_check(isinstance(value, str) and value != "", value))


def _texts(value: Any, base: PathBase) -> tuple[str, ...]:
    items = _check(isinstance(value, (list, tuple)), value)
    return tuple(_text(item, base) for item in items)


def _breakers(value: Any, base: PathBase) -> tuple[str, ...]:
    texts = _texts(value, base)
    is_short = all(len(text.encode("utf-8", "replace")) <= limit.MAX_BREAKER_BYTES for text in texts)
    _check(len(texts) <= limit.MAX_BREAKERS and is_short, value)
    return texts


def _leaving(value: Any) -> Mapping[str, Any]:
    kinds = {each.name: bool if each.type == "bool" else int for each in fields(LeavingPolicy)}
    _check(isinstance(value, Mapping) and value.keys() <= kinds.keys(), value)
    _check(all(type(each) is kinds[name] and 0 <= each <= 10**6 for name, each in value.items()), value)
    return MappingProxyType(dict(value))


def whole(low: int, high: int = 2**31 - 1, *, auto: int | None = None) -> Kind:
    """`auto`: a number that means "not set"."""

    def accept(value: Any, base: PathBase) -> int | None:
        # bool is an int in Python, not in a configuration.
        _check(isinstance(value, int) and not isinstance(value, bool) and low <= value <= high, value)
        return None if value == auto else value

    return Kind(f"a whole number from {low} to {high}", accept, int)


def number(low: float, high: float) -> Kind:
    def accept(value: Any, base: PathBase) -> float:
        return float(_check(is_number(value) and low <= value <= high, value))

    return Kind(f"a number from {low:g} to {high:g}", accept, float)


def none_or(low: float, high: float) -> Kind:
    """A number in a range, or 0."""
    inner = number(low, high)
    accept = inner.accept
    return Kind(
        f"0, or {inner.expected}",
        lambda value, base: 0.0 if value == 0 and value is not False else accept(value, base),
        float,
    )


def one_of(*words: str) -> Kind:
    return Kind("one of " + ", ".join(words), lambda value, base: _check(value in words, value))


def _parse_flag(text: str) -> bool:
    word = text.strip().lower()
    is_on = word in ("1", "true", "yes", "on")
    return bool(_check(is_on or word in ("0", "false", "no", "off"), is_on))


def _split(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]


def _text_map(value: Any, base: PathBase) -> Mapping[str, str]:
    _check(isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values()), value)
    return dict(value)


def _prices(value: Any, base: PathBase) -> Mapping[str, float]:
    _check(isinstance(value, Mapping) and set(value) <= {"input", "cached", "output"}, value)
    _check(all(is_number(price) and 0 <= price <= 1e9 for price in value.values()), value)
    return {word: float(price) for word, price in value.items()}


def _matching(pattern: str) -> Callable[[Any, PathBase], tuple[str, ...]]:
    def accept(value: Any, base: PathBase) -> tuple[str, ...]:
        return tuple(_check(re.fullmatch(pattern, text) is not None, text) for text in _texts(value, base))

    return accept


def _placements(value: Any, base: PathBase) -> tuple[str, ...]:
    texts = _texts(value, base)
    for text in texts:
        pattern, _, name = text.rpartition("=")
        _check(bool(pattern and name), value)
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(value) from error
    return texts


def _workers(value: Any, base: PathBase) -> tuple[str, ...]:
    texts = tuple(_check(re.fullmatch(r"[^\s/@:]+:[0-9]{1,5}", text) is not None, text) for text in _texts(value, base))
    _check(len(set(texts)) == len(texts) <= MOST_WORKERS, value)
    _check(all(0 < int(text.rpartition(":")[2]) <= 65535 for text in texts), value)
    return texts


def _layer_range(value: Any, base: PathBase) -> tuple[int, int]:
    is_pair = isinstance(value, (list, tuple)) and len(value) == 2 and all(type(each) is int for each in value)
    _check(is_pair and 1 <= value[0] <= value[1], value)
    return value[0], value[1]


def _url(value: Any, base: PathBase) -> str:
    return str(_check(re.fullmatch(r"https?://[^\s/]\S*", _text(value, base)) is not None, value))


def _proxy(value: Any, base: PathBase) -> str:
    user, host, port = r"([^\s/?#@:]*(:[^\s/?#@]*)?@)?", r"([^\s/?#@:\[\]]+|\[[0-9a-fA-F:]+\])", r"(:\d+)?"
    is_one = re.fullmatch(rf"(https?|socks5h?)://{user}{host}{port}/?", _text(value, base))
    _check(value == NO_PROXY or (is_one is not None and int((is_one[5] or ":1")[1:]) <= 65535), value)
    return str(value)


def _certificates(value: Any, base: PathBase) -> str:
    import ssl  # noqa: PLC0415 - loads OpenSSL, and few configurations name a file

    path = base.resolve(_text(value, base))
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # `ssl.SSLError` is one
        raise ValueError(value) from error
    return path


def _base_url(value: Any, base: PathBase) -> str:
    # Users type it with and without /v1; "/v1/v1" is a frequent bug report (spec/providers.md section 1).
    return _url(value, base).rstrip("/").removesuffix("/v1").rstrip("/")


def _few(accept: Callable[[Any, PathBase], str]) -> Callable[[Any, PathBase], tuple[str, ...]]:
    def accept_each(value: Any, base: PathBase) -> tuple[str, ...]:
        texts = _texts(value, base)
        _check(1 <= len(texts) <= MOST_REPLICAS, value)
        return tuple(accept(each, base) for each in texts)

    return accept_each


MOST_REPLICAS = 64
ANY_TEXT = Kind("text", lambda value, base: _check(isinstance(value, str), value))
TEXT = Kind("a text that is not empty", _text)
SECRET = replace(TEXT, secret=True)
TEXTS = Kind("a list of texts that are not empty", _texts, _split)
SECRETS = replace(TEXTS, secret=True)
TEXT_MAP = Kind("a table whose values are all texts", _text_map, secret=True)
JSON_MAP = Kind("a table", lambda value, base: dict(_check(isinstance(value, Mapping), value)))
PRICES = Kind("prices such as {input = 3.0, cached = 0.3, output = 15.0}, for a million tokens", _prices)
HOSTS = Kind("a list of hosts such as wiki.lan, *.example or 10.0.0.5:8080", _matching(r"[^\s/@]+"), _split)
VARIABLES = Kind("a list of names of environment variables, or globs", _matching(r"[^\s=]+"), _split)
FLAG = Kind("true or false", lambda value, base: _check(isinstance(value, bool), value), _parse_flag)
AUTO_FLAG = Kind(
    'true, false, or "auto"',
    lambda value, base: None if value == "auto" else FLAG.accept(value, base),
    lambda text: "auto" if text.strip().lower() == "auto" else _parse_flag(text),
)
PATH = Kind("a path", lambda value, base: base.resolve(_text(value, base)))
PROJECTOR = Kind(
    'a path, or "none"', lambda value, base: "none" if value == "none" else base.resolve(_text(value, base))
)
PATHS = Kind("a list of paths", lambda value, base: tuple(map(base.resolve, _texts(value, base))), _split)
SPEC = Kind("a path or a model's name", lambda value, base: base.resolve_model(_text(value, base)))
DRAFT = Kind(
    'a path or a model\'s name, or "none"',
    lambda value, base: "none" if value == "none" else base.resolve_model(_text(value, base)),
)


def _embedder(value: Any, base: PathBase) -> str:
    """As `SPEC`, but `NAME/model` that is no file here may be a provider's."""
    text, path = _text(value, base), SPEC.accept(value, base)
    may_be_elsewhere = re.fullmatch(r"[\w-]+/[^/].*", text) and not text.endswith(".gguf") and not Path(path).exists()
    return text if may_be_elsewhere else path


EMBEDDER = Kind("a path or a model's name, or PROVIDER/MODEL", _embedder)
URL = Kind("an address such as http://127.0.0.1:9000", _url)
BASE_URL = replace(URL, accept=_base_url)
BASE_URLS = Kind(
    f'a list of 1 to {MOST_REPLICAS} addresses such as ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]',
    _few(_base_url),
    _split,
)
NAMES = Kind(f"a list of 1 to {MOST_REPLICAS} names", _few(_text), _split)
NO_PROXY = "none"
PROXY = Kind(
    f'"{NO_PROXY}", or http://, https:// or socks5:// with a host, as in http://proxy.lan:3128; what has a meaning in '
    "an address (@ : / ? #) is written %40 and so on in a name or a password",
    _proxy,
    secret=True,
)
CERTIFICATES = Kind("a file that exists and holds certificates (PEM)", _certificates)
LEVELS = ("low", "medium", "high", "max")
"""How much a model thinks."""
THINKING = Kind(
    f"true, false, or one of {', '.join(LEVELS)}",
    lambda value, base: _check(isinstance(value, bool) or value in LEVELS, value),
    lambda text: text.strip().lower() if text.strip().lower() in LEVELS else _parse_flag(text),
)
TOKENS = whole(0)
AUTO = whole(0, auto=0)
THREADS = whole(0, 512, auto=0)
"""512 is llama.cpp's own limit: it allocates for all threads at once, and ends the process where it cannot."""
SIZE = whole(1, 2**63 - 1)
ROOM = whole(0, 2**63 - 1)
"""Bytes that may be used; 0 = none."""
DURATION = Kind(
    'a number of seconds, or a text such as "90s", "5m", "1h"; -1 = no end', lambda value, base: seconds(value)
)
BUDGET = Kind('a number of bytes, or a text such as "24 GiB" or "80%"', lambda value, base: memory(value))
LAYERS = whole(-1)
LAYER_RANGE = Kind("two numbers of layers from 1 on, the first and the last, such as [10, 20]", _layer_range)
PLACEMENTS = Kind(
    r'a list of PATTERN=BUFFER, a regular expression for names of tensors and a kind of memory, such as "_exps=CPU"',
    _placements,
    _split,
)
MOST_WORKERS = 16
"""llama.cpp's own limit."""
WORKERS = Kind(
    f"a list of at most {MOST_WORKERS} different HOST:PORT, such as 10.0.0.5:50052 (IPv4, or a name)", _workers, _split
)
CACHE_TYPE = one_of("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
WINDOW = Kind(
    'a number of tokens, or a text such as "1M", "128k", or "8x" for so many times the context',
    lambda value, base: window(value),
)
_WORDS = {"bool": "true or false", "int": "a whole number"}
LEAVING = Kind(
    "a table with some of " + ", ".join(f"{each.name} ({_WORDS[str(each.type)]})" for each in fields(LeavingPolicy)),
    lambda value, base: _leaving(value),
)
OVERFLOW = one_of(*get_args(OnFull))
BREAKERS = Kind(
    f"a list of at most {limit.MAX_BREAKERS} texts of at most {limit.MAX_BREAKER_BYTES} bytes", _breakers, _split
)
_WHOLE = ("top_k", "dry_allowed_length", "repeat_last_n", "dry_penalty_last_n", "mirostat")
SAMPLING = Table(
    {
        **{
            name: whole(int(low), int(high)) if name in _WHOLE else number(low, high)
            for name, (low, high) in limit.SAMPLING.items()
        },
        "dry_sequence_breakers": BREAKERS,
        "seed": whole(-1, 2**32 - 1, auto=-1),
        "ignore_eos": FLAG,
    }
)


NO_END = -1.0
"""A duration without end, in seconds."""
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kmgt])(?:i?b)?|b)", re.IGNORECASE)
_TOKENS = re.compile(r"(\d+(?:\.\d+)?) ?([km]?)", re.IGNORECASE)
_TIMES = re.compile(r"(\d+(?:\.\d+)?) ?[x×]", re.IGNORECASE)
_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")


def seconds(value: Any) -> float:
    """A number of seconds, or a text such as `90s`, `5m`, `1h30m`; `NO_END` for any below 0. Raises: `ValueError`."""
    if isinstance(value, str):
        parts = _TIME.findall(value)
        is_time = bool(parts) and "".join(map("".join, parts)) == value
        value = sum(float(digits) * _SECONDS[unit] for digits, unit in parts) if is_time else float(value)
    if not is_number(value) or not value < 2**31:  # not: NaN is not
        raise ValueError(value)
    return float(value) if value >= 0 else NO_END


def memory(value: Any) -> int | float:
    """Bytes (`int`), or a share of what there is (`float`, above 0 to 1): `8589934592`, `"8 GiB"`, `0.8`, `"80%"`.

    A kilobyte is 1024 bytes here. Raises: `ValueError`.
    """
    if isinstance(value, str):
        if match := _SHARE.fullmatch(value):
            value = float(match[1]) / 100
        elif match := _AMOUNT.fullmatch(value):
            value = int(float(match[1]) * 1024 ** (" kmgt".index((match[2] or " ").lower())))
        else:
            value = int(value)
    # A number with a point is a share, one without is bytes; 1.5 is neither.
    if not is_number(value) or not (0 < value <= 1 if isinstance(value, float) else 1 <= value < 2**63):
        raise ValueError(value)
    return value  # type: ignore[no-any-return]  # an int or a float, as was just seen


def window(value: Any) -> int | float:
    """Tokens (`int`), or a multiple of the context (`float`): `"128k"`, `"8x"`; k is 1024. Raises: `ValueError`."""
    if isinstance(value, str):
        if match := _TIMES.fullmatch(value):
            value = float(match[1])
        elif match := _TOKENS.fullmatch(value):
            value = int(float(match[1]) * 1024 ** (" km".index(match[2].lower() or " ")))
        else:
            raise ValueError(value)
    if not is_number(value) or not (1 <= value <= 1000 if isinstance(value, float) else 1 <= value < 2**31):
        raise ValueError(value)
    return value  # type: ignore[no-any-return]  # an int or a float, as was just seen


def is_number(value: Any) -> bool:
    # bool is an int in Python, not in a configuration.
    return isinstance(value, (int, float)) and not isinstance(value, bool)
