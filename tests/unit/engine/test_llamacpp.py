"""llama.cpp in process, on the embedded model: what the library does is what the seams promise."""

import codecs
import logging
import math
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.in_time import becomes_true

from shepherd.core import EngineError, Sampling
from shepherd.engine.base import (
    Chunk,
    Copy,
    Decoded,
    Forget,
    Remove,
    Runtime,
    Shift,
    TokenSampler,
    Vocabulary,
)
from shepherd.engine.llamacpp.library import quantize, system_info
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime, default_threads, flash_attention
from shepherd.engine.llamacpp.sampler import LlamaSampler
from shepherd.engine.llamacpp.weights import Weights

pytestmark = pytest.mark.model
_proof: tuple[type[Runtime], type[Vocabulary], type[TokenSampler]] = (LlamaRuntime, Weights, LlamaSampler)

GREEDY = Sampling(temperature=0)


@pytest.fixture
def runtime(weights: Weights) -> Iterator[LlamaRuntime]:
    made = LlamaRuntime(weights, ContextOptions(n_ctx=1024, n_seq=4, n_threads=1))
    yield made
    made.close()


def prompt(weights: Weights, text: str) -> list[int]:
    ids = {special.text: special.id for special in weights.specials}
    return [
        ids["<|im_start|>"], *weights.tokenize("user\n" + text), ids["<|im_end|>"], *weights.tokenize("\n"),
        ids["<|im_start|>"], *weights.tokenize("assistant\n"),
    ]  # fmt: skip


def append(runtime: LlamaRuntime, tokens: Sequence[int], seq: int = 0) -> Decoded:
    """Decode behind what the sequence holds, in as many batches as needed; logits after the last token."""
    start = runtime.held(seq)[1] + 1
    for at in range(0, len(tokens), runtime.n_batch):
        piece = array("i", tokens[at : at + runtime.n_batch])
        done = runtime.decode([Chunk(seq, piece, start + at, logits=at + len(piece) == len(tokens))])
        if done != "ok":
            return done
    return "ok"


def generate(
    runtime: LlamaRuntime, tokens: Sequence[int], n: int, sampling: Sampling = GREEDY, seq: int = 0
) -> list[int]:
    assert append(runtime, tokens, seq) == "ok"
    sampler = runtime.sampler(sampling, tokens)
    made: list[int] = []
    while len(made) < n and not runtime.is_end(token := sampler.sample(0)):
        made.append(token)
        assert append(runtime, [token], seq) == "ok"
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
    assert runtime.apply(Remove(0, len(tokens) - 1))
    assert runtime.held(0) == (0, len(tokens) - 2)
    assert generate(runtime, tokens[-1:], 32) == cold


def test_chunked_prefill_equals_prefill_at_once(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = prompt(weights, "My name is Ada. What is my name?")
    cold = generate(runtime, tokens, 16)
    assert runtime.apply(Forget(0))
    for start in range(0, len(tokens) - 1, 3):
        assert append(runtime, tokens[start : min(start + 3, len(tokens) - 1)]) == "ok"
    assert generate(runtime, tokens[-1:], 16) == cold


def test_a_full_cache_says_so_and_is_unchanged(weights: Weights) -> None:
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=256, n_threads=1))
    assert append(runtime, [1] * 200) == "ok"
    assert append(runtime, [1] * 100) == "full"
    assert runtime.held(0) == (0, 199)
    runtime.close()


def test_a_gap_in_the_positions_is_an_error_and_not_the_end_of_the_process(runtime: LlamaRuntime) -> None:
    assert append(runtime, [1, 2, 3]) == "ok"
    with pytest.raises(EngineError, match="position 7"):
        runtime.decode([Chunk(0, array("i", [4]), 7, logits=True)])


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
    assert runtime.apply(Forget(0))
    assert generate(runtime, tokens, 24, sampling) == first


def test_without_a_seed_answers_differ(weights: Weights, runtime: LlamaRuntime) -> None:
    made = set()
    wild = Sampling(temperature=3.0, top_k=0, top_p=1.0, min_p=0.0)
    for _ in range(6):
        assert runtime.apply(Forget(0))
        made.add(tuple(generate(runtime, prompt(weights, "Hello!"), 24, wild)))
    assert len(made) > 1


