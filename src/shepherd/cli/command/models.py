"""`shepherd models`: the configured models, the models on this machine, and the facts about one of them.

Reads headers only; no model is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from shepherd.app import tensorrt
from shepherd.app.directory import entries
from shepherd.app.directory.here import scan_models
from shepherd.app.directory.here import trained as trained_of
from shepherd.app.directory.names import Names
from shepherd.backends.local.chat_template import ChatFormat
from shepherd.cli import configure, render
from shepherd.cli.text import format_age, format_size
from shepherd.config import CacheConfig, Config, KvConfig, ModelConfig
from shepherd.core import BadReply, ConfigError
from shepherd.core.status import ModelKind
from shepherd.models import catalog, gguf
from shepherd.models import draft as draft_models
from shepherd.models.checkpoint import Checkpoint
from shepherd.models.pulled import pulled_models
from shepherd.models.sizing import fit
from shepherd.wire.names import find_name

CONTEXT_SIZES = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Contexts for which `models info` shows the memory, up to the one that the model was trained for."""
_KINDS: dict[ModelKind, str] = {
    "chat": "chat",
    "embedding": "embedding: it makes vectors of texts",
    "reranker": "reranker: it scores pairs of texts",
}
NO_TEMPLATE = "none; chats use ChatML unless chat_template names one"


def find_file(config: Config, name: str) -> Path:
    """What to load for a name: an alias, a model of the configuration, or one of the catalogue. Raises:
    `ConfigError`."""
    known = find_entry(config, name)
    return catalog.find(known.path, env=os.environ, home=Path.home(), cwd=Path.cwd())


def find_entry(config: Config, name: str) -> ModelConfig:
    """The model of the configuration that a name stands for; another model as if it were in it."""
    names = Names(config, os.environ)
    names.see_pulled({model.name: model for model in pulled_models(names.folder)})
    meaning = names.meaning(name)
    known = find_name(meaning, [each.name for each in config.models])
    return next((each for each in config.models if each.name == known), ModelConfig(name, path=meaning))


def list_models(config: Config) -> Iterator[dict[str, Any]]:
    """As `here.scan_models`; the configured server, if it runs, says what is loaded."""
    running = find_loaded(config)
    loaded = None if running is None else running.names
    yield from scan_models(config, os.environ, loaded=loaded, budget_bytes=entries.capacity_of(config))


class Running(NamedTuple):
    url: str
    names: frozenset[str]
    """Of the models that are loaded."""


def find_loaded(config: Config) -> Running | None:
    """The configured server, if it runs on this machine and answers."""
    if config.server.port == 0:
        return None
    import httpx2

    from shepherd.cli.command import server_client

    address = server_client.find_address(config, None, ())
    try:
        with server_client.connect(address, 2.0) as client:
            server_client.health_of(client, address.url)
            listed = server_client.json_object(client.get("/api/ps")).get("models")
    except (httpx2.HTTPError, BadReply, ConfigError):  # the last: its certificate cannot be read here
        return None
    models = listed if isinstance(listed, list) else []
    return Running(address.url, frozenset(str(each.get("name")) for each in models if isinstance(each, dict)))


def show_list(options: Mapping[str, Any], *, source: str | None, provider: str | None, as_json: bool) -> None:
    if provider is not None:
        from shepherd.cli.command.provider import show_models

        show_models(options, name=provider, as_json=as_json)
        return
    if source is not None:
        from shepherd.cli.command.pull_cost import show_cost

        show_cost(options, source=source, as_json=as_json)
        return
    models = list(list_models(configure.load_config(options, looks=True)))
    if as_json:
        render.show_json(models)
        return
    rows = [
        (
            model["name"],
            model["source"],
            format_size(model["size_bytes"]) if model["size_bytes"] else "?",
            "not usable" if "problem" in model else model["quantisation"] or "?",
            "" if "problem" in model else str(model["context"]),
            _FITS[model.get("fits")],
            "loaded" if model["loaded"] else _progress(model),
            ", ".join(name for name in (*model["configured"], *model["aliases"]) if name != model["name"]),
        )
        for model in models
    ]
    render.show_table(("NAME", "SOURCE", "SIZE", "QUANT", "CONTEXT", "FITS", "STATE", "ALSO CALLED"), rows)

    left = [model for model in models if model.get("is_running") is False]
    for model in left:
        render.show(f"{model['name']}: {model['problem']}")


