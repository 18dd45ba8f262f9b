"""The training loop and what it exports; with PyTorch, which is in the group `training`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from training import held_out, small_talk
from training.draw import Draw
from training.tokenizer import Vocabulary

pytest.importorskip("torch", reason="PyTorch is in the group `training`, which is not installed by default")

from training.evaluate import opened, tasks
from training.export import export, n_equal, restored
from training.network import QUERIES, Attention, Shape
from training.train import Line, Settings, State, train

SHAPE = Shape(width=64, n_layers=2, n_heads=1, n_hidden=128)
SETTINGS = Settings(shape=SHAPE, n_tokens=8_000, n_finishing=40_000, step_tokens=4_096, compiles=False)
"""The last tokens begin in the second step."""


def trained(folder: Path, *stops: int) -> tuple[str, list[Line]]:
    """A hash of the weights, and the log."""
    folder.mkdir()
    Vocabulary.learned(small_talk.chat(Draw(at)).text for at in range(40)).save(folder / "vocabulary.json")
    lines: list[Line] = []
    for stop in stops:
        train(SETTINGS, folder, lines.append, until=stop)
    state, settings = State.load(folder / "checkpoint.pt")
    assert settings == SETTINGS
    return hashlib.sha256(state.weights.numpy().tobytes()).hexdigest(), lines


def test_equal_runs_are_equal_and_one_that_was_interrupted_too(tmp_path: Path) -> None:
    whole, lines = trained(tmp_path / "whole", 4)
    again, _ = trained(tmp_path / "again", 4)
    interrupted, _ = trained(tmp_path / "interrupted", 1, 3, 4)
    assert whole == again == interrupted
    logged = (tmp_path / "whole" / "log.jsonl").read_text().splitlines()
    assert [Line(**json.loads(each)) for each in logged] == lines
    with pytest.raises(ValueError, match=r"other settings \(seed was 1, is 2\); move it away"):
        train(replace(SETTINGS, seed=2), tmp_path / "whole", lines.append)


@pytest.mark.parametrize("n", [1, QUERIES, 2 * QUERIES + 3])
def test_attention_and_its_gradients_are_pytorch_s(n: int) -> None:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    chance = torch.Generator().manual_seed(n)
    *parts, gradient = (torch.randn(2, 3, n, 16, generator=chance) for _ in range(4))
    for each in parts:
        each.requires_grad_()
    ours, theirs = Attention.apply(*parts), scaled_dot_product_attention(*parts, is_causal=True)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, parts, gradient), torch.autograd.grad(theirs, parts, gradient), atol=1e-4, rtol=1e-4
    )


def test_llama_cpp_answers_as_the_trainer_does(tmp_path: Path) -> None:
    trained(tmp_path / "run", 3)
    state, settings = State.load(tmp_path / "run" / "checkpoint.pt")
    network = restored(state, settings.shape)
    plain, quantized = export(network, Vocabulary.read(tmp_path / "run" / "vocabulary.json"), tmp_path / "out" / "lamb")
    prompts = [each.prompt() for each in held_out.cases("recall, 1 facts", 4)]
    assert n_equal(network, plain, prompts, most=12) == 4
    assert quantized.stat().st_size < plain.stat().st_size
    opened(quantized).close()
    assert tasks(plain, 1, lambda name, score: None, ("small talk",))["small talk"].n == 1
