"""What a header says of the memory that its model needs, against what the library takes."""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path

import pytest
from tests.unit.engine import tiny_gguf

from shepherd.core import ConfigError
from shepherd.models import catalog, gguf
from shepherd.models.gguf_file import BLOCKS
from shepherd.models.sizing import CACHE_TYPES, Cells, context_size, fit, keeps_states, staying

LAMB = gguf.read_header(catalog.embedded())
SIZE = re.compile(r" (\w+) buffer size = +([0-9.]+) MiB")
MIB = 2**20


def _experts(recipe: tiny_gguf.Recipe) -> tiny_gguf.Shapes:
    """smallthinker: every feed-forward network has experts."""
    embd, ff = tiny_gguf.N_EMBD, tiny_gguf.N_FF
    made = tiny_gguf.RECIPES["plain"].tensors(recipe)
    made = {name: shape for name, shape in made.items() if ".ffn_" not in name}
    for layer in range(recipe.n_layer):
        names = {"norm": (embd,), "gate_inp": (2, embd)}
        names |= {"gate_exps": (2, ff, embd), "up_exps": (2, ff, embd), "down_exps": (2, embd, ff)}
        made |= {f"blk.{layer}.ffn_{name}.weight": shape for name, shape in names.items()}
    return made


_EXPERTS = {
    "expert_count": 2,
    "expert_used_count": 1,
    "expert_feed_forward_length": tiny_gguf.N_FF,
    "expert_gating_func": 2,
}
RECIPES = tiny_gguf.RECIPES | {
    "full first": tiny_gguf.Recipe(
        "smallthinker", _experts, n_layer=5, keys={**_EXPERTS, "attention.sliding_window": 512}
    )
}


