"""Grammars as text, before llguidance sees them: what is too much for it, and how to put one inside of another.

llguidance is quick and bounded in what it does for one token, but not in what it does to read a grammar: a chain of a
few thousand rules or `$ref`s overflows the C stack, which ends the process, and a handful of patterns that must all
match takes minutes. Nothing of that is an exception that could be caught. So whatever a client may have written is
measured here first. The numbers are from trying it out: each bound is a third or less of where the harm began.

The dialect is that of llguidance 1.9: `name: ...`, `%json {...}`, no templates. No text is compiled here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shepherd.core import InvalidRequest
from shepherd.engine.grammar import limits, numbers

MAX_CHARACTERS = 1 << 20
"""Of a whole grammar, the schemas of all tools included."""
MAX_CLIENT_CHARACTERS = 1 << 16
"""Of a grammar or a regular expression in a client's own words: some take quadratic time."""
MAX_DEPTH = 600
"""Rules, brackets and schemas inside of each other. At about 2,400 of them a thread's 8 MiB of stack are used up."""
MAX_MULTIPLE = 100_000
"""Of the digits of a `multipleOf`, its point left out: the state machine has one state for each remainder."""
MAX_OPTIONS = 2_000
"""Signs like `?` and `*` in one expression: in a row they take quadratic time, and gigabytes."""
MAX_JOINT_PATTERNS = 12
"""Patterns under one `allOf`: they may have to match the same text, which is exponential in their number."""
MAX_SCHEMA_VALUES = 20_000
"""Of one schema, objects, arrays and all in them: about 1,000 properties said in detail. So many take half a second for
every time that the schema is compiled, and some schemas are compiled often to find out what is wrong with them."""
MAX_OPTIONAL = 2_000
"""Properties of one object that need not be there: a state for every two of them. 10,000 took two minutes."""
MAX_JOINED_VALUES = 5_000
"""Of what all `allOf` of a schema join, with what they refer to each time anew: it is copied that often."""
MAX_PATTERN_PROPERTIES = 64
"""Of one object; every two of them are compared."""

MAX_WAYS = 1_000
"""Of counting nested repetitions: `(a{1,30}){1,30}` has 900. At about 2,000 answers began to fail."""
MAX_WAYS_COSTLY = 200
"""The same for patterns in a schema, where each character has several spellings and 700 were too many, and for repeated
rules, where a token of 900 took a second."""
MAX_NESTED_LENGTH = 100_000
"""What exact repetitions of each other make: `(a{100}){100}` is 10,000 long. A million took seconds."""

TOO_MANY_WAYS = f"nests repetitions: more than {MAX_WAYS:,} ways to count, like the 10,000 of (a{{1,100}}){{1,100}}"
TOO_MANY_WAYS_COSTLY = TOO_MANY_WAYS.replace(f"{MAX_WAYS:,}", f"{MAX_WAYS_COSTLY:,}")
TOO_LONG_REPEATED = f"nests repetitions that multiply to more than {MAX_NESTED_LENGTH:,}"
TOO_MANY_OPTIONS = f"has too many signs like ? and * in one expression; at most {MAX_OPTIONS:,}"

Path = tuple[str | int, ...]
"""Where something stands in a JSON document."""


