"""The vocabulary of a checkpoint, over the `tokenizers` library: text to tokens, and each token to its bytes.

    tokenizer.json ── its decoder ──▶ byte-level BPE:  GPT-2's letters for bytes      "Ġcup"   ─▶ b" cup"
                                      SentencePiece:   ▁ for a blank, <0x0A> a byte   "▁cup"   ─▶ b" cup"
                   ── added tokens ─▶ their own text, whatever the decoder             "</s>"   ─▶ b"</s>"

The bytes of a text's tokens are that text, as the tokenizer's own normaliser leaves it: SentencePiece puts a blank
before each text, and some compose characters (NFC); models were trained on that. Text never becomes a control token.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.core import ConfigError, EngineError
from shepherd.engine.base import Special
from shepherd.models import checkpoint

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from shepherd.models.checkpoint import Checkpoint

MAX_BYTES = 256 << 20
"""Of `tokenizer.json`; that of the largest vocabulary has 35 MB."""
BLANK = "▁"
"""What SentencePiece writes for a blank."""
PLAIN = ("ByteFallback", "Fuse", "Strip")
"""Steps of a decoder that change no single token."""
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
FIM = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("[PREFIX]", "[SUFFIX]", "[MIDDLE]"),
)
"""By family, the tokens before a prefix, before a suffix and before the middle."""
GET = (
    "the package 'tokenizers' reads the vocabularies of checkpoints and is not installed; get it with: pip install "
    "shepherd[tensorrt]"
)


class CheckpointVocabulary:
    """A checkpoint's vocabulary. Read-only, safe from any thread; satisfies `Vocabulary`."""

    def __init__(self, model: Checkpoint) -> None:
        """Reads `tokenizer.json`, up to a second. Raises: `ConfigError` for a file that cannot be used, and without
        the library."""
        self.path = model.path / checkpoint.TOKENIZER
        described = _read(self.path)
        self._tokenizer = _built(described, self.path)
        added = [each for each in described.get("added_tokens") or () if isinstance(each, dict)]
        by_id = self._tokenizer.get_added_tokens_decoder()
        own = {token: text for text, token in self._tokenizer.get_vocab(with_added_tokens=False).items()}
        ids = {**own, **{token: each.content for token, each in by_id.items()}}
        self.n_vocab: int = max(model.n_vocab, max(ids, default=-1) + 1)
        control = {token for token, each in by_id.items() if each.special}
        # A token that the configuration names is one even where the file does not mark it.
        named = {each["id"] for each in added if each.get("content") in (model.bos_text, model.eos_text)}
        control |= {*named, *model.end_tokens} & ids.keys()
        read = _reader(described, self.path)
        self._pieces = [b""] * self.n_vocab
        for token, text in ids.items():
            self._pieces[token] = text.encode() if token in control or token not in own else read(text)
        self.specials: tuple[Special, ...] = tuple(
            Special(
                token,
                ids[token],
                control=token in control,
                strip_left=token in by_id and by_id[token].lstrip,
                strip_right=token in by_id and by_id[token].rstrip,
            )
            for token in sorted(by_id.keys() | control)
        )
        self._control = frozenset(control)
        self._forged = re.compile("|".join(re.escape(ids[token]) for token in sorted(control)) or r"(?!)")
        token_of = {text: token for token, text in ids.items()}
        self.bos_text, self.eos_text = model.bos_text, model.eos_text
        self.bos: int | None = self._first(token_of.get(model.bos_text) if model.adds_bos else None)
        found = ([token_of.get(text, -1) for text in names] for names in FIM)
        fim = next((tuple(tokens) for tokens in found if min(tokens) >= 0), None)
        self.fim: tuple[int, int, int] | None = (fim[0], fim[1], fim[2]) if fim else None
        ends = {*model.end_tokens, token_of.get(model.eos_text, -1)}
        self.end_tokens = frozenset(token for token in ends if 0 <= token < self.n_vocab)

    def tokenize(self, text: str) -> list[int]:
        tokens = self._tokens(text)
        if self._control.isdisjoint(tokens):
            return tokens
        # Some vocabularies hold the texts of their control tokens as ordinary pieces: no half of one can become it.
        first, *others = self._halves(text)
        return [*self._tokens(first), *(token for part in others for token in self._behind(part))]

    def piece(self, token: int) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise EngineError(f"token {token} is outside the vocabulary of {self.n_vocab}")
        return self._pieces[token]

    def _tokens(self, text: str, *, special: bool = False) -> list[int]:
        """The library's tokens. `special`: with those that the file puts around every text."""
        try:
            found = self._tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=special)
        except BaseException as error:
            if not _is_fault(error):
                raise
            raise EngineError(f"{self.path} cannot tokenise a text ({_words(error)}); download it again") from error
        tokens: list[int] = found.ids
        return tokens

    def _behind(self, text: str) -> list[int]:
        """The tokens of what follows other text: without the blank that some files put before a text."""
        for lead in ("a", "\n", "\x02"):
            before, tokens = self._tokens(lead), self._tokens(lead + text)
            if tokens[: len(before)] == before:
                return tokens[len(before) :]
        return self._tokens(text)

    def _halves(self, text: str) -> Iterator[str]:
        """The text, cut inside of each control token's text."""
        start = 0
        while match := self._forged.search(text, start):
            yield text[start : match.start() + 1]
            start = match.start() + 1
        yield text[start:]

    def _first(self, otherwise: int | None) -> int | None:
        """The token that the file puts before every text."""
        whole, bare = self._tokens("a", special=True), self._tokens("a")
        return whole[0] if whole[:1] != bare[:1] and whole[0] in self._control else otherwise


