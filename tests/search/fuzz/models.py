"""Damaged models, always the same: small ones of many kinds, and what bits, counts and names can do to their headers.

The tensors' data are holes in a file: only headers are damaged, and only the header is written.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.engine import tiny_gguf
from tests.unit.engine.tiny_gguf import N_EMBD, N_FF, RECIPES, Recipe, Shapes, Vocabulary

from shepherd.models import catalog

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
LETTERS = [chr(code) for code in range(ord("!"), ord("~") + 1)]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


# -- sound models -----------------------------------------------------------------------------------------------------


def _of(kind: str, *groups: tuple[Sequence[str], int], merges: Sequence[str] = ()) -> Vocabulary:
    tokens = [text for texts, _ in groups for text in texts]
    types = [number for texts, number in groups for _ in texts]
    return Vocabulary(kind, tokens, types, [-float(index) for index in range(len(tokens))], merges)


def _byte_level() -> list[str]:
    """The letters that stand for the 256 bytes in byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(0x100 + index) for index in range(len(others))]


VOCABULARIES = {
    "gpt2": _of("gpt2", (_byte_level(), NORMAL), (["he", "hel", "<|im_end|>"], CONTROL), merges=["h e", "he l"]),
    "llama": _of("llama", (["<unk>"], UNKNOWN), (["<s>", "</s>"], CONTROL), (BYTES, BYTE), (LETTERS, NORMAL)),
    "bert": _of("bert", (LETTERS, NORMAL), (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], CONTROL)),
    "t5": _of("t5", (["<pad>", "</s>"], CONTROL), (["<unk>"], UNKNOWN), (LETTERS, NORMAL)),
    "rwkv": _of("rwkv", (["<s>"], CONTROL), ([f"\\x{byte:02x}" for byte in range(256)], NORMAL)),
    "plamo2": _of("plamo2", (["<unk>"], UNKNOWN), (["<bos>"], CONTROL), (BYTES, BYTE), (LETTERS, NORMAL)),
}  # fmt: skip


def _mixture(recipe: Recipe) -> Shapes:
    """llama with experts."""
    made = RECIPES["plain"].tensors(recipe)
    n_experts = 4
    for layer in range(recipe.n_layer):
        prefix = f"blk.{layer}.ffn_"
        for name in ("gate", "up", "down"):
            rows, columns = made.pop(f"{prefix}{name}.weight")
            made[f"{prefix}{name}_exps.weight"] = (n_experts, rows, columns)
        made[prefix + "gate_inp.weight"] = (n_experts, N_EMBD)
    assert N_FF
    return made


MIXTURE = Recipe("llama", _mixture, n_layer=2, keys={"expert_count": 4, "expert_used_count": 2})


def write_sound(folder: Path) -> dict[str, Path]:
    """Every kind of model, by name."""
    made: dict[str, Path] = {}
    for name, recipe in {**RECIPES, "mixture": MIXTURE}.items():
        tiny_gguf.write(recipe, made.setdefault(name, folder / f"{name}.gguf"))
    for name, vocabulary in VOCABULARIES.items():
        path = made.setdefault(f"vocab-{name}", folder / f"vocab-{name}.gguf")
        tiny_gguf.write(RECIPES["plain-1"], path, vocabulary)
    return made | {"embedded": catalog.embedded()}


# -- what stands where ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """One field of a header."""

    kind: str
    """`count`, `length`, `text`, `type`, `array type`, `tensor type`, `number`, `n_dims`, `dim`, `offset`."""
    start: int
    stop: int
    code: str = ""
    """Of `struct`, for a number."""
    what: str = ""
    """`key`, `value`, `element` or `tensor`, for a text."""


_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


@dataclass(slots=True)
class _Walk:
    content: bytes
    at: int = 8
    pieces: list[Piece] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def number(self, kind: str, code: str) -> int:
        size = struct.calcsize("<" + code)
        self.pieces.append(Piece(kind, self.at, self.at + size, code))
        (value,) = struct.unpack_from("<" + code, self.content, self.at)
        self.at += size
        return int(value) if code not in "fd" else 0

    def text(self, what: str) -> None:
        size = self.number("length", "Q")
        self.pieces.append(Piece("text", self.at, self.at + size, what=what))
        self.at += size

    def value(self) -> None:
        kind = self.number("type", "I")
        if kind == 8:
            self.text("value")
        elif kind == 9:
            kind, length = self.number("array type", "I"), self.number("length", "Q")
            for _ in range(length):
                self.text("element") if kind == 8 else self.number("number", _CODES[kind])
        else:
            self.number("number", _CODES[kind])


@dataclass(frozen=True, slots=True)
class Sound:
    """A model without a fault, taken apart."""

    name: str
    header: bytes
    size: int
    """Of the file."""
    pieces: tuple[Piece, ...]
    pairs: tuple[tuple[int, int], ...]
    """Where each pair of the metadata starts and stops."""