class UnsupportedGrammar(Exception):
    """What llguidance must not be given; `path` leads there, within a JSON document."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class Piece(NamedTuple):
    """A token of Lark."""

    kind: str
    """`name`, `line` (an end of line), `json` (a keyword and its document), `string`, `regex`, `special`, `skip`
    (blanks and comments), `other`."""
    text: str


_PIECES = re.compile(
    r"""(?P<skip>(?:\#|//)[^\n]*|[ \t]+)
    |(?P<json>%(?:json|regex|llguidance)\b)
    |(?P<string>"(?:\\.|[^"\\])*"i?)
    |(?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
    |(?P<special><[^<>\s]+>)
    |(?P<name>_?[A-Z][_A-Z0-9-]*|!?[_?]?[a-z][_a-z0-9-]*)
    |(?P<line>(?:\r?\n)+[ \t]*)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")


def pieces(lark: str) -> Iterator[Piece]:
    """The tokens of a grammar, which together are its text; JSON documents come with the keyword before them.

    Raises: `UnsupportedGrammar` where a document is nested too deeply to be read.
    """
    at = 0
    while at < len(lark):
        found = _PIECES.match(lark, at)
        assert found is not None
        start, at = at, found.end()
        if found.lastgroup == "json":
            blank = _BLANK.match(lark, at)
            assert blank is not None
            try:
                _, at = _DECODER.raw_decode(lark, blank.end())
            except RecursionError:
                raise UnsupportedGrammar("is nested too deeply") from None
            except ValueError:
                pass  # llguidance says what is wrong with it
        yield Piece(str(found.lastgroup), lark[start:at])


def is_definition(known: Sequence[Piece], index: int, closers: Mapping[int, int]) -> bool:
    """Whether the name at `index` is that of a rule, rather than a part of one. `known` holds no blanks; `closers` are
    those of `closing`.

    It need not begin a line: some `%` statements may stand before it.
    """
    at = index + 1
    while at in closers:  # over `[lazy, suffix="x"]`
        at = closers[at] + 1
    return known[index].kind == "name" and at < len(known) and known[at].text == ":"


def closing(known: Sequence[Piece]) -> dict[int, int]:
    """For each `[` the index of its `]`; the end of all for one without."""
    found: dict[int, int] = {}
    waiting: list[int] = []
    for at, piece in enumerate(known):
        if piece.text == "[":
            waiting.append(at)
        elif piece.text == "]" and waiting:
            found[waiting.pop()] = at
    return found | dict.fromkeys(waiting, len(known))


# -- bounds --------------------------------------------------------------------------------------------------------


def check(lark: str) -> None:
    """Make sure that a grammar can be handed to llguidance.

    Raises: `UnsupportedGrammar`, with the path inside of its JSON document where that is the reason.
    """
    if len(lark) > MAX_CHARACTERS:
        raise UnsupportedGrammar(f"is too long: {len(lark)} characters, at most {MAX_CHARACTERS}")
    if lark.lstrip().startswith("{"):  # llguidance has another language, in JSON, which nobody has measured here
        raise UnsupportedGrammar("is JSON, not Lark")
    known = [piece for piece in pieces(lark) if piece.kind != "skip"]
    closers = closing(known)
    rules: dict[str, Nesting] = {}
    bodies: dict[str, list[Piece]] = {}
    name, depth = "", 0
    for index, (kind, text) in enumerate(known):
        rule = rules.setdefault(name, Nesting())
        if kind == "name" and is_definition(known, index, closers):
            if [piece.text for piece in known[index + 1 : index + 3]] == [":", ":"]:
                rule.use(_plain(text))  # a rule with a parameter, or the use of one: it counts as both
            name, depth = _plain(text), 0
            bodies.setdefault(name, [])
            continue
        bodies.setdefault(name, []).append(known[index])
        if kind == "name":
            rule.use(_plain(text))
        elif text.startswith("%json"):
            rule.weight = max(rule.weight, depth + 1 + check_document(_document(text)))
        elif kind == "special":
            raise UnsupportedGrammar(f"names the token {text}; write its text in quotes")
        elif kind == "regex":
            rule.options += _n_options(text)
            if _n_options(text) > MAX_OPTIONS:
                raise UnsupportedGrammar(TOO_MANY_OPTIONS)
        elif kind == "other":
            depth += (text in "([") - (text in ")]")
            rule.weight = max(rule.weight, depth + 1)
            rule.options += _n_options(text)
    order, circling = _from_below(rules)
    if _heaviest(rules, order, circling) > MAX_DEPTH:
        raise UnsupportedGrammar("is nested too deeply: too many rules build on each other")
    _check_ends(bodies, circling)
    _check_repeats(bodies, [*order, *circling])
    for name in order:  # a terminal is one expression, with all that it builds on
        rule = rules[name]
        rule.options += sum(n * rules[used].options for used, n in rule.uses.items() if used in rules)
        if name.isupper() and rule.options > MAX_OPTIONS:
            raise UnsupportedGrammar(TOO_MANY_OPTIONS)


def _check_ends(bodies: Mapping[str, Sequence[Piece]], circling: Sequence[str]) -> None:
    """Refuse rules that lead to themselves on every way: some never let llguidance go. Raises: `UnsupportedGrammar`."""
    endless, n_before = set(circling), -1
    while endless and len(endless) != n_before:
        n_before = len(endless)
        endless = {name for name in endless if not _may_end(bodies.get(name, ()), endless)}
    if endless:
        raise UnsupportedGrammar(f"has a rule that no text can satisfy, as it always needs itself: {min(endless)}")


def _may_end(body: Sequence[Piece], endless: Collection[str]) -> bool:
    """Whether a rule has a way that leads to none of `endless`."""
    starts = [at for at, piece in enumerate(body) if piece.text == ":"][:1]
    ways: list[list[list[bool]]] = [[[]]]
    rest = body[starts[0] + 1 :] if starts else body
    for at, (kind, text) in enumerate(rest):
        if text in ("(", "["):
            ways.append([[]])
        elif text in (")", "]") and len(ways) > 1:
            inner = ways.pop()
            ways[-1][-1].append(text == "]" or any(map(all, inner)))
        elif text == "|":
            ways[-1].append([])
        elif text in ("*", "?", "{") and ways[-1][-1]:
            ways[-1][-1][-1] |= text != "{" or rest[at + 1 : at + 2] in ([("other", "0")], [("other", ",")])
        elif kind in ("name", "string", "regex", "json"):
            ways[-1][-1].append(kind != "name" or _plain(text) not in endless)
    return any(map(all, ways[0]))


def _check_repeats(bodies: Mapping[str, Sequence[Piece]], order: Iterable[str]) -> None:
    """Measure the repetitions of rules and terminals, in an order where a rule follows those it uses.

    Raises: `UnsupportedGrammar`.
    """
    costs: dict[str, limits.Cost] = {}
    for name in order:
        is_terminal = name.isupper()
        costs[name] = limits.cost(_items(bodies.get(name, ()), costs, is_terminal=is_terminal))
        _refuse_cost(costs[name], most=MAX_WAYS if is_terminal else MAX_WAYS_COSTLY)
    for body in bodies.values():
        for piece in body:
            if piece.kind == "regex":
                _refuse_cost(_cost_of(piece))


def _items(body: Sequence[Piece], costs: Mapping[str, limits.Cost], *, is_terminal: bool) -> Iterator[limits.Item]:
    """A rule as `repeats` reads it. In a terminal all is one expression; a rule takes terminals as they come."""
    at = 0
    while at < len(body):
        kind, text = body[at]
        at += 1
        if text == "{":
            while at < len(body) and not text.endswith("}"):
                text += body[at].text
                at += 1
            if limits.COUNTS.fullmatch(text):
                yield limits.times(text)
        elif text in limits.TIMES:
            yield limits.times(text)
        elif text in ("(", ")", "|"):
            yield text
        elif kind == "string":
            yield _cost_of(body[at - 1])
        elif kind in ("name", "regex", "json", "special"):
            known = costs.get(_plain(text), limits.ATOM) if kind == "name" else _cost_of(body[at - 1])
            yield known if is_terminal or not (kind == "regex" or text.isupper()) else replace(known, ways=1, length=1)


def _cost_of(piece: Piece) -> limits.Cost:
    if piece.kind == "regex":
        return limits.of_regex(piece.text.rpartition("/")[0][1:])
    if piece.kind == "string" and piece.text.endswith('"'):
        return limits.of_text(piece.text[1:-1])
    return limits.ATOM


def _refuse_cost(cost: limits.Cost, path: Path = (), *, most: int = MAX_WAYS) -> None:
    """Raises: `UnsupportedGrammar` for nested repetitions that are too much."""
    if cost.ways > most and cost.is_multiplied:
        raise UnsupportedGrammar(TOO_MANY_WAYS if most == MAX_WAYS else TOO_MANY_WAYS_COSTLY, path)
    if cost.length > MAX_NESTED_LENGTH and cost.is_nested:
        raise UnsupportedGrammar(TOO_LONG_REPEATED, path)


def _n_options(text: str) -> int:
    return sum(map(text.count, "?*+{"))


def _plain(name: str) -> str:
    return name.lstrip("!?")


def _document(text: str) -> Any:
    try:
        return json.loads(text.removeprefix("%json"))
    except ValueError:
        return None


def check_document(schema: Any) -> int:
    """How deep a JSON schema goes, following its references.

    Raises: `UnsupportedGrammar`, with the path of what is too much.
    """
    if (n := n_values(schema)) > MAX_SCHEMA_VALUES:
        raise UnsupportedGrammar(
            f"has {n} values in it; at most {MAX_SCHEMA_VALUES} are accepted: make it smaller, or split it"
        )
    has_ids, n_joined = False, 0
    for path, node in walk(schema):
        if isinstance(node, Mapping):
            has_ids |= bool(path) and "$id" in node  # what a reference below means depends on it
            n_joined += _check_node(schema, path, node)
            if n_joined > MAX_JOINED_VALUES:
                raise UnsupportedGrammar(
                    f"joins more than {MAX_JOINED_VALUES} values, references followed; make less of it",
                    (*path, "allOf"),
                )
    for path, n_remainders in numbers.multiples(schema):
        if n_remainders > MAX_MULTIPLE:
            raise UnsupportedGrammar(
                f"has too many digits, together with others of this schema; at most {MAX_MULTIPLE:,}", path
            )
    for path, value in numbers.constants(schema):
        if number := numbers.inexact_number(value):
            raise UnsupportedGrammar(f"holds {number}, a number that cannot be written exactly; use a string", path)
    targets = {"#": _weighed(schema)}
    anywhere = _weighed(schema, whole=True)
    waiting = list(targets["#"].uses)
    while waiting:
        pointer = waiting.pop()
        if pointer not in targets:
            found = [] if has_ids else find(schema, pointer)
            # What cannot be followed may lead anywhere, so it counts as everything there is.
            targets[pointer] = _weighed(found[0]) if found else anywhere
            waiting += targets[pointer].uses
    deepest = _heaviest(targets, *_from_below(targets))
    if deepest > MAX_DEPTH:
        raise UnsupportedGrammar(f"is nested too deeply, its references included; at most {MAX_DEPTH} levels")
    return deepest


def with_safe_bounds(lark: str) -> str:
    """A grammar with the bounds of its schemas moved to what llguidance can keep to."""
    if not numbers.may_be_large(lark):
        return lark
    return "".join(
        "%json " + numbers.with_safe_bounds(piece.text.removeprefix("%json"))
        if piece.text.startswith("%json")
        else piece.text
        for piece in pieces(lark)
    )


def walk(value: Any) -> Iterator[tuple[Path, Any]]:
    """Every value of a JSON document with its path, from the outside in."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        waiting += [((*path, key), child) for key, child in reversed(members(node))]


def n_values(document: Any) -> int:
    """How many values stand in a JSON document, inside of each other."""
    waiting, n = [document], 0
    while waiting:
        node = waiting.pop()
        inside = node.values() if isinstance(node, Mapping) else node if isinstance(node, (list, tuple)) else ()
        n += len(inside)
        waiting += [value for value in inside if isinstance(value, (Mapping, list, tuple))]
    return n


def members(node: Any) -> list[tuple[str | int, Any]]:
    """The values in a JSON object or array, with their keys or indexes."""
    if isinstance(node, Mapping):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else []


def find(schema: Any, pointer: str) -> list[Any]:
    """What a local reference (`#/$defs/x`) means; empty when it is not to be found."""
    if pointer != "#" and not pointer.startswith("#/"):
        return []
    node = schema
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdecimal() and int(part[:9]) < len(node):
            node = node[int(part[:9])]
        else:
            return []
    return [node]


def _check_node(schema: Any, path: Path, node: Mapping[str, Any]) -> int:
    """How many values its `allOf` joins. Raises: `UnsupportedGrammar`."""
    required = node.get("required")
    named, needed = node.get("properties"), set(filter(_is_name, required if isinstance(required, list) else ()))
    n_optional = sum(name not in needed for name in named) if isinstance(named, Mapping) else 0
    if n_optional > MAX_OPTIONAL:
        raise UnsupportedGrammar(
            f"has {n_optional} properties that are not required; at most {MAX_OPTIONAL} are accepted:"
            " name more of them in required, or send fewer",
            (*path, "properties"),
        )
    pattern = node.get("pattern")
    if isinstance(pattern, str) and _n_options(pattern) > MAX_OPTIONS:
        raise UnsupportedGrammar(TOO_MANY_OPTIONS, (*path, "pattern"))
    names = [str(name) for name, _ in members(node.get("patternProperties"))]
    guidance = node.get("x-guidance")
    spaces = guidance.get("whitespace_pattern") if isinstance(guidance, Mapping) else None
    for expression, where in ((pattern, "pattern"), *((n, "patternProperties") for n in names), (spaces, "x-guidance")):
        if isinstance(expression, str):
            _refuse_cost(limits.of_regex(expression), (*path, where), most=MAX_WAYS_COSTLY)
    if len(names) > MAX_PATTERN_PROPERTIES:
        raise UnsupportedGrammar(
            f"has too many members; at most {MAX_PATTERN_PROPERTIES}", (*path, "patternProperties")
        )
    if _n_options("".join(names)) > MAX_OPTIONS:
        raise UnsupportedGrammar(TOO_MANY_OPTIONS, (*path, "patternProperties"))
    if "allOf" not in node:
        return 0
    n_patterns, n_joined = _joined(schema, node["allOf"])
    if n_patterns > MAX_JOINT_PATTERNS:
        raise UnsupportedGrammar(f"joins too many patterns; at most {MAX_JOINT_PATTERNS}", (*path, "allOf"))
    return n_joined


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _joined(schema: Any, node: Any) -> tuple[int, int]:
    """Patterns and values in a part of a schema and in what it refers to; counting ends where either is too much."""
    seen: set[str] = set()
    waiting, n_patterns, n = [node], 0, 0
    while waiting:
        for _, part in walk(waiting.pop()):
            n += 1
            if n > MAX_JOINED_VALUES or n_patterns > MAX_JOINT_PATTERNS:
                return n_patterns, n
            if isinstance(part, Mapping):
                n_patterns += "pattern" in part
                pointer = part.get("$ref")
                if isinstance(pointer, str) and pointer not in seen:
                    seen.add(pointer)
                    waiting += find(schema, pointer)
    return n_patterns, n


class Nesting:
    """How deep something is by itself, what else it builds on, and how often."""

    def __init__(self) -> None:
        self.weight = 1
        self.options = 0
        self.uses: dict[str, int] = {}

    def use(self, name: str) -> None:
        self.uses[name] = self.uses.get(name, 0) + 1


def _weighed(node: Any, *, whole: bool = False) -> Nesting:
    """A part of a schema; its definitions are looked at where they are used, or here if `whole`."""
    result = Nesting()
    waiting = [(1, node)]
    while waiting:
        depth, part = waiting.pop()
        result.weight = max(result.weight, depth)
        if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
            result.use(part["$ref"])
        for key, child in members(part):
            if whole or key not in ("$defs", "definitions"):
                waiting.append((depth + 1, child))
    return result


def _from_below(graph: Mapping[str, Nesting]) -> tuple[list[str], list[str]]:
    """All names, each behind what it builds on; and those that circle, or build on what does."""
    users: dict[str, list[str]] = {}
    missing: dict[str, int] = {}
    for name, node in graph.items():
        used = [other for other in node.uses if other in graph]
        missing[name] = len(used)
        for other in used:
            users.setdefault(other, []).append(name)
    order = [name for name, n in missing.items() if not n]
    for name in order:  # grows meanwhile
        for user in users.get(name, ()):
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    return order, [name for name, n in missing.items() if n]


def _heaviest(graph: Mapping[str, Nesting], order: Sequence[str], circling: Sequence[str]) -> int:
    """The weight of the heaviest chain; all that circle count as links of one."""
    total: dict[str, int] = {}
    for name in order:
        node = graph[name]
        total[name] = node.weight + max((total[used] for used in node.uses if used in graph), default=0)
    return max(total.values(), default=0) + sum(graph[name].weight for name in circling)


# -- a client's own words --------------------------------------------------------------------------------------------


def refuse_length(text: str, field: str | None) -> None:
    """Raises: `InvalidRequest` for a client's grammar that is too long."""
    if len(text) > MAX_CLIENT_CHARACTERS:
        what = field or "the grammar"
        raise InvalidRequest(
            f"{what} is too long: {len(text)} characters, at most {MAX_CLIENT_CHARACTERS}", field=field
        )


def regex_to_lark(pattern: str, *, root: str = "start", field: str | None = None) -> str:
    """The rule `root` for a regular expression that the whole text must match (Rust's syntax; no lookaround).

    Raises: `InvalidRequest`. Whether it is an expression at all is only looked at by `Constrainer.check`.
    """
    refuse_length(pattern, field)
    if not pattern:
        return f'{root}: ""\n'
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise InvalidRequest(f"{field or 'the pattern'} ends in the middle of an escape", field=field)
    escaped = re.sub(r"\\.|/", lambda found: "\\/" if found.group() == "/" else found.group(), pattern, flags=re.DOTALL)
    return f"{root}: /{escaped}/\n"


def lark_to_rules(lark: str, *, root: str = "start", field: str | None = None) -> str:
    """A client's grammar with every rule renamed, `start` to `root`, so that others can stand beside it.

    Raises: `InvalidRequest`. Whether it is a grammar at all is only looked at by `Constrainer.check`.
    """
    refuse_length(lark, field)
    try:
        all_pieces = list(pieces(lark))
    except UnsupportedGrammar as error:
        raise InvalidRequest(f"{field or 'the grammar'} {error.message}", field=field) from error
    known = [piece for piece in all_pieces if piece.kind != "skip"]
    closers = closing(known)
    own = {_plain(piece.text) for index, piece in enumerate(known) if is_definition(known, index, closers)}

    def renamed(name: str) -> str:
        if name == "start":
            return root
        return f"{root.upper()}_{name}" if name.isupper() else f"{root}_{name}"

    written, nested = "", 0
    for kind, text in all_pieces:
        nested += (text == "[") - (text == "]")
        plain = _plain(text)
        is_own = kind == "name" and plain in own and (not nested or plain.isupper())  # `[lazy]` is an option
        written += renamed(plain) if is_own else text
    return written + "\n"
