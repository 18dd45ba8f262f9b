"""What of a JSON schema an answer is held to, keyword by keyword, and what has to be left out.

    schema ─ fit ─▶ Fitted(schema, left_out)      every answer to the new schema satisfies what is kept of the old one

A schema is rewritten where the library lacks a keyword but has others that say the same, or something narrower: an
answer may be held to more than its schema says, never to less without a name in `left_out`. `KEYWORDS` is the whole
table; keywords that are not in it say nothing about a value (titles, examples, vendors' own words).

Pure; nothing is compiled here. Whether a pattern can be read, and whether the members of a `oneOf` exclude each other,
the library finds out later (`mask.fit_schema`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from shepherd.core.dataclasses import dataclass, field
from shepherd.engine.grammar.lark import MAX_OPTIONAL, MAX_SCHEMA_VALUES, UnsupportedGrammar, find, n_values
from shepherd.engine.grammar.numbers import NAMED, Path, is_named, walk

Node = dict[str, Any]
Rule = Callable[[Node, str, "Rewriter"], bool]
"""Rewrites this keyword of a node; False: it must be left out."""


@dataclass(frozen=True, slots=True)
class Fitted:
    schema: Any
    left_out: tuple[Path, ...] = ()
    """The keywords of the given schema that answers are not held to."""


class Keyword(NamedTuple):
    treatment: Literal["kept", "kept in part", "left out"]
    """`kept`: always; `kept in part`: in the forms that the documentation names, else left out."""
    rule: Rule | None = None
    """None: the library reads it as it is."""


def fit(schema: Any) -> Fitted:
    """The schema that answers are held to. Raises: `UnsupportedGrammar` for one that is nested too deeply, or that
    allows nothing."""
    if not isinstance(schema, Mapping):
        return Fitted(schema)
    rewriter = Rewriter(schema)
    try:
        fitted = rewriter.fitted(schema, ())
    except RecursionError:
        raise UnsupportedGrammar("is nested too deeply") from None
    return Fitted(fitted, tuple(dict.fromkeys(rewriter.left_out)))


@dataclass(slots=True)
class Rewriter:
    document: Mapping[str, Any]
    left_out: list[Path] = field(default_factory=list)
    path: Path = ()
    """Of the node that a rule is rewriting."""
    _names: dict[tuple[str, str | bool], list[Path]] | None = None
    _n_copied: int = 0
    _n_visited: int = 0
    _ending: set[str] = field(default_factory=set)
    """References that a value can satisfy."""

    def fitted(self, node: Any, path: Path) -> Any:
        """A copy of the part of a schema at `path`."""
        while isinstance(node, Moved):
            node, path = node
        if not isinstance(node, Mapping):
            return node
        node = {key: value for key, value in node.items() if value is not None or key not in _NEVER_NULL}
        self.path = path
        if _is_anything(node.get("not", False)):
            if not path:
                raise UnsupportedGrammar("allows nothing: no answer could satisfy it", ("not",))
            return False
        for key, (_, rule) in KEYWORDS.items():
            if rule is None or key not in node:
                continue
            trial = dict(node)
            try:
                is_kept = rule(trial, key, self)
            except (TypeError, ValueError, KeyError, AttributeError):
                continue  # malformed: the library names what is wrong
            node = trial
            if not is_kept:
                node.pop(key, None)
                self.left_out.append((*path, key))
        for key, value in node.items():  # one frame for each level: some schemas are deep
            if key in NAMED and isinstance(value, Mapping):
                made: dict[str, Any] = {}
                for name, each in value.items():
                    made[name] = self.fitted(each, (*path, key, name))
                node[key] = made
            elif key in _LISTS and isinstance(value, list):
                items: list[Any] = []
                for n, each in enumerate(value):
                    items.append(self.fitted(each, (*path, key, n)))
                node[key] = items
            elif key in _SCHEMA:
                node[key] = self.fitted(value, (*path, key))
        return node

    def named(self, keyword: str, name: str | bool) -> list[Path]:
        """Where the document has a keyword with this value."""
        if self._names is None:
            self._names = {}
            for path, value in walk(self.document):
                if path and path[-1] in _NAMES and isinstance(value, str | bool):
                    self._names.setdefault((str(path[-1]), value), []).append(path[:-1])
        return self._names.get((keyword, name), [])

    def has_ids(self) -> bool:
        """Whether the document has parts that are documents of their own."""
        self.named("$id", "")
        assert self._names is not None
        return any(
            key == "$id" and not str(value).startswith("#") and places != [()]
            for (key, value), places in self._names.items()
        )

    def has_room(self, n_copies: int, node: Any) -> bool:
        """Whether a part may be copied so often. It is deducted either way."""
        if self._n_copied <= MAX_SCHEMA_VALUES:
            self._n_copied += n_copies * n_values(node)
        return self._n_copied <= MAX_SCHEMA_VALUES

    def ends(self, node: Any, followed: frozenset[str] = frozenset()) -> bool:
        """Whether a value of finite size can satisfy a part of the schema, as far as its references go: one that needs
        itself has none. `followed`: the references that led here. Without an answer after `MOST_VISITED` parts."""
        self._n_visited += 1
        if not isinstance(node, Mapping) or self._n_visited > MOST_VISITED:
            return True
        pointer = node.get("$ref")
        if isinstance(pointer, str) and pointer not in self._ending and (found := find(self.document, pointer)):
            if pointer in followed or not self.ends(found[0], followed | {pointer}):
                return False
            self._ending.add(pointer)
        needed: list[Any] = []
        if node.get("type") == "object" and isinstance(properties := node.get("properties"), Mapping):
            needed += [properties[name] for name in _required(node) if name in properties]
        elif node.get("type") == "array" and isinstance(least := node.get("minItems"), int) and least > 0:
            needed.append(node.get("items"))
        if isinstance(every := node.get("allOf"), list):
            needed += every
        choices = [node[key] for key in ("anyOf", "oneOf") if isinstance(node.get(key), list)]
        return all(self.ends(each, followed) for each in needed) and all(
            not some or any(self.ends(each, followed) for each in some) for some in choices
        )

    def target(self, node: Any) -> tuple[Any, Path]:
        """What a reference leads to, and its path; the node itself if it is none, or leads nowhere."""
        path = self.path
        for _ in range(8):
            if not isinstance(node, Mapping) or not isinstance(pointer := node.get("$ref"), str):
                break
            if {*node} - {"$ref", *_ANNOTATIONS} or not (found := find(self.document, pointer)):
                break
            node, path = found[0], tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
        return node, path


class Moved(NamedTuple):
    """A copy of a part of the schema that stands at another place; faults have the path of the part."""

    node: Any
    path: Path


_NAMES = frozenset({"$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id", "id"})
_ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "discriminator",
})  # fmt: skip
_SCHEMA = frozenset({"items", "additionalItems", "additionalProperties"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
_TOGETHER = frozenset(
    {"allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "$recursiveRef", "if", "dependentSchemas", "not"}
)
"""Keywords that may name properties and items beside those of the node itself."""


def _is_anything(schema: Any) -> bool:
    """Whether a schema allows every value."""
    return schema is True or (isinstance(schema, Mapping) and not {*schema} - _ANNOTATIONS)


def _required(node: Mapping[str, Any]) -> list[str]:
    required = node.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _joined(node: Node, *schemas: Any) -> None:
    """The node with other schemas that must hold, too."""
    given = node.get("allOf")
    node["allOf"] = [*(given if isinstance(given, list) else ()), *schemas]


# -- what the library finds out ------------------------------------------------------------------------------------

_BEYOND: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"the pattern cannot be read", ("pattern", "patternProperties")),
    (r"its patterns together are too complex", ("pattern", "patternProperties")),
    (r"the format ", ("format",)),
    (r"oneOf must ", ("oneOf",)),
    (r"patternProperty regexes .* are not disjoint", ("patternProperties",)),
    (r"min/maxProperties only", ("minProperties", "maxProperties")),
    (r"references to other documents", ("$ref",)),
)
"""Faults of a schema that say that it is beyond the library, not that it is wrong, and the keywords that have them."""


def beyond(schema: Any, path: Path, fault: str) -> list[Path]:
    """The keywords to leave out for a fault that was found at `path`; empty if the schema itself is wrong.

    Where the fault is not at one of its keywords, it comes from several of them, and all in the schema are left out.
    """
    keys = next((keys for pattern, keys in _BEYOND if re.match(pattern, fault)), ())
    keys = keys or tuple(re.findall(r'"(\S+?)"', fault) if fault.endswith("is not supported") else ())
    if anchor := re.match(r"anchor '(.+)' does not exist", fault):  # it may be one of a document in the document
        is_there = any(value in (anchor[1], f"#{anchor[1]}") for _, value in walk(schema) if isinstance(value, str))
        keys = ("$ref",) if is_there else ()
    if "patternProperties" in path[-2:]:
        path = path[: path.index("patternProperties") + 1]
    if keys and path and path[-1] in (*keys, "$ref"):  # a reference may lead to another document that the library knows
        found = [path]
    else:
        found = [where for where, _ in walk(schema) if where and where[-1] in keys and not is_named(where[:-1])]
    if fault.startswith("the pattern ") and not all(_is_pattern(at(schema, where)) for where in found):
        return []
    return found


_OTHER_WORDS = re.compile(r"\\(?:[pPu]\{\w*\}|k<\w+>)|\(\?<(?=[A-Za-z])")
"""Parts of ECMAScript's expressions that Python writes otherwise, or not at all."""


