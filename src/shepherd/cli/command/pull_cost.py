"""`shepherd models list hf:owner/repo`: what a pull would bring, its size, and whether it would fit this machine.

Nothing is transferred but the list. Not here: the pull.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shepherd.app.directory.entries import capacity_of
from shepherd.app.directory.pulling import network_of
from shepherd.cli import configure, known_providers, render
from shepherd.cli.text import format_size
from shepherd.core import InvalidRequest
from shepherd.models.pull import hub
from shepherd.models.pull.network import Network
from shepherd.models.pull.plan import candidates, choose, projector
from shepherd.models.pull.pull import plan_of
from shepherd.models.pull.source import HubSource, Source, parse
from shepherd.models.pulled import models_folder, pulled_models
from shepherd.models.sizing import about_needed, gib


def show_cost(options: Mapping[str, Any], *, source: str, as_json: bool) -> None:
    """Print each format of a repository, or the one model of another source. Raises: as `pull.plan_of`."""
    config = configure.load_config(options, looks=True)
    budget_bytes, network = capacity_of(config), network_of(config, known_providers.store())
    here = {model.name.casefold() for model in pulled_models(models_folder(os.environ, Path.home()))}
    found = [
        each | {"here": each["name"].casefold() in here} for each in _formats(parse(source), budget_bytes, network)
    ]
    if as_json:
        render.show_json(found)
        return
    rows = [
        (
            each["name"],
            format_size(each["size_bytes"]),
            str(each["n_files"]),
            f"about {format_size(each['memory_bytes'])}",
            "yes" if each["fits"] else "no",
            "here" if each["here"] else "chosen" if each["chosen"] else "",
        )
        for each in found
    ]
    render.show_table(("NAME", "SIZE", "FILES", "MEMORY", "FITS", "STATE"), rows)
    render.show(f"Models may take {gib(budget_bytes)} here. Get one with: shepherd pull NAME")


def _formats(source: Source, budget_bytes: int, network: Network) -> Iterator[dict[str, Any]]:
    if not isinstance(source, HubSource):
        asked = plan_of(source, env=os.environ, memory_bytes=budget_bytes, show=lambda event: None, network=network)
        plan = asyncio.run(asked)
        yield _format(plan.name, plan.size_bytes, len(plan.files), budget_bytes, chosen=True)
        return
    repo = hub.list_repo(source.repo, env=os.environ, network=network)
    found = candidates(repo.files)
    beside = {each: tuple(filter(None, (projector(repo.files, each),))) for each in found}
    extra_bytes = max((file.size_bytes for files in beside.values() for file in files), default=0)
    try:
        best, _ = choose(repo.name, found, source.label, budget_bytes, extra_bytes)
    except InvalidRequest:
        if source.label or not found:  # otherwise none fits, and the table says so
            raise
        best = None
    for each in found if not source.label else filter(None, (best,)):
        files = (*each.files, *beside[each])
        n_bytes = sum(file.size_bytes for file in files)
        yield _format(f"hf:{repo.name}:{each.label}", n_bytes, len(files), budget_bytes, chosen=each is best)


def _format(name: str, n_bytes: int, n_files: int, budget_bytes: int, *, chosen: bool) -> dict[str, Any]:
    needed = about_needed(n_bytes)
    return {
        "name": name,
        "size_bytes": n_bytes,
        "n_files": n_files,
        "memory_bytes": needed,
        "fits": needed <= budget_bytes,
        "chosen": chosen,
    }
