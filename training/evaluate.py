"""How good a model file is: the card's tasks, the first hour's sentences, and what evictions do to it.

refuse_foreign(model)                a model of another template, or with other special tokens, is not judged
tasks(model) ─▶ Score by task        llama.cpp, greedily; the whole answer must be the only right one
first_hour(model) ─▶ Score by kind   the engine, with the real tools
evictions(model) ─▶ Score            recall in a small window, by how many turns have left it
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import llama_cpp

from shepherd.models.gguf import read_header
from training import first_hour, held_out
from training.chat import TEMPLATE
from training.corpus import encode
from training.draw import Draw
from training.engine import Engine, said
from training.fact import TELLING, facts, question, statement
from training.small_talk import remark
from training.tokenizer import CONTROL, SPECIAL

MOST_TOKENS = 256
"""Of an answer."""
WINDOW = 1_024
"""Tokens of context where evictions are measured."""
N_FACTS = 250
STEPS = (0, 10, 50, 200, 500)
"""By how many turns have left, the scores are grouped."""


@dataclass(slots=True)
class Score:
    n: int = 0
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """What was asked, and what came: the first few."""

    def add(self, is_right: bool, shown: str = "") -> None:
        self.n += 1
        self.right += is_right
        if not is_right and shown and len(self.wrong) < 5:
            self.wrong.append(shown)


def refuse_foreign(model: llama_cpp.Llama, file: Path) -> None:
    """Raises: `ValueError` for a model that was not made here: this evaluation does not speak its language."""
    template = str(model.metadata.get("tokenizer.chat_template", ""))
    if template != TEMPLATE.read_text("utf-8"):
        raise ValueError(
            f"the chat template of {file} is not {TEMPLATE.name}; only models made by `training` are judged"
        )
    for token in SPECIAL:
        ids = model.tokenize(token.encode(), add_bos=False, special=True)
        if len(ids) != 1:
            raise ValueError(f"{file} has no token {token}; only models made by `training` are judged")
    end = model.tokenize(CONTROL[-1].encode(), add_bos=False, special=True)
    if [model.token_eos()] != end:
        raise ValueError(
            f"{file} does not end its answers with {CONTROL[-1]}; only models made by `training` are judged"
        )


def opened(file: Path) -> llama_cpp.Llama:
    if not file.is_file():
        raise ValueError(f"there is no model file {file}")
    read_header(file)
    model = llama_cpp.Llama(str(file), n_ctx=4_096, n_threads=1, n_threads_batch=1, n_batch=512, verbose=False)
    refuse_foreign(model, file)
    return model


def tasks(
    file: Path, n: int, report: Callable[[str, Score], None], names: tuple[str, ...] = (), *, n_processes: int = 1
) -> dict[str, Score]:
    """Each task with `n` cases, in processes of one thread. Raises: `ValueError`."""
    opened(file).close()
    names, scores = names or tuple(held_out.TASKS), dict[str, Score]()
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as processes:
        for name, score in zip(names, processes.map(partial(task, file, n), names), strict=True):
            scores[name] = score
            report(name, score)
    return scores


def task(file: Path, n: int, name: str) -> Score:
    model, score = opened(file), Score()
    for case in held_out.cases(name, n):
        answer = greedy(model, case.prompt())
        score.add(answer == case.answer(), f"{case.messages[-2].text[-120:]!r} -> {answer!r}, not {case.answer()!r}")
    model.close()
    return score


def greedy(model: llama_cpp.Llama, prompt: str) -> str:
    """With the end mark, if it came."""
    ids, out = model.tokenize(prompt.encode(), add_bos=False, special=True), list[int]()
    if len(ids) > model.n_ctx() - MOST_TOKENS:
        return ""
    for token in itertools.islice(model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0), MOST_TOKENS):
        out.append(token)
        if token == model.token_eos():
            break
    return model.detokenize(out, special=True).decode("utf-8", "replace")


async def first_hour_scores(file: Path, report: Callable[[str], None]) -> dict[str, Score]:
    """By `kind` and whether it was held out: "greetings, seen"."""
    scores: dict[str, Score] = {}
    sentences, folder = first_hour.load()
    async with Engine.opened(file) as engine:
        defaults = engine.defaults()
        for sentence in sentences:
            came = await engine.play(sentence, folder)
            wrong = first_hour.faults(sentence, came, folder, defaults)
            part = "held out" if sentence.is_held_out else "seen"
            shown = f"{' | '.join(sentence.say)} -> {came.answer[:160]!r}: {'; '.join(wrong)}"
            for key in (f"{sentence.kind}, {part}", f"all, {part}"):
                scores.setdefault(key, Score()).add(not wrong, shown)
            report(sentence.say[-1])
    return scores


async def evictions(file: Path, report: Callable[[str], None]) -> dict[str, Score]:
    """Recall of the last facts in a window of `WINDOW` tokens, by how many turns have left it."""
    scores: dict[str, Score] = {}
    draw, told = Draw("evictions", held_out=True), facts(Draw("evicted facts", held_out=True), N_FACTS)
    async with Engine.opened(file, tools=(), cache=f"n_ctx = {WINDOW}") as engine:
        session = engine.session()
        for at, each in enumerate(told):
            await said(session, statement(draw, each, TELLING))
            await said(session, remark(draw)[0])
            answer, _, _ = await said(session, question(draw, each))
            n_evicted = (await session.window()).n_evicted
            step = max(step for step in STEPS if step <= n_evicted)
            scores.setdefault(f"recall after {step:,} evicted turns or more", Score()).add(
                answer == each.answer, f"{each.begun}: {answer!r}"
            )
            report(f"{at + 1} of {len(told)}")
    return scores


def table(scores: Mapping[str, Score]) -> Iterator[str]:
    """Markdown."""
    yield "| task | n | right |"
    yield "| --- | --- | --- |"
    for name, score in scores.items():
        yield f"| {name} | {score.n} | {score.right / score.n:.3f} |"


def holes(checkpoint: Path, vocabulary: Path, n: int) -> dict[str, Score]:
    """The tasks of `HOLES`, by the trainer's own network, whose positions can be chosen."""
    import torch

    from training.export import restored
    from training.tokenizer import Vocabulary
    from training.train import State

    torch.set_num_threads(1)
    state, settings = State.load(checkpoint)
    network, encoder = restored(state, settings.shape), Vocabulary.read(vocabulary).encoder()
    scores: dict[str, Score] = {}
    for name in held_out.HOLES:
        score = scores[name] = Score()
        for case in held_out.cases(name, n):
            row = encode(case, encoder, Draw(0), start=0)
            wanted = encoder.encode(case.answer()).ids
            at = len(row.ids) - len(wanted) - 1  # the line end behind the end mark
            answer = network.greedy(row.ids[:at], wanted[-1], MOST_TOKENS, row.positions[:at])
            score.add(answer == wanted[:-1], f"{case.messages[-2].text!r} -> {encoder.decode(answer)!r}")
    return scores
