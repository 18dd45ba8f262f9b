"""Lark grammars as text: refuses what would harm llguidance, and puts one grammar inside another.

llguidance does bounded work for one token, but not to compile a grammar: a chain of a few thousand rules or `$ref`s
overflows the C stack, which ends the process, and a few patterns that must all match take minutes. Neither raises an
exception. So the text of every client is measured here first. The limits come from experiments: each is at most a
third of the value where the harm began.

The dialect is that of llguidance 1.9: `name: ...`, `%json {...}`, no templates. Nothing is compiled here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.engine.grammar import limits, numbers
from shepherd.engine.grammar.numbers import Path, members, walk

MAX_CHARACTERS = 1 << 20
"""Length of a whole grammar, with the schemas of all tools."""
MAX_CLIENT_CHARACTERS = 1 << 16
"""Length of a client's own grammar or regular expression: some take quadratic time."""
MAX_DEPTH = 600
"""Nesting of rules, brackets and schemas. About 2,400 use up a thread's 8 MiB of stack."""
MAX_MULTIPLE = 100_000
"""The number in a `multipleOf`, without its decimal point: the lexer has one state for each remainder."""
MAX_OPTIONS = 2_000
"""Operators like `?` and `*` in one expression: a row of them takes quadratic time, and gigabytes."""
MAX_JOINT_PATTERNS = 12
"""Patterns under one `allOf`: if all must match the same text, the work is exponential in their number."""
MAX_SCHEMA_VALUES = 20_000
"""Values (objects, arrays and all inside) of one schema: about 1,000 detailed properties. So many take half a second
per compilation, and a schema with a fault is compiled several times to find the part that is wrong."""
MAX_OPTIONAL = 2_000
"""Optional properties of one object: two of them need a state. 10,000 took two minutes."""
MAX_JOINED_VALUES = 5_000
"""Values that all `allOf` of a schema join, references followed each time: they are copied that often."""
MAX_PATTERN_PROPERTIES = 64
"""Of one object; each pair is compared."""

MAX_WAYS = 1_000
"""Ways to count nested repetitions: `(a{1,30}){1,30}` has 900. At about 2,000 answers began to fail."""
MAX_WAYS_COSTLY = 200
"""The same for patterns in a schema, where each character has several spellings and 700 were too many, and for repeated
rules, where 900 made a token take a second."""
MAX_NESTED_LENGTH = 100_000
"""Length of exact nested repetitions: `(a{100}){100}` is 10,000 long. A million took seconds."""

TOO_MANY_WAYS = f"nests repetitions: more than {MAX_WAYS:,} ways to count, like the 10,000 of (a{{1,100}}){{1,100}}"
TOO_MANY_WAYS_COSTLY = TOO_MANY_WAYS.replace(f"{MAX_WAYS:,}", f"{MAX_WAYS_COSTLY:,}")
TOO_LONG_REPEATED = f"nests repetitions that multiply to more than {MAX_NESTED_LENGTH:,}"
TOO_MANY_OPTIONS = f"has too many signs like ? and * in one expression; at most {MAX_OPTIONS:,}"


class UnsupportedGrammar(Exception):
    """A grammar that llguidance must not compile; `path` leads to the part, within a JSON document."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class Piece(NamedTuple):
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
    """The tokens of a grammar, which joined are its text; a JSON document includes the keyword before it.

    Raises: `UnsupportedGrammar` for a document that is nested too deeply.
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
                pass  # llguidance reports the fault
        yield Piece(str(found.lastgroup), lark[start:at])


def is_definition(known: Sequence[Piece], index: int, closers: Mapping[int, int]) -> bool:
    """Whether the name at `index` begins the definition of a rule. `known` has no blanks; `closers` is from `closing`.

    A definition need not begin a line: some `%` statements may precede it.
    """
    at = index + 1
    while at in closers:  # over `[lazy, suffix="x"]`
        at = closers[at] + 1
    return known[index].kind == "name" and at < len(known) and known[at].text == ":"


