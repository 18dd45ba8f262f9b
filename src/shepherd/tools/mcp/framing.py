"""Lines of a server's standard output as messages: one JSON object each, if all goes well.

The SDK reads such lines itself; here, what it gives up on is mended or answered: a line without end takes no more
memory than `LINE_BYTES`, half of an emoji or a broken byte costs a character and not the message, several messages in
one list are several messages (2025-03-26), and whoever waits for an answer that makes no sense is told so at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from pydantic import ValidationError

LINE_BYTES = 128 * 2**20
"""Of one message. Results of 50 MB have been seen; what is longer is answered in the server's place."""
EDGE_BYTES = 512
"""Kept of both ends of a line that is too long: the number of the request stands at one of them."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line of which only the ends were kept."""

    head: bytes
    tail: bytes


@dataclass(slots=True)
class Lines:
    """Bytes in pieces of any size -> whole lines, in time proportional to their length."""

    limit: int = LINE_BYTES
    held: list[bytes] = field(default_factory=list)
    n_held: int = 0
    """Bytes of the unfinished line, those let go included."""

    def feed(self, piece: bytes) -> Iterator[bytes | TooLong]:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._keep(end)
            yield self.finish()
        self._keep(rest)

    def finish(self) -> bytes | TooLong:
        """The line so far; the next one begins."""
        whole = b"".join(self.held)
        line = whole if self.n_held <= self.limit else TooLong(whole[:EDGE_BYTES], whole[-EDGE_BYTES:])
        self.held, self.n_held = [], 0
        return line

    def _keep(self, piece: bytes) -> None:
        self.n_held += len(piece)
        if self.n_held <= self.limit:
            self.held.append(piece)
        else:
            whole = b"".join((*self.held, piece))
            self.held = [whole[:EDGE_BYTES], whole[EDGE_BYTES:][-EDGE_BYTES:]]


def decode(line: bytes | TooLong) -> list[types.JSONRPCMessage]:
    """The messages of a line; none of an empty one. Raises: `ValueError` if it is something else."""
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
        said = json.loads(line.decode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return [message_of(each) for each in (said if isinstance(said, list) else [said])]


def message_of(said: Any) -> types.JSONRPCMessage:
    """One message. Raises: `ValueError`."""
    try:
        # Half of a surrogate pair, which no UTF-8 can hold, becomes a question mark.
        text = json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")
        return types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        is_answer = isinstance(said, dict) and "method" not in said and isinstance(said.get("id"), int | str)
        if is_answer and ("result" in said or "error" in said):
            return error_for(said["id"], "the answer is not valid JSON-RPC")
        raise


def error_for(number: int | str, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0", id=number, error=types.ErrorData(code=types.INTERNAL_ERROR, message=message)
    )


def number_in(line: TooLong) -> int:
    """The request that a line answers. Raises: `ValueError`."""
    head = line.head.partition(b'"result"')[0]
    found = re.search(rb'"id"\s*:\s*"?(\d+)', head) or re.search(
        rb'"id"\s*:\s*"?(\d+)"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$', line.tail
    )
    if found is None:
        raise ValueError("a line that is too long")
    return int(found[1])
