"""The names that clients use for models, and the paths that they use for endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable

ALIAS = "claude-local-"
"""A prefix for names of models: Claude Code lists only names that begin like its own."""
_BESIDE = ("/count_tokens", "/input_tokens", "/responses/compact")
"""Ends of paths that count, or compact, what the path before their last word would answer."""


def model_names(name: str) -> tuple[str, ...]:
    """The names that a requested name may stand for, itself first: clients write names of models in their own ways."""
    plain = name[len(ALIAS) :] if name.lower().startswith(ALIAS) else name
    return tuple(dict.fromkeys((name, plain, plain.removesuffix(":latest"))))


def find_name(name: str, known: Iterable[str]) -> str | None:
    """The first of the known names that a requested name stands for; case does not matter."""
    by_small = {each.casefold(): each for each in reversed(list(known))}
    return next((by_small[small] for each in model_names(name) if (small := each.casefold()) in by_small), None)


def endpoint_names(path: str) -> tuple[str, ...]:
    """A path, the path it is another way to write, and the one that it counts tokens for, or compacts."""
    full = full_path(path)
    answered = full.rpartition("/")[0] if full.endswith(_BESIDE) else full
    return tuple(dict.fromkeys((path, full, answered)))


def full_path(path: str) -> str:
    """A path, or a glob over paths, as our own clients write it: with one `/v1`, where it is not one of Ollama's."""
    plain = re.sub(r"^(/v1)+(?=/)", "/v1", path.rstrip("/") or path)
    has_start = plain.startswith(("/v1/", "/api/")) or not plain.startswith("/") or plain == "/"
    return plain if has_start else f"/v1{plain}"