def _is_pattern(value: Any) -> bool:
    """Whether all expressions of a keyword can be read by another library: then they are right, and beyond ours."""
    try:
        for expression in value if isinstance(value, Mapping) else (value,):
            re.compile(_OTHER_WORDS.sub(lambda found: "(" if found.group().startswith("(") else "x", expression))
    except (re.error, TypeError, RecursionError, OverflowError):
        return False
    return True


def reason(key: object, value: Any) -> str:
    """Why a keyword is left out."""
    match key:
        case "format":
            return f"the format {value!r} is not supported"
        case "pattern" | "patternProperties":
            return "look-around is supported only as look-ahead at the beginning of a pattern"
        case "$ref" if str(value).startswith("#"):
            return f"what {value!r} leads to needs itself, so that no value satisfies it"
        case _:
            return f'"{key}" is not supported here'


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def replaced(document: Any, path: Path, value: Any) -> Any:
    """A copy with another value at `path`; the rest is shared."""
    if not path:
        return value
    copy: Any = dict(document) if isinstance(document, Mapping) else list(document)
    copy[path[0]] = replaced(document[path[0]], path[1:], value)
    return copy


def without(schema: Any, path: Path) -> Any:
    """A schema without one keyword, or with a part of it that allows anything. Of `oneOf` it keeps that one member
    must hold."""
    *parents, last = path
    parent = at(schema, tuple(parents))
    if isinstance(parent, Mapping) and not is_named(tuple(parents)):
        rest = {key: value for key, value in parent.items() if key != last}
        if last == "oneOf":
            _joined(rest, {"anyOf": parent[last]}) if "anyOf" in rest else rest.update(anyOf=parent[last])
        return replaced(schema, tuple(parents), rest)
    return replaced(schema, path, True)


