"""The draft model of a model: a smaller one with the same tokens, which guesses what the model will write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeGuard

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass
from shepherd.models import gguf
from shepherd.models.gguf_file import Array
from shepherd.models.sizing import Cells, Fit, fit, gib, keeps_states

NONE = "none"
"""In place of a draft model in the configuration: there is none."""
MOST_CELLS = 8192
"""Tokens that its context holds, of all conversations together: what is further back helps little to guess."""
N_UBATCH = 256
"""Tokens that it reads at once: more than it reads between two decodes."""
MOST_UNUSED = 128
"""Tokens that one of the vocabularies may have more at its end: of some families, larger models have been padded."""
_SHOWN = 40
"""Characters of a token in a message."""


@dataclass(frozen=True, slots=True)
class DraftFile:
    header: gguf.Header
    cells: Cells
    """Of its context."""


def is_named(spec: str | None) -> TypeGuard[str]:
    """Whether a value of the configuration names a draft model."""
    return spec not in {None, NONE}


def cells_of(header: gguf.Header, n_ctx: int, sequences: int, *, flash_attention: bool) -> Cells:
    """The cells of a draft model's context beside a cache of `n_ctx` tokens (0 = not known yet): a sequence for each of
    `sequences` answers, and as many for conversations that wait for their next turn."""
    n_ctx = min(filter(None, (MOST_CELLS, n_ctx, header.n_ctx_train)))
    n_seq = 2 * sequences
    return Cells(n_ctx, n_seq=n_seq, n_outputs=n_seq, n_ubatch=N_UBATCH, flash_attention=flash_attention)


def fits(drafts: Iterable[DraftFile]) -> Sequence[Fit]:
    """The memory of these; weights that several caches have in common count once."""
    ordered = sorted(drafts, key=lambda draft: draft.header.path)
    groups = (list(group) for _, group in groupby(ordered, key=lambda draft: draft.header.path))
    return [fit(group[0].header, [draft.cells for draft in group]) for group in groups]


def memory(drafts: Iterable[DraftFile]) -> tuple[int, int]:
    """What these need at least, and what their buffers take besides, in bytes."""
    found = fits(drafts)
    return sum(each.least for each in found), sum(each.needed - each.least for each in found)


def check(draft: gguf.Header, model: gguf.Header) -> None:
    """Raises: `ConfigError` if a model cannot draft for another one: the fault, and what to do."""
    for fault in (_unlike(draft, model), _too_large(draft, model), _keeps(draft), _keeps(model)):
        if fault:
            raise ConfigError(f"{fault}; name another draft model, or leave draft out")


def _keeps(header: gguf.Header) -> str:
    if not keeps_states(header):
        return ""
    return f"{header.path.name} has layers that keep a state, from which no refused token can be taken back"


def _too_large(draft: gguf.Header, model: gguf.Header) -> str:
    if draft.size_bytes <= model.size_bytes:
        return ""
    return (
        f"the weights of the draft model {draft.path.name} take {gib(draft.size_bytes)}, more than those of "
        f"{model.path.name}, {gib(model.size_bytes)}: it would be the slower one"
    )


def _unlike(draft: gguf.Header, model: gguf.Header) -> str:
    """The first difference of two vocabularies; nothing where they are the same."""
    if not draft.tensors:
        return f"{draft.path.name} has no weights, only a vocabulary"
    mine, other = (header.metadata.get("tokenizer.ggml.tokens") for header in (draft, model))
    if not isinstance(mine, Array) or not isinstance(other, Array) or {mine.kind, other.kind} != {"string"}:
        return f"{(model if isinstance(mine, Array) else draft).path.name} has no vocabulary of texts"
    names = f"the draft model {draft.path.name}", model.path.name
    if abs(mine.length - other.length) > MOST_UNUSED:
        return f"{names[0]} has a vocabulary of {mine.length} tokens, {names[1]} one of {other.length}"
    if draft.tokenizer != model.tokenizer:
        return f"{names[0]} has a tokenizer of the kind {draft.tokenizer!r:.80}, {names[1]} of {model.tokenizer!r:.80}"
    for token, (here, there) in enumerate(zip(mine.texts(), other.texts(), strict=False)):
        if here != there:
            return f"token {token} of {names[0]} is {_shown(here)}, of {names[1]} {_shown(there)}"
    return ""


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
