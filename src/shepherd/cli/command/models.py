"""`shepherd models`: the configured models, the models on this machine, and the facts about one of them.

Reads headers only; no model is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shepherd.cli import configure, render
from shepherd.cli.text import format_size
from shepherd.core import ShepherdError
from shepherd.models import catalog, gguf

CONTEXT_SIZES = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Contexts for which `models info` shows the memory, up to the one that the model was trained for."""
NO_TEMPLATE = "none; chats use ChatML unless chat_template names one"


def scan_models() -> Iterator[dict[str, Any]]:
    """Every model that the catalogue finds, as in `--json`: with the facts of its header, or the problem with it."""
    for found in catalog.scan(env=os.environ, home=Path.home(), cwd=Path.cwd()):
        row = {"name": found.name, "path": str(found.path), "size_bytes": found.size_bytes, "source": found.source}
        try:
            yield row | _trained(gguf.read_header(found.path))
        except ShepherdError as error:
            yield row | {"problem": error.message}


def _trained(header: gguf.Header) -> dict[str, Any]:
    return {"quantisation": header.file_type, "context": header.n_ctx_train}


def show_list(options: Mapping[str, Any], *, as_json: bool) -> None:
    """Print all models."""
    models = list(scan_models())
    if as_json:
        render.show_json(models)
        return
    rows = [
        (
            model["name"],
            model["source"],
            format_size(model["size_bytes"]),
            "unreadable" if "problem" in model else model["quantisation"] or "?",
            "" if "problem" in model else str(model["context"]),
        )
        for model in models
    ]
    render.show_table(("NAME", "SOURCE", "SIZE", "QUANT", "CONTEXT"), rows)


def show_configured(options: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the configured models, each with the memory that it needs while it is loaded.

    Raises: `ConfigError` when a model with `load = "start"` cannot be loaded.
    """
    from shepherd.app.model_registry import ModelRegistry, budget_of

    config = configure.load_config(options, looks=True)
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
    from shepherd.app.derivation import derived_dialect
    from shepherd.backends.local.chat_template import FOR_TOOLS
    from shepherd.dialects import detect

    path = catalog.find(name, env=os.environ, home=Path.home(), cwd=Path.cwd())
    header = gguf.read_header(path)
    template = header.chat_templates.get(FOR_TOOLS) or header.chat_template
    dialect = None if template is None else detect(template, derive=derived_dialect).name
    has_tools = template is not None and "tools" in template
    trained = header.n_ctx_train or CONTEXT_SIZES[-1]
    sizes = sorted({n_ctx for n_ctx in CONTEXT_SIZES if n_ctx <= trained} | {trained})
    memory = {n_ctx: gguf.memory_needed(header, n_ctx) for n_ctx in sizes}
    if as_json:
        render.show_json(
            {
                "name": header.name or path.stem,
                "path": str(path),
                "size_bytes": header.size_bytes,
                **_trained(header),
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
        "Chat template": f"yes, {dialect} dialect" if dialect else NO_TEMPLATE,
        "Tools": "yes" if has_tools else "no",
    }
    render.show_fields(rows)
    render.show()
    render.show("Memory for weights, context (f16 cache) and buffers:")
    for n_ctx, n_bytes in memory.items():
        render.show(f"  {n_ctx:>7} tokens  {format_size(n_bytes):>9}")


def _count(number: int) -> str:
    for unit, factor in (("billion", 10**9), ("million", 10**6)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return str(number)
