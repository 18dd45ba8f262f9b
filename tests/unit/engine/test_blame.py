"""What ends two children is refused: alone it is blamed whole, beside others by half."""

from collections.abc import Sequence

from shepherd.engine.worker.blame import Blame, Suspect, name_of_call


def named(name: str, *, waits: bool = False) -> Suspect:
    return Suspect(name.encode(), not waits)


def died(*deaths: Sequence[Suspect]) -> Blame:
    blame = Blame()
    for suspects in deaths:
        assert blame.note(suspects)
    return blame


def refused(blame: Blame) -> str:
    return "".join(name for name in "abc" if blame.is_deadly(name.encode))


def test_what_was_computed_alone_twice_is_refused_and_what_waited_is_not() -> None:
    death = [named("a"), named("b", waits=True)]
    assert refused(died(death)) == ""
    assert refused(died(death, death)) == "a"


def test_what_was_computed_beside_others_takes_twice_as_many_deaths() -> None:
    together, alone = [named("a"), named("b")], [named("a")]
    assert refused(died(*[together] * 3)) == ""
    assert refused(died(*[together] * 4)) == "ab"
    assert refused(died(together, together, alone)) == "a"


def test_where_none_had_begun_all_are_suspects() -> None:
    waiting = [named("a", waits=True), named("b", waits=True)]
    assert refused(died(*[waiting] * 4)) == "ab"
    assert refused(died([named("c", waits=True)], [named("c", waits=True)])) == "c"
    assert not Blame().note([]), "nothing was computed"


def test_an_answer_clears() -> None:
    death = [named("a"), named("b")]
    blame = died(death, death, death)
    blame.clear("b".encode)
    blame.note(death)
    assert refused(blame) == "a"


def test_a_child_that_is_killed_for_a_stall_died_of_what_it_computed_then() -> None:
    blame = died([named("a")])
    blame.stall([named("a")])
    blame.freeze([named("a"), named("b")])
    blame.note([named("b")])
    assert refused(blame) == "a"
    blame.freeze([named("b")])
    blame.recover()
    blame.note([named("c")])
    blame.note([named("c")])
    assert refused(blame) == "ac"


def test_a_call_has_the_name_of_what_it_computes() -> None:
    assert name_of_call("vectors", (["a"],), {}) == name_of_call("vectors", (["a"],), {})
    asked: list[tuple[str, list[str]]] = [("vectors", ["a"]), ("vectors", ["b"]), ("scores", ["a"])]
    assert len({name_of_call(method, (texts,), {}) for method, texts in asked}) == 3
