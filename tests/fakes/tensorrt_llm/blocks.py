"""The KV cache of the FAKE: blocks of tokens in a prefix tree, leaf-first eviction, and the events of both.

    root ─ block (hash of parent and tokens) ─ block ─ block…     a finished request leaves its blocks in the tree

A block that no request uses leaves when room is needed: the stalest leaf first. With room in host memory it moves
there instead (an `updated` event). The last block of a request may hold fewer tokens than fit.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(eq=False)
class Block:
    hash: int
    parent: Block | None
    tokens: tuple[int, ...]
    salt: str = ""
    children: dict[tuple[int, ...], Block] = field(default_factory=dict)
    n_users: int = 0
    used_at: int = 0
    level: int = 0
    """0: on the GPU; 1: in host memory."""


class BlockCache:
    """One pool of blocks. The executor's lock guards it."""

    def __init__(
        self, *, n_blocks: int, n_host: int, block_size: int, window: int, n_events: int, partial: bool, reuse: bool
    ) -> None:
        self.n_blocks, self.n_host, self.block_size, self.window = n_blocks, n_host, block_size, window
        self.partial, self.reuse = partial, reuse
        self.n_reserved = 0
        """Blocks of running requests that are not in the tree yet."""
        self.roots: dict[str, Block] = {}
        self.blocks: dict[int, Block] = {}
        self._clock = 0
        self._event_id = 0
        self.buffer: deque[Json] = deque(maxlen=n_events) if n_events else deque(maxlen=0)
        """The newest events; older ones are lost, which shows as a gap in their ids."""
        self._emit({"type": "created", "num_blocks_per_cache_level": [n_blocks, n_host]})

    def match(self, tokens: Sequence[int], salt: str = "") -> tuple[list[Block], int]:
        """The blocks that a prompt begins with, and how many of its tokens they hold; the last token never counts."""
        found: list[Block] = []
        n, limit = 0, len(tokens) - 1
        node = self.roots.get(salt)
        while self.reuse and node is not None and n < limit:
            whole = node.children.get(tuple(tokens[n : n + self.block_size]))
            if whole is not None and len(whole.tokens) == self.block_size and n + self.block_size <= limit:
                found.append(whole)
                n, node = n + self.block_size, whole
                continue
            best = max(node.children.values(), key=lambda child: common(child.tokens, tokens[n:limit]), default=None)
            shared = common(best.tokens, tokens[n:limit]) if best is not None else 0
            if best is not None and shared and (self.partial or shared == len(best.tokens)):
                found.append(best)
                n += shared
            break
        return found, n

    def admit(self, tokens: Sequence[int], n_max: int, salt: str) -> tuple[list[Block], int, int] | None:
        """Pin what a request reuses and reserve the rest: (blocks, cached tokens, reserved); None while there is no
        room."""
        found, n = self.match(tokens, salt)
        n_need = -(-(len(tokens) + n_max) // self.block_size) - len(found)
        for block in found:
            block.n_users += 1
        if not self._make_room(n_need + sum(block.level for block in found)):
            for block in found:
                block.n_users -= 1
            return None
        for block in found:
            self._touch(block)
            if block.level:
                self._move(block, 0)
        self.n_reserved += n_need
        return found, n, n_need

    def release(self, pinned: Sequence[Block], n_reserved: int) -> None:
        for block in pinned:
            block.n_users -= 1
        self.n_reserved -= n_reserved

    def store(self, tokens: Sequence[int], salt: str, *, whole_only: bool) -> None:
        """Put a request's blocks into the tree."""
        if not self.reuse:
            return
        node = self.roots.setdefault(salt, Block(0, None, (), salt))
        made: list[Block] = []
        first_parent: int | None = None
        for at in range(0, len(tokens), self.block_size):
            part = tuple(tokens[at : at + self.block_size])
            if whole_only and len(part) < self.block_size:
                break
            child = node.children.get(part)
            if child is None:
                if not self._make_room(1):
                    break
                child = Block(self._hash(node, part, salt), node, part, salt)
                node.children[part] = self.blocks[child.hash] = child
                if not made:
                    first_parent = node.hash or None
                made.append(child)
            child.n_users += 1  # no block of this path leaves for the next one
            self._touch(child)
            node = child
        while node.parent is not None:
            node.n_users -= 1
            node = node.parent
        if made:
            self._emit({"type": "stored", "parent_hash": first_parent, "blocks": [_stored(block) for block in made]})

    @property
    def n_used(self) -> int:
        return sum(not block.level for block in self.blocks.values()) + self.n_reserved

    def _make_room(self, n: int) -> bool:
        gone: list[int] = []
        while self.n_used + n > self.n_blocks:
            block = self._stalest(0)
            if block is None:
                break
            if self.n_host and sum(each.level for each in self.blocks.values()) >= self.n_host:
                old = self._stalest(1)
                if old is not None:
                    gone.append(self._drop(old))
            if self.n_host and sum(each.level for each in self.blocks.values()) < self.n_host:
                self._move(block, 1)
            elif not block.children:
                gone.append(self._drop(block))
            else:
                break
        if gone:
            self._emit({"type": "removed", "block_hashes": gone})
        return self.n_used + n <= self.n_blocks

    def _stalest(self, level: int) -> Block | None:
        """The leaf of a level that was used longest ago."""
        leaves = [
            block
            for block in self.blocks.values()
            if block.level == level
            and not block.n_users
            and not any(child.level <= level for child in block.children.values())
        ]
        return min(leaves, key=lambda block: block.used_at, default=None)

    def _drop(self, block: Block) -> int:
        assert block.parent is not None
        assert not block.children, "only leaf blocks can be evicted"
        del block.parent.children[block.tokens], self.blocks[block.hash]
        return block.hash

    def _move(self, block: Block, level: int) -> None:
        diff = {"type": "event_diff", "new_value": level, "old_value": block.level}
        block.level = level
        self._emit({"type": "updated", "block_hash": block.hash, "cache_level": diff, "priority": None})

    def _touch(self, block: Block) -> None:
        self._clock += 1
        block.used_at = self._clock

    def _emit(self, event: Json) -> None:
        self.buffer.append({"event_id": self._event_id, "data": event, "window_size": self.window})
        self._event_id += 1

    @staticmethod
    def _hash(parent: Block, tokens: tuple[int, ...], salt: str) -> int:
        raw = f"{parent.hash} {tokens} {salt}".encode()
        return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest()) | 1 << 63  # above every signed number


def _stored(block: Block) -> Json:
    tokens = [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in block.tokens]
    return {
        "type": "stored_block", "block_hash": block.hash, "tokens": tokens, "cache_level": block.level, "priority": 35,
    }  # fmt: skip


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the common beginning."""
    n = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        n += 1
    return n
