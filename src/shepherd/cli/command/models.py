"""`shepherd models`: the configured models, the models on this machine, and the facts about one of them.

Reads headers only; no model is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.cli import configure, render
from shepherd.cli.text import format_size
from shepherd.core import ShepherdError
from shepherd.models import catalog, gguf

CONTEXT_SIZES = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Contexts for which `models info` shows the memory, up to the one that the model was trained for."""


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model file."""

    name: str
    source: str
    size_bytes: int
    path: Path
    header: gguf.Header | None
    """None when the file cannot be read."""
    problem: str = ""


def scan_models() -> Iterator[ListedModel]:
    """Every model that the catalogue finds, with its header."""
    for found in catalog.scan(env=os.environ, home=Path.home(), cwd=Path.cwd()):
        header, problem = None, ""
        try:
            header = gguf.read_header(found.path)
        except ShepherdError as error:
            problem = error.message
        yield ListedModel(found.name, found.source, found.size_bytes, found.path, header, problem)


def show_list(options: Mapping[str, Any], *, as_json: bool) -> None:
    """Print all models."""
    listed = list(scan_models())
    if as_json:
        render.show_json([_row(model) for model in listed])
        return
    rows = [
        (
            model.name,
            model.source,
            format_size(model.size_bytes),
            model.header.file_type or "?" if model.header else "unreadable",
            str(model.header.n_ctx_train) if model.header else "",
        )
        for model in listed
    ]
    render.show_table(("NAME", "SOURCE", "SIZE", "QUANT", "CONTEXT"), rows)


def show_configured(options: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the configured models, each with the memory that it needs while it is loaded.

    Raises: `ConfigError` when a model with `load = "start"` cannot be loaded.
    """
    from shepherd.app.model_registry import ModelRegistry, budget_of

    config = configure.load_config(options)
    budget = budget_of(config)
    registry = ModelRegistry(config, env=os.environ, budget_bytes=budget)
    found = [(entry, entry.card) for entry in registry.entries.values()]
    if as_json:
        models = [
            {
                "name": card.id,
                "kind": card.kind,
                "context": card.n_ctx,
                "memory_bytes": card.memory_bytes,
                "load": entry.model.load,
                "caches": {plan.cache.name: plan.n_ctx for plan in entry.plans},
                "path": str(entry.header.path) if entry.header else entry.model.path,
                **({"problem": entry.problem} if entry.problem else {}),
            }
            for entry, card in found
        ]
        render.show_json({"memory_budget_bytes": budget, "models": models})
        return
    rows = [
        (
            card.id,
            card.kind if entry.header else "not usable",
            ", ".join(f"{plan.cache.name} {plan.n_ctx}" for plan in entry.plans) or str(card.n_ctx or ""),
            format_size(card.memory_bytes) if entry.header else "?",
            entry.model.load,
            str(entry.header.path) if entry.header else entry.problem,
        )
        for entry, card in found
    ]
    render.show_table(("NAME", "KIND", "CONTEXT", "MEMORY", "LOAD", "FILE"), rows)
    render.show(f"All models together may take {format_size(budget)}.")
    render.show("'shepherd models list' shows the other models on this machine.")


def show_one(options: Mapping[str, Any], *, name: str, as_json: bool) -> None:
    """Print the facts about one model.

    Raises: `ConfigError`, `EngineError` when it cannot be found or read.
    """
    path = catalog.find(name, env=os.environ, home=Path.home(), cwd=Path.cwd())
    header = gguf.read_header(path)
    dialect, has_tools = _dialect(header)
    memory = {n_ctx: gguf.memory_needed(header, n_ctx) for n_ctx in _sizes(header)}
    if as_json:
        render.show_json(
            {
                **_row(ListedModel(header.name or path.stem, "", header.size_bytes, path, header)),
                "architecture": header.architecture,
                "layers": header.n_layer,
                "parameters": header.n_params,
                "dialect": dialect,
                "tools": has_tools,
                "memory_bytes": {str(n_ctx): n_bytes for n_ctx, n_bytes in memory.items()},
            }
        )
        return
    rows = {
        "Name": header.name or path.stem,
        "File": str(path),
        "Size": format_size(header.size_bytes),
        "Architecture": header.architecture,
        "Parameters": _count(header.n_params),
        "Layers": str(header.n_layer),
        "Quantisation": header.file_type or "unknown",
        "Trained context": f"{header.n_ctx_train} tokens" if header.n_ctx_train else "unknown",
        "Chat template": f"yes, {dialect} dialect"
        if dialect
        else "none; it cannot chat unless chat_template names one",
        "Tools": "yes" if has_tools else "no",
    }
    render.show_fields(rows)
    render.show()
    render.show("Memory for weights, context (f16 cache) and buffers:")
    for n_ctx, n_bytes in memory.items():
        render.show(f"  {n_ctx:>7} tokens  {format_size(n_bytes):>9}")


def _sizes(header: gguf.Header) -> list[int]:
    trained = header.n_ctx_train or CONTEXT_SIZES[-1]
    return sorted({n_ctx for n_ctx in CONTEXT_SIZES if n_ctx <= trained} | {trained})


def _dialect(header: gguf.Header) -> tuple[str | None, bool]:
    """The dialect of a model's chat template and whether it knows tools; None without a template."""
    from shepherd.backends.local.chat_template import FOR_TOOLS
    from shepherd.dialects import detect

    template = header.chat_templates.get(FOR_TOOLS) or header.chat_template
    return (None, False) if template is None else (detect(template).name, "tools" in template)


def _row(model: ListedModel) -> dict[str, Any]:
    row: dict[str, Any] = {"name": model.name, "path": str(model.path), "size_bytes": model.size_bytes}
    if model.source:
        row["source"] = model.source
    if model.header is not None:
        row |= {"quantisation": model.header.file_type, "context": model.header.n_ctx_train}
    if model.problem:
        row["problem"] = model.problem
    return row


def _count(number: int) -> str:
    for unit, factor in (("billion", 10**9), ("million", 10**6)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return str(number)
