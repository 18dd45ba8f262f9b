"""Our `dataclass` beside the standard one: classes with the same fields do the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import operator
import pickle
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any, ClassVar, get_type_hints

import pytest

from shepherd.core import dataclasses as ours
from shepherd.core.dataclasses import dataclass, field

WAYS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": shown, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for eq, shown, kw_only in ((True, True, False), (False, False, True))
]


def kinds(make: Callable[..., Any], way: dict[str, bool]) -> list[Any]:
    """Classes with all kinds of fields, by this decorator."""

    @make(**way)
    class Point:
        x: int
        y: float = 0.5
        parts: list[int] = dataclasses.field(default_factory=list)
        kind: ClassVar[str] = "point"

    @make(**way)
    class Named(Point):
        """With a docstring."""

        name: str = dataclasses.field(default="none", compare=False)
        secret: str = dataclasses.field(default="hidden", repr=False, hash=False)
        made: int = dataclasses.field(init=False, default=7)
        late: str = dataclasses.field(kw_only=True, default="late")

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", self.x + 1)

    @make(**way)
    class Empty:
        pass

    @make(**way)
    class Own:
        value: Any

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

    class Plain(Empty):
        """Without the decorator: may have attributes of its own."""

    return [Point, Named, Empty, Own, Plain]


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((2,), {}), ((1, 2.5, [3]), {}), ((1, 2.5, (3,)), {}), ((), {"x": 1, "parts": ()}),
    ((), {"x": 1, "name": "n", "late": "l"}), ((1, 2.0, (), "n", "s"), {}), ((1, 2, 3, 4, 5, 6), {}),
    ((), {"value": 1}),
    ((), {"x": 1, "made": 2}), ((float("nan"),), {}), ((), {"x": 1, "no such": 2}),
]  # fmt: skip


def outcome(run: Callable[[], object]) -> object:
    """What comes of it, or the error and its words."""
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


def same_hash(value: object) -> bool:
    return hash(value) == hash(copy.copy(value))


def behaviour(kind: Any, way: dict[str, bool]) -> list[object]:
    """Everything that one could see of a class."""
    made = [outcome(partial(kind, *positional, **by_name)) for positional, by_name in CALLS]
    seen: list[object] = [each for each in made if not isinstance(each, kind)]
    seen += [[(each.name, each.type, each.init, each.kw_only) for each in dataclasses.fields(kind)]]
    seen += [kind.__match_args__, str(inspect.signature(kind)), kind.__mro__[1].__name__]
    real = [each for each in made if isinstance(each, kind)]
    for each in real:
        seen += [
            hasattr(each, "__dict__"),
            outcome(partial(repr, each)),
            outcome(partial(same_hash, each)),
        ]
        seen += [outcome(partial(operator.eq, each, other)) for other in real]
        seen += [outcome(partial(dataclasses.asdict, each)), outcome(partial(dataclasses.astuple, each))]
        seen += [outcome(partial(dataclasses.replace, each, x=9)), repr(copy.deepcopy(each))]
        if not (way["frozen"] and way["slots"]):  # there the standard one's `super` is of the class without slots
            seen += [outcome(partial(setattr, each, name, 1)) for name in ("x", "new")]
            seen += [outcome(partial(delattr, each, "y")), outcome(partial(getattr, each, "y"))]
    return seen


def text(seen: object) -> str:
    """Without addresses in memory, which differ."""
    return str(seen).split(" at 0x")[0]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(name for name, is_on in way.items() if is_on) or "plain")
def test_classes_do_what_the_standard_ones_do(way: dict[str, bool]) -> None:
    for mine, standard in zip(kinds(dataclass, way), kinds(dataclasses.dataclass, way), strict=True):
        assert [*map(text, behaviour(mine, way))] == [*map(text, behaviour(standard, way))]


@dataclass(frozen=True, slots=True)
class Sent:
    """As values that cross to a child."""

    name: str
    parts: tuple[int, ...] = ()
    parent: Sent | None = field(default=None, repr=False)


def test_values_cross_by_pickle_and_are_copied() -> None:
    sent = Sent("a", (1, 2), Sent("b"))
    assert pickle.loads(pickle.dumps(sent)) == copy.deepcopy(sent) == copy.copy(sent) == sent
    assert pickle.loads(pickle.dumps(sent)).parent == Sent("b")
    with pytest.raises(ValueError, match="shorter"):
        Sent.__new__(Sent).__setstate__(["a"])  # type: ignore[attr-defined]


def test_a_signature_and_hints_are_there_before_the_first_instance() -> None:
    @dataclass(frozen=True, slots=True)
    class New:
        x: int
        y: Sent | None = None

    assert str(inspect.signature(New)) == "(x: 'int', y: 'Sent | None' = None) -> None"
    assert get_type_hints(New.__init__) == {"x": int, "y": Sent | None, "return": type(None)}


def test_a_value_that_holds_itself_has_a_text() -> None:
    @dataclass(slots=True)
    class Node:
        parts: list[Any] = field(default_factory=list)

    node = Node()
    node.parts.append(node)
    assert repr(node).endswith("Node(parts=[...])")


def test_first_instances_are_made_by_several_threads_at_once() -> None:
    for _ in range(20):
        kind: Any = ours.dataclass(frozen=True, slots=True)(
            type("Kind", (), {"__annotations__": {"x": "int"}, "__module__": __name__})
        )
        made: list[Any] = []
        threads = [threading.Thread(target=lambda: made.append(kind(3))) for _ in range(4)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [kind(3)] * 4


def test_what_is_frozen_stays_so() -> None:
    @dataclass(frozen=True, slots=True)
    class Child(Sent):
        new: int = 0

    for value in (Sent("a"), Child("a")):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
            value.name = "b"  # type: ignore[misc]
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'unknown'"):
            value.unknown = "b"  # type: ignore[attr-defined]
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
            del value.name
