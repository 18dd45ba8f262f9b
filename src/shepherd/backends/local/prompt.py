"""Prompts to tokens: the template's own markup may become control tokens, nothing else ever does.

A rendered prompt is cut at the protocol's tokens that stand in the *markup*. Everything between two cuts is one chunk,
tokenised whole, as the model saw it in training. Text of users, tools and memory is always inside a chunk, and chunks
are tokenised without control tokens: a message cannot forge a turn.

    <|im_start|> [user\\n + what the user wrote] <|im_end|> [\\n] <|im_start|> [assistant\\n]
    token        chunk                           token       chunk token       chunk

Chunks are kept. What the model generated is kept under the text that it spells, so a history that comes back becomes
the tokens that are in the KV cache, not the tokeniser's own choice for the same text (K7). A model can write one text
in several ways: the first way holds everywhere, another one only at its place, behind the same tokens.
"""

from __future__ import annotations

import hashlib
import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from types import MappingProxyType

from shepherd.core.dataclasses import dataclass, field
from shepherd.core.lru import LruCache
from shepherd.dialects import Piece
from shepherd.dialects.render.replay import OWN, joined
from shepherd.engine.base import Media, MediaReader, Special, Vocabulary
from shepherd.engine.media import tokens_of

CHUNK_BYTES = 220
"""What a kept chunk takes besides its text and its tokens: its key, its links and its weight."""


@dataclass(frozen=True, slots=True)
class Encoded:
    tokens: array[int]
    edges: Sequence[int]
    """For each cut that was asked for, the index of the first token behind it. A cut within a token snaps to its end;
    the BOS token is before every cut."""
    tail: str
    """The text behind the last control token: the chunk that generation continues."""
    n_tail: int = 0
    """Its tokens."""
    media: Mapping[int, Media] = field(default_factory=dict)
    """The images and recordings, by the index of their first token."""


class Place:
    """Names a place in a prompt by all tokens before it. One thread."""

    def __init__(self) -> None:
        self._hashed = hashlib.blake2b(digest_size=16)
        self._n_read = 0

    def behind(self, tokens: array[int]) -> bytes:
        """The name of the place behind these tokens, which go on from those of the last call."""
        self._hashed.update(tokens[self._n_read :])
        self._n_read = len(tokens)
        return self._hashed.digest()