def test_a_bias_forces_and_forbids_tokens(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = prompt(weights, "Hello!")
    wanted = weights.tokenize("q")[0]
    assert generate(runtime, tokens, 3, Sampling(temperature=0, logit_bias=((wanted, 100.0),))) == [wanted] * 3
    assert runtime.apply(Forget(0))
    first = generate(runtime, tokens, 1)[0]
    assert runtime.apply(Forget(0))
    assert generate(runtime, tokens, 1, Sampling(temperature=0, logit_bias=((first, -100.0),))) != [first]


@pytest.mark.parametrize(
    "looking",
    [
        lambda n: Sampling(temperature=0, ignore_eos=True, frequency_penalty=2.0, repeat_last_n=n),
        lambda n: Sampling(
            temperature=0, ignore_eos=True, dry_multiplier=50.0, dry_allowed_length=1, dry_penalty_last_n=n
        ),
    ],
)
def test_minus_one_looks_back_on_the_whole_context(
    weights: Weights, runtime: LlamaRuntime, looking: Callable[[int], Sampling]
) -> None:
    """llama.cpp's samplers take it for none: DRY, which looks back on all unless told otherwise, did nothing."""
    tokens = prompt(weights, "Hello! Hello! Hello!")
    made = {}
    for n in (-1, 0, runtime.n_ctx, 2**31 - 1):
        assert runtime.apply(Forget(0))
        made[n] = generate(runtime, tokens, 60, looking(n))
    assert made[-1] == made[runtime.n_ctx] == made[2**31 - 1] != made[0]


def test_ignoring_the_end_continues_the_answer(weights: Weights, runtime: LlamaRuntime) -> None:
    made = generate(runtime, prompt(weights, "Hello!"), 100, Sampling(temperature=0, ignore_eos=True))
    assert len(made) == 100


def log_softmax(logits: Sequence[float]) -> Any:
    row = np.array(logits, np.float64)
    return row - np.log(np.exp(row).sum())


def test_scores_are_the_logarithms_of_probabilities(weights: Weights, runtime: LlamaRuntime) -> None:
    append(runtime, prompt(weights, "Hello"))
    expected, score = log_softmax(runtime.logits(0)), runtime.scorer(0, 5)
    told = [score(token).logprob for token in range(weights.n_vocab)]
    np.testing.assert_allclose(told, expected, atol=1e-5)
    assert sum(math.exp(logprob) for logprob in told) == pytest.approx(1)
    assert [token for token, _ in score(0).top] == np.argsort(-expected)[:5].tolist()
    assert score(0).top[0][1] == pytest.approx(expected.max())
    assert runtime.scorer(0, 0)(7).top == ()


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=5, seed=1), Sampling(logit_bias=((7, 100.0),))])
def test_scores_know_nothing_of_the_sampler(weights: Weights, runtime: LlamaRuntime, sampling: Sampling) -> None:
    tokens = prompt(weights, "Hello")
    append(runtime, tokens)
    expected, score = log_softmax(runtime.logits(0)), runtime.scorer(0, 1)
    drawn = runtime.sampler(sampling, tokens).sample(0)
    assert score(drawn).logprob == pytest.approx(expected[drawn], abs=1e-5)


@pytest.mark.parametrize("sampling", [Sampling(temperature=1.5, top_k=12, min_p=0, seed=3), GREEDY])
def test_what_a_token_was_drawn_from_can_be_had_with_it(
    weights: Weights, runtime: LlamaRuntime, sampling: Sampling
) -> None:
    tokens = prompt(weights, "Hello")
    expected = generate(runtime, tokens, 6, sampling)
    assert runtime.apply(Forget(0))
    append(runtime, tokens)
    sampler, drawn = runtime.sampler(sampling, tokens), []
    for _ in range(6):
        drawn.append(scored := sampler.sample_scored(0, 100))
        chances = {token: math.exp(logprob) for token, logprob in scored.top}
        assert sum(chances.values()) == pytest.approx(1)
        assert list(chances.values()) == sorted(chances.values(), reverse=True)
        assert math.exp(scored.logprob) == chances[scored.token]
        assert len(chances) <= (1 if sampling is GREEDY else 12)
        append(runtime, [scored.token])
    assert [scored.token for scored in drawn] == expected


