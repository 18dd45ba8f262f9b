"""The fake `tensorrt_llm` is as strict as the real package, and has its traps; it is compared with facts."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import model_directory, tensorrt_llm
from tests.fakes.tensorrt_llm import _tensorrt_engine, executor, signatures
from tests.fakes.tensorrt_llm.llmapi import GuidedDecodingParams, KvCacheConfig, SamplingParams
from tests.places import ROOT
from tests.unit.engine.trtllm import trt  # noqa: F401 - it keeps MPI out of this process

from shepherd.engine.trtllm import arguments, library

FACTS = next(
    (file for at in (ROOT.parent, ROOT) if (file := at / "shared/spec/tensorrt_api_signatures.json").exists()), None
)
SCRIPT = [["", "Place a cup of water on the table."]]
Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    loaded: list[Any] = []

    def made(kind: Any = "checkpoint", *, n_ctx: int = 512, fake: dict[str, Any] | None = None, **more: Any) -> Any:
        directory = model_directory.make(
            tmp_path / str(len(loaded)), kind, n_ctx=n_ctx, **{"say": SCRIPT} | (fake or {})
        )
        llm_class = _tensorrt_engine.LLM if kind == "engine" else tensorrt_llm.LLM
        config = KvCacheConfig(event_buffer_max_size=1000)
        loaded.append(llm_class(**{"model": str(directory), "kv_cache_config": config} | more))
        return loaded[-1]

    yield made
    for llm in loaded:
        llm.shutdown()


def ask(llm: Any, n: int = 40, tokens: list[int] | None = None, **sampling: Any) -> Any:
    prompt = tokens or model_directory.prompt(llm.tokenizer, ("user", "Where does the cup go?"))
    params = SamplingParams(max_tokens=n, **sampling)
    return llm.generate_async({"prompt_token_ids": prompt}, sampling_params=params, streaming=True)


# -- signatures --------------------------------------------------------------------------------------------------------

TABLE = json.loads((ROOT / "tests" / "data" / "tensorrt_api.json").read_text("utf-8"))
"""The real package's public calls, restated: names, kinds and defaults of their parameters, the keywords of both
classes, and what those mean that we send."""
VARIANTS = {
    "BaseLLM.generate_async": [signatures.GENERATE[True], signatures.GENERATE[False]],
    "KvCacheConfig.__init__": [signatures.KV_CACHE[True], signatures.KV_CACHE[False]],
}


@pytest.mark.parametrize("name", signatures.SIGNATURES)
def test_the_fake_has_the_calls_of_the_table(name: str) -> None:
    known = [each["parameters"] for each in TABLE["calls"] if each["name"] == name]
    assert known, name
    texts = VARIANTS.get(name, [signatures.SIGNATURES[name]] * len(known))
    for text, parameters in zip(texts, known, strict=True):
        ours = [*signatures.parsed(text).parameters.values()]
        assert [each.name for each in ours] == [each for each, *_ in parameters]
        for one, (_, kind, *default) in zip(ours, parameters, strict=True):
            if kind.startswith("VAR"):
                assert one.kind.name == kind
            elif kind == "KEYWORD_ONLY" or one.kind is one.KEYWORD_ONLY:
                assert one.kind is one.KEYWORD_ONLY
            if default and not str(default[0]).endswith("()"):
                assert one.default == default[0], one.name


def test_the_fake_has_the_keywords_of_the_table() -> None:
    assert TABLE["keywords"] == {
        "tensorrt_llm": sorted(signatures.BOTH | signatures.TORCH_ONLY),
        "tensorrt_llm._tensorrt_engine": sorted(signatures.BOTH | signatures.ENGINE_ONLY),
    }


def test_every_name_that_we_send_has_a_meaning_in_the_table() -> None:
    known = {name for each in TABLE["calls"] for name, *_ in each["parameters"]}.union(*TABLE["keywords"].values())
    sent = set[str]()
    for module in (arguments, library):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                sent.add(node.value)
            elif isinstance(node, ast.keyword) and node.arg:
                sent.add(node.arg)
    assert len(sent & known) > 30
    assert sent & known <= TABLE["meanings"].keys() <= known


@pytest.mark.skipif(FACTS is None, reason="what was collected is not there (shared/spec)")
def test_the_table_is_what_was_collected() -> None:
    assert FACTS is not None
    collected: list[dict[str, Any]] = json.loads(FACTS.read_text())["entries"]
    calls = [
        (name, [[each["name"], each["kind"], *([each["default"]] * (each["default"] != "<required>"))]
                for each in entry["parameters"]])
        for name in signatures.SIGNATURES for entry in collected
        if f"{entry['class']}.{entry['name']}" == name
    ]  # fmt: skip
    assert calls == [(each["name"], each["parameters"]) for each in TABLE["calls"]]
    for module, keywords in TABLE["keywords"].items():
        (entry,) = (each for each in collected if (each["module"], each["class"]) == (module, "LLM"))
        assert keywords == sorted({each["name"] for each in entry["accepted_kwargs"]})


@pytest.mark.real_trtllm
def test_the_real_package_has_the_signatures_that_the_library_file_uses() -> None:
    if importlib.util.find_spec("tensorrt_llm") is None:
        pytest.skip("NVIDIA's tensorrt_llm is not installed here")
    real, api = importlib.import_module("tensorrt_llm"), importlib.import_module("tensorrt_llm.llmapi")
    wanted = {
        real.LLM.__init__: {"model", "tokenizer", "tensor_parallel_size"},
        real.LLM.generate_async: {"inputs", "sampling_params", "streaming", "cache_salt"},
        real.LLM.get_kv_cache_events: {"timeout"},
        real.SamplingParams.__init__: {
            "max_tokens", "seed", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
            "frequency_penalty", "stop", "stop_token_ids", "include_stop_str_in_output", "guided_decoding",
            "ignore_eos", "logprobs",
        },
        api.GuidedDecodingParams.__init__: {"json", "grammar"},
    }  # fmt: skip
    for call, used in wanted.items():
        assert used <= inspect.signature(call).parameters.keys(), call
    fields = api.KvCacheConfig.model_fields
    assert {
        "enable_block_reuse",
        "free_gpu_memory_fraction",
        "event_buffer_max_size",
        "host_cache_size",
    } <= fields.keys()


# -- strictness --------------------------------------------------------------------------------------------------------


def test_unknown_arguments_are_refused_in_the_real_words(load: Load) -> None:
    with pytest.raises(ValueError, match=r"LLM got invalid argument: event_buffer"):
        load(event_buffer=5)
    with pytest.raises(ValueError, match="got invalid argument: fast_build"):
        load(fast_build=True)
    with pytest.raises(ValueError, match="got invalid argument: stream_interval"):
        load("engine", stream_interval=1)
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        KvCacheConfig(block_size=32)
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        SamplingParams(temprature=1)
    with pytest.raises(TypeError, match="too many positional arguments"):
        SamplingParams(5)
    with pytest.raises(ValueError, match="guided_decoding must be"):
        SamplingParams(guided_decoding={"json": {}})
    with pytest.raises(ValueError, match="Only one guide"):
        GuidedDecodingParams(json={}, regex="a")
    llm = load()
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'priority'"):
        llm.generate_async([1], priority=0.5)  # of 1.3
    with pytest.raises(TypeError, match="must be type SamplingParams"):
        llm.generate_async([1], sampling_params={"max_tokens": 5})


def test_the_class_must_suit_the_directory(tmp_path: Path) -> None:
    engine = model_directory.make(tmp_path / "engine", "engine", pp=2)
    checkpoint = model_directory.make(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match="Should have a `model_type` key"):
        tensorrt_llm.LLM(model=str(engine))
    with pytest.raises(RuntimeError, match="holds no engine"):
        _tensorrt_engine.LLM(model=str(checkpoint))
    with pytest.raises(ValueError, match="pp_size 3 of the arguments differs from the engine's 2"):
        _tensorrt_engine.LLM(model=str(engine), pipeline_parallel_size=3)
    (engine / "rank1.engine").unlink()
    with pytest.raises(RuntimeError, match=r"could not open .*rank1.engine"):
        _tensorrt_engine.LLM(model=str(engine))
    with pytest.raises(ValueError, match="Unsupported guided decoding backend llguidance"):
        _tensorrt_engine.LLM(
            model=str(model_directory.make(tmp_path / "one", "engine")), guided_decoding_backend="llguidance"
        )


def test_lengths_are_checked_as_the_real_ones_are(load: Load) -> None:
    engine, checkpoint = load("engine", n_ctx=64), load(max_num_tokens=50)
    with pytest.raises(ValueError, match=r"max_tokens \(50\) should not exceed max_seq_len \(64\)"):
        ask(engine, 50, [5] * 20)
    with pytest.raises(ValueError, match=r"should not exceed max_num_tokens \(50\)"):
        ask(checkpoint, 1, [5] * 60)
    assert ask(load(max_num_tokens=50, enable_chunked_prefill=True), 1, [5] * 60).result().finished


def test_stop_strings_are_not_read_together_with_an_end_id(load: Load) -> None:
    with pytest.raises(RuntimeError, match="is not processed by tokenizer"):
        ask(load(), stop=["x"], end_id=1)


# -- results -----------------------------------------------------------------------------------------------------------


def test_every_step_is_the_same_object_with_cumulative_tokens(load: Load) -> None:
    output = ask(load())
    seen = [(id(step), len(step.outputs[0].token_ids)) for step in output]
    assert {id_ for id_, _ in seen} == {id(output)}
    assert [n for _, n in seen] == list(range(1, len(seen) + 1))
    assert output.outputs[0].text == SCRIPT[0][1]
    assert output.outputs[0].finish_reason == "stop"


def test_text_shrinks_at_a_stop_string_and_the_tokens_do_not(load: Load) -> None:
    output = ask(load(), stop=["er on"])
    texts = [step.outputs[0].text for step in output]
    assert max(map(len, texts)) > len(texts[-1])
    assert texts[-1] == "Place a cup of wat"
    assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop", "er on")


def test_stop_words_take_their_tokens_away_unless_they_are_kept(load: Load) -> None:
    llm = load()
    word = llm.tokenizer.encode(" cup", add_special_tokens=False).ids
    for kept in (False, True):
        output = ask(llm, stop_token_ids=word, include_stop_str_in_output=kept).result()
        assert (output.outputs[0].token_ids[-1] == word[0]) == kept
        assert output.outputs[0].stop_reason == word[0]


def test_the_default_is_thirty_two_tokens_and_always_the_same_seed(load: Load) -> None:
    llm = load(fake={"say": [["", "word " * 60]]})
    assert len(llm.generate_async([5, 6]).result().outputs[0].token_ids) == 32
    hot = [tuple(ask(llm, 20, temperature=5.0).result().outputs[0].token_ids) for _ in range(2)]
    assert hot[0] == hot[1]


def test_a_timeout_of_a_result_does_nothing(load: Load) -> None:
    began = time.monotonic()
    assert ask(load(fake={"step_s": 0.02})).result(timeout=0.001).finished
    assert time.monotonic() - began > 0.1


def test_without_an_event_loop_there_is_no_asynchronous_iteration(load: Load) -> None:
    output = ask(load())
    with pytest.raises(AssertionError, match="event loop was not present"):
        asyncio.run(anext(aiter(output)))
    assert output.result().finished


async def test_with_an_event_loop_there_is(load: Load) -> None:
    output = ask(load())
    async for _ in output:
        pass
    assert output.outputs[0].text == SCRIPT[0][1]


def test_an_abort_comes_later_as_cancelled(load: Load) -> None:
    output = ask(load(fake={"step_s": 0.01, "say": [["", "word " * 90]]}), 300)
    next(output)
    output.abort()
    assert output.aborted()
    assert not output.finished
    assert output.result().outputs[0].finish_reason == "cancelled"


def test_after_the_shutdown_requests_are_refused(load: Load) -> None:
    llm = load()
    llm.shutdown()
    llm.shutdown()
    with pytest.raises(RuntimeError, match="LLM is shutting down"):
        ask(llm)
    with load() as other:
        assert other is not None
    with pytest.raises(RuntimeError, match="LLM is shutting down"):
        ask(other)


# -- the cache ---------------------------------------------------------------------------------------------------------


def test_prompts_are_reused_by_blocks_and_by_salt(load: Load) -> None:
    llm = load()
    prompt = list(range(3, 103))
    assert ask(llm, 1, prompt).result().cached_tokens == 0
    assert ask(llm, 1, prompt).result().cached_tokens == 99
    assert ask(llm, 1, [*prompt[:70], *prompt]).result().cached_tokens == 70
    salted = llm.generate_async(prompt, sampling_params=SamplingParams(max_tokens=1), cache_salt="ann")
    assert salted.result().cached_tokens == 0
    plain = load(kv_cache_config=KvCacheConfig(enable_partial_reuse=False))
    ask(plain, 1, prompt).result()
    assert ask(plain, 1, [*prompt[:70], *prompt]).result().cached_tokens == 64


def test_the_stalest_leaf_leaves_first_and_hashes_are_large(load: Load) -> None:
    llm = load(fake={"blocks": 8, "events": "rpc"})
    for n in range(3):
        ask(llm, 1, [n + 10] * 33 + list(range(100, 170))).result()
    events = llm.get_kv_cache_events(timeout=0.5)
    assert [each["event_id"] for each in events] == list(range(len(events)))
    assert {each["window_size"] for each in events} == {512}
    first = next(each["data"] for each in events if each["data"]["type"] == "stored")
    gone = [hash_ for each in events if each["data"]["type"] == "removed" for hash_ in each["data"]["block_hashes"]]
    assert first["parent_hash"] is None
    assert [len(block["tokens"]) for block in first["blocks"]] == [32, 32, 32, 7]
    assert all(block["block_hash"] >= 2**63 for block in first["blocks"])
    assert gone[:4] == [block["block_hash"] for block in reversed(first["blocks"])][: len(gone[:4])]


def test_the_queue_shape_asserts_before_the_first_request_and_falls_silent(load: Load) -> None:
    llm = load(fake={"events": "queue"})
    with pytest.raises(AssertionError, match="not properly instantiated"):
        llm.get_kv_cache_events(timeout=0.05)
    ask(llm).result()
    assert {each["data"]["type"] for each in llm.get_kv_cache_events(timeout=0.1)} == {"created", "stored"}
    began = time.monotonic()
    assert llm.get_kv_cache_events(timeout=2) == []
    assert time.monotonic() - began < 1


def test_a_small_event_buffer_loses_the_oldest(load: Load) -> None:
    llm = load(kv_cache_config=KvCacheConfig(event_buffer_max_size=1), fake={"events": "rpc"})
    ask(llm).result()
    assert llm.get_kv_cache_events(timeout=0.1)[0]["event_id"] == 1


# -- a worker that fails -----------------------------------------------------------------------------------------------


def test_a_dead_worker_is_seen_and_its_readers_wait(load: Load) -> None:
    llm = load(fake={"die_at": 3})
    output = ask(llm)
    for _ in range(3):
        next(output)
    assert llm._executor.is_shutdown()
    assert output.queue.empty()
    assert isinstance(output, executor.RequestOutput)


# -- the import --------------------------------------------------------------------------------------------------------


def run(code: str, *, mpirun: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    launcher = ["mpirun", "-n", str(mpirun), "--bind-to", "none", "--oversubscribe"] if mpirun else []
    if mpirun and os.geteuid() == 0:
        launcher.append("--allow-run-as-root")
    path = os.pathsep.join([str(ROOT / "tests" / "fakes"), str(ROOT), str(ROOT / "src")])
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "TLLM_"))}
    return subprocess.run(
        [*launcher, sys.executable, "-W", "error", "-c", code],
        env=inherited | {"PYTHONPATH": path} | environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