# -- the rules -----------------------------------------------------------------------------------------------------

MAX_LOOKS = 6
"""Look-aheads of one pattern: patterns that must match the same text cost more than their sum."""
MOST_VISITED = 10_000
"""Parts of a schema that are visited to find out whether references end."""
MAX_NAME = 1_000
"""Characters of a property's name that are counted."""
_LOOK = re.compile(r"\(\?(?P<sign>[=!])")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_LETTER = r"(?P<letter>\[\^?\]?(?:\\.|[^\]\\])+\]|\\[sSdDwW]|\\[^\w\s]|[\w@-])"
_REFUSED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"\^?{_LETTER}\*\$"), "{other}"),
    (re.compile(rf"\^?{_LETTER}"), "^(?:{other}|$)"),
    (re.compile(rf"\^?\.\*{_LETTER}(?P=letter)"), "^(?:{letter}?{other})*{letter}?$"),
)
"""What a negative look-ahead may refuse: nothing but these letters, one at the beginning, two of them in a row."""


def split_look_ahead(pattern: str) -> list[str] | None:
    """Patterns without look-ahead that together say the same; None if there are none.

    A pattern may begin with look-aheads: `^(?=A)(?!^[b]*$)C` is `^(?:A)`, `[^b]` and `^C`. Those of pydantic's decimals
    and of Zod's addresses are such.
    """
    if not pattern.startswith("^"):
        return None
    rest, found = pattern[1:], list[str]()
    while (look := _LOOK.match(rest)) and len(found) < MAX_LOOKS:
        end = next((at for at, sign, depth in _places(rest) if sign == ")" and depth == 0), None)
        if end is None:
            return None
        inner, rest = rest[look.end() : end], rest[end + 1 :]
        if look["sign"] == "=":
            found.append(f"^(?:{inner})")
        else:
            refused = [(one["letter"], said) for refused, said in _REFUSED if (one := refused.fullmatch(inner))]
            if not refused:
                return None
            letter, said = refused[0]
            found.append(said.format(letter=letter, other=_negated(letter)))
    has_choice = any(sign == "|" and depth == 0 for _, sign, depth in _places(rest))
    if not found or any(map(_LOOK_AROUND.search, (*found, rest))) or has_choice:
        return None
    return [*found, f"^{rest}"]


