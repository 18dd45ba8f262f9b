"""llama.cpp in process, on the embedded model: what the library does is what the seams promise."""

import codecs
import logging
import os
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.core import EngineError, Sampling
from shepherd.engine.base import Runtime, TokenSampler, Vocabulary
from shepherd.engine.llamacpp import (
    ContextOptions,
    LlamaRuntime,
    LlamaSampler,
    Weights,
    default_threads,
    flash_attention,
    quantize,
    system_info,
)

pytestmark = pytest.mark.model
_proof: tuple[type[Runtime], type[Vocabulary], type[TokenSampler]] = (LlamaRuntime, Weights, LlamaSampler)

GREEDY = Sampling(temperature=0)


@pytest.fixture
def runtime(weights: Weights) -> Iterator[LlamaRuntime]:
    made = LlamaRuntime(weights, ContextOptions(n_ctx=1024, n_threads=1))
    yield made
    made.close()


def prompt(weights: Weights, text: str) -> list[int]:
    ids = {special.text: special.id for special in weights.specials}
    return [
        ids["<|im_start|>"], *weights.tokenize("user\n" + text), ids["<|im_end|>"], *weights.tokenize("\n"),
        ids["<|im_start|>"], *weights.tokenize("assistant\n"),
    ]  # fmt: skip


def generate(runtime: LlamaRuntime, tokens: list[int], n: int, sampling: Sampling = GREEDY) -> list[int]:
    assert runtime.decode(tokens, runtime.length()) == "ok"
    sampler = runtime.sampler(sampling, tokens)
    made: list[int] = []
    while len(made) < n and not runtime.is_end(token := sampler.sample()):
        made.append(token)
        assert runtime.decode([token], runtime.length()) == "ok"
    sampler.close()
    return made


TEXTS = [
    "",
    " ",
    "Hello, world!",
    "naïve café 😀 日本語",
    "\n\n  two\tlines\n",
    '{"a": [1, 2.5e9, "x\\n"]}',
    "\U0010ffff\u0000",
]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_spell_the_text_that_was_tokenised(weights: Weights, text: str) -> None:
    assert b"".join(map(weights.piece, weights.tokenize(text))).decode() == text


def test_pieces_may_end_inside_a_character_and_still_decode_incrementally(weights: Weights) -> None:
    tokens = weights.tokenize("😀 and 日本語")
    assert any(_is_cut(weights.piece(token)) for token in tokens), "otherwise this tests nothing"
    decoder = codecs.getincrementaldecoder("utf-8")()
    assert "".join(decoder.decode(weights.piece(token)) for token in tokens) == "😀 and 日本語"


def _is_cut(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_plain_text_never_becomes_a_control_token(weights: Weights) -> None:
    controls = {special.id for special in weights.specials if special.control}
    for special in weights.specials:
        if special.control:
            assert not controls & set(weights.tokenize(f"a {special.text} b"))


def test_a_token_outside_the_vocabulary_is_refused(weights: Weights) -> None:
    for token in (-1, weights.n_vocab):
        with pytest.raises(EngineError, match="outside the vocabulary"):
            weights.piece(token)


def test_it_answers(weights: Weights, runtime: LlamaRuntime) -> None:
    made = generate(runtime, prompt(weights, "Hello!"), 32)
    assert b"Hello" in b"".join(map(weights.piece, made))


def test_a_rolled_back_cache_continues_like_a_fresh_one(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = prompt(weights, "Hello!")
    cold = generate(runtime, tokens, 32)
    assert runtime.truncate(len(tokens) - 1)
    assert runtime.length() == len(tokens) - 1
    assert generate(runtime, tokens[-1:], 32) == cold


def test_chunked_prefill_equals_prefill_at_once(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = prompt(weights, "My name is Ada. What is my name?")
    cold = generate(runtime, tokens, 16)
    runtime.clear()
    for start in range(0, len(tokens) - 1, 3):
        assert runtime.decode(tokens[start : min(start + 3, len(tokens) - 1)], start) == "ok"
    assert generate(runtime, tokens[-1:], 16) == cold


def test_a_full_cache_says_so_and_is_unchanged(weights: Weights) -> None:
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=256, n_threads=1))
    assert runtime.decode([1] * 200, 0) == "ok"
    assert runtime.decode([1] * 100, 200) == "full"
    assert runtime.length() == 200
    runtime.close()


def test_a_gap_in_the_positions_is_an_error_and_not_the_end_of_the_process(runtime: LlamaRuntime) -> None:
    assert runtime.decode([1, 2, 3], 0) == "ok"
    with pytest.raises(EngineError, match="position 7"):
        runtime.decode([4], 7)


def test_the_context_is_what_was_asked_for_although_the_library_pads_it(weights: Weights) -> None:
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=300, n_threads=1))
    assert runtime.n_ctx == 300
    runtime.close()


SAMPLINGS = [
    Sampling(temperature=0.7, seed=1),
    Sampling(temperature=1.5, top_k=5, seed=1),
    Sampling(top_p=0.5, seed=1),
    Sampling(min_p=0.3, seed=1),
    Sampling(typical_p=0.5, seed=1),
    Sampling(top_n_sigma=1.0, seed=1),
    Sampling(repetition_penalty=1.3, seed=1),
    Sampling(frequency_penalty=1.0, presence_penalty=1.0, repeat_last_n=-1, seed=1),
    Sampling(dry_multiplier=0.8, dry_sequence_breakers=("\n", "é"), seed=1),
    Sampling(xtc_probability=0.5, xtc_threshold=0.05, seed=1),
    Sampling(mirostat=1, seed=1),
    Sampling(mirostat=2, mirostat_tau=3.0, seed=1),
    Sampling(logit_bias=((5, 3.0), (6, -100.0)), seed=1),
    Sampling(seed=-1),
    Sampling(seed=2**63 - 1),
]


