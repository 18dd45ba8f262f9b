"""What this machine does in a second, from measurements of models of zeros."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import cases

from shepherd.measure import speed, store
from shepherd.measure.space import Candidate
from shepherd.measure.speed import SHAPES, Measured
from shepherd.measure.trial import CROWD_DEPTH, N_PARALLEL, Run, Workload
from shepherd.measure.tuning import Progress
from shepherd.models import gguf, plan, soundness
from shepherd.models.sizing import Cells


def work(name: str, kind: str, folder: Path) -> plan.Work:
    speed.write(SHAPES[name], path := folder / "zeros.gguf", kind)
    return plan.work_of(gguf.read_header(path), Cells(1024))


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> dict[str, plan.Work]:
    folder = tmp_path_factory.mktemp("zeros")
    kinds = [(name, kind) for name in ("wide", "short") for kind in ("q8_0", "q4_K")]
    kinds += [("long", "q8_0"), ("flat", "q8_0")]
    return {f"{name} {kind}": work(name, kind, folder) for name, kind in kinds}


def answered(rates: plan.Rates, done: plan.Work, depth: int) -> Measured:
    """What a machine with these rates would have shown."""
    crowd = plan.step_s(done, rates, N_PARALLEL, min(depth, CROWD_DEPTH))
    run = Run(
        prompt=depth / plan.prompt_s(done, rates, depth),
        empty=1 / plan.step_s(done, rates, 1, 0),
        deep=1 / plan.step_s(done, rates, 1, depth),
        parallel=N_PARALLEL / crowd,
    )
    return Measured(done, depth, run)


@settings(max_examples=cases.examples(40), deadline=None)
@given(
    st.tuples(st.floats(2e9, 5e11), st.floats(2e9, 5e11)), st.floats(0.1, 1.0), st.floats(1e-7, 1e-4),
    st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2000.0)),
)  # fmt: skip
def test_the_rates_give_back_what_was_measured(
    works: dict[str, plan.Work], speeds: tuple[float, float], share: float, layer_s: float, pace: tuple[float, float]
) -> None:
    """A processor, whose attention is bound by arithmetic: what it shows is what `plan` foresees with its rates."""
    first, second = speeds
    weights = {"q8_0": first, "q4_K": second, "": min(speeds)}
    prompt = {kind: 20 * value for kind, value in weights.items()}
    several = {kind: plan.Several(pace[0] / value, pace[1] / value) for kind, value in weights.items()}
    flops = share * first
    true = plan.Rates(weights, several, prompt, 1e15, flops, 3 * flops, layer_s)
    wide, short = (
        {kind: answered(true, works[f"{name} {kind}"], 256) for kind in ("q8_0", "q4_K")} for name in ("wide", "short")
    )
    long = answered(true, works["long q8_0"], 256), answered(true, works["long q8_0"], 1024)
    found = speed.rates_from(wide, short, long, answered(true, works["flat q8_0"], 64))
    assert found.attention == pytest.approx(true.attention, rel=1e-3)
    assert found.attention_prompt == pytest.approx(true.attention_prompt, rel=0.15)
    for each in (*wide.values(), *long):
        again = answered(found, each.work, each.depth).run
        for name in ("prompt", "empty", "deep", "parallel"):
            assert getattr(again, name) == pytest.approx(getattr(each.run, name), rel=0.05), name
    for each in short.values():  # it tells of several users alone
        shown, foreseen = (plan.step_s(each.work, rates, N_PARALLEL, CROWD_DEPTH) - plan.step_s(each.work, rates, 1, 0)
                        for rates in (true, found))  # fmt: skip
        assert foreseen == pytest.approx(shown, rel=0.05)


def test_what_was_measured_of_the_model_itself_is_given_back(works: dict[str, plan.Work]) -> None:
    rates = plan.Rates({"": 1e10}, {"": plan.Several(1e-11, 1e-8)}, {"": 1e11}, 1e15, 1e9, 1e10, 1e-5)
    for run in (Run(prompt=100.0, empty=20.0, deep=15.0), Run(prompt=20.0, empty=300.0, deep=299.0)):
        found = Measured(works["wide q8_0"], 512, run)
        again = answered(speed.fitted(rates, found), found.work, 512).run
        assert again.empty == pytest.approx(run.empty)
        assert again.deep == pytest.approx(run.deep)
        assert again.prompt == pytest.approx(run.prompt, rel=0.05)
    odd = speed.fitted(rates, Measured(works["wide q8_0"], 512, Run(prompt=100.0, empty=20.0, deep=25.0)))
    assert 0 < odd.attention < float("inf"), "a filled context that is faster is noise"


@pytest.mark.model
def test_what_optimize_has_measured_of_a_model_is_found_again(lamb: Path, tmp_path: Path) -> None:
    header = gguf.read_header(lamb)
    assert speed.stored(header, 1, tmp_path) is None
    start, done = Candidate(n_threads=1), Workload(depth=128)
    runs = tuple((start, Run(prompt=100.0 * n, empty=10.0 * n, deep=9.0 * n)) for n in (1, 2, 3))
    failed = (start, Run(problem="this combination makes the library crash"))
    file = store.file_of(tmp_path, header, "agent")
    store.save(file, Progress(start, done, runs=(*runs, failed)))
    found = speed.stored(header, 1, tmp_path)
    assert found is not None
    assert (found.depth, found.run) == (128, Run(prompt=200.0, empty=20.0, deep=18.0))
    assert speed.stored(header, 2, tmp_path) is None, "with other threads"
    file.write_text('{"start": 3}')
    assert speed.stored(header, 1, tmp_path) is None


def test_noise_makes_no_rate_that_is_endless_or_below_zero(works: dict[str, plan.Work]) -> None:
    """Deep is faster than empty, four users are faster than one, the long prompt than the short one."""
    odd = Run(prompt=100.0, empty=10.0, deep=20.0, parallel=100.0)
    long = Measured(works["long q8_0"], 256, odd), Measured(works["long q8_0"], 1024, Run(1e6, 10.0, 20.0, 0.0))
    wide = {"q8_0": Measured(works["wide q8_0"], 256, odd)}
    short = {"q8_0": Measured(works["short q8_0"], 256, odd)}
    rates = speed.rates_from(wide, short, long, Measured(works["flat q8_0"], 64, odd))
    for table in (rates.weights, rates.prompt):
        assert all(0 < value < float("inf") for value in table.values())
    assert all(0 <= number < 1 for each in rates.several.values() for number in each)
    assert 0 < plan.step_s(works["wide q8_0"], rates, 4, 1024) < 10
    assert 0 < plan.prompt_s(works["wide q8_0"], rates, 1024) < 100


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "q4_K", "q6_K", "mxfp4", "iq4_xs"])
def test_a_model_of_zeros_is_one_that_the_reader_takes(kind: str, tmp_path: Path) -> None:
    speed.write(speed.WIDE, path := tmp_path / "zeros.gguf", kind)
    header = gguf.read_header(path)
    soundness.check(header)
    assert {tensor.kind for tensor in header.tensors.values()} == {kind, "f32"}
    assert (header.n_layer, header.n_head, header.n_head_kv[0], header.n_embd) == (8, 16, 4, 1024)
    assert path.stat().st_blocks * 512 < 2**20, "it is a hole"


@pytest.mark.parametrize(
    "content",
    [
        "", "{}", "\0", '{"format": 2}', '{"format": 2, "runs": {"a": 3}}', '{"format": 2, "runs": [1]}',
        '{"format": 9, "runs": {}}', '{"format": 2, "runs": {"a": {"empty": 0}}}',
    ],
)  # fmt: skip
def test_a_kept_file_that_is_none_is_measured_again(content: str, tmp_path: Path) -> None:
    (tmp_path / "kept.json").write_text(content)
    assert speed.kept_runs(tmp_path / "kept.json") == {}
