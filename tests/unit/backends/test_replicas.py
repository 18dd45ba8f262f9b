"""Which replica answers: what it holds, how busy it is, what it lists, whether it rests or is taken out."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import ExitStack

import pytest

from shepherd.backends.fallback import Health
from shepherd.backends.replicas import AGAIN_S, FREE, LONG, LONGEST_S, Look, Replica, Replicas, marks_of
from shepherd.core import Message, RateLimited, Request, ToolSpec, Unreachable

TOOLS = (ToolSpec("look", "Looks at a thing. " * (LONG // 18 + 1)),)
EVERY_S = 10.0


class Fleet:
    """Some replicas, a clock, and the requests that are open at them."""

    def __init__(self, *names: str, model: str = "m", weights: tuple[float, ...] = ()) -> None:
        self.now = 0.0
        self.health = Health(lambda: self.now)
        self.replicas = Replicas(self.health)
        pairs = itertools.zip_longest(names, weights, fillvalue=1.0)
        self.group = [Replica(str(name), f"http://{name}", model, float(weight)) for name, weight in pairs]
        for each in self.group:
            self.replicas.add(each.name)
        self.open = ExitStack()

    def order(self, request: Request) -> tuple[str, ...]:
        return self.replicas.order(self.group, request)

    def ask(self, request: Request) -> str:
        """The replica that answers; the answer has ended."""
        name = self.order(request)[0]
        with self.replicas.answering(name, request):
            return name

    def hold(self, name: str, n_open: int) -> None:
        """Open requests of others."""
        for number in range(n_open):
            self.open.enter_context(self.replicas.answering(name, asking(f"{name} {number}")))

    def begin(self, request: Request) -> str:
        """As `ask`, and the answer goes on."""
        name = self.order(request)[0]
        self.open.enter_context(self.replicas.answering(name, request))
        return name


def asking(*texts: str, system: str = "", **more: object) -> Request:
    """A conversation: the user and the assistant take turns."""
    roles = itertools.cycle((Message.user, Message.assistant))
    head = (Message.system(system),) if system else ()
    return Request("m", (*head, *(role(text) for role, text in zip(roles, texts, strict=False))), **more)  # type: ignore[arg-type]  # the fields of a request


CONVERSATIONS = [
    {},
    {"system": "You are a shepherd."},
    {"system": "word " * LONG, "tools": TOOLS},
    {"session": "one"},
]


@pytest.mark.parametrize("more", CONVERSATIONS)
def test_a_conversation_stays_where_it_began(more: dict[str, object]) -> None:
    fleet = Fleet("a", "b", "c", "d")
    began = {n: fleet.ask(asking(f"Question {n}", **more)) for n in range(8)}  # type: ignore[arg-type]  # as in `asking`
    for n, name in began.items():
        texts = [f"Question {n}", "Answer"]
        for turn in range(3):
            texts += [f"Again {turn}", "Answer"]
            assert fleet.ask(asking(*texts[:-1], **more)) == name  # type: ignore[arg-type]  # as above


def test_a_long_beginning_goes_where_it_was_computed_and_a_short_one_does_not_bind() -> None:
    fleet = Fleet("a", "b", "c", "d")
    first = fleet.ask(asking("Hello", system="Be brief.", tools=TOOLS))
    others = {fleet.ask(asking(f"Question {n}", system="Be brief.", tools=TOOLS)) for n in range(20)}
    assert others == {first}
    others = {fleet.ask(asking(f"Question {n}", system="Be brief.")) for n in range(20)}
    assert len(others) == 4, "two words are computed in no time"


def test_an_edited_question_goes_where_the_turns_before_it_are() -> None:
    fleet = Fleet("a", "b", "c", "d")
    for n in range(8):
        name = fleet.ask(asking(f"Question {n}"))
        assert fleet.ask(asking(f"Question {n}", "Answer", "Again")) == name
        assert fleet.ask(asking(f"Question {n}", "Answer", "Edited")) == name


def test_a_replica_that_is_much_busier_is_left_and_the_conversation_stays_at_the_new_one() -> None:
    fleet = Fleet("a", "b")
    name = fleet.ask(asking("Hello"))
    other = "b" if name == "a" else "a"
    fleet.hold(name, FREE - 1)
    assert fleet.ask(asking("Hello", "Hi", "How are you?")) == name, "a few answers at once cost little"
    fleet.hold(name, 1)
    third = asking("Hello", "Hi", "How are you?", "Fine", "And now?")
    assert fleet.ask(third) == other
    fleet.open.close()
    assert fleet.ask(asking("Hello", "Hi", "How are you?", "Fine", "And now?", "Well", "Bye")) == other


@pytest.mark.parametrize(("weights", "expected"), [((), [10, 10, 10, 10]), ((4.0, 2.0, 1.0, 1.0), [20, 10, 5, 5])])
def test_open_requests_are_shared_out_by_weight(weights: tuple[float, ...], expected: list[int]) -> None:
    fleet = Fleet("a", "b", "c", "d", weights=weights)
    counts = Counter(fleet.begin(asking(f"Question {n}")) for n in range(40))
    assert [counts[each.name] for each in fleet.group] == expected


def test_no_replica_gets_more_than_its_bound_of_one_beginning() -> None:
    """`max(FREE, ceil(1.25 * n / 4))` of n open requests, although all of them would like the same one."""
    fleet = Fleet("a", "b", "c", "d")
    names: list[str] = []
    for n in range(1, 101):
        names.append(fleet.begin(asking(f"Question {n}", tools=TOOLS)))
        assert max(Counter(names).values()) <= max(FREE, -(-5 * n // 16))
    assert len({*names[:FREE]}) == 1
    assert set(Counter(names).values()) == {25}, "those that it went to have it, too"


def test_ties_are_decided_alike_by_every_router_and_evenly() -> None:
    first, second = Fleet("a", "b", "c", "d"), Fleet("a", "b", "c", "d")
    names = [first.order(asking(f"Question {n}"))[0] for n in range(400)]
    assert names == [second.order(asking(f"Question {n}"))[0] for n in range(400)]
    assert all(70 < count < 130 for count in Counter(names).values())
    less = Fleet("a", "b", "d")
    moved = [(old, less.order(asking(f"Question {n}"))[0]) for n, old in enumerate(names)]
    assert {old for old, new in moved if old != new} == {"c"}, "one that goes moves only its own share"


def test_requests_without_a_beginning_go_round() -> None:
    fleet = Fleet("a", "b", "c")
    names = [fleet.ask(Request("m")) for _ in range(6)]
    assert names[:3] == names[3:]
    assert {*names} == {"a", "b", "c"}


def test_one_that_is_taken_out_gets_no_request_and_its_answers_end() -> None:
    fleet = Fleet("a", "b")
    name = fleet.ask(asking("Hello"))
    with fleet.replicas.answering(name, asking("Other")):
        fleet.replicas.take_out(name, is_out=True)
        assert fleet.replicas.status(name).state == "draining"
        assert fleet.order(asking("Hello", "Hi", "Again")) == ("b" if name == "a" else "a",)
    assert fleet.replicas.status(name).state == "drained"
    fleet.replicas.take_out(name, is_out=False)
    assert fleet.ask(asking("Hello", "Hi", "More")) == name, "its cache is still there"
    for each in ("a", "b"):
        fleet.replicas.take_out(each, is_out=True)
    assert fleet.order(asking("Hello")) == ()


def test_a_model_goes_to_those_that_list_it() -> None:
    fleet = Fleet("a", "b", "c", model="Qwen")
    fleet.replicas.see("a", Look(models=frozenset({"llama"})), EVERY_S)
    fleet.replicas.see("b", Look(models=frozenset({"llama", "qwen:8b"})), EVERY_S)
    names = {fleet.order(asking(f"Question {n}")) for n in range(20)}
    assert names == {("c",)}, "b calls it otherwise, and c lists nothing yet"
    fleet.replicas.see("b", Look(models=frozenset({"llama", "qwen:latest"})), EVERY_S)
    assert {name for n in range(20) for name in fleet.order(asking(f"Question {n}"))} == {"b", "c"}
    for name in "abc":
        fleet.replicas.see(name, Look(models=frozenset({"llama"})), EVERY_S)
    assert len(fleet.order(asking("Hello"))) == 3, "none lists it: they say so themselves, or know it as another name"


def test_a_look_takes_two_misses_and_the_word_of_a_replica_at_once() -> None:
    fleet = Fleet("a", "b")
    gone = Look("no connection")
    waits = [fleet.replicas.see("a", gone, EVERY_S)]
    assert fleet.replicas.status("a").state == "ready"
    waits += [fleet.replicas.see("a", gone, EVERY_S) for _ in range(9)]
    assert waits[:3] == [AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S]
    assert waits[-1] == LONGEST_S, "one that is down is not asked all the time"
    status = fleet.replicas.status("a")
    assert (status.state, status.detail) == ("resting", "no connection")
    fleet.now += 10_000
    fleet.replicas.see("a", gone, EVERY_S)
    assert fleet.order(asking("Hello")) == ("b", "a"), "it is asked last, should nothing else answer"
    fleet.replicas.see("b", Look("it is loading", is_answer=True), EVERY_S)
    assert fleet.replicas.status("b").state == "resting"


def test_one_that_comes_back_gets_one_request_first_and_none_for_what_its_cache_has_lost() -> None:
    fleet = Fleet("a", "b")
    name = fleet.ask(asking("Hello", tools=TOOLS))
    other = "b" if name == "a" else "a"
    fleet.health.note(name, Unreachable("refused", backend=name))
    assert fleet.ask(asking("Hello", "Hi", "Again", tools=TOOLS)) == other
    assert fleet.replicas.see(name, Look(), EVERY_S) == EVERY_S
    assert fleet.replicas.status(name).state == "ready"
    fleet.health.begin(name)
    assert fleet.replicas.status(name).state == "resting", "one request finds out"
    fleet.health.note(name, None)
    assert fleet.ask(asking("Hello", tools=TOOLS)) == other, "what it held went with its process"


def test_a_look_that_is_well_does_not_end_the_rest_of_one_that_has_too_much_to_do() -> None:
    fleet = Fleet("a", "b")
    fleet.health.note("a", RateLimited("slow down", backend="a", retry_after_s=60.0))
    fleet.replicas.see("a", Look(), EVERY_S)
    assert fleet.replicas.status("a").state == "resting"


def test_marks_of_a_request_without_a_message_are_those_of_its_session() -> None:
    assert marks_of(Request("m")).all == ()
    assert len(marks_of(Request("m", session="s")).all) == 1