def _read(file: Path) -> dict[str, Any]:
    """The content of `tokenizer.json`. Raises: `ConfigError`."""
    found = checkpoint.read_json(file, MAX_BYTES)
    if found is None:
        raise ConfigError("is missing", file=str(file))
    return dict(found.values)


def _built(described: dict[str, Any], file: Path) -> Tokenizer:
    """The library's tokenizer, without what fits the text to a length. Raises: `ConfigError`."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(GET) from error
    for each in _parts(described.get("pre_tokenizer"), "pretokenizers"):
        # "first" means the beginning of the prompt, which is a control token. Each chunk between control tokens is
        # tokenised by itself, and would get a blank of its own.
        if each.get("type") == "Metaspace" and each.get("prepend_scheme") == "first":
            each["prepend_scheme"] = "never"
    if _model(described).get("continuing_subword_prefix"):  # the library aborts the process where a token lacks it
        raise ConfigError("model.continuing_subword_prefix: no model that writes text has one", file=str(file))
    try:
        tokenizer = Tokenizer.from_str(json.dumps(described | {"truncation": None, "padding": None}))
    except BaseException as error:
        if not _is_fault(error):
            raise
        raise ConfigError(
            f"cannot be used ({_words(error)}); download it again, or update the package 'tokenizers'",
            file=str(file),
        ) from error
    tokenizer.encode_special_tokens = True
    return tokenizer


def _model(described: Mapping[str, Any]) -> Mapping[str, Any]:
    model = described.get("model")
    return model if isinstance(model, dict) else {}


def _is_fault(error: BaseException) -> bool:
    """Whether the library raised it: a panic of Rust is no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _words(error: BaseException) -> str:
    return " ".join(str(error)[:120].split())


def _reader(described: dict[str, Any], file: Path) -> Callable[[str], bytes]:
    """How the vocabulary writes bytes as text, read backwards. Raises: `ConfigError` for a way that is not known."""
    decoders = _parts(described.get("decoder"), "decoders")
    stages = decoders or _parts(described.get("pre_tokenizer"), "pretokenizers")
    kinds = [str(each.get("type")) for each in stages]
    if "ByteLevel" in kinds:
        table = str.maketrans(_byte_letters())
        letters = frozenset(_byte_letters())
        return lambda text: text.translate(table).encode("latin-1") if letters.issuperset(text) else text.encode()
    swaps: list[tuple[str, str]] = []
    for kind, each in zip(kinds, stages, strict=True):
        if kind == "Metaspace":
            swaps.append((str(each.get("replacement", BLANK)), " "))
        elif kind == "Replace" and isinstance(pattern := each.get("pattern"), dict) and "String" in pattern:
            swaps.append((str(pattern["String"]), str(each.get("content", ""))))
        elif kind == "BPEDecoder":
            swaps.append((str(each.get("suffix", "")), " "))
        elif kind not in PLAIN and decoders:
            raise ConfigError(
                f"writes its tokens in the way {kind!r}, which Shepherd does not know; run the model with trtllm-serve "
                "and name it as a provider",
                key="decoder", file=str(file),
            )  # fmt: skip
    has_bytes = "ByteFallback" in kinds or bool(_model(described).get("byte_fallback"))

    def read(text: str) -> bytes:
        if has_bytes and (match := BYTE.fullmatch(text)):
            return bytes([int(match[1], 16)])
        for old, new in swaps:
            text = text.replace(old, new)
        return text.encode()

    return read


def _parts(stage: Any, inner: str) -> list[dict[str, Any]]:
    """One stage of a tokenizer as the steps that it consists of."""
    if not isinstance(stage, dict):
        return []
    if stage.get("type") != "Sequence":
        return [stage]
    held = stage.get(inner)
    return [part for each in (held if isinstance(held, list) else ()) for part in _parts(each, inner)]


@functools.cache
def _byte_letters() -> dict[str, int]:
    own = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + place): byte for place, byte in enumerate(others)}
