"""`shepherd pull`, `models search` and `models suggest`; and the offer to pull a model that a command needs."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import click

from shepherd.cli import configure, known_providers, render, signals
from shepherd.cli.terminal.screen import Screen
from shepherd.cli.text import bar, format_age, format_count, format_size, one_line
from shepherd.core import ShepherdError

if TYPE_CHECKING:
    from shepherd.config import Config
    from shepherd.models.pull.plan import Plan
    from shepherd.models.pull.pull import Event
    from shepherd.models.pulled import PulledModel

KEPT = "stopped; what was transferred is kept: the same command goes on from there"
_CHOSEN = {False: "the format is", True: "it is in"}
"""By `Plan.is_packed`: how the reason of a choice begins."""
RATE_S = 10.0
"""The rate is an average over this time."""


def run(options: Mapping[str, Any], *, source: str, as_json: bool) -> None:
    model, is_new = get(configure.load_config(options, looks=True), source)
    done = {
        "name": model.name,
        "path": str(model.path),
        "projector": str(model.projector) if model.projector else None,
        "size_bytes": model.size_bytes,
        "is_new": is_new,
    }
    state = "is here" if is_new else "was here already, and is unchanged"
    lines = (
        f"{model.name} {state}: {model.path} ({format_size(model.size_bytes)})",
        f"Chat with it: shepherd -m {model.name}",
    )
    render.show_done(done, *lines, as_json=as_json)


def search(options: Mapping[str, Any], *, words: tuple[str, ...], as_json: bool) -> None:
    from shepherd.app.directory.pulling import network_of
    from shepherd.models.pull import hub

    network = network_of(configure.load_config(options, looks=True), known_providers.store())
    found = hub.search(" ".join(words), env=os.environ, network=network)
    if as_json:
        rows = [{"name": f"hf:{each.name}", "downloads": each.downloads, "licence": each.licence,
                 "gated": each.is_gated} for each in found]  # fmt: skip
        render.show_json(rows)
        return
    table = [
        (f"hf:{each.name}", f"{each.downloads:,}", each.licence, "needs a token" if each.is_gated else "")
        for each in found
    ]
    render.show_table(("NAME", "DOWNLOADS", "LICENCE", ""), table, "Nothing with GGUF files is called like that.")
    if found:
        render.show("Get one with: shepherd pull NAME")


def suggest(options: Mapping[str, Any], *, as_json: bool) -> None:
    from shepherd.app.directory.entries import capacity_of
    from shepherd.app.directory.here import suggested
    from shepherd.models.suggestions import SUGGESTIONS

    capacity = capacity_of(configure.load_config(options, looks=True))
    if as_json:
        render.show_json(suggested(capacity))
        return
    rows = [
        (
            each.spec,
            f"{each.size_gb:g} GB",
            format_size(each.needed_bytes),
            "fits" if each.needed_bytes <= capacity else "",
            each.licence,
            each.good_for,
        )
        for each in SUGGESTIONS
    ]
    render.show_table(("MODEL", "ON DISK", "MEMORY", "HERE", "LICENCE", "GOOD FOR"), rows)
    render.show(f"Models may take {format_size(capacity)} here. Get one with: shepherd pull MODEL")


def offer(config: Config) -> None:
    """Ask whether to pull each model that is loaded at the start and is not here, where a person can answer. Elsewhere
    the load fails, with the command that gets the model.

    Raises: `ShepherdError` when the user refuses, and when a pull fails; `SystemExit` after Ctrl-C.
    """
    from shepherd.models import catalog
    from shepherd.models.pulled import PREFIXES

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    for model in config.models:
        if model.load != "start" or not model.path.startswith(PREFIXES):
            continue
        try:
            catalog.find(model.path, env=os.environ, home=Path.home(), cwd=Path.cwd())
        except catalog.NotPulled:
            plan = signals.run(_planned(config, model.path))
            render.show_note(f"{model.path} is not on this machine.")
            if plan.why:
                render.show_note(f"{_CHOSEN[plan.is_packed]} {plan.why}.")
            if not click.confirm(f"Pull {plan.name}, {format_size(plan.size_bytes)}?", default=True, err=True):
                raise
            get(config, model.path)


def is_reachable(config: Config, spec: str) -> bool:
    """Whether the source of a model answers now, and has it. Raises: `SystemExit` after Ctrl-C."""
    try:
        signals.run(_planned(config, spec))
    except ShepherdError as error:
        render.show_note(error.message)
        return False
    return True


async def _planned(config: Config, spec: str) -> Plan:
    from shepherd.app.directory import pulling
    from shepherd.models.pull.source import parse

    source, keys = parse(spec), known_providers.store()
    return await pulling.plan_model(config, source, env=os.environ, keys=keys, show=_Meter(None))


def get(config: Config, spec: str) -> tuple[PulledModel, bool]:
    """The model, and whether it was transferred now. Raises: `ShepherdError`; `SystemExit` after Ctrl-C."""
    from shepherd.app.directory import pulling
    from shepherd.models.pull.source import parse

    source, keys = parse(spec), known_providers.store()
    meter = _Meter(Screen(render.console(sys.stderr)) if render.is_terminal(sys.stderr) else None)
    try:
        return signals.run(pulling.pull_model(config, source, env=os.environ, keys=keys, show=meter), stopped=KEPT)
    finally:
        meter.clear()


class _Meter:
    """Shows a pull: one live line with the rate and the time that is left on a terminal, a few lines elsewhere."""

    def __init__(self, screen: Screen | None) -> None:
        self._screen = screen
        self._plan: Plan | None = None
        self._here: dict[str, int] = {}
        self._marks: deque[tuple[float, int]] = deque()
        self._tenths = 0

    def __call__(self, event: Event) -> None:
        from shepherd.models.pull import pull
        from shepherd.models.pull.transfer import Waiting

        match event:
            case pull.Planned(plan):
                self._plan = plan
                size, files = format_size(plan.size_bytes), format_count(len(plan.files), "file")
                self._note(f"pulling {plan.name} from {plan.address}: {files}, {size}")
                if plan.why:
                    self._note(f"{_CHOSEN[plan.is_packed]} {plan.why}")
            case pull.Fetched(file, n_bytes):
                self._here[file.name] = n_bytes
                self._draw(file.name)
            case Waiting(seconds, why):
                self._marks.clear()
                self._note(f"{why}; trying again in {seconds:.0f} s")
            case pull.Held():
                self._note("another process pulls the same; waiting for it")
            case pull.Verifying():
                self._note("everything is here; checking it")
            case _:
                assert_never(event)

    def clear(self) -> None:
        if self._screen is not None:
            self._screen.update([])

    def _note(self, text: str) -> None:
        self.clear()
        render.show_note(one_line(text))

    def _draw(self, name: str) -> None:
        assert self._plan is not None
        done, total, now = sum(self._here.values()), self._plan.size_bytes, time.monotonic()
        self._marks.append((now, done))
        while now - self._marks[0][0] > RATE_S and len(self._marks) > 2:
            self._marks.popleft()
        (then, before), share = self._marks[0], done / total if total else 1.0
        rate = (done - before) / (now - then) if now > then else 0.0
        if self._screen is not None:
            left = f"  {format_age((total - done) / rate)} left" if rate > 0 else ""
            line = f"{bar(done, total)} {share:.0%}  {format_size(done)} of {format_size(total)}"
            line += f"  {format_size(int(rate))}/s{left}  {one_line(name)}"
            self._screen.update([], [line[: self._screen.console.width - 1]])
        elif int(share * 10) > self._tenths and done < total:
            self._tenths = int(share * 10)
            render.show_note(f"{share:.0%} of {format_size(total)}, {format_size(int(rate))}/s")