def closing(known: Sequence[Piece]) -> dict[int, int]:
    """For each `[` the index of its `]`, or the end of all for one that is not closed."""
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
    """Check that llguidance can compile a grammar without harm.

    Raises: `UnsupportedGrammar`, with the path inside a JSON document if the fault is there.
    """
    if len(lark) > MAX_CHARACTERS:
        raise UnsupportedGrammar(f"is too long: {len(lark)} characters, at most {MAX_CHARACTERS}")
    if lark.lstrip().startswith("{"):  # llguidance has another language, in JSON, whose limits are not known
        raise UnsupportedGrammar("is JSON, not Lark")
    known = [piece for piece in pieces(lark) if piece.kind != "skip"]
    closers = closing(known)
    rules: dict[str, Nesting] = {}
    name, depth = "", 0
    for index, (kind, text) in enumerate(known):
        rule = rules.setdefault(name, Nesting())
        if kind == "name" and is_definition(known, index, closers):
            if [piece.text for piece in known[index + 1 : index + 3]] == [":", ":"]:
                rule.uses[_plain(text)] += 1  # a rule with a parameter, or its use: it counts as both
            name, depth = _plain(text), 0
            continue
        rule.body.append(known[index])
        if kind == "name":
            rule.uses[_plain(text)] += 1
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
    order, circling = sort_by_use({name: rule.uses for name, rule in rules.items()})
    if _heaviest(rules, order, circling) > MAX_DEPTH:
        raise UnsupportedGrammar("is nested too deeply: too many rules build on each other")
    _check_ends(rules, circling)
    _check_repeats(rules, [*order, *circling])
    for name in order:  # a terminal is one expression, with all terminals that it uses
        rule = rules[name]
        rule.options += sum(n * rules[used].options for used, n in rule.uses.items() if used in rules)
        if name.isupper() and rule.options > MAX_OPTIONS:
            raise UnsupportedGrammar(TOO_MANY_OPTIONS)


def _check_ends(rules: Mapping[str, Nesting], circling: Sequence[str]) -> None:
    """Refuse rules that always need themselves: some make llguidance hang. Raises: `UnsupportedGrammar`."""
    endless, n_before = set(circling), -1
    while endless and len(endless) != n_before:
        n_before = len(endless)
        endless = {name for name in endless if not _may_end(rules[name].body, endless)}
    if endless:
        raise UnsupportedGrammar(f"has a rule that no text can satisfy, as it always needs itself: {min(endless)}")


def _may_end(body: Sequence[Piece], endless: Collection[str]) -> bool:
    """Whether a rule has an alternative without any of `endless`."""
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


def _check_repeats(rules: Mapping[str, Nesting], order: Iterable[str]) -> None:
    """Measure the repetitions of rules and terminals, in an order where a rule follows those it uses.

    Raises: `UnsupportedGrammar`.
    """
    costs: dict[str, limits.Cost] = {}
    for name in order:
        is_terminal = name.isupper()
        costs[name] = limits.cost(_items(rules[name].body, costs, is_terminal=is_terminal))
        _refuse_cost(costs[name], most=MAX_WAYS if is_terminal else MAX_WAYS_COSTLY)
    for rule in rules.values():
        for piece in rule.body:
            if piece.kind == "regex":
                _refuse_cost(_cost_of(piece))


def _items(body: Sequence[Piece], costs: Mapping[str, limits.Cost], *, is_terminal: bool) -> Iterator[limits.Item]:
    """A rule in the form that `limits` reads. A terminal is one expression; a rule matches terminals one by one."""
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
    """Raises: `UnsupportedGrammar` for nested repetitions above the limits."""
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
    """The depth of a JSON schema, references followed.

    Raises: `UnsupportedGrammar`, with the path of the part that is above a limit.
    """
    if (n := n_values(schema)) > MAX_SCHEMA_VALUES:
        raise UnsupportedGrammar(
            f"has {n} values in it; at most {MAX_SCHEMA_VALUES} are accepted: make it smaller, or split it"
        )
    has_ids, n_joined = False, 0
    for path, node in walk(schema):
        if isinstance(node, Mapping):
            has_ids |= bool(path) and "$id" in node  # references below it are relative to it
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
            # A reference that cannot be followed may lead anywhere, so it counts as the whole schema.
            targets[pointer] = _weighed(found[0]) if found else anywhere
            waiting += targets[pointer].uses
    order, circling = sort_by_use({pointer: target.uses for pointer, target in targets.items()})
    deepest = _heaviest(targets, order, circling)
    if deepest > MAX_DEPTH:
        raise UnsupportedGrammar(f"is nested too deeply, its references included; at most {MAX_DEPTH} levels")
    return deepest


def with_safe_bounds(lark: str) -> str:
    """A grammar with the bounds of its schemas moved to numbers that llguidance can enforce."""
    if not numbers.LARGE.search(lark):
        return lark
    return "".join(
        "%json " + numbers.with_safe_bounds(piece.text.removeprefix("%json"))
        if piece.text.startswith("%json")
        else piece.text
        for piece in pieces(lark)
    )