_CONTROL = re.compile(r"\\(?:c([A-Za-z])|.)", re.DOTALL)


def _as_number(escape: re.Match[str]) -> str:
    """ECMAScript's `\\cA` as a number."""
    return f"\\x{ord(escape[1]) % 32:02x}" if escape[1] else escape[0]


def _negated(letters: str) -> str:
    """The expression of any other letter."""
    if re.fullmatch(r"\\[sSdDwW]", letters):
        return letters.swapcase()
    if not letters.startswith("["):
        return f"[^{letters}]"
    return "[" + letters[2:] if letters.startswith("[^") else "[^" + letters[1:]


def _places(pattern: str) -> Iterator[tuple[int, str, int]]:
    """The brackets and bars of a regular expression, with their place and the depth around them."""
    depth, in_class = 0, False
    for found in re.finditer(r"\\.|\[\^?\]?|[\[\]()|]", pattern, re.DOTALL):
        sign = found.group()
        if in_class:
            in_class = sign != "]"
        elif sign.startswith("["):
            in_class = True
        elif sign in ("(", ")", "|"):
            depth -= sign == ")"
            yield found.start(), sign, depth
            depth += sign == "("


def _pattern(node: Node, *_: object) -> bool:
    pattern = node["pattern"] = _CONTROL.sub(_as_number, node["pattern"])
    if not _LOOK_AROUND.search(pattern):
        return True
    parts = split_look_ahead(pattern)
    if parts is None:
        return False
    node["pattern"] = parts.pop()
    _joined(node, *({"pattern": part} for part in parts))
    return True


_HEX = "[0-9a-f]"
_FORMATS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"format": name} for name in (
        "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown",
    )},
    "guid": {"format": "uuid"},
    "url": {"format": "uri"},
    **{
        f"uuid{version}": {"pattern": f"^{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}$"}
        for version in range(1, 9)
    },
    **{
        f"{sign}int{bits}": {"minimum": low, "maximum": high}
        for bits in (8, 16, 32)
        for sign, low, high in (("", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), ("u", 0, 2**bits - 1))
    },
    **{name: {} for name in ("int64", "integer", "float", "double", "decimal", "number", "single")},
    "uint64": {"minimum": 0},
}  # fmt: skip
"""What a format says in keywords that the library has. A format of numbers says nothing of other values."""


def _format(node: Node, *_: object) -> bool:
    name = node["format"]
    if not isinstance(name, str):
        return True
    if (said := _FORMATS.get(name)) is None or {*said} & node.keys() - {"format", "minimum", "maximum"}:
        return False
    if "format" in said:
        node["format"] = said["format"]
        return True
    del node["format"]
    for key, value in said.items():
        if key in ("minimum", "maximum"):
            given = node.get(key)
            bounds = [value, given] if isinstance(given, int | float) and not isinstance(given, bool) else [value]
            node[key] = max(bounds) if key == "minimum" else min(bounds)
        else:
            node[key] = value
    return True


