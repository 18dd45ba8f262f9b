"""`dataclass` of the standard library, whose classes are made in less than half of the time: a start makes 350.

The standard one writes six functions for a class, and compiles each. Here it finds the fields, and writes each function
when that is first called. What a class does is the same, and type checkers see the standard one (ADR 22). Measured by
`bench.terminal.startup`.
"""

from __future__ import annotations

import dataclasses
from copy import copy
from dataclasses import MISSING, FrozenInstanceError, asdict, astuple, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

__all__ = ["MISSING", "asdict", "astuple", "dataclass", "field", "fields", "is_dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        repr: bool = True,
        kw_only: bool = False,
    ) -> Any:
        """As `dataclasses.dataclass`; an order, and hashes of values that change, are not offered."""

        def make(cls: type) -> type:
            cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard one writes the signature there
            own = {name for name, it in vars(cls).items() if it is not None or name != "__hash__"}
            made = dataclasses.dataclass(**_NOTHING, slots=slots, kw_only=kw_only)(cls)
            methods = {"__init__": _Later(made, "__init__", {"init": True, "frozen": frozen})}
            if repr:
                methods["__repr__"] = _Later(made, "__repr__", {"repr": True})
            if eq:
                methods["__eq__"] = _Later(made, "__eq__", {"eq": True})
                methods["__hash__"] = _Later(made, "__hash__", {"unsafe_hash": True}) if frozen else None
            if frozen:
                methods |= _refusal(made)
            if frozen and slots:
                methods |= {"__getstate__": _state, "__setstate__": _set_state}
            for name, method in methods.items():
                if name not in own:
                    setattr(made, name, method)
            return made

        return make if cls is None else make(cls)


_NOTHING = {"init": False, "repr": False, "eq": False}


class _Later:
    """Stands where a method of `cls` will be, until somebody asks for that."""

    def __init__(self, cls: type, name: str, options: dict[str, bool]) -> None:
        self._cls, self._name, self._options = cls, name, options

    def __get__(self, instance: object, owner: type) -> Any:
        """Write it, as the standard one does for a class with the same fields, and put it in this one's place."""
        cls = self._cls
        body: dict[str, Any] = {each.name: copy(each) for each in fields(cls)}
        body["__annotations__"] = {each.name: each.type for each in fields(cls)}
        body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__name__}
        if hasattr(cls, "__post_init__"):
            body["__post_init__"] = cls.__post_init__
        like: Any = dataclasses.dataclass(**_NOTHING | self._options, slots=True)(type(cls.__name__, (), body))
        made = vars(like)[self._name]
        setattr(cls, self._name, made)
        return made.__get__(instance, owner)


def _refusal(cls: Any) -> dict[str, Any]:
    """What the standard one writes for frozen classes, which knows the class."""
    names = frozenset(each.name for each in fields(cls))

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    """For `copy` and `pickle`, which would set what may not be set."""
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
