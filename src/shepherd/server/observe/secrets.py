"""What is secret in a request, and the mask that replaces it: the one list behind debug files and recordings.

A header, a parameter of the URL or a field of the body is secret by its name (`is_secret_name`). The keys in secret
headers and parameters are masked wherever else they stand, too: in the body, in the prompt, in the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_plus

from starlette.types import Scope

MASK = "[not written]"

_SECRET = re.compile(
    r"auth(?!ors?$)|cookie|credential|password|secret|(^|[-_.]|api|access|refresh|bearer)(key|token)s?$|^cache_salt$",
    re.IGNORECASE,
)
_NOT_SECRET = frozenset(("prompt_cache_key",))

# The lookahead keeps the quotes of the next field: text between two strings that looks like a name hides no secret.
_FIELD = re.compile(rb'"([^"\\]{1,100})"(?=\s*:\s*"((?:[^"\\]++|\\.)*+))', re.DOTALL)

_SHORTEST_CHECKED, _SHORTEST_UNCHECKED = 4, 9
"""Shorter keys stand in ordinary words. An open server gets keys such as `none` and `anything`, which it does not
check."""


def is_secret_name(name: str) -> bool:
    """Whether a header, a parameter of a URL or a field of a body with this name holds a secret."""
    return name.lower() not in _NOT_SECRET and _SECRET.search(name) is not None


def mask_query(query: bytes) -> str:
    """The query of a URL, the values of secret parameters masked."""
    pairs = (parameter.partition("=") for parameter in query.decode("latin-1").split("&"))
    return "&".join(f"{name}={MASK}" if is_secret_name(unquote_plus(name)) else name + sign + value
                    for name, sign, value in pairs)  # fmt: skip


def masked_target(scope: Scope) -> str:
    """The path and the query of a request, the values of secret parameters masked."""
    query = mask_query(scope.get("query_string", b""))
    return f"{scope['path']}?{query}" if query else str(scope["path"])


def mask_fields(body: bytes) -> bytes:
    """The text of a JSON body, the strings in secret fields masked; every other byte stays.

    A field inside a string, with its quotes escaped, stays: it is text of a message.
    """
    pieces, at = [], 0
    for found in _FIELD.finditer(body):
        if is_secret_name(found[1].decode("utf-8", "replace")):
            pieces += [body[at : found.start(2)], MASK.encode()]
            at = found.end(2)
    return b"".join((*pieces, body[at:]))


def find_keys(scope: Scope, *, is_checked: bool) -> list[bytes]:
    """The keys in the headers and the URL of a request. `is_checked`: one of them has opened this server."""
    shortest = _SHORTEST_CHECKED if is_checked else _SHORTEST_UNCHECKED
    return sorted({key for key in _sent_keys(scope) if len(key) >= shortest}, key=len, reverse=True)


def _sent_keys(scope: Scope) -> Iterator[bytes]:
    for name, value in scope["headers"]:
        if is_secret_name(name.decode("latin-1")):
            yield value.strip().rpartition(b" ")[2]  # without `Bearer`
    for parameter in scope.get("query_string", b"").split(b"&"):
        name, _, value = parameter.partition(b"=")
        if is_secret_name(unquote_plus(name.decode("latin-1"))):
            yield unquote_plus(value.decode("latin-1")).encode("utf-8", "replace")


def mask_keys(content: bytes, keys: Iterable[bytes]) -> bytes:
    """`content`, text or JSON, with every one of `keys` masked."""
    for key in keys:
        in_json = json.dumps(key.decode("utf-8", "replace"), ensure_ascii=False)[1:-1].encode("utf-8")
        content = content.replace(key, MASK.encode()).replace(in_json, MASK.encode())
    return content
