"""The byte-level BPE of 2,048 tokens, learned from sampled conversations.

    conversations ─ learn ─▶ Vocabulary ─ save ─▶ tokenizer.json;   encode: text ─▶ ids

Merges of letters come first, then of JSON's punctuation, then a space with a word: a rare word is split alike with and
without a space or a quotation mark before it, and that is what makes copying general. Digits stay single.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING

from training.chat import CALL, CALL_END, END, RESPONSE, RESPONSE_END, START, TEXT_END
from training.words import COMMON

if TYPE_CHECKING:
    from tokenizers import Tokenizer

N_TOKENS, N_PUNCTUATION, N_SPACED = 2048, 24, 330
CONTROL = (TEXT_END, START, END)
SPECIAL = (*CONTROL, CALL, CALL_END, RESPONSE, RESPONSE_END, "<think>", "</think>")
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""As llama.cpp's `qwen2`."""
N_CONVERSATIONS = 6_000
"""To learn from."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]

    @classmethod
    def learned(cls, texts: Iterable[str]) -> Vocabulary:
        words, spaced, marks = Counter[str](), Counter[str](), Counter[str]()
        for text in texts:
            for word in re.findall(r" ?[A-Za-z]+", text):
                words[word.strip()] += 1
                spaced[word.strip()] += word[0] == " "
            for mark in re.findall(r" ?[^\sA-Za-z0-9]+\n*|\n+", text):
                if set(mark) <= set(' "{}[]:,\n<>/#') and ("/" not in mark or "<" in mark):
                    marks[mark.replace("\n", "Ċ").replace(" ", "Ġ")] += 1
        weights = Counter({word: max(1, int(count**0.7)) for word, count in words.items()})
        for word in COMMON:
            weights[word] += 6
            weights[word.capitalize()] += 1
        bytes_ = tuple(_characters().values())
        letters = learned_merges(weights, N_TOKENS - len(bytes_) - len(SPECIAL) - N_PUNCTUATION - N_SPACED)
        punctuation = learned_merges(marks, N_PUNCTUATION)
        known = {first + second for first, second in letters}
        tokens = [*bytes_, *(a + b for a, b in (*letters, *punctuation))]
        room = N_TOKENS - len(SPECIAL) - len(dict.fromkeys(tokens))
        frequent = sorted(spaced, key=lambda word: (-spaced[word], word))
        begun = [("Ġ", word) for word in frequent if word in known and len(word) >= 2][:room]
        tokens = list(dict.fromkeys([*tokens, *(a + b for a, b in begun)]))
        tokens += [f"<unused{n}>" for n in range(N_TOKENS - len(SPECIAL) - len(tokens))]
        return cls((*tokens, *SPECIAL), (*letters, *punctuation, *begun))

    @classmethod
    def read(cls, file: Path) -> Vocabulary:
        read = json.loads(file.read_text("utf-8"))
        return cls(tuple(read["tokens"]), tuple((a, b) for a, b in read["merges"]))

    def save(self, file: Path) -> None:
        file.write_text(json.dumps({"tokens": self.tokens, "merges": self.merges}, ensure_ascii=False), "utf-8")

    def encoder(self) -> Tokenizer:
        """The same as llama.cpp's tokenizer."""
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

        made = Tokenizer(
            models.BPE(vocab={token: id for id, token in enumerate(self.tokens)}, merges=list(self.merges))
        )
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL])
        return made


def learned_merges(words: Mapping[str, int], n: int) -> list[tuple[str, str]]:
    """The `n` merges of the most frequent pairs, one after the other; of equal counts the first by its signs."""
    split = [(list(word), words[word]) for word in sorted(words)]
    pairs, places = Counter[tuple[str, str]](), dict[tuple[str, str], dict[int, None]]()
    for at, (parts, count) in enumerate(split):
        for pair in itertools.pairwise(parts):
            pairs[pair] += count
            places.setdefault(pair, {})[at] = None
    frequent = [(-count, pair) for pair, count in pairs.items()]  # a heap; a count that has changed since is skipped
    heapify(frequent)
    merges: list[tuple[str, str]] = []
    while len(merges) < n and frequent:
        negative, best = heappop(frequent)
        if negative != -pairs[best]:
            continue
        if negative == 0:
            break
        merges.append(best)
        changed = dict[tuple[str, str], None]()
        for at in list(places.pop(best, {})):
            parts, count = split[at]
            for pair in itertools.pairwise(parts):
                pairs[pair] -= count
                changed[pair] = None
            merged = _merged(parts, best)
            split[at] = (merged, count)
            for pair in itertools.pairwise(merged):
                pairs[pair] += count
                places.setdefault(pair, {})[at] = None
                changed[pair] = None
        for pair in changed:
            heappush(frequent, (-pairs[pair], pair))
    return merges


def _merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    found, at = list[str](), 0
    while at < len(parts):
        if at + 1 < len(parts) and (parts[at], parts[at + 1]) == pair:
            found.append(parts[at] + parts[at + 1])
            at += 2
        else:
            found.append(parts[at])
            at += 1
    return found


def _characters() -> dict[int, str]:
    """By byte, the sign that stands for it in a vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
