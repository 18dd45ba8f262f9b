"""The plan of the sampler chain."""

import pytest

from shepherd.core import Sampling
from shepherd.engine.sampling import DEFAULTS, history_length, plan, settled


def names(sampling: Sampling) -> list[str]:
    return [stage.name for stage in plan(sampling, seed=1, n_ctx=512)]


def test_the_default_chain_is_the_one_of_llama_cpp() -> None:
    assert names(Sampling()) == ["top_k", "top_p", "min_p", "temp", "dist"]


def test_greedy_needs_no_cuts_but_keeps_bias_and_penalties() -> None:
    assert names(Sampling(temperature=0)) == ["greedy"]
    assert names(Sampling(temperature=0, repetition_penalty=1.1, logit_bias=((1, 2.0),))) == [
        "logit_bias", "penalties", "greedy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sampling", "stage"),
    [
        (Sampling(presence_penalty=0.5), "penalties"),
        (Sampling(frequency_penalty=0.5), "penalties"),
        (Sampling(dry_multiplier=0.8), "dry"),
        (Sampling(top_n_sigma=1.0), "top_n_sigma"),
        (Sampling(typical_p=0.9), "typical"),
        (Sampling(xtc_probability=0.5), "xtc"),
    ],
)
def test_each_sampler_joins_when_it_does_something(sampling: Sampling, stage: str) -> None:
    assert stage in names(sampling)
    assert stage not in names(Sampling())


@pytest.mark.parametrize(
    ("sampling", "stage"),
    [(Sampling(top_k=0), "top_k"), (Sampling(top_p=1.0), "top_p"), (Sampling(min_p=0.0), "min_p")],
)
def test_a_sampler_that_does_nothing_is_left_out(sampling: Sampling, stage: str) -> None:
    assert stage not in names(sampling)


@pytest.mark.parametrize(("version", "last"), [(1, "mirostat"), (2, "mirostat_v2")])
def test_mirostat_replaces_the_cuts_and_draws_itself(version: int, last: str) -> None:
    assert names(Sampling(mirostat=version)) == ["temp", last]  # type: ignore[arg-type]  # 1 and 2 are the literals


def test_only_as_much_history_is_fed_as_the_chain_looks_back_on() -> None:
    assert history_length(Sampling(), 100) == 0
    assert history_length(Sampling(repetition_penalty=1.1), 100) == 64
    assert history_length(Sampling(repetition_penalty=1.1, repeat_last_n=-1), 100) == 100
    assert history_length(Sampling(dry_multiplier=1.0), 100) == 100
    assert history_length(Sampling(repetition_penalty=1.1, repeat_last_n=500), 100) == 100


@pytest.mark.parametrize(
    ("said", "n"), [(0, 0), (1, 1), (511, 511), (512, 512), (513, 512), (2**30 - 1, 512), (2**31 - 1, 512), (-1, 512)]
)
def test_no_sampler_looks_back_further_than_the_context_for_the_library_allocates_all_of_it(said: int, n: int) -> None:
    looking = Sampling(repetition_penalty=1.1, repeat_last_n=said, dry_multiplier=1.0, dry_penalty_last_n=said)
    stages = {stage.name: stage.arguments for stage in plan(looking, seed=1, n_ctx=512)}
    assert stages["dry"][3] == n
    assert stages["penalties"][0] == n if n else "penalties" not in stages


def test_a_temperature_that_float32_cannot_divide_by_is_zero() -> None:
    assert names(Sampling(temperature=1e-40)) == ["greedy"]
    (temp, _) = plan(Sampling(temperature=1e-40, mirostat=2), seed=1, n_ctx=512)
    assert temp.arguments == (0.0,)
    assert names(Sampling(temperature=1e-6))[-1] == "dist"


def test_a_sampling_has_the_defaults_where_it_says_nothing_whatever_was_asked_before() -> None:
    for one in (Sampling(), Sampling(seed=1), Sampling(seed=2), Sampling(top_k=0), Sampling(logit_bias=((5, 1.0),))):
        for _ in range(2):
            assert settled(one) == one.over(DEFAULTS)