def _progress(model: Mapping[str, Any]) -> str:
    """How much of an unfinished pull is here, and how long ago its last bytes came."""
    if "is_running" not in model:
        return ""
    share = f"{model['size_bytes'] / model['total_bytes']:.0%} of {format_size(model['total_bytes'])}, " if (
        model["total_bytes"]) else ""  # fmt: skip
    return share + ("running" if model["is_running"] else f"{format_age(model['age_s'])} ago")


_FITS = {True: "yes", False: "no", None: ""}


def show_configured(options: Mapping[str, Any], *, as_json: bool) -> None:
    config = configure.load_config(options, looks=True)
    machine = entries.machine_of(config)
    budget = machine.budget_bytes
    registry = entries.ModelRegistry(config, env=os.environ, machine=machine)
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


def show_one(options: Mapping[str, Any], *, name: str, draft: str | None, as_json: bool) -> None:
    from shepherd.engine.llamacpp.library import repacked_types

    config = configure.read_config(options, looks=True)
    path = find_file(config, name)
    header = entries.read(path)
    entry = find_entry(config, name)
    own = (cache.draft for cache in config.caches if cache.model == entry.name)
    drafting = draft or entry.draft or next(filter(None, own), None)
    model = ModelConfig(name, path=str(path))
    chat = entries.chat_format(model, header)
    dialect = None if chat.is_ours else chat.dialect.name
    if isinstance(header, Checkpoint):
        python = configure.read_config(options, looks=True).tensorrt.python
        _show_checkpoint(header, chat, dialect, python=python, as_json=as_json)
        return
    trained = header.n_ctx_train or CONTEXT_SIZES[-1]
    sizes = sorted({n_ctx for n_ctx in CONTEXT_SIZES if n_ctx <= trained} | {trained})
    fits = {
        n_ctx: fit(
            header,
            [entries.cells_of(header, model, CacheConfig(name, n_ctx=n_ctx), KvConfig(), flash_attention=False)],
            repacked=repacked_types(),
        )
        for n_ctx in sizes
    }
    found_draft = _draft(config, drafting, header) if draft_models.is_named(drafting) else None
    if as_json:
        render.show_json(
            {
                "name": header.name or path.stem,
                "path": str(path),
                "size_bytes": header.size_bytes,
                **trained_of(header),
                "kind": entries.kind_of(header),
                "architecture": header.architecture,
                "layers": header.n_layer,
                "parameters": header.n_params,
                "dialect": dialect,
                "tools": chat.shows_tools,
                "thinking": chat.dialect.thinks,
                "memory_bytes": {str(n_ctx): found.needed for n_ctx, found in fits.items()},
                "memory": {str(n_ctx): asdict(found) for n_ctx, found in fits.items()},
                **({"draft": found_draft} if found_draft else {}),
            }
        )
        return
    rows = {
        "Name": header.name or path.stem,
        "File": str(path),
        "Size": format_size(header.size_bytes),
        "Kind": _KINDS[entries.kind_of(header)],
        "Architecture": header.architecture,
        "Parameters": _count(header.n_params),
        "Layers": str(header.n_layer),
        "Quantisation": header.file_type or "unknown",
        "Trained context": f"{header.n_ctx_train} tokens" if header.n_ctx_train else "unknown",
        "Chat template": f"yes, {dialect} dialect" if dialect else NO_TEMPLATE,
        "Tools": "yes" if chat.shows_tools else "no",
        "Thinking": "yes" if chat.dialect.thinks else "no",
    }
    if found_draft:
        rows["Draft model"] = found_draft["path"]
        rows["Draft's memory"] = "not usable: " + found_draft["problem"] if "problem" in found_draft else (
            f"{format_size(found_draft['memory_bytes'])} more, of which {format_size(found_draft['size_bytes'])} are "
            f"weights, and a context of {found_draft['context']} tokens"
        )  # fmt: skip
    render.show_fields(rows)
    render.show()
    render.show("Memory for weights, context (f16 cache, without flash attention) and buffers:")
    for n_ctx, found in fits.items():
        parts = (
            f"context {format_size(found.cells + found.states)}, buffers {format_size(found.buffers + found.scratch)}"
        )
        render.show(f"  {n_ctx:>7} tokens  {format_size(found.needed):>9}  ({parts})")
    if copies := max(found.copies for found in fits.values()):
        render.show(f"The CPU computes with a second copy of {format_size(copies)}; the system may drop the first.")