@pytest.mark.parametrize(
    ("architecture", "keys", "windowed"),
    [
        ("gemma3", {"attention.sliding_window": 8}, "11111011"),
        ("laguna", {"attention.sliding_window": 8}, "01110111"),
        ("laguna", {"attention.sliding_window": 8, "attention.sliding_window_pattern": 2}, "01010101"),
        ("gemma3", {"attention.sliding_window": 8, "attention.sliding_window_pattern": [1, 0, 0, 1]}, "10010000"),
        ("lfm2", {"attention.sliding_window": 8}, "11111111"),
        ("llama4", {}, "11101110"),
        ("llama4", {"attention.sliding_window": 0}, "00000000"),
        ("gemma3", {}, "00000000"),
        ("of-tomorrow", {"attention.sliding_window": 8}, "00000000"),
    ],
)
def test_which_layers_see_a_window(
    architecture: str, keys: dict[str, int | float | str | list[int]], windowed: str, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write(tiny_gguf.Recipe(architecture, tiny_gguf.RECIPES["plain"].tensors, n_layer=8, keys=keys), path)
    header = gguf.read_header(path)
    wide, narrow = (fit(header, [Cells(65536, n_ubatch=64, swa_full=full)]).cells for full in (True, False))
    window = {"llama4": 8192}.get(architecture, 8)
    n_cells = [-(-(window + 64) // 256) * 256 if each == "1" else 65536 for each in windowed]
    assert narrow == wide // 8 * sum(n_cells) // 65536


@pytest.mark.parametrize("kind", CACHE_TYPES)
def test_the_cells_take_what_their_number_format_takes(kind: str) -> None:
    per_block, size_bytes = BLOCKS[kind]
    row = 256 // per_block * size_bytes
    assert fit(LAMB, [Cells(4096, (kind, "f16"))]).cells == 4096 * LAMB.n_layer * (row + 512)
    assert fit(LAMB, [Cells(4096, ("f16", kind))]).cells == 4096 * LAMB.n_layer * (row + 512)


def test_a_cache_type_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'q6_K'.*choose one of f32, f16"):
        fit(LAMB, [Cells(256, ("q6_K", "f16"))])


def test_the_weights_count_once_and_each_cache_for_itself() -> None:
    one, other = Cells(1024), Cells(512, ("q8_0", "q8_0"), n_seq=8, flash_attention=True)
    both, first, second = fit(LAMB, [one, other]), fit(LAMB, [one]), fit(LAMB, [other])
    assert both.weights == first.weights == LAMB.size_bytes
    assert both.needed == first.needed + second.needed - fit(LAMB, []).needed
    assert fit(LAMB, []).least == LAMB.size_bytes
    repacked = fit(LAMB, [one], repacked={"f16"})
    assert repacked.needed == first.needed, "the system may drop the pages that are copied"
    assert repacked.total - first.total == repacked.copies > 0.9 * LAMB.size_bytes


def test_of_a_spread_model_the_input_stays_and_the_layers_that_do_not_leave() -> None:
    whole = fit(LAMB, [Cells(1024)])
    given = LAMB.tensors["token_embd.weight"].n_bytes
    n_layer = LAMB.n_layer + 1  # with the output
    for n_away, stays in ((None, 0), (-1, 0), (n_layer, 0), (n_layer + 5, 0), (1, n_layer - 1), (0, n_layer)):
        here = staying(whole, LAMB, n_away)
        assert here.weights == given + (whole.weights - given) * stays // n_layer
        assert here.cells == whole.cells * stays // n_layer
        assert (here.buffers > 0) is (stays > 0)
    assert staying(whole, LAMB, 0) == whole


def test_a_context_that_is_chosen_leaves_room_for_its_buffers_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    room = LAMB.size_bytes + 40 * MIB
    with caplog.at_level(logging.INFO):
        n_ctx = context_size(LAMB, cache="c", cells=Cells(0, n_seq=29), is_loaded=False, room=room, tier=2**30)
    (line,) = (record.getMessage() for record in caplog.records)
    assert f"cache 'c': a context of {n_ctx} of the 4096 tokens" in line
    assert "buffers" in line
    needed = fit(LAMB, [Cells(n_ctx, n_seq=29)]).needed
    assert needed <= room - 10 * MIB, "a quarter of what the weights leave is for conversations outside the cells"
    assert fit(LAMB, [Cells(2 * n_ctx, n_seq=29)]).needed > room - 10 * MIB


def test_a_context_whose_buffers_alone_do_not_fit_is_made_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cells = Cells(4096)
    room = fit(LAMB, [cells]).needed - 1
    assert context_size(LAMB, cache="c", cells=cells, is_loaded=False, room=room) == 4096
    assert "flash_attn = true or a smaller n_ubatch needs less" in caplog.text


@pytest.mark.model
@pytest.mark.parametrize("name", ["lamb", "gemma3", "delta", "hybrid-swa", "full first"])
def test_the_library_takes_what_the_header_says(
    name: str, tmp_path: Path, lamb: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    path = lamb if name == "lamb" else tmp_path / "tiny.gguf"
    if name != "lamb":
        tiny_gguf.write(RECIPES[name], path)
    header = gguf.read_header(path)
    assert keeps_states(header) == (name in {"delta", "hybrid-swa"})
    cases = [
        Cells(8192, n_ubatch=64, swa_full=False),
        Cells(2048, n_seq=5),
        Cells(2048, ("q8_0", "q8_0"), n_seq=3, flash_attention=True, n_ubatch=128),
        Cells(1024, n_seq=2, n_ubatch=64, swa_full=False),
    ]
    with contextlib.closing(Weights.load(path)) as weights, caplog.at_level(logging.DEBUG, "shepherd.engine.llamacpp"):
        for cells in cases:
            caplog.clear()
            options = ContextOptions(
                cells.n_ctx, n_seq=cells.n_seq, n_ubatch=cells.n_ubatch, flash_attention=cells.flash_attention,
                cache_type_k=cells.types[0], cache_type_v=cells.types[1], swa_full=cells.swa_full, n_threads=1,
            )  # fmt: skip
            LlamaRuntime(weights, options).close()
            taken = dict.fromkeys(("KV", "RS", "output", "compute"), 0.0)
            for record in caplog.records:
                for what, size in SIZE.findall(record.getMessage()):
                    taken[what] += float(size)
            found = fit(header, [cells])
            assert found.cells / MIB == pytest.approx(taken["KV"], abs=0.02), cells
            assert found.states / MIB == pytest.approx(taken["RS"], abs=0.02), cells
            buffers = taken["output"] + taken["compute"]
            assert found.buffers / MIB == pytest.approx(buffers, rel=0.06, abs=0.15), cells
