"""Lines of a server's standard output as messages: one JSON object each, if the server is correct.

What the SDK would give up on is repaired or answered here: a line takes at most `LINE_BYTES` of memory, half of an
emoji or a wrong byte costs a character and not the message, a list holds several messages (2025-03-26), and a request
with an invalid answer fails at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from shepherd.core.dataclasses import dataclass, field

LINE_BYTES = 128 * 2**20
"""Of one message (results of 50 MB occur); a longer one becomes an error."""
EDGE_BYTES = 512
"""Kept of both ends of a line that is too long: one of them has the number of the request."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line of which only the ends were kept."""

    head: bytes
    tail: bytes


@dataclass(slots=True)
class Lines:
    """Bytes in pieces of any size -> whole lines, in time proportional to their length."""

    limit: int = LINE_BYTES
    held: bytearray = field(default_factory=bytearray)
    n_held: int = 0
    """Bytes of the unfinished line, including those dropped."""

    def feed(self, piece: bytes) -> Iterator[bytes | TooLong]:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._keep(end)
            yield self.finish()
        self._keep(rest)

    def finish(self) -> bytes | TooLong:
        """The line so far; the next one begins."""
        whole = bytes(self.held)
        line = whole if self.n_held <= self.limit else TooLong(whole[:EDGE_BYTES], whole[-EDGE_BYTES:])
        self.held, self.n_held = bytearray(), 0
        return line

    def _keep(self, piece: bytes) -> None:
        self.n_held += len(piece)
        self.held += piece
        if self.n_held > self.limit:
            self.held = self.held[:EDGE_BYTES] + self.held[EDGE_BYTES:][-EDGE_BYTES:]


def decode(line: bytes | TooLong) -> list[types.JSONRPCMessage]:
    """The messages of a line; none of an empty one. Raises: `ValueError` for anything else."""
    if isinstance(line, TooLong):
        return [error_for(number_in(line), f"the answer is longer than {LINE_BYTES // 2**20} MiB")]
    line = line.strip().removeprefix(b"\xef\xbb\xbf")
    if not line:
        return []
    if not line.startswith((b"{", b"[")):
        raise ValueError("no JSON object")
    try:
        return [types.jsonrpc_message_adapter.validate_json(line, by_name=False)]
    except ValidationError:
        pass
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return [message_of(each) for each in (value if isinstance(value, list) else [value])]


def message_of(value: Any) -> types.JSONRPCMessage:
    """One message. Raises: `ValueError`."""
    try:
        # Half of a surrogate pair, which UTF-8 cannot hold, becomes a question mark.
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        is_answer = isinstance(value, dict) and "method" not in value and isinstance(value.get("id"), int | str)
        if is_answer and ("result" in value or "error" in value):
            return error_for(value["id"], "the answer is not valid JSON-RPC")
        raise


def error_for(number: int | str, message: str) -> types.JSONRPCError:
    error = types.ErrorData(code=types.INTERNAL_ERROR, message=message)
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=error)


def number_in(line: TooLong) -> int:
    """The request that a line answers. Raises: `ValueError`."""
    head = line.head.partition(b'"result"')[0]
    found = re.search(rb'"id"\s*:\s*"?(\d+)', head) or re.search(
        rb'"id"\s*:\s*"?(\d+)"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$', line.tail
    )
    if found is None:
        raise ValueError("a line that is too long")
    return int(found[1])
