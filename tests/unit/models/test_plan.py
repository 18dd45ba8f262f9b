"""What a planner says of a model before it runs: laws that hold for every model, and figures that were published."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import cases
from tests.unit.engine import tiny_gguf
from tests.unit.models.test_outline import SMALL

from shepherd.core import InvalidRequest, ShepherdError
from shepherd.models import catalog, gguf, machines, outline, plan
from shepherd.models.checkpoint import Fields
from shepherd.models.sizing import Cells, fit
from shepherd.models.suggestions import SUGGESTIONS

LAMB = gguf.read_header(catalog.embedded())
NETWORK = machines.parse_network("10G")


def suggested(name: str, quant: str = "") -> gguf.Header:
    found = next(each for each in SUGGESTIONS if each.name == name)
    return outline.in_format(found.header(), quant) if quant else found.header()


MODELS = {each.name: suggested(each.name) for each in SUGGESTIONS}


def content(recipe: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        tiny_gguf.write(tiny_gguf.RECIPES[recipe], path := Path(folder) / "tiny.gguf")
        return path.read_bytes()


CONTENTS = {name: content(name) for name in ("plain", "delta", "gemma3", "recurrent", "hybrid")}


def need(users: int = 1, context: int = 4096, **cells: Any) -> plan.Need:
    return plan.Need(users, context, Cells(users * context, n_seq=users + 28, n_outputs=users, **cells))


def ways(header: gguf.Header, wanted: plan.Need, *names: str, network: str = "10G") -> list[plan.Way]:
    return plan.ways(header, wanted, [machines.parse(name) for name in names], machines.parse_network(network))


def one(header: gguf.Header, wanted: plan.Need, name: str) -> plan.Way:
    return ways(header, wanted, name)[0]


# -- the model ---------------------------------------------------------------------------------------------------------


def test_the_cache_of_a_token_is_that_of_the_cells() -> None:
    for kind in ("f16", "q8_0", "q4_0"):
        cells = Cells(4096, (kind, kind), flash_attention=True)
        assert sum(plan.work_of(LAMB, cells).token_bytes) * 4096 == fit(LAMB, [cells]).cells


@pytest.mark.parametrize(
    ("name", "kib"),
    [("Qwen3 8B", 144), ("Qwen2.5-VL 7B", 56), ("Mistral Nemo 12B", 160), ("gpt-oss 20B", 48), ("SmolVLM2 2.2B", 192)],
)
def test_the_cache_of_a_token_is_what_heads_and_layers_make(name: str, kib: int) -> None:
    """2 (keys and values) x layers x heads of keys x numbers of a head x 2 bytes."""
    assert sum(plan.work_of(MODELS[name], Cells(4096)).token_bytes) == kib * 1024


def test_a_window_bounds_what_is_kept_and_read() -> None:
    oss = MODELS["gpt-oss 20B"]
    narrow, wide = (plan.work_of(oss, Cells(8192, swa_full=full)) for full in (False, True))
    half = sum(wide.token_bytes) // 2
    assert wide.kept(8192) == 8192 * 2 * half
    assert narrow.kept(8192) == (8192 + 128) * half, "every second layer sees 128 tokens"
    assert narrow.kept(100) == wide.kept(100)


def test_latent_attention_keeps_one_narrow_row(tmp_path: Path) -> None:
    """DeepSeek-V3: 512 + 64 numbers in each of 61 layers, whatever the number of heads."""
    fields = {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "max_position_embeddings": 163840, "quantization_config": {"quant_method": "fp8"},
    }  # fmt: skip
    header = outline.header_of(Fields(tmp_path / "config.json", fields))
    work = plan.work_of(header, Cells(4096))
    assert sum(work.token_bytes) == 61 * 576 * 2
    active = sum(each.n_values for each in (*work.shared.values(), *work.last.values()))
    active += work.share * sum(each.n_values for each in work.experts.values())
    assert header.n_params == pytest.approx(671e9, rel=0.01)
    assert active == pytest.approx(37e9, rel=0.03)


def test_a_recurrent_layer_keeps_a_state_and_no_tokens(tmp_path: Path) -> None:
    tiny_gguf.write(tiny_gguf.RECIPES["delta"], path := tmp_path / "tiny.gguf")
    work = plan.work_of(gguf.read_header(path), Cells(4096))
    assert [size > 0 for size in work.token_bytes] == [False, True, False, True]
    assert work.state_bytes == fit(gguf.read_header(path), [Cells(4096)]).states > 0


def test_a_token_reads_the_experts_that_it_uses_and_many_tokens_read_all() -> None:
    work = plan.work_of(MODELS["Qwen3-Coder 30B-A3B"], Cells(4096))
    assert work.share == 8 / 128
    assert work.used(1) == pytest.approx(8 / 128)
    assert 0.35 < work.used(8) < 8 * 8 / 128
    assert work.used(512) > 0.999
    dense = plan.work_of(MODELS["Qwen3 8B"], Cells(4096))
    assert (dense.experts, dense.used(1)) == ({}, 1.0)


def test_sizes_that_are_computed_are_those_on_the_disk() -> None:
    for each in SUGGESTIONS:
        if "VL" not in each.name:  # with a projector
            assert MODELS[each.name].size_bytes == pytest.approx(each.size_bytes, rel=0.03), each.name


# -- figures that were published ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "quant", "tokens_s"),
    [("4090", "F16", 61.0), ("4090", "Q8_0", 98.1), ("m2-ultra", "F16", 41.4), ("m2-ultra", "Q8_0", 61.5)],
)
def test_a_7b_model_is_as_fast_as_llama_bench_found_within_a_third(machine: str, quant: str, tokens_s: float) -> None:
    """llama.cpp pull requests 4766 and 2891: `tg`, behind a hundred tokens. Estimates are from peaks on paper."""
    llama = {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11008,
        "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    header = outline.in_format(outline.header_of(Fields(Path("llama"), llama)), quant)
    assert one(header, need(context=128), machine).alone == pytest.approx(tokens_s, rel=0.34)


# -- laws --------------------------------------------------------------------------------------------------------------

names = st.sampled_from(sorted(MODELS))
boxes = st.sampled_from([row.name for row in machines.MACHINES])
contexts = st.integers(1, 8192)
rates = st.floats(0.1, 1e5)


@settings(max_examples=cases.examples(60), deadline=None)
@given(names, boxes, contexts, st.integers(1, 63), st.integers(1, 63))
def test_more_users_never_need_less_memory_and_are_never_served_faster(
    name: str, box: str, context: int, first: int, second: int
) -> None:
    few, many = sorted((first, second))
    for less, more in zip(
        ways(MODELS[name], need(few, context), box, "h200"),
        ways(MODELS[name], need(many, context), box, "h200"),
        strict=True,
    ):
        assert less.needed_bytes <= more.needed_bytes
        assert less.most_users == more.most_users, "the room does not depend on who asks"
        if not more.problem:
            assert not less.problem
            assert more.each <= less.each * (1 + 1e-9)
            assert more.each * many >= less.each * few * (1 - 1e-9) or less.kind != "upstream", "more together"


@settings(max_examples=cases.examples(60), deadline=None)
@given(names, contexts, contexts, st.integers(1, 64), boxes)
def test_a_longer_context_never_needs_less_and_is_never_faster(
    name: str, first: int, second: int, users: int, box: str
) -> None:
    short, long = sorted((first, second))
    for less, more in zip(
        ways(MODELS[name], need(users, short), box), ways(MODELS[name], need(users, long), box), strict=True
    ):
        assert less.needed_bytes <= more.needed_bytes
        if not more.problem:
            assert more.each <= less.each * (1 + 1e-9)
            assert more.prompt_s >= less.prompt_s * (1 - 1e-9)


@settings(max_examples=cases.examples(60), deadline=None)
@given(names, contexts, st.integers(1, 64), st.tuples(rates, rates), st.tuples(rates, rates))
def test_more_bandwidth_and_more_arithmetic_are_never_slower(
    name: str, context: int, users: int, gb_s: tuple[float, float], tflops: tuple[float, float]
) -> None:
    (slow, fast), (weak, strong) = sorted(gb_s), sorted(tflops)
    wanted = need(users, context)
    before, wider, stronger = (
        one(MODELS[name], wanted, f"ram=4096GiB,bandwidth={a:.3f},tflops={b:.3f}")
        for a, b in ((slow, weak), (fast, weak), (slow, strong))
    )
    for after in (wider, stronger):
        assert after.alone >= before.alone * (1 - 1e-9)
        assert after.each >= before.each * (1 - 1e-9)
        assert after.prompt_s <= before.prompt_s * (1 + 1e-9)
        assert after.needed_bytes == before.needed_bytes


@settings(max_examples=cases.examples(30), deadline=None)
@given(names, st.sampled_from(["Q2_K", "Q4_K_M", "Q8_0", "F16"]), st.sampled_from(["Q2_K", "Q4_K_M", "Q8_0", "F16"]))
def test_a_smaller_format_needs_less_and_is_not_slower(name: str, first: str, second: str) -> None:
    order = ["Q2_K", "Q4_K_M", "Q8_0", "F16"]
    small, large = sorted((first, second), key=order.index)
    less, more = (one(outline.in_format(MODELS[name], each), need(), "h200") for each in (small, large))
    assert less.needed_bytes <= more.needed_bytes
    if not more.problem:
        assert less.alone >= more.alone * (1 - 1e-9)


@settings(max_examples=cases.examples(30), deadline=None)
@given(names, contexts, st.integers(1, 64), st.floats(0.01, 1000), st.floats(0.01, 1000))
def test_a_faster_network_is_never_slower(name: str, context: int, users: int, first: float, second: float) -> None:
    slow, fast = sorted((first, second))
    before, after = (
        ways(MODELS[name], need(users, context), "h200", "h200", network=f"{rate:.3f}G")[-1] for rate in (slow, fast)
    )
    assert before.kind == after.kind == "rpc"
    assert after.each >= before.each * (1 - 1e-9)
    assert after.prompt_s <= before.prompt_s * (1 + 1e-9)


# -- ways --------------------------------------------------------------------------------------------------------------


def test_layers_over_two_cards_add_memory_and_not_speed() -> None:
    alone, both, served = ways(MODELS["Qwen3 8B"], need(), "2x4090")
    assert [way.kind for way in (alone, both, served)] == ["one", "several", "upstream"]
    assert both.room_bytes == 2 * alone.room_bytes
    assert both.alone == pytest.approx(alone.alone)
    assert 1.4 * alone.alone < served.alone < 2 * plan.UPSTREAM_TENSOR * alone.alone


def test_heads_that_cards_cannot_share_are_told() -> None:
    way = ways(MODELS["gpt-oss 20B"], need(), "3x4090")[-1]
    assert (way.kind, way.problem) == ("upstream", "cannot split 64 heads over 3 cards")


def test_more_machines_than_the_library_takes_are_told() -> None:
    for n, problem in ((17, ""), (18, "takes at most 16 machines beside the first")):
        assert ways(MODELS["Qwen3 8B"], need(), *["4090"] * n)[-1].problem == problem


def test_a_machine_behind_the_network_costs_its_round_trips() -> None:
    wanted = need()
    near, far = (
        ways(MODELS["Qwen3 8B"], wanted, "4090", "4090", network=text)[-1] for text in ("10G,0.1ms", "10G,10ms")
    )
    sent = 2 * 4 * 4096 / (10e9 / 8)
    assert near.load_s == pytest.approx(MODELS["Qwen3 8B"].size_bytes / 2 / 1.25e9), "half of the weights go there"
    single = one(MODELS["Qwen3 8B"], wanted, "4090").alone
    assert 1 / near.alone == pytest.approx(1 / single + 3 * 0.0001 + sent)
    assert 1 / far.alone == pytest.approx(1 / single + 3 * 0.01 + 2 * 4 * 4096 / (10e9 / 8))
    assert far.prompt_s - near.prompt_s == pytest.approx(4096 / 512 * 3 * 0.0099)


@settings(max_examples=cases.examples(150), deadline=None)
@given(st.sampled_from(["plain", "delta", "gemma3", "recurrent", "hybrid"]), st.data())
def test_a_damaged_header_is_planned_or_refused_and_never_a_traceback(name: str, data: st.DataObject) -> None:
    content = bytearray(CONTENTS[name])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, 3000))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "damaged.gguf").write_bytes(content)
        with contextlib.suppress(ShepherdError):
            ways(gguf.read_header(path), need(3, 64), "2x4090", "4090", "m4")


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 2**40), st.text(max_size=5), st.lists(st.text(max_size=5), max_size=4),
    st.sampled_from([0, 1, 2, 64, 4096, "sliding_attention", ["full_attention"] * 4, {}, {"quant_method": "awq"}]),
)  # fmt: skip


@settings(max_examples=cases.examples(150), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                *SMALL, "num_experts", "num_experts_per_tok", "moe_intermediate_size", "kv_lora_rank", "q_lora_rank",
                "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "sliding_window", "sliding_window_pattern",
                "head_dim", "full_attention_interval", "linear_num_value_heads", "linear_value_head_dim",
                "linear_key_head_dim", "linear_num_key_heads", "linear_conv_kernel_dim", "layer_types",
                "quantization_config", "text_config", "tie_word_embeddings", "first_k_dense_replace",
                "n_shared_experts",
            ]
        ),
        _VALUES,
        max_size=8,
    )
)  # fmt: skip
def test_an_odd_configuration_is_planned_or_refused_and_never_a_traceback(changes: dict[str, Any]) -> None:
    with contextlib.suppress(ShepherdError):
        header = outline.header_of(Fields(Path("config.json"), SMALL | changes))
        ways(outline.in_format(header, "Q4_K_M"), need(3, 64), "2x4090", "4090", "m4")


def test_a_file_without_layers_is_refused() -> None:
    empty = replace(LAMB, metadata={"general.architecture": "llama"})
    with pytest.raises(InvalidRequest, match=r"lamb\.gguf has no layers, so there is nothing to plan"):
        ways(empty, need(), "4090")


def test_a_step_and_a_prompt_take_the_seconds_of_their_bytes_and_operations() -> None:
    work = plan.Work(
        shared={"q8_0": plan.Amount(800, 700, 7)}, last={"q6_K": plan.Amount(100, 90, 9)},
        experts={"q4_K": plan.Amount(400, 600, 5)}, share=0.25, query=(8, 8), windows=(0, 0), token_bytes=(4, 4),
        state_bytes=50, n_layer=2, n_embd=8,
    )  # fmt: skip
    rates = plan.Rates(
        weights={"q8_0": 10, "": 5},
        several={"q8_0": plan.Several(0.01, 0.2), "": plan.Several(0.02, 0.3)},
        prompt={"": 3},
        cache=11,
        attention=1e9,
        attention_prompt=13,
        layer_s=0.5,
    )
    used = 1 - 0.75**3
    weights = 800 / 10 + 100 / 5 + used * 400 / 5
    more = 2 * 2 * (700 + 90 + 0.25 * 600) / 3
    together = 700 * 0.01 + 7 * 0.2 + (90 + used * 600) * 0.02 + (9 + used * 5) * 0.3
    cached = 3 * (2 * 4 * 100 + 2 * 50) / 11
    quick = replace(rates, attention_prompt=1e9)
    assert plan.step_s(work, quick, 3, 100) == pytest.approx(1.0 + weights + more + together + cached)
    assert plan.step_s(work, replace(quick, cache=1e9), 1, 0) == pytest.approx(1.0 + 80 + 20 + 0.25 * 400 / 5)
    computed = 2 * 1000 * (700 + 0.25 * 600) / 3 + 2 * 100 / 5
    compared = 4 * 16 * (512 * 512 + 488 * 1024) / 13
    assert plan.prompt_s(work, rates, 1000) == pytest.approx(computed + compared + 2 * 1.0)
    slow = replace(rates, weights={"": 1e-3})
    assert plan.prompt_s(work, slow, 10) > (800 + 400) / 1e-3, "however short, a prompt reads all weights"


def test_a_pool_of_cells_compares_each_token_with_those_of_all_users() -> None:
    work = plan.work_of(LAMB, Cells(4096))
    rates = plan.Rates({"": 1e30}, {}, {"": 1e30}, 1e30, 1.0, 1.0)
    shared, own = (plan.step_s(work, rates, 8, 1024, is_pooled=pooled) for pooled in (True, False))
    assert shared == pytest.approx(8 * own, rel=0.05)
    assert own == pytest.approx(8 * plan.step_s(work, rates, 1, 1024, is_pooled=False))


def test_the_first_token_reads_the_cells_of_a_pool_and_others_are_compared_with_it() -> None:
    """Four users of two models in Q4_0 were measured: at the rate of one token, attention alone was to take longer than
    the smaller one's whole further users did, 7.4 ms of 6.4 (bench/results/plan-fit-2026-11-27.json)."""
    work = plan.work_of(LAMB, Cells(4096))
    rates = plan.Rates({"": 1e30}, {}, {"": 1e30}, 1e30, attention=1.0, attention_prompt=4.0)
    one_s = plan.looked(work, 4, 128) / 4
    assert plan.step_s(work, rates, 4, 128) == pytest.approx(one_s * (1 + 3 / 4))
    own_s = plan.looked(work, 4, 128, is_pooled=False)
    assert plan.step_s(work, rates, 4, 128, is_pooled=False) == pytest.approx(own_s), "each reads cells of its own"