class Encoder:
    """Tokenises prompts of one model. Safe from several threads."""

    def __init__(
        self, vocabulary: Vocabulary, markup: str, *, reader: MediaReader | None = None, keep_bytes: int = 8_000_000
    ) -> None:
        """`markup`: the chat template's source and the dialect's markers; a user-defined token in it belongs to the
        protocol. `reader`: of a model that sees or hears. `keep_bytes`: memory for kept chunks, by default ten
        conversations of 100,000 tokens.
        """
        self._vocabulary = vocabulary
        self._reader = reader
        # Runs of blanks are user-defined tokens in some vocabularies, and stand in many templates: they forge nothing.
        protocol = [
            s for s in vocabulary.specials if s.text and (s.control or (len(s.text.strip()) > 1 and s.text in markup))
        ]
        self._by_text = {special.text: special for special in protocol}
        self.protocol_ids = frozenset(special.id for special in protocol)
        """Tokens with a meaning in this model's protocol."""
        longest_first = sorted(self._by_text, key=len, reverse=True)
        self._markers = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        # Control tokens are never recognised in plain text; the others are, so their text must be broken up.
        matching = [s.text for s in protocol if not s.control]
        self._forgeable = re.compile("|".join(map(re.escape, sorted(matching, key=len, reverse=True))) or r"(?!)")
        self._chunks: LruCache[array[int]] = LruCache(keep_bytes)

    def find_token(self, text: str) -> int | None:
        """The protocol's token of this text; None when the vocabulary has no single token for it."""
        special = self._by_text.get(text)
        return special.id if special else None

    def encode(
        self,
        pieces: Sequence[Piece],
        cuts: Sequence[int] = (),
        owner: str | None = None,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Encoded:
        """The prompt's tokens, with the vocabulary's BOS token once, if it has one.

        `cuts` are characters of the prompt, ascending; their token indexes come back in `Encoded.edges`. `owner`: whose
        generated tokens are used for their text; None = no owner's. `files`: images and recordings, by their names.

        Raises: `InvalidRequest` for a file that cannot be read.
        """
        tokens = array("i")
        media: dict[int, Media] = {}
        edges: list[int] = []
        bos = self._vocabulary.bos
        if bos is not None:
            tokens.append(bos)
        tail, n_tail = "", 0
        place = Place()
        at, last = 0, len(cuts)
        for part, start, stop in self._cut(pieces, files):
            while at < last and cuts[at] <= start:
                edges.append(len(tokens))
                at += 1
            if isinstance(part, str):
                chunk = self._chunk(part, owner, place.behind(tokens))
                if at < last and cuts[at] < stop:
                    end = bisect_left(cuts, stop, lo=at)
                    inner = [cut - start for cut in cuts[at:end]]
                    edges += [len(tokens) + edge for edge in self._edges(part, chunk, inner)]
                    at = end
                tokens.extend(chunk)
                tail, n_tail = part, len(chunk)
            elif isinstance(part, bytes):
                assert self._reader is not None
                for each in self._reader.read(part):
                    if isinstance(each, Media):
                        media[len(tokens)] = each
                    tokens.extend(tokens_of(each) if isinstance(each, Media) else each)
                tail, n_tail = "", 0
            else:
                if not (part.id == bos and len(tokens) == 1):  # the template wrote BOS itself (T13)
                    tokens.append(part.id)
                tail, n_tail = "", 0
        edges += [len(tokens)] * (last - at)
        return Encoded(tokens, edges, tail, n_tail, media)

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        """The tokens of a text by itself. `special`: control tokens are recognised in it. `bos`: with the first token
        that every prompt has."""
        first = self._vocabulary.bos
        head = [] if first is None else [first]
        if not special:
            return [*(head if bos else []), *self._vocabulary.tokenize(text)]
        tokens = list(self.encode((Piece(text, None),)).tokens)
        has_own = bool(head) and text.startswith(self._vocabulary.piece(head[0]).decode("utf-8", "replace"))
        return tokens if bos or has_own else tokens[len(head) :]

    def remember(self, prompt: Encoded, generated: Iterable[int], owner: str | None = None) -> None:
        """Keep the tokens that were generated for `owner` behind this prompt."""
        stop = len(prompt.tokens) - prompt.n_tail
        before, text, tokens = prompt.tokens[:stop], prompt.tail, prompt.tokens[stop:]
        raw, place = b"", Place()
        for token in generated:
            if token in self.protocol_ids:
                self._keep(text, raw, tokens, owner, place.behind(before))
                before.extend((*tokens, token))
                text, raw, tokens = "", b"", array("i")
            else:
                raw += self._vocabulary.piece(token)
                tokens.append(token)
        self._keep(text, raw, tokens, owner, place.behind(before))

    def spell(self, generated: Iterable[int]) -> tuple[Piece, ...] | None:
        """What was generated: the protocol's tokens as markup, all else as text of origin `OWN`. None when it ends
        inside of a character."""
        pieces: list[Piece] = []
        raw = b""
        try:
            for token in generated:
                piece = self._vocabulary.piece(token)
                if token in self.protocol_ids:
                    pieces += (Piece(raw.decode("utf-8"), OWN), Piece(piece.decode("utf-8"), None))
                    raw = b""
                else:
                    raw += piece
            return joined((), *pieces, Piece(raw.decode("utf-8"), OWN))
        except UnicodeDecodeError:
            return None

    def _keep(self, text: str, raw: bytes, tokens: array[int], owner: str | None, place: bytes) -> None:
        try:
            whole = text + raw.decode("utf-8")
        except UnicodeDecodeError:  # a cut-off character: no history can spell it
            return
        if not raw or self._forgeable.search(whole):
            return
        everywhere, here = (owner, whole), (owner, whole, place)
        known = self._chunks.find(everywhere)
        if known != tokens or self._chunks.find(here):
            self._chunks.keep(everywhere if known is None else here, tokens, _weight(whole, tokens))

    def _edges(self, text: str, tokens: array[int], cuts: Sequence[int]) -> list[int]:
        """For each cut within `text`, ascending, how many of its tokens come before the first edge at or behind it.
        Counted from the end: a tokeniser may put a blank before the first word, and most cuts are near the end."""
        edges: list[int] = []
        stop, behind = len(text), 0
        most = len(text[cuts[0] :].encode("utf-8", "replace"))  # tokens: each has a byte
        n_behind = list(accumulate(map(len, map(self._vocabulary.piece, islice(reversed(tokens), most)))))
        """Bytes of the last token, of the last two, and so on."""
        for cut in reversed(cuts):
            behind += len(text[cut:stop].encode("utf-8", "replace"))
            stop = min(cut, stop)
            edges.append(len(tokens) - bisect_right(n_behind, behind))
        return edges[::-1]

    def _cut(
        self, pieces: Sequence[Piece], files: Mapping[str, bytes]
    ) -> Iterator[tuple[str | Special | bytes, int, int]]:
        """The chunks, the protocol's tokens and the files, each with the characters `[start, stop)` that it
        stands for."""
        chunk: list[str] = []
        start = end = 0
        for piece in pieces:
            offset, end = end, end + len(piece.text)
            if piece.is_media:
                if text := "".join(chunk):
                    yield text, start, offset
                yield files[piece.text], offset, end
                start, chunk = end, []
                continue
            if piece.origin is not None:
                chunk.append(piece.text)
                continue
            position = 0
            for match in self._markers.finditer(piece.text):
                special = self._by_text[match.group()]
                chunk.append(piece.text[position : match.start()])
                position = match.end()
                text = "".join(chunk)
                if special.strip_left:
                    text = text.rstrip()
                if text:
                    yield text, start, offset + match.start()
                if special.strip_right:
                    position += len(piece.text[position:]) - len(piece.text[position:].lstrip())
                start = offset + position
                yield special, offset + match.start(), start
                chunk = []
            chunk.append(piece.text[position:])
        if text := "".join(chunk):
            yield text, start, end

    def _chunk(self, text: str, owner: str | None, place: bytes) -> array[int]:
        known = self._chunks.find((owner, text, place)) or self._chunks.find((owner, text))
        if known is None:
            known = array("i")
            start = 0
            while match := self._forgeable.search(text, start):
                # Split inside the marker's text: neither half can match it. Another may begin in the second half.
                middle = match.start() + 1
                known.extend(self._vocabulary.tokenize(text[start:middle]))
                start = middle
            known.extend(self._vocabulary.tokenize(text[start:]))
            self._chunks.keep((owner, text), known, _weight(text, known))
        return known


def _weight(text: str, tokens: array[int]) -> int:
    return CHUNK_BYTES + sys.getsizeof(text) + sys.getsizeof(tokens)
