from shepherd.core import Sampling


def test_what_is_said_wins_over_the_defaults_and_zero_is_said() -> None:
    said = Sampling(temperature=0.0, seed=7).over(Sampling(temperature=0.8, top_k=40))
    assert (said.temperature, said.top_k, said.seed) == (0.0, 40, 7)


def test_nothing_said_changes_nothing() -> None:
    defaults = Sampling(temperature=0.8, top_k=3)
    assert Sampling().over(defaults) == defaults