def test_each_token_of_a_chunk_can_have_its_logits(weights: Weights) -> None:
    """The same as if the text had come token by token, while other sequences are computed beside it."""
    tokens = prompt(weights, "Why is the sky blue?")
    with (
        closing(LlamaRuntime(weights, ContextOptions(n_ctx=256, n_seq=2, n_threads=1))) as single,
        closing(LlamaRuntime(weights, ContextOptions(n_ctx=256, n_seq=2, n_outputs=64, n_threads=1))) as runtime,
    ):
        other, whole = Chunk(1, array("i", tokens[:3]), 0, True), Chunk(0, array("i", tokens), 0, False, each=True)
        with pytest.raises(AssertionError):  # more logits than it has room for: the library would abort the process
            single.decode([whole])
        assert runtime.decode([other, whole]) == "ok"
        for at, token in enumerate(tokens):
            append(single, [token])
            expected = single.scorer(0, 3)(7)
            score = runtime.scorer(1, 3, behind=len(tokens) - 1 - at)(7)
            assert score.logprob == pytest.approx(expected.logprob, abs=1e-2)
            assert score.top[0][0] == expected.top[0][0]


def test_an_interrupt_stops_a_prefill_without_python(weights: Weights) -> None:
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=4096, n_batch=2048, n_threads=1))
    tokens = array("i", [7]) * 2048
    results: list[str] = []
    worker = threading.Thread(target=lambda: results.append(runtime.decode([Chunk(0, tokens, 0, logits=True)])))
    before_s = time.process_time()
    worker.start()
    assert becomes_true(lambda: time.process_time() - before_s > 0.02)  # of hundreds of milliseconds of work
    runtime.interrupt(True)
    worker.join()
    assert results == ["aborted"]
    kept = runtime.held(0)[1] + 1
    assert kept < len(tokens)
    runtime.interrupt(False)
    assert append(runtime, tokens[kept:]) == "ok"
    runtime.close()


@pytest.mark.parametrize("file_type", ["Q8_0", "Q4_0"])
def test_quantised_models_decode(lamb: Path, tmp_path: Path, file_type: str) -> None:
    whole, once, target = (tmp_path / f"{name}.gguf" for name in ("F16", "once", file_type))
    quantize(lamb, whole, "F16")
    quantize(whole, once, "Q8_0")
    quantize(once, target, file_type)  # type: ignore[arg-type]  # the two names are literals
    assert target.stat().st_size < whole.stat().st_size * 0.7
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
    assert first.apply(Forget(0))
    a, b = prompt(weights, "Hello!"), prompt(weights, "My name is Ada.")
    assert append(first, a) == append(second, b) == "ok"
    assert first.apply(Remove(0, len(a) - 1))
    assert generate(first, a[-1:], 16) == alone
    assert second.held(0) == (0, len(b) - 1)
    first.close()
    second.close()


# -- many sequences ------------------------------------------------------------------------------------------------


def test_sequences_in_one_batch_do_not_see_each_other(weights: Weights, runtime: LlamaRuntime) -> None:
    prompts = [prompt(weights, text) for text in ("Hello!", "My name is Ada.", "What is two plus two?")]
    alone = []
    for tokens in prompts:
        alone.append(generate(runtime, tokens, 12))
        assert runtime.apply(Forget(0))
    longest = max(map(len, prompts))
    samplers = [runtime.sampler(GREEDY, []) for _ in prompts]
    made: list[list[int]] = [[] for _ in prompts]
    pending = [list(tokens) for tokens in prompts]
    for step in range(longest + 12):  # each starts at another step, so that prefill and generation share batches
        batch = [
            Chunk(seq, array("i", todo), runtime.held(seq)[1] + 1, logits=True)
            for seq, todo in enumerate(pending)
            if todo and step >= seq * 3
        ]
        assert runtime.decode(batch) == "ok"
        for number, chunk in enumerate(batch):
            made[chunk.seq].append(samplers[chunk.seq].sample(number))
            pending[chunk.seq] = [made[chunk.seq][-1]]
    for sampler in samplers:
        sampler.close()
    assert [tokens[: len(cold)] for tokens, cold in zip(made, alone, strict=True)] == alone


def test_chunks_of_one_sequence_in_one_batch_are_one_text(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = array("i", prompt(weights, "Hello!"))
    assert runtime.decode([Chunk(0, tokens, 0, logits=True)]) == "ok"
    whole = runtime.logits(0)
    cuts = [Chunk(1, tokens[:2], 0, False), Chunk(1, tokens[2:3], 2, True), Chunk(1, tokens[3:], 3, True)]
    assert runtime.decode(cuts) == "ok"
    assert close(runtime.logits(2), whole)
    assert not close(runtime.logits(1), whole)


def close(a: Sequence[float], b: Sequence[float]) -> bool:
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) < 0.02