@pytest.mark.parametrize(
    "sampling", SAMPLINGS, ids=lambda s: repr(s)[9:-1].replace("=None", "").replace(", ", ",")[:60]
)
def test_every_sampler_draws_and_a_seed_repeats_it(weights: Weights, runtime: LlamaRuntime, sampling: Sampling) -> None:
    tokens = prompt(weights, "Hello!")
    first = generate(runtime, tokens, 24, sampling)
    runtime.clear()
    assert generate(runtime, tokens, 24, sampling) == first


def test_without_a_seed_answers_differ(weights: Weights, runtime: LlamaRuntime) -> None:
    made = set()
    wild = Sampling(temperature=3.0, top_k=0, top_p=1.0, min_p=0.0)
    for _ in range(6):
        runtime.clear()
        made.add(tuple(generate(runtime, prompt(weights, "Hello!"), 24, wild)))
    assert len(made) > 1


def test_a_bias_forces_and_forbids_tokens(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = prompt(weights, "Hello!")
    wanted = weights.tokenize("q")[0]
    assert generate(runtime, tokens, 3, Sampling(temperature=0, logit_bias=((wanted, 100.0),))) == [wanted] * 3
    runtime.clear()
    first = generate(runtime, tokens, 1)[0]
    runtime.clear()
    assert generate(runtime, tokens, 1, Sampling(temperature=0, logit_bias=((first, -100.0),))) != [first]


def test_ignoring_the_end_goes_on(weights: Weights, runtime: LlamaRuntime) -> None:
    made = generate(runtime, prompt(weights, "Hello!"), 100, Sampling(temperature=0, ignore_eos=True))
    assert len(made) == 100


def test_an_interrupt_stops_a_prefill_without_python(weights: Weights) -> None:
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=4096, n_threads=1))
    tokens = [7] * 2048
    results: list[str] = []
    worker = threading.Thread(target=lambda: results.append(runtime.decode(tokens, 0)))
    worker.start()
    while not results and runtime.length() < 0:
        pass
    time.sleep(0.02)  # the work takes hundreds of milliseconds; this is somewhere inside it
    runtime.interrupt(True)
    worker.join()
    assert results == ["aborted"]
    assert runtime.length() < len(tokens)
    runtime.interrupt(False)
    kept = runtime.length()
    assert runtime.decode(tokens[kept:], kept) == "ok"
    runtime.close()


@pytest.mark.parametrize("file_type", ["Q8_0", "Q4_0"])
def test_quantised_models_decode(lamb: Path, tmp_path: Path, file_type: str) -> None:
    target = tmp_path / f"{file_type}.gguf"
    quantize(lamb, target, file_type)  # type: ignore[arg-type]  # the two names are literals
    assert target.stat().st_size < lamb.stat().st_size * 0.7
    quantised = Weights.load(target)
    runtime = LlamaRuntime(quantised, ContextOptions(n_ctx=512, n_threads=1))
    made = generate(runtime, prompt(quantised, "Hello!"), 16)
    assert b"Hello" in b"".join(map(quantised.piece, made))
    runtime.close()
    quantised.close()


@pytest.mark.parametrize("cache_type", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_cache_types_are_honoured(weights: Weights, cache_type: str) -> None:
    options = ContextOptions(n_ctx=256, n_threads=1, cache_type_k=cache_type, cache_type_v=cache_type)
    runtime = LlamaRuntime(weights, options)
    assert len(generate(runtime, prompt(weights, "Hello!"), 4)) == 4
    runtime.close()


def test_flash_attention_is_off_on_cpus_unless_the_v_cache_is_quantised() -> None:
    assert flash_attention(ContextOptions(n_ctx=256)) in (False, None)
    assert flash_attention(ContextOptions(n_ctx=256, cache_type_v="q8_0")) is True
    assert flash_attention(ContextOptions(n_ctx=256, flash_attention=True)) is True


def test_loading_reports_progress_up_to_the_end(lamb: Path) -> None:
    seen: list[float] = []
    Weights.load(lamb, progress=seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_broken_file_gives_the_librarys_reason(lamb: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(lamb.read_bytes()[: 2 << 20])
    with pytest.raises(EngineError, match=r"broken\.gguf cannot be loaded \(.+\)"):
        Weights.load(broken)


def test_everything_the_library_prints_goes_to_logging(
    lamb: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG, "shepherd.engine.llamacpp"):
        Weights.load(lamb).close()
    assert any("llama.cpp:" in record.getMessage() for record in caplog.records)
    assert capfd.readouterr() == ("", "")


def test_the_build_describes_itself() -> None:
    assert "CPU" in system_info()
    assert 1 <= default_threads(10**9) <= (os.cpu_count() or 1)


def test_a_very_small_model_gets_one_thread() -> None:
    assert default_threads(5_000_000) == 1


def test_two_contexts_share_the_weights_and_nothing_else(weights: Weights) -> None:
    first = LlamaRuntime(weights, ContextOptions(n_ctx=512, n_threads=1))
    second = LlamaRuntime(weights, ContextOptions(n_ctx=512, n_threads=1))
    alone = generate(first, prompt(weights, "Hello!"), 16)
    first.clear()
    a, b = prompt(weights, "Hello!"), prompt(weights, "My name is Ada.")
    assert first.decode(a, 0) == second.decode(b, 0) == "ok"
    first.truncate(len(a) - 1)
    assert generate(first, a[-1:], 16) == alone
    assert second.length() == len(b)
    first.close()
    second.close()


def test_an_array_is_a_sequence_of_tokens_too(weights: Weights, runtime: LlamaRuntime) -> None:
    assert runtime.decode(array("i", prompt(weights, "Hello!")), 0) == "ok"