# -- advice ------------------------------------------------------------------------------------------------------------


def advised(header: gguf.Header, wanted: plan.Need, *names: str) -> plan.Advice:
    return plan.advise(ways(header, wanted, *names), header, wanted)


@pytest.mark.parametrize(
    ("name", "users", "names", "kind"),
    [
        ("Qwen3 0.6B", 1, ("ram=16GiB,bandwidth=50,tflops=1",), "one"),
        ("Qwen3 8B", 4, ("4090",), "one"),
        ("gpt-oss 20B", 2, ("2x3060",), "several"),
        ("Qwen3 8B", 200, ("h100",), "upstream"),
        ("Qwen3 8B", 100, ("h100", "h100"), "upstream"),
        ("gpt-oss 120B", 2, ("m4-pro", "m1-max"), "rpc"),
    ],
)
def test_the_simplest_way_that_lets_all_read_is_taken(name: str, users: int, names: tuple[str, ...], kind: str) -> None:
    way = advised(MODELS[name], need(users, 2048), *names).way
    assert way is not None
    assert (way.kind, way.problem, len(way.machines)) == (kind, "", 1 + (kind == "rpc"))


def test_a_way_on_which_users_wait_is_passed_over() -> None:
    box = machines.parse("4090")
    kinds: tuple[plan.Kind, ...] = ("one", "several", "upstream", "rpc")
    found = [plan.Way(kind, (box,), 1, 2, each=each) for kind, each in zip(kinds, (9.0, 9.9, 10.0, 99.0), strict=True)]
    assert plan.advise(found, LAMB, need(8)).way == found[2]
    assert plan.advise(found[:2], LAMB, need(8)).way == found[1]