def _draft(config: Config, name: str, header: gguf.Header) -> dict[str, Any]:
    """What is known of a draft model for the model of a header."""
    try:
        found = gguf.read_header(find_file(config, name))
    except ConfigError as error:
        return {"path": name, "problem": error.message}
    try:
        entries.check_draft(found, header)
    except ConfigError as error:
        return {"path": str(found.path), "problem": error.message}
    cells = draft_models.cells_of(found, header.n_ctx_train, CacheConfig(name).sequences, flash_attention=False)
    (needed,) = draft_models.fits([draft_models.DraftFile(found, cells)])
    return {
        "path": str(found.path),
        "size_bytes": found.size_bytes,
        "context": cells.n_ctx,
        "memory_bytes": needed.needed,
    }


def _show_checkpoint(
    found: Checkpoint, chat: ChatFormat, dialect: str | None, *, python: str | None, as_json: bool
) -> None:
    is_engine = found.kind == "engine"
    version = tensorrt.installed(python)
    installed = version if version is None else version or "yes"
    if as_json:
        render.show_json(
            {
                "name": found.name,
                "path": str(found.path),
                "kind": found.kind,
                "size_bytes": found.size_bytes,
                **trained_of(found),
                "architecture": found.architecture,
                "model_type": found.family,
                "gpus": found.n_ranks if is_engine else None,
                "built_by": found.version,
                "dialect": dialect,
                "tools": chat.shows_tools,
                "thinking": chat.dialect.thinks,
                "tensorrt_llm": installed,
            }
        )
        return
    tensor, pipeline, context = found.mapping
    split = f"{found.n_ranks} (tensor {tensor} x pipeline {pipeline} x context {context})"
    rows = {
        "Name": found.name,
        "Folder": str(found.path),
        "Kind": f"TensorRT engine of version {found.version or 'unknown'}" if is_engine else "Hugging Face checkpoint",
        "Size": format_size(found.size_bytes),
        "Architecture": " ".join(filter(None, (found.architecture, found.family and f"({found.family})"))) or "unknown",
        "Quantisation": found.file_type or "unknown",
        "Context": f"{found.n_ctx_train} tokens" if found.n_ctx_train else "unknown",
        "GPUs": split if is_engine else "1, or as many as gpus and stages of [tensorrt] say",
        "Chat template": f"yes, {dialect} dialect, from {chat.origin}"
        if dialect
        else f"none; using that of {chat.origin}",
        "Tools": "yes" if chat.shows_tools else "no",
        "Thinking": "yes" if chat.dialect.thinks else "no",
        "TensorRT-LLM": installed or f"not installed: {tensorrt.INSTEAD}",
    }
    render.show_fields(rows)


def _count(number: int) -> str:
    for unit, factor in (("billion", 10**9), ("million", 10**6)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return str(number)