def test_only_chunks_that_asked_for_logits_have_them(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = array("i", weights.tokenize("Hello"))
    assert runtime.decode([Chunk(0, tokens, 0, logits=False), Chunk(1, tokens, 0, logits=True)]) == "ok"
    sampler = runtime.sampler(GREEDY, [])
    assert len(runtime.logits(1)) == weights.n_vocab
    assert sampler.sample(1) == max(range(weights.n_vocab), key=runtime.logits(1).__getitem__)
    for ask in (runtime.logits, sampler.sample):
        with pytest.raises(EngineError, match="chunk 0 of the last decode has no logits"):
            ask(0)
    sampler.close()


def test_a_batch_that_does_not_fit_leaves_no_logits_to_draw_from(weights: Weights) -> None:
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=256, n_threads=1))
    assert append(runtime, [1] * 250) == "ok"
    assert append(runtime, [1] * 20) == "full"
    with pytest.raises(EngineError, match="no logits"):
        runtime.logits(0)
    runtime.close()


def test_more_sequences_than_tokens_in_a_batch_are_possible(weights: Weights) -> None:
    runtime = LlamaRuntime(weights, ContextOptions(n_ctx=256, n_seq=64, n_batch=16, n_ubatch=16, n_threads=1))
    for seq in range(64):
        assert append(runtime, [1, 2], seq) == "ok"
    runtime.close()


def test_too_many_sequences_are_refused_in_words(weights: Weights) -> None:
    with pytest.raises(EngineError, match="no context of 256 tokens"):
        LlamaRuntime(weights, ContextOptions(n_ctx=256, n_seq=257, n_threads=1))


POSITIONS = st.integers(0, 40)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 12)),
    st.tuples(st.just("remove"), st.integers(0, 3), POSITIONS, st.integers(-1, 40)),
    st.tuples(st.just("copy"), st.integers(0, 3), st.integers(0, 3), POSITIONS, st.integers(-1, 40)),
    st.tuples(st.just("shift"), st.integers(0, 3), POSITIONS, st.integers(-20, -1)),
    st.tuples(st.just("forget"), st.integers(0, 3)),
    st.tuples(st.just("restore"), st.integers(0, 3), st.integers(0, 3)),
)


@given(st.lists(STEPS, max_size=24))
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sequences_hold_what_a_naive_list_holds(runtime: LlamaRuntime, steps: list[tuple[Any, ...]]) -> None:
    """Positions only; what is computed from them is `test_matrix.py`'s."""
    for seq in range(4):
        assert runtime.apply(Forget(seq))
    held: list[set[int]] = [set() for _ in range(4)]
    for step in steps:
        match step:
            case "append", seq, n:
                assert append(runtime, [7] * n, seq) == "ok"
                start = max(held[seq], default=-1) + 1
                held[seq] |= set(range(start, start + n))
            case "remove", seq, start, stop:
                assert runtime.apply(Remove(seq, start, stop))
                held[seq] -= set(range(start, 999 if stop < 0 else stop))
            case "copy", source, target, start, stop:
                done = runtime.apply(Copy(source, target, start, stop))
                assert done == (source != target and max(held[target], default=-1) < start)
                if done:
                    held[target] |= held[source] & set(range(start, 999 if stop < 0 else stop))
            case "shift", seq, start, delta:
                # Only as the ledger asks for it: into a gap. Shared cells may refuse.
                gap = all(position < start + delta or position >= start for position in held[seq])
                if gap and runtime.apply(Shift(seq, start, delta)):
                    held[seq] = {position + (delta if position >= start else 0) for position in held[seq]}
            case "forget", seq:
                assert runtime.apply(Forget(seq))
                held[seq] = set()
            case "restore", source, target:
                state = runtime.save(source)
                if state:
                    assert runtime.load(target, state)
                    held[target] = set(held[source])
        assert [runtime.held(seq) for seq in range(4)] == [(min(h, default=-1), max(h, default=-1)) for h in held]