def take_apart(name: str, path: Path) -> Sound:
    content = path.read_bytes()
    walk = _Walk(content)
    n_tensors, n_pairs = walk.number("count", "Q"), walk.number("count", "Q")
    for _ in range(n_pairs):
        start = walk.at
        walk.text("key")
        walk.value()
        walk.pairs.append((start, walk.at))
    for _ in range(n_tensors):
        walk.text("tensor")
        for _ in range(walk.number("n_dims", "I")):
            walk.number("dim", "Q")
        walk.number("tensor type", "I")
        walk.number("offset", "Q")
    return Sound(name, content[: walk.at], len(content), tuple(walk.pieces), tuple(walk.pairs))


# -- damage -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file with a fault: its header, and how long the whole is."""

    what: str
    header: bytes
    size: int

    def write(self, path: Path) -> Path:
        with path.open("wb") as file:
            file.write(self.header[: self.size])
            file.truncate(self.size)
        return path


EXTREMES = (0, 1, 2, 3, 7, 255, 513, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
FLOATS = (0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), float("-inf"))


def _extreme(dice: random.Random, code: str, old: bytes) -> bytes:
    if code in "fd":
        return struct.pack("<" + code, dice.choice(FLOATS))
    size = struct.calcsize("<" + code)
    near = int.from_bytes(old, "little") + dice.choice((-1, 1))
    return ((near if dice.random() < 0.3 else dice.choice(EXTREMES)) % (1 << 8 * size)).to_bytes(size, "little")


def _put(sound: Sound, piece: Piece, new: bytes) -> bytes:
    return sound.header[: piece.start] + new + sound.header[piece.stop :]


def _pick(dice: random.Random, sound: Sound, *kinds: str, what: str = "") -> Piece:
    """A piece of such a kind. A vocabulary must not hide the rest: its elements count for as much as all others."""
    fitting = [piece for piece in sound.pieces if piece.kind in kinds and piece.what in (what or piece.what)]
    if len(fitting) > 200 and dice.random() < 0.5:
        fitting = fitting[:60] + fitting[-60:]
    return dice.choice(fitting)


def _flipped(dice: random.Random, sound: Sound) -> bytes:
    content = bytearray(sound.header)
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return bytes(content)


def _bytes(dice: random.Random, sound: Sound) -> bytes:
    content = bytearray(sound.header)
    for _ in range(dice.randint(1, 3)):
        content[dice.randrange(len(content))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
    return bytes(content)


def _sized(*kinds: str) -> Callable[[random.Random, Sound], bytes]:
    def damage(dice: random.Random, sound: Sound) -> bytes:
        piece = _pick(dice, sound, *kinds)
        return _put(sound, piece, _extreme(dice, piece.code, sound.header[piece.start : piece.stop]))

    return damage


def _typed(dice: random.Random, sound: Sound) -> bytes:
    piece = _pick(dice, sound, "type", "array type", "tensor type")
    return _put(sound, piece, dice.choice((*range(45), 2**31, 2**32 - 1)).to_bytes(4, "little"))


def _renamed(dice: random.Random, sound: Sound) -> bytes:
    """A key, a name or a token with one letter changed."""
    piece = _pick(
        dice, sound, "text", what=dice.choice(("key", "tensor", "value", "element" if _has(sound) else "key"))
    )
    text = bytearray(sound.header[piece.start : piece.stop])
    if text:
        text[dice.randrange(len(text))] = dice.choice(b"\0\x20aZ09._<>\xff")
    return _put(sound, piece, bytes(text))


def _has(sound: Sound) -> bool:
    return any(piece.what == "element" for piece in sound.pieces)


def _twice(dice: random.Random, sound: Sound) -> bytes:
    """A key, a name or a token that another one has too."""
    what = dice.choice(("key", "tensor", "element" if _has(sound) else "key"))
    piece, other = (_pick(dice, sound, "text", what=what) for _ in range(2))
    text = sound.header[other.start : other.stop]
    length = len(text).to_bytes(8, "little")
    return sound.header[: piece.start - 8] + length + text + sound.header[piece.stop :]


def _without(dice: random.Random, sound: Sound) -> bytes:
    """A pair less."""
    start, stop = dice.choice(sound.pairs)
    n_pairs = (len(sound.pairs) - 1).to_bytes(8, "little")
    return sound.header[:16] + n_pairs + sound.header[24:start] + sound.header[stop:]


WAYS: tuple[Callable[[random.Random, Sound], bytes], ...] = (
    _flipped, _flipped, _bytes, _sized("count", "length"), _sized("number"), _sized("number"), _sized("number"),
    _sized("dim", "offset", "n_dims"), _typed, _renamed, _twice, _without,
)  # fmt: skip


def damaged(sounds: Sequence[Sound], n: int, seed: int) -> Iterator[Damaged]:
    """`n` files, each of the models in turn."""
    dice = random.Random(seed)
    for index in range(n):
        sound = sounds[index % len(sounds)]
        if dice.random() < 0.05:
            yield Damaged(f"{sound.name}: cut", sound.header, dice.randrange(sound.size))
            continue
        way = dice.choice(WAYS)
        name = getattr(way, "__qualname__", "").split(".")[0].strip("_")
        yield Damaged(f"{index} {sound.name}: {name}", way(dice, sound), sound.size)


def token(text: str) -> bytes:
    """A text as a vocabulary holds it."""
    return len(text.encode()).to_bytes(8, "little") + text.encode()
