"""Saved states of one sequence, rewritten: llama.cpp's layout for plain attention, as the bindings' 0.3.36 writes it.

    magic sequence | n_streams n_cells | n_cells x (position, 1, sequence) | is_v_transposed n_layers | K ... | V ...
    K of a layer: type, row size (8 bytes), a row per cell; V: the same, or transposed: type, element size, channels, a
    row of all cells per channel

For benches that must have a cache in a certain shape and cannot wait until it has grown into it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

MAGIC = 0xAF143CD8


@dataclass(slots=True)
class State:
    """The parts of a saved state that depend on the number of cells, and the few bytes between them."""

    head: bytes
    positions: npt.NDArray[np.int32]
    """Of the cells, in the order in which they lie in memory."""
    sequence: int
    is_transposed: bool
    keys: list[tuple[bytes, Bytes]]
    """Per layer, what stands before it and [cells, bytes]."""
    values: list[tuple[bytes, Bytes]]
    """Per layer; [cells, bytes], or [channels, cells, bytes] when transposed."""


def parse(state: bytes) -> State:
    """Take a state apart. Raises: `ValueError` when it is laid out in another way."""
    magic, _sequence, n_streams, n_cells = struct.unpack_from("<IiII", state)
    if magic != MAGIC or n_streams != 1:
        raise ValueError("this is not a state that the library writes for one sequence")
    at = 16
    cells = np.frombuffer(state, np.int32, 3 * n_cells, at).reshape(n_cells, 3)
    at += 12 * n_cells
    is_transposed, n_layers = struct.unpack_from("<II", state, at)
    if is_transposed > 1 or not (cells[:, 1] == 1).all():
        raise ValueError("this state is not that of plain attention")
    at += 8
    keys, values = [], []
    for _ in range(n_layers):
        (size,) = struct.unpack_from("<Q", state, at + 4)
        keys.append((state[at : at + 12], _take(state, at + 12, (n_cells, size))))
        at += 12 + n_cells * size
    for _ in range(n_layers):
        if is_transposed:
            size, channels = struct.unpack_from("<II", state, at + 4)
            shape: tuple[int, ...] = (channels, n_cells, size)
        else:
            (size,) = struct.unpack_from("<Q", state, at + 4)
            shape = (n_cells, size)
        values.append((state[at : at + 12], _take(state, at + 12, shape)))
        at += 12 + int(np.prod(shape))
    if at != len(state):
        raise ValueError(f"a state of {len(state)} bytes has {at} by its own account")
    return State(state[:8], cells[:, 0].copy(), int(cells[0, 2]), bool(is_transposed), keys, values)


def join(state: State) -> bytes:
    """The bytes of a state."""
    cells = np.ones((len(state.positions), 3), np.int32)
    cells[:, 0], cells[:, 2] = state.positions, state.sequence
    parts = [state.head, struct.pack("<II", 1, len(cells)), cells.tobytes()]
    parts.append(struct.pack("<II", state.is_transposed, len(state.keys)))
    for head, body in [*state.keys, *state.values]:
        parts += [head, body.tobytes()]
    return b"".join(parts)


def repeated(state: State, n_cells: int) -> State:
    """A state of so many cells at the positions from 0 on, made of this one's over and over."""
    index = np.arange(n_cells) % len(state.positions)

    def values(body: Bytes) -> Bytes:
        return body[:, index] if state.is_transposed else body[index]

    return State(
        state.head,
        np.arange(n_cells, dtype=np.int32),
        state.sequence,
        state.is_transposed,
        [(head, body[index]) for head, body in state.keys],
        [(head, values(body)) for head, body in state.values],
    )


def _take(state: bytes, at: int, shape: tuple[int, ...]) -> Bytes:
    return np.frombuffer(state, np.uint8, int(np.prod(shape)), at).reshape(shape)