def _property_names(node: Node, _key: str, rewriter: Rewriter) -> bool:
    """Names from a list become properties, and names with a pattern properties of that pattern."""
    names, _ = rewriter.target(node["propertyNames"])
    said = {*names} - _ANNOTATIONS if isinstance(names, Mapping) else set[str]()
    if _is_anything(names) or (said == {"type"} and names["type"] == "string"):
        del node["propertyNames"]
        return True
    if not isinstance(names, Mapping) or {"properties", "patternProperties"} & node.keys() or _TOGETHER & node.keys():
        return False
    value = node.get("additionalProperties", True)
    value = value if isinstance(value, bool) else Moved(value, (*rewriter.path, "additionalProperties"))
    listed = names.get("enum", [names["const"]] if "const" in names else None)
    if said <= {"type", "enum", "const"} and isinstance(listed, list):
        if len(listed) > MAX_OPTIONAL or not rewriter.has_room(len(listed), node):
            return False
        node["properties"] = {name: value for name in listed if isinstance(name, str)}
    elif said <= {"type", "pattern"} and isinstance(names.get("pattern"), str) and "(?" not in names["pattern"]:
        node["patternProperties"] = {names["pattern"]: value}
    elif said <= {"type", "minLength", "maxLength"}:
        least, most = names.get("minLength", 0), names.get("maxLength", "")
        if max(least, most or 0) > MAX_NAME:
            return False
        node["patternProperties"] = {f"^[\\s\\S]{{{least},{most}}}$": value}
    else:
        return False
    node["additionalProperties"] = False
    del node["propertyNames"]
    return True


def _pattern_properties(node: Node, *_: object) -> bool:
    """Look-ahead in a name's pattern cannot be split. Without the pattern such names are additional ones."""
    patterns = node["patternProperties"]
    return not isinstance(patterns, Mapping) or not any(map(_LOOK_AROUND.search, map(str, patterns)))


def _unique_items(node: Node, *_: object) -> bool:
    if node["uniqueItems"] is not True or (isinstance(most := node.get("maxItems"), int) and most <= 1):
        del node["uniqueItems"]
        return True
    return False


def _one_of(node: Node, _: str, rewriter: Rewriter) -> bool:
    """Members that a property tells apart exclude each other if they require it: pydantic does not require a `kind`
    that has a default."""
    given = node["oneOf"]
    if not isinstance(given, list) or len(given) < 2:
        return True
    found = [rewriter.target(member) for member in given]
    if any(not isinstance(member, Mapping) or not rewriter.has_room(1, member) for member, _ in found):
        return True
    told = [_told(member, rewriter) for member, _ in found]
    for name in told[0]:
        values = [one.get(name) for one in told]
        if len({repr(value) for value in values}) == len(values) and None not in values:
            node["oneOf"] = [
                member
                if name in _required(dict(target))
                else Moved({**target, "required": [*_required(dict(target)), name]}, path)
                for member, (target, path) in zip(given, found, strict=True)
            ]
            break
    return True


def _told(member: Mapping[str, Any], rewriter: Rewriter) -> dict[str, Any]:
    """The properties of an object that have one value only, with that value."""
    found: dict[str, Any] = {}
    properties = member.get("properties")
    if _TOGETHER & member.keys() or member.get("type") != "object" or not isinstance(properties, Mapping):
        return {}
    for name, value in properties.items():
        value, _ = rewriter.target(value)
        if isinstance(value, Mapping):
            listed = value.get("enum", [value["const"]] if "const" in value else [])
            if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], str | int):
                found[name] = listed[0]
    return found


def _properties_count(node: Node, key: str, _: Rewriter) -> bool:
    """The library counts properties only where all that have a name are required."""
    _count(node, key)
    names, required, bound = node.get("properties"), _required(node), node[key]
    if not isinstance(names, Mapping) or {*names} <= {*required} or not isinstance(bound, int | float):
        return True
    if key == "minProperties" and len(required) >= bound:
        del node[key]
        return True
    is_alone = not (_TOGETHER | {"patternProperties"}) & node.keys() and {*required} <= {*names}
    is_closed = is_alone and node.get("additionalProperties", False) is False
    if key == "maxProperties" and len(names) <= bound and is_closed:
        node["additionalProperties"] = False
        del node[key]
        return True
    return False


def _dependent_required(node: Node, *_: object) -> bool:
    given, required = node["dependentRequired"], _required(node)
    if not isinstance(given, Mapping) or not all(isinstance(names, list) for names in given.values()):
        return False
    given = {name: names for name, names in given.items() if names}
    for _n in given:  # one may need another
        for name in [name for name in given if name in required]:
            required += [str(each) for each in given[name] if each not in required]
    if {*given} <= {*required}:
        del node["dependentRequired"]
        if required:
            node["required"] = required
        return True
    return False