def test_of_slow_ways_the_fastest_is_taken_and_called_slow() -> None:
    slow, less = "ram=64GiB,bandwidth=20,tflops=0.5", "ram=64GiB,bandwidth=10,tflops=0.5"
    advice = advised(MODELS["Qwen3 14B"], need(), less, slow)
    assert advice.way is not None
    assert advice.way.machines[0].rates.cache == 20e9 * machines.READS
    assert any("slower than most people read" in reason for reason in advice.reasons)


def test_what_fits_nowhere_is_told_what_would() -> None:
    advice = advised(MODELS["Qwen3 8B"], need(4, 32768), "3060")
    assert advice.way is None
    assert any("Not 3060, llama.cpp: it needs" in reason for reason in advice.reasons)
    assert any("--context 8192" in reason for reason in advice.reasons)
    large = advised(suggested("Qwen3 14B", "F16"), need(), "3060")
    assert any("It would fit in Q5_K_M (9.8 GiB of weights): --quant Q5_K_M." in reason for reason in large.reasons)
    assert any(
        "--cache-type-k q8_0" in reason for reason in advised(MODELS["Qwen3 8B"], need(2, 30000), "3060").reasons
    )


@pytest.mark.parametrize(
    ("users", "context", "says"),
    [
        (0, 4096, "users is 0; give a number from 1 to 1,000,000"),
        (-1, 4096, "users is -1"),
        (10**7, 4096, "users is 10,000,000"),
        (1, 0, "context is 0 tokens; give a number from 1 to the 40,960 tokens that Qwen3 8B was trained for"),
        (1, 40_961, "context is 40,961 tokens"),
    ],
)
def test_users_and_contexts_that_cannot_be_are_refused_with_their_limit(users: int, context: int, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        plan.ways(MODELS["Qwen3 8B"], replace(need(), users=users, context=context), [], NETWORK)
    assert refused.value.message.startswith(says)
