"""Tokenizers of each kind, trained here on texts of this repository; a model directory needs one."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from tests.places import ROOT

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
KINDS = ("bytes", "bytes-nfc", "pieces", "pieces-always", "unigram", "unigram-first")


@functools.cache
def _texts() -> Sequence[str]:
    pages = sorted((ROOT / "docs").glob("*.md"))
    lines = [line for page in pages for line in page.read_text("utf-8").splitlines(keepends=True)]
    return [*lines[:800], "Place a cup on the table. 你好，世界 naïve façade 🙂 \t\n  two   blanks"]


@functools.cache
def trained(kind: str, size: int = 800) -> str:
    """The text of a `tokenizer.json`: byte-level BPE as of GPT-2 and Qwen, SentencePiece BPE as of Llama 2, Unigram."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    specials = ["<unk>", "<s>", "</s>", *CHATML]
    initial = [f"<0x{byte:02X}>" for byte in range(256)]
    if kind.startswith("bytes"):
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        if kind == "bytes-nfc":
            made.normalizer = normalizers.NFC()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
        )
    elif kind.startswith("pieces"):
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        blanks: list[Any] = [normalizers.Replace(" ", "▁")]
        made.normalizer = normalizers.Sequence(
            [*([normalizers.Prepend("▁")] if kind == "pieces-always" else []), *blanks]
        )
        steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        made.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if kind == "pieces-always" else [])])
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=[*specials, *initial], show_progress=False, max_token_length=12
        )
    else:
        made = Tokenizer(models.Unigram())
        scheme = "first" if kind == "unigram-first" else "always"
        made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
        made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
        trainer = trainers.UnigramTrainer(
            vocab_size=size, special_tokens=[*specials, *initial], unk_token="<unk>", show_progress=False
        )
    made.train_from_iterator(_texts(), trainer)
    made.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    if kind.startswith("pieces"):
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", made.token_to_id("<s>"))]
        )
    described = json.loads(made.to_str())
    described["model"]["byte_fallback"] = not kind.startswith("bytes")
    # Tokens for bytes are ordinary ones in the files of real models.
    described["added_tokens"] = [each for each in described["added_tokens"] if each["content"] not in initial]
    return json.dumps(described)