def _dependent_schemas(node: Node, _: str, rewriter: Rewriter) -> bool:
    given = node["dependentSchemas"]
    if not isinstance(given, Mapping):
        return False
    given = {name: schema for name, schema in given.items() if not _is_anything(schema)}
    if not {*given} <= {*_required(node)}:
        return False
    del node["dependentSchemas"]
    if given:
        word = "dependencies" if "dependencies" in node else "dependentSchemas"
        _joined(node, *(Moved(schema, (*rewriter.path, word, name)) for name, schema in given.items()))
    return True


def _dependencies(node: Node, _: str, rewriter: Rewriter) -> bool:
    """The older word for both."""
    given = node["dependencies"]
    if not isinstance(given, Mapping) or {"dependentRequired", "dependentSchemas"} & node.keys():
        return False
    lists = {name: [value] if isinstance(value, str) else value for name, value in given.items()}
    trial = {
        **node,
        "dependentRequired": {name: value for name, value in lists.items() if isinstance(value, list)},
        "dependentSchemas": {name: value for name, value in lists.items() if not isinstance(value, list)},
    }
    if not (_dependent_required(trial) and _dependent_schemas(trial, "", rewriter)):
        return False
    del trial["dependencies"]
    node.clear()
    node.update(trial)
    return True


_TYPES = ("null", "boolean", "number", "string", "array", "object")


def _not(node: Node, *_: object) -> bool:
    """Kept where it takes away types, or values of an `enum`."""
    given = node["not"]
    if given is False:
        del node["not"]
        return True
    if not isinstance(given, Mapping):
        return False
    said = {*given} - _ANNOTATIONS
    if said == {"type"}:
        gone = given["type"] if isinstance(given["type"], list) else [given["type"]]
        kinds = node.get("type", list(_TYPES))
        kinds = kinds if isinstance(kinds, list) else [kinds]
        left = [kind for kind in kinds if kind not in gone and not (kind == "integer" and "number" in gone)]
        if not left or not {*gone} <= {*_TYPES, "integer"} or ("integer" in gone and "number" in left):
            return False
        node["type"] = left
    elif said in ({"const"}, {"enum"}) and isinstance(node.get("enum"), list):
        gone = given["enum"] if "enum" in given else [given["const"]]
        if not isinstance(gone, list):
            return False
        taken = {_as_json(value) for value in gone}
        if not (left := [value for value in node["enum"] if _as_json(value) not in taken]):
            return False
        node["enum"] = left
    else:
        return False
    del node["not"]
    return True


def _as_json(value: Any) -> str:
    """A text that two values share if they are equal in JSON: 1 is 1.0 there, and not True."""
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{key!r}:{_as_json(each)}" for key, each in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_as_json, value)) + "]"
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)


def _if(node: Node, _: str, rewriter: Rewriter) -> bool:
    condition = node["if"]
    branches = {key: node.get(key, True) for key in ("then", "else")}
    if all(map(_is_anything, branches.values())):
        chosen: Any = True
    elif _is_anything(condition) or condition is False:
        key = "else" if condition is False else "then"
        chosen = Moved(branches[key], (*rewriter.path, key)) if not _is_anything(branches[key]) else True
    else:
        node.pop("then", None)
        node.pop("else", None)
        return False
    for word in ("if", "then", "else"):
        node.pop(word, None)
    if chosen is not True:
        _joined(node, chosen)
    return True


def _nothing_alone(node: Node, key: str, _: Rewriter) -> bool:
    """A keyword that says nothing without another one; where that one is, it has decided about both."""
    del node[key]
    return True


def _contains(node: Node, *_: object) -> bool:
    is_free = node.get("minContains", 1) == 0 and "maxContains" not in node
    for key in ("contains", "minContains", "maxContains") if is_free else ("minContains", "maxContains"):
        node.pop(key, None)
    return is_free


def _unevaluated(node: Node, key: str, rewriter: Rewriter) -> bool:
    """Where no other schema applies to the value, what is not evaluated is what has no name or place of its own."""
    given, beside = node[key], "items" if key == "unevaluatedItems" else "additionalProperties"
    if not _is_anything(given):
        if (_TOGETHER | {"contains"}) & node.keys():
            return False
        given = given if isinstance(given, bool) else Moved(given, (*rewriter.path, key))
        node.setdefault("additionalItems" if isinstance(node.get(beside), list) else beside, given)
    del node[key]
    return True


_SCHEMA_OF_SCHEMAS = re.compile(r"https?://json-schema\.org/(draft-0[467]|draft/20(19-09|20-12))/schema#?")


