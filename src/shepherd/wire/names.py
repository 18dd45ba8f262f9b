"""The names that clients use for models, and the paths that they use for endpoints."""

from __future__ import annotations

import re

ALIAS = "claude-local-"
"""A prefix for names of models: Claude Code lists only names that begin like its own."""
_COUNTING = ("/count_tokens", "/input_tokens")
"""Ends of paths that only count what the path before them would answer."""


def model_names(name: str) -> tuple[str, ...]:
    """The names that a requested name may stand for, itself first: clients write names of models in their own ways."""
    plain = name[len(ALIAS) :] if name.lower().startswith(ALIAS) else name
    return tuple(dict.fromkeys((name, plain, plain.removesuffix(":latest"))))


def endpoint_names(path: str) -> tuple[str, ...]:
    """A path, the path it is another way to write, and the one that it counts tokens for."""
    full = full_path(path)
    counted = next((full.removesuffix(end) for end in _COUNTING if full.endswith(end)), full)
    return tuple(dict.fromkeys((path, full, counted)))


def full_path(path: str) -> str:
    """A path, or a glob over paths, as our own clients write it: with one `/v1`, where it is not one of Ollama's."""
    plain = re.sub(r"^(/v1)+(?=/)", "/v1", path.rstrip("/") or path)
    has_start = plain.startswith(("/v1/", "/api/")) or not plain.startswith("/") or plain == "/"
    return plain if has_start else f"/v1{plain}"