def n_values(document: Any) -> int:
    """Number of values in a JSON document, nested ones included. What closes an object, as we do ourselves, is none."""
    waiting, n = [document], 0
    while waiting:
        node = waiting.pop()
        inside = node.values() if isinstance(node, Mapping) else node if isinstance(node, (list, tuple)) else ()
        n += len(inside) - (isinstance(node, Mapping) and node.get("additionalProperties") is False)
        waiting += [value for value in inside if isinstance(value, (Mapping, list, tuple))]
    return n


def find(schema: Any, pointer: str) -> list[Any]:
    """The target of a local reference (`#/$defs/x`) in a list; empty if there is none."""
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
    """Check one object of a schema; returns the number of values that its `allOf` joins.

    Raises: `UnsupportedGrammar`.
    """
    required = node.get("required")
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set[str]()
    named, pattern, guidance = node.get("properties"), node.get("pattern"), node.get("x-guidance")
    n_optional = sum(name not in needed for name in named) if isinstance(named, Mapping) else 0
    names = [str(name) for name, _ in members(node.get("patternProperties"))]
    spaces = guidance.get("whitespace_pattern") if isinstance(guidance, Mapping) else None
    too_many = f"has {n_optional} properties that are not required; at most {MAX_OPTIONAL} are accepted:"
    for is_fault, fault, where in (
        (n_optional > MAX_OPTIONAL, f"{too_many} name more of them in required, or send fewer", "properties"),
        (isinstance(pattern, str) and _n_options(pattern) > MAX_OPTIONS, TOO_MANY_OPTIONS, "pattern"),
        (
            len(names) > MAX_PATTERN_PROPERTIES,
            f"has too many members; at most {MAX_PATTERN_PROPERTIES}",
            "patternProperties",
        ),
        (_n_options("".join(names)) > MAX_OPTIONS, TOO_MANY_OPTIONS, "patternProperties"),
    ):
        if is_fault:
            raise UnsupportedGrammar(fault, (*path, where))
    for expression, where in ((pattern, "pattern"), *((n, "patternProperties") for n in names), (spaces, "x-guidance")):
        if isinstance(expression, str):
            _refuse_cost(limits.of_regex(expression), (*path, where), most=MAX_WAYS_COSTLY)
    if "allOf" not in node:
        return 0
    n_patterns, n_joined = _joined(schema, node["allOf"])
    if n_patterns > MAX_JOINT_PATTERNS:
        raise UnsupportedGrammar(f"joins too many patterns; at most {MAX_JOINT_PATTERNS}", (*path, "allOf"))
    return n_joined


def _joined(schema: Any, node: Any) -> tuple[int, int]:
    """Number of patterns and values in a part of a schema and its references; stops counting above the limits."""
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


@dataclass(slots=True)
class Nesting:
    """The own depth of a rule or schema, and how often it uses which others."""

    weight: int = 1
    options: int = 0
    uses: Counter[str] = field(default_factory=Counter)
    body: list[Piece] = field(default_factory=list)
    """Of a rule."""


def _weighed(node: Any, *, whole: bool = False) -> Nesting:
    """The nesting of a part of a schema; definitions count where they are used, or here if `whole`."""
    result = Nesting()
    waiting = [(1, node)]
    while waiting:
        depth, part = waiting.pop()
        result.weight = max(result.weight, depth)
        if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
            result.uses[part["$ref"]] += 1
        for key, child in members(part):
            if whole or key not in ("$defs", "definitions"):
                waiting.append((depth + 1, child))
    return result


def sort_by_use(uses: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """All names in an order where each follows those it uses; and the names that use themselves, directly or not, with
    all names that use those. Unknown names are ignored."""
    users: dict[str, list[str]] = {}
    missing: dict[str, int] = {}
    for name in uses:
        used = [other for other in uses[name] if other in uses]
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
    """The depth of the deepest chain; all circular names count as links of one chain."""
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
    """The rule `root` for a regular expression that matches the whole text (Rust's syntax; no lookaround).

    Raises: `InvalidRequest`. `Constrainer.check` later finds errors in the expression itself.
    """
    refuse_length(pattern, field)
    if not pattern:
        return f'{root}: ""\n'
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise InvalidRequest(f"{field or 'the pattern'} ends in the middle of an escape", field=field)
    escaped = re.sub(r"\\.|/", lambda found: "\\/" if found.group() == "/" else found.group(), pattern, flags=re.DOTALL)
    return f"{root}: /{escaped}/\n"


def lark_to_rules(lark: str, *, root: str = "start", field: str | None = None) -> str:
    """A client's grammar with all rules renamed, `start` to `root`, so that it can be joined with others.

    Raises: `InvalidRequest`. `Constrainer.check` later finds errors in the grammar itself.
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