def _schema(node: Node, *_: object) -> bool:
    """A vocabulary of one's own is not read."""
    if not _SCHEMA_OF_SCHEMAS.fullmatch(node["$schema"]):
        del node["$schema"]
    return True


def _ref(node: Node, _: str, rewriter: Rewriter) -> bool:
    """A name becomes a path, where it is the name of one place. A reference to what needs itself allows nothing."""
    name = node["$ref"].removeprefix("#")
    if node["$ref"].startswith("#") and name and not name.startswith("/"):
        places = rewriter.named("$anchor", name) + rewriter.named("$dynamicAnchor", name)
        places += rewriter.named("$id", f"#{name}") + rewriter.named("id", f"#{name}")
        if len(places) == 1 and not rewriter.has_ids():
            node["$ref"] = _pointer(places[0])
    return rewriter.ends({"$ref": node["$ref"]})


def _dynamic_ref(node: Node, key: str, rewriter: Rewriter) -> bool:
    """A reference that has one place to lead to is like any other."""
    if not node[key].startswith("#") or "$ref" in node or rewriter.has_ids():
        return False
    name = node[key][1:]
    places = rewriter.named(key.replace("Ref", "Anchor"), name or True)
    if not name:  # the whole schema, unless another part of it takes its place
        places = places or [()]
    if len(places) != 1 or (not name and places != [()]):
        return False
    node["$ref"] = _pointer(places[0])
    del node[key]
    return True


def _pointer(path: Path) -> str:
    return "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _count(node: Node, key: str, *_: object) -> bool:
    """2.0 is 2."""
    if isinstance(node[key], float) and node[key].is_integer():
        node[key] = int(node[key])
    return True


KEYWORDS: Mapping[str, Keyword] = {
    **dict.fromkeys(
        (
            "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum",
            "exclusiveMaximum", "prefixItems", "items", "additionalItems",
            "properties", "required", "additionalProperties", "allOf", "anyOf", "$defs", "definitions", "$anchor",
        ),
        Keyword("kept"),
    ),
    "$schema": Keyword("kept", _schema),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), Keyword("kept", _count)),
    "multipleOf": Keyword("kept in part"),
    "$ref": Keyword("kept in part", _ref),
    **dict.fromkeys(("$dynamicRef", "$recursiveRef"), Keyword("kept in part", _dynamic_ref)),
    **dict.fromkeys(("$dynamicAnchor", "$recursiveAnchor"), Keyword("kept in part", _nothing_alone)),
    "oneOf": Keyword("kept in part", _one_of),
    "pattern": Keyword("kept in part", _pattern),
    "format": Keyword("kept in part", _format),
    "not": Keyword("kept in part", _not),
    "if": Keyword("kept in part", _if),
    **dict.fromkeys(("then", "else"), Keyword("kept in part", _nothing_alone)),
    "dependencies": Keyword("kept in part", _dependencies),
    "dependentRequired": Keyword("kept in part", _dependent_required),
    "dependentSchemas": Keyword("kept in part", _dependent_schemas),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), Keyword("kept in part", _unevaluated)),
    "propertyNames": Keyword("kept in part", _property_names),
    "patternProperties": Keyword("kept in part", _pattern_properties),
    **dict.fromkeys(("minProperties", "maxProperties"), Keyword("kept in part", _properties_count)),
    "contains": Keyword("left out", _contains),
    **dict.fromkeys(("minContains", "maxContains"), Keyword("left out", _nothing_alone)),
    "uniqueItems": Keyword("left out", _unique_items),
}  # fmt: skip
"""In the order in which they are rewritten: what becomes another keyword comes before it."""
MADE_FROM: Mapping[str | int, Sequence[str]] = {
    "patternProperties": ("propertyNames",),
    "additionalProperties": ("unevaluatedProperties", "propertyNames"),
    "items": ("unevaluatedItems",),
    "allOf": ("pattern", "then", "else", "dependentSchemas", "dependencies"),
    "anyOf": ("oneOf",),
    "$ref": ("$dynamicRef", "$recursiveRef"),
    "pattern": ("format",),
}
"""Keywords of a rewritten schema, and those of the given one that they may stand for."""
_NEVER_NULL = KEYWORDS.keys() - {"const"}
"""Keywords for which null says nothing: clients in Go and C# write the fields that they have not set."""
