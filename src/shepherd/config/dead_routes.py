"""Finds routes that no request can reach, because an earlier route takes all of their requests.

A warning is always true; not every unreachable route is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from shepherd.config.schema import RouteConfig
from shepherd.wire.names import endpoint_names, full_path

_CLASS = re.compile(r"\[!?\]?[^]]*\]")
_ANY_OF = "\0"
"""Replaces a class of characters: no glob contains it, so only a star matches it."""


def dead_rules(rules: Sequence[RouteConfig], file: str) -> Iterator[str]:
    """A warning for every rule that no request can reach, and one if requests can fall through."""
    for index, rule in enumerate(rules):
        never = f"{file}: routes[{index}] can never be reached, because"
        if rule.model and rule.match and not fnmatchcase(rule.model.casefold(), rule.match.casefold()):
            yield f"{never} its model {rule.model!r} does not fit its match {rule.match!r}"
            continue
        for by, before in enumerate(rules[:index]):
            if covers(before, rule):
                first, second = _shown(before), _shown(rule)
                yield f"{never} routes[{by}] takes its requests first: {first} takes all that {second} does"
                break
    if rules and not any(rule.takes_all for rule in rules):
        yield f'{file}: no route has match = "*": requests for other models are refused'


def covers(first: RouteConfig, second: RouteConfig) -> bool:
    """Whether `first` takes every request that `second` takes; False where that is not certain."""
    if first.endpoint is not None and not _covers_endpoint(first.endpoint, second.endpoint):
        return False
    if first.model is not None and (second.model is None or first.model.casefold() != second.model.casefold()):
        return False
    if first.match is None or first.match == "*":
        return True
    if second.model is not None and fnmatchcase(second.model.casefold(), first.match.casefold()):
        return True
    return second.match is not None and _covers_glob(first.match.casefold(), second.match.casefold())


def _covers_endpoint(first: str, second: str | None) -> bool:
    if first == "*":
        return True
    if second is None:
        return False
    globs = (first, full_path(first))
    if set("*?[") & set(second):
        return all(any(_covers_glob(glob, each) for glob in globs) for each in (second, full_path(second)))
    return any(_covers_glob(glob, name) for glob in globs for name in endpoint_names(full_path(second)))


def _covers_glob(first: str, second: str) -> bool:
    """Whether the first glob takes all that the second does: one of stars and letters that matches its text does."""
    return first == second or (not set("?[") & set(first) and fnmatchcase(_CLASS.sub(_ANY_OF, second), first))


def _shown(rule: RouteConfig) -> str:
    criteria = (("endpoint", rule.endpoint), ("model", rule.model), ("match", rule.match))
    return " and ".join(f'{name} = "{value}"' for name, value in criteria if value)
