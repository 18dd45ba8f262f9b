"""The ledger: exactly which tokens are in the KV cache. Pure; no I/O, no thread, no library.

One sequence for now. The engine asks it what of a prompt is cached, tells it what was decoded and removed, and compares
its length with the library's: counts, positions and "what is cached" are derived from here and never kept twice.

    tokens   [0 ........ n_keep) [n_keep ........ len(prompt))
              cached, verified     to be computed, never empty
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence


class Ledger:
    """The tokens of one sequence, by position."""

    def __init__(self) -> None:
        self._tokens = array("i")

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> array[int]:
        """A copy of what is cached."""
        return self._tokens[:]

    def match(self, prompt: array[int]) -> int:
        """How many leading tokens of `prompt` need no work: the common prefix, less the last token of the prompt.

        At least one token is always left to decode: sampling needs the logits after it, and those of an earlier turn
        are stale (K5).
        """
        return min(common_prefix(self._tokens, prompt), len(prompt) - 1)

    def truncate(self, length: int) -> None:
        """Forget everything from position `length` on."""
        del self._tokens[length:]

    def extend(self, tokens: Sequence[int]) -> None:
        """`tokens` were decoded behind the last one."""
        self._tokens.extend(tokens)

    def check(self, length: int) -> None:
        """Compare with what the runtime really holds. Raises: `LedgerError` when the two disagree."""
        if length != len(self._tokens):
            raise LedgerError(f"the ledger holds {len(self._tokens)} tokens, the KV cache {length}")


class LedgerError(AssertionError):
    """Ledger and KV cache disagree: a bug of ours. The engine drops the cache rather than go on with a wrong one."""


def common_prefix(a: array[int], b: array[int]) -> int:
    """The length of the longest common prefix. O(n), at memory speed: whole blocks are compared first."""
    n = min(len(a), len(b))
    block = 4096
    start = 0
    while start < n and a[start : start + block] == b[start : start + block]:
        start += block
    if start >= n:
        return n
    low, high = start, min(start + block, n)
    while low < high:  # the first difference lies in [low, high]
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
