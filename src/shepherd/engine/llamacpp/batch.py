"""The tokens of one decode, in memory that C reads: filled in place, allocated once."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

from shepherd.engine.base import Chunk
from shepherd.engine.llamacpp.library import C


class Batch:
    """A `llama_batch` over Python arrays of `n_batch` tokens for sequences 0 to `n_seq` - 1."""

    def __init__(self, n_batch: int, n_seq: int) -> None:
        self.outputs: list[int] = []
        """Per chunk, the index of the token whose logits are computed, or -1."""
        self._tokens = array("i", bytes(4 * n_batch))
        self._positions = array("i", bytes(4 * n_batch))
        self._flags = array("b", bytes(n_batch))
        self._counts = array("i", [1]) * n_batch
        self._ids = array("i", range(n_seq))
        first, size = self._ids.buffer_info()[0], self._ids.itemsize
        self._id_at = [first + size * seq for seq in range(n_seq)]
        self._seqs = array("q", [first]) * n_batch
        self._zeros, self._ones = bytes(n_batch), b"\x01" * n_batch
        self._n_batch = n_batch
        self.struct = C.llama_batch()
        for name, values in (
            ("token", self._tokens),
            ("pos", self._positions),
            ("n_seq_id", self._counts),
            ("seq_id", self._seqs),
            ("logits", self._flags),
        ):
            kind: Any = type(getattr(self.struct, name))
            setattr(self.struct, name, ctypes.cast(values.buffer_info()[0], kind))

    def fill(self, chunks: Sequence[Chunk]) -> int:
        """Fill the batch with `chunks`; how many logits it asks for. No array may grow: C holds their addresses."""
        tokens, positions, flags, seqs = self._tokens, self._positions, self._flags, self._seqs
        outputs = []
        at = n_logits = 0
        for seq, chunk, position, logits, each, _, _ in chunks:
            assert seq >= 0
            n = len(chunk)
            assert n > 0
            end = at + n
            assert end <= self._n_batch
            if n == 1:
                tokens[at] = chunk[0]
                positions[at] = position
                seqs[at] = self._id_at[seq]
                flags[at] = logits or each
            else:
                tokens[at:end] = chunk
                positions[at:end] = array("i", range(position, position + n))
                seqs[at:end] = array("q", (self._id_at[seq],)) * n
                ctypes.memmove(flags.buffer_info()[0] + at, self._ones if each else self._zeros, n)
                flags[end - 1] = logits or each
            outputs.append(end - 1 if logits or each else -1)
            n_logits += n if each else logits
            at = end
        self.struct.n_tokens = at
        self.outputs[:] = outputs  # the same list: samplers read it
        return n_logits
