"""Makes the embedded model from nothing: `python -m training`, two hours and three quarters on two idle cores.

    vocabulary.json ─▶ checkpoint.pt, log.jsonl ─▶ lamb.gguf, lamb-q8_0.gguf ─▶ evaluation.md, evaluation.json

Each step leaves its files in the folder; a second start goes on where the first one was interrupted. It runs at the
lowest priority. The model of the package is not touched: `make ship-model` puts a better one there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from training.conversations import sample
from training.draw import Draw
from training.machine import Need, has_compiler, n_cores
from training.tokenizer import N_CONVERSATIONS, Vocabulary

if TYPE_CHECKING:
    from training.train import Settings

FOLDER = Path("build/training")
N_COMPARED = 50
"""Prompts whose greedy answers must be the same in llama.cpp and in the trainer."""
STEPS = ("vocabulary", "train", "export", "evaluate")
LOWEST_PRIORITY = 19

out = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m training", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of all files (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=float, default=21.5, help="of the training, in millions (%(default)g)")
    parser.add_argument("--finishing", type=float, default=10.0, help="of its end, in millions (%(default)g)")
    parser.add_argument("--processes", type=int, default=min(2, n_cores()), help="one for each core (%(default)s)")
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64 (%(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for one process on a GPU")
    parser.add_argument("--cases", type=int, default=500, help="of each task of the evaluation (%(default)s)")
    parser.add_argument("--only", choices=STEPS, action="append", help="some of the steps; may be repeated")
    parser.add_argument("--model", type=Path, help="evaluate this file instead of the one of the folder")
    asked = parser.parse_args(arguments)
    if problem := _problem(asked):
        out.print(f"Error: {problem}", style="red", highlight=False)
        return 2
    asked.folder.mkdir(parents=True, exist_ok=True)
    os.nice(LOWEST_PRIORITY)
    steps = {"vocabulary": _vocabulary, "train": _train, "export": _export, "evaluate": _evaluate}
    try:
        if "train" in (asked.only or STEPS):
            _refuse_small_machine(asked)  # before anything is computed
        for step in asked.only or STEPS:
            steps[step](asked)
    except (ValueError, RuntimeError, OSError) as error:
        out.print(f"Error: {error}", style="red", highlight=False)
        return 1
    except ModuleNotFoundError as error:
        out.print(
            f"Error: {error.name} is not installed; `uv run --group training python -m training` has it", style="red"
        )
        return 1
    except KeyboardInterrupt:
        out.print("Interrupted. The same command goes on from the last checkpoint.")
        return 130
    return 0


def _problem(asked: argparse.Namespace) -> str:
    """What is wrong with the arguments; empty for nothing."""
    for name, low, high in (
        ("processes", 1, 64),
        ("layers", 1, 64),
        ("cases", 1, 100_000),
        ("tokens", 0.01, 1e6),
        ("finishing", 0, 1e6),
    ):
        if not low <= getattr(asked, name) <= high:
            return f"--{name} is {getattr(asked, name):g}; it must be from {low:g} to {high:g}"
    if asked.width % 64 or not 64 <= asked.width <= 4096:
        return f"--width is {asked.width}; it must be a multiple of 64 from 64 to 4096"
    return ""


def _vocabulary(asked: argparse.Namespace) -> None:
    file = asked.folder / "vocabulary.json"
    if file.exists():
        return
    out.print(f"Learning the tokens from {N_CONVERSATIONS:,} conversations ...")
    draw = Draw(f"tokens {asked.seed}")
    Vocabulary.learned(sample(draw).text for _ in range(N_CONVERSATIONS)).save(file)


def _settings(asked: argparse.Namespace) -> Settings:
    """Of the training."""
    from training.network import Shape
    from training.train import Settings

    n_heads, n_hidden = asked.width // 64, 64 * round(asked.width * 2.75 / 64)
    shape = Shape(width=asked.width, n_layers=asked.layers, n_heads=n_heads, n_hidden=n_hidden)
    settings = Settings(
        shape=shape,
        seed=asked.seed,
        n_tokens=int(asked.tokens * 1e6),
        n_finishing=int(asked.finishing * 1e6),
        n_processes=asked.processes if asked.device == "cpu" else 1,
        compiles=has_compiler(),
        device=asked.device,
    )
    if asked.device != "cpu":
        settings = replace(settings, step_tokens=32_768)
    return settings


def _refuse_small_machine(asked: argparse.Namespace) -> None:
    """Raises: `ValueError` where memory or disk do not suffice; `ModuleNotFoundError` without PyTorch."""
    from training.network import n_parameters

    settings = _settings(asked)
    if lacking := Need.of(n_parameters(settings.shape), settings.n_processes).lacking(asked.folder):
        raise ValueError("; ".join(lacking))


def _train(asked: argparse.Namespace) -> None:
    from training.network import n_parameters
    from training.train import Line, train

    settings = _settings(asked)
    if (n_processes := settings.n_processes) > n_cores():
        out.print(f"This machine has {n_cores()} cores for {n_processes} processes: they will wait for each other.")
    n = n_parameters(settings.shape)
    out.print(f"Training {n / 1e6:.2f}M parameters on {settings.n_all / 1e6:g}M tokens, in {asked.folder} ...")
    columns = ("[progress.description]{task.description}", BarColumn(), "[progress.percentage]{task.percentage:>5.1f}%")
    with Progress(*columns, TextColumn("{task.fields[figures]}"), TimeRemainingColumn(), console=out) as progress:
        bar = progress.add_task("training", total=settings.n_all, figures="compiling")

        def report(line: Line) -> None:
            figures = f"loss {line.loss:.3f}  right {line.right:.1%}  {line.tokens_per_s:,.0f} tokens/s"
            progress.update(bar, completed=line.n_tokens, figures=figures)

        train(settings, asked.folder, report)


def _export(asked: argparse.Namespace) -> None:
    from training import held_out
    from training.export import MOST_BYTES, export, n_equal, restored
    from training.train import State

    checkpoint = asked.folder / "checkpoint.pt"
    if not checkpoint.exists():
        raise ValueError(f"there is no {checkpoint}; train first")
    state, settings = State.load(checkpoint)
    network, vocabulary = restored(state, settings.shape), Vocabulary.read(asked.folder / "vocabulary.json")
    plain, quantized = export(network, vocabulary, asked.folder / "lamb")
    names = tuple(held_out.TASKS)
    prompts = [held_out.cases(names[at % len(names)], 3)[at // len(names) % 3].prompt() for at in range(N_COMPARED)]
    n = n_equal(network, plain, prompts)
    out.print(f"{plain}: llama.cpp's greedy answer is the trainer's for {n} of {N_COMPARED} prompts.")
    for file in (plain, quantized):
        size = file.stat().st_size
        out.print(f"{file}: {size / (1 << 20):.2f} MiB" + ", too large for the package" * (size > MOST_BYTES))


def _evaluate(asked: argparse.Namespace) -> None:
    from training import evaluate

    file = asked.model or asked.folder / "lamb.gguf"
    scores: dict[str, evaluate.Score] = {}
    with Progress(console=out) as progress:
        bar = progress.add_task("the first hour", total=None)
        scores |= asyncio.run(evaluate.first_hour_scores(file, lambda _: progress.advance(bar)))
        scores |= asyncio.run(evaluate.evictions(file, lambda _: progress.advance(bar)))

        def report(name: str, score: evaluate.Score) -> None:
            progress.console.print(f"{name}: {score.right} of {score.n}", highlight=False)

        scores |= evaluate.tasks(file, asked.cases, report, n_processes=asked.processes)
    checkpoint = asked.folder / "checkpoint.pt"
    if asked.model is None and checkpoint.exists():
        scores |= evaluate.holes(checkpoint, asked.folder / "vocabulary.json", asked.cases)
    page = asked.folder / "evaluation.md"
    page.write_text("\n".join([f"# {file.name}", "", *evaluate.table(scores), ""]), "utf-8")
    shown = {name: asdict(score) for name, score in scores.items()}
    page.with_suffix(".json").write_text(json.dumps(shown, indent=1, ensure_ascii=False), "utf-8")
    out.print("\n".join(evaluate.table(scores)), highlight=False)


if __name__ == "__main__":
    sys.exit(main())