def test_cells_that_two_sequences_share_are_not_shifted(weights: Weights, runtime: LlamaRuntime) -> None:
    assert append(runtime, [7] * 30, 0) == "ok"
    assert runtime.apply(Copy(0, 1, 0, 20))
    assert append(runtime, [8] * 5, 1) == "ok"
    assert runtime.apply(Copy(1, 2, 0, -1))
    assert runtime.apply(Remove(0, 0, 5))
    assert not runtime.apply(Shift(0, 5, -5))
    assert runtime.apply(Forget(1))
    assert not runtime.apply(Shift(0, 5, -5)), "2 has them from 0 by way of 1"
    assert runtime.apply(Forget(2))
    assert runtime.apply(Shift(0, 5, -5))
    assert runtime.held(0) == (0, 24)


# -- saved states --------------------------------------------------------------------------------------------------


def test_a_saved_state_continues_in_another_context(weights: Weights, runtime: LlamaRuntime) -> None:
    tokens = prompt(weights, "My name is Ada. What is my name?")
    cold = generate(runtime, tokens, 16)
    assert runtime.apply(Remove(0, len(tokens) - 1))
    assert runtime.apply(Remove(0, 3, 6))
    state = runtime.save(0)
    other = LlamaRuntime(weights, ContextOptions(n_ctx=512, n_seq=2, n_threads=1))
    assert other.fingerprint == runtime.fingerprint
    assert append(other, [9] * 100, 0) == "ok"
    assert other.load(1, state)
    assert other.held(1) == (0, len(tokens) - 2)
    assert generate(other, tokens[-1:], 8, seq=1) == generate(runtime, tokens[-1:], 8)
    assert other.load(0, state), "what was there is replaced"
    assert other.held(0) == (0, len(tokens) - 2)
    other.close()
    assert cold


def test_nothing_is_saved_between_a_shift_and_the_next_decode(weights: Weights, runtime: LlamaRuntime) -> None:
    assert append(runtime, [7] * 30) == "ok"
    assert runtime.apply(Remove(0, 4, 10))
    assert runtime.apply(Shift(0, 10, -6))
    assert runtime.save(0) == b""
    assert append(runtime, [7]) == "ok"
    assert runtime.save(0) != b""


def test_a_state_that_does_not_fit_leaves_the_sequence_empty(weights: Weights, runtime: LlamaRuntime) -> None:
    assert append(runtime, [7] * 300) == "ok"
    state = runtime.save(0)
    small = LlamaRuntime(weights, ContextOptions(n_ctx=256, n_seq=2, n_threads=1))
    assert append(small, [7] * 5, 1) == "ok"
    assert not small.load(1, state)
    assert small.held(1) == (-1, -1)
    small.close()


FOREIGN = [
    ContextOptions(n_ctx=1024, n_threads=1, cache_type_k="q8_0"),
    ContextOptions(n_ctx=1024, n_threads=1, cache_type_v="f32"),
    ContextOptions(n_ctx=1024, n_threads=1, flash_attention=True),
]


@pytest.mark.parametrize("options", FOREIGN, ids=["k", "v", "layout"])
def test_states_of_another_layout_have_another_fingerprint_and_are_refused(
    weights: Weights, runtime: LlamaRuntime, options: ContextOptions
) -> None:
    assert append(runtime, [7] * 20) == "ok"
    other = LlamaRuntime(weights, options)
    assert other.fingerprint != runtime.fingerprint
    assert not other.load(0, runtime.save(0))
    assert other.held(0) == (-1, -1)
    assert append(other, [7] * 3) == "ok"
    other.close()


def test_the_fingerprint_is_that_of_the_files_content(lamb: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    content = bytearray(lamb.read_bytes())
    copy.write_bytes(content)
    with closing(Weights.load(lamb)) as one, closing(Weights.load(copy)) as same:
        assert one.digest == same.digest
    content[-1000] ^= 1  # in the last tensor
    copy.write_bytes(content)
    with closing(Weights.load(lamb)) as one, closing(Weights.load(copy)) as other:
        assert one.digest != other.digest


def test_a_large_file_is_known_by_samples(lamb: Path, tmp_path: Path) -> None:
    """As it is for every model of more than a few layers: a sparse one here, of which only the size is real."""
    file = tmp_path / "large.gguf"
    with file.open("wb") as stream:
        stream.write(lamb.read_bytes())
        stream.truncate(1 << 30)
    with closing(Weights.load(lamb)) as known:
        known.path = file
        started = known.digest
    with file.open("r+b") as stream:
        stream.seek((1 << 30) - 10)
        stream.write(b"x")
    with closing(Weights.load(lamb)) as known:
        known.path = file
        assert known.digest != started
