"""What is on this machine: every model that the configuration names or the catalogue finds, and what pulls have left.

    configuration, stores, headers ─ scan_models ─▶ rows ─┬▶ `shepherd models list`
    SUGGESTIONS, memory            ─ suggested ───▶ rows ─┴▶ `GET /v1/models/here` (`Catalogue.here`)

Rows are the JSON of both. Headers are read, no model is loaded. Functions block.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from shepherd.app.directory.entries import cells_of, kind_of, read
from shepherd.app.directory.names import Names
from shepherd.config import CacheConfig, Config, KvConfig, ModelConfig
from shepherd.core import ShepherdError
from shepherd.models import catalog, gguf
from shepherd.models.checkpoint import Checkpoint
from shepherd.models.pulled import models_folder
from shepherd.models.sizing import fit
from shepherd.models.suggestions import SUGGESTIONS

COMMON_CONTEXT = 8192
"""The context with which a model that is not configured fits or does not, unless it was trained for a smaller one."""
MOST_KNOWN = 2000
"""Headers whose facts are kept."""

Row = dict[str, Any]


def scan_models(
    config: Config,
    env: Mapping[str, str],
    *,
    loaded: Collection[str] | None,
    budget_bytes: int,
    facts: Callable[[Path], Row] | None = None,
) -> Iterator[Row]:
    """Every model of the configuration and of the catalogue, with the facts of its header or the problem with it; then
    the unfinished pulls. `loaded`: the names of loaded models, None = not known; `facts`: as `facts_of`."""
    names, problems = names_by_file(config, env)
    aliases = Names(config, env).all()
    found = {each.path.resolve(): each for each in catalog.scan(env=env, home=Path.home(), cwd=Path.cwd())}
    for path in dict.fromkeys((*names, *found)):
        model, own = found.get(path), names.get(path, [])
        name = model.name if model else own[0]
        called = {name.casefold(), *(each.casefold() for each in own)}
        others = [alias for alias, meaning in aliases.items() if meaning.partition(":")[0].casefold() in called
                  or meaning.casefold() in called]  # fmt: skip
        row: Row = {
            "name": name,
            "path": str(model.path if model else path),
            "size_bytes": model.size_bytes if model else 0,
            "source": model.source if model else "configured",
            "configured": own,
            "aliases": others,
            "loaded": None if loaded is None else not {name, *own, *others}.isdisjoint(loaded),
        }
        try:
            row |= (facts or facts_of)(path)
        except ShepherdError as error:
            yield row | {"problem": error.message}
        else:
            yield row | ({"fits": row["memory_bytes"] <= budget_bytes} if "memory_bytes" in row else {})
    for name, problem in problems.items():
        yield {
            "name": name, "path": None, "size_bytes": 0, "source": "configured", "configured": [name],
            "aliases": [alias for alias, meaning in aliases.items() if meaning == name], "loaded": None,
            "problem": problem,
        }  # fmt: skip
    yield from _unfinished_rows(env)


def _unfinished_rows(env: Mapping[str, str]) -> Iterator[Row]:
    from shepherd.models.pull.staging import unfinished  # noqa: PLC0415 - few programs pull

    for each in unfinished(models_folder(env, Path.home())):
        again = f"go on with: shepherd pull {each.spec}; or " if each.spec else ""
        left = f"a pull ended here; {again}remove it with: shepherd models remove {each.name}"
        yield {
            "name": each.name, "spec": each.spec, "path": str(each.folder), "size_bytes": each.n_bytes,
            "source": "unfinished", "configured": [], "aliases": [], "loaded": None,
            "total_bytes": each.size_bytes or None, "age_s": max(0.0, time.time() - each.changed_at),
            "is_running": each.is_running, "problem": "a pull runs" if each.is_running else left,
        }  # fmt: skip


def names_by_file(config: Config, env: Mapping[str, str]) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """The names of configured models by their files, and by name why the file of another one is not found."""
    names: dict[Path, list[str]] = {}
    problems: dict[str, str] = {}
    for model in config.models:
        try:
            path = catalog.find(model.path, env=env, home=Path.home(), cwd=Path.cwd()).resolve()
        except ShepherdError as error:
            problems[model.name] = error.message
        else:
            names.setdefault(path, []).append(model.name)
    return names, problems


def facts_of(path: Path) -> Row:
    """What the header of a model says, and the memory that it needs with a common context. Raises: `ConfigError`."""
    header = read(path)
    row = {"kind": kind_of(header), **trained(header), "size_bytes": header.size_bytes}
    if isinstance(header, Checkpoint):
        return row
    n_ctx = min(header.n_ctx_train or COMMON_CONTEXT, COMMON_CONTEXT)
    cells = cells_of(header, ModelConfig(""), CacheConfig("", n_ctx=n_ctx), KvConfig(), flash_attention=False)
    return {**row, "memory_bytes": fit(header, [cells]).needed, "memory_context": n_ctx}


def trained(header: gguf.Header | Checkpoint) -> Row:
    return {"quantisation": header.file_type, "context": header.n_ctx_train}


class KnownFacts:
    """`facts_of`, with what is known of files that have not changed. One thread at a time."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], Row]] = {}

    def __call__(self, path: Path) -> Row:
        """Raises: `ConfigError`."""
        try:
            stat = path.stat()
        except OSError:  # it has just gone
            return facts_of(path)
        stamp = (stat.st_mtime_ns, stat.st_size)
        known, row = self._known.get(path, (None, Row()))
        if known != stamp:
            row = facts_of(path)
            if len(self._known) >= MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[path] = (stamp, row)
        return row


def suggested(capacity_bytes: int) -> list[Row]:
    """Good models for this machine and larger ones, by the memory that they need."""
    return [
        {"name": each.name, "spec": each.spec, "size_bytes": each.size_bytes, "licence": each.licence,
         "needed_bytes": each.needed_bytes, "fits": each.needed_bytes <= capacity_bytes, "good_for": each.good_for}
        for each in SUGGESTIONS
    ]  # fmt: skip


def is_unchosen(config: Config) -> bool:
    """Whether the user has chosen no model yet: only the tiny one is there, and nothing names it."""
    if [model.path for model in config.models] != ["embedded"] or config.providers:
        return False
    named = (key for source in config.sources for key in source.keys)
    return not any(re.match(r"-*(model|caches\.)", key, re.IGNORECASE) for key in named)
