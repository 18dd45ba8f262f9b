"""The grammar of an output: the family's thoughts and calls, the tools' schemas, the form of the answer.

    thought?  ( answer | call+ )               the answer has a form, or a call is required
    ( thought | text trigger call )*  text     calls are allowed: free text until a call begins, then its schema
    text without a trigger                     calls are forbidden

The grammar is a text in llguidance's variant of Lark. It describes the whole output, with the part that the prompt has
begun and without the end token. A call begins where the scanner begins one (`markup.Where`), so that "use the
<tool_call> tag" stays text here, too.

The lexer of llguidance shapes the grammar. It runs the regular expressions of all that may come in parallel, accepts a
lazy one as soon as it is complete and any other one as late as possible, and never goes back. So free text and the
trigger that ends it are one lazy expression. Free text must not begin like a thought, or the trigger would be found
inside of a thought. Literals are cut behind their blanks: a literal that begins with the whole of another one would
keep the lexer from accepting the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shepherd.core import ToolChoice, ToolSpec
from shepherd.dialects.parse.markup import Block, Markup, Thought
from shepherd.dialects.parse.spelling import Closer, Json, Maybe, OneOf, Part, Pattern, Spelling, Until

Schema = Mapping[str, Any]
Fit = Callable[[ToolSpec, Schema], Schema]
"""The part of a schema, a document of its own, that a grammar can express; the schema stands in calls of this tool."""

BLANKS = r"(\r?\n){1,2}[ \t]{0,32}|[ \t]{1,8}"
"""Between the tokens of JSON: enough to indent it. A model that is stuck writes endless blanks."""
GAP = r"/[ \t\n\r]{1,8}/"
"""Before calls."""
LINES = r"/\n{1,4}/"
"""Before an answer, behind a thought."""
LINE = r"/(?s:(.*\n)?)[ \t\n\r]*/"
"""Text that ends with nothing visible on its last line."""
SPACE = r"/[ \t\n\r]*/"
"""Only ASCII blanks: all others would make the expression large."""

TEXT = "TEXT: /(?s:.*)/"
MAX_HEAD = 100
"""So many characters distinguish the calls of tools where only their names show that they are calls."""


def grammar(
    markup: Markup,
    tools: Sequence[ToolSpec],
    *,
    choice: ToolChoice = "auto",
    parallel: bool = True,
    answer: str | None = None,
    thinks: bool = True,
    ends: Collection[str] = (),
    fit: Fit = lambda tool, schema: schema,
) -> str | None:
    """The grammar of one output; `None` when all text is allowed, or a call is required and no block has a spelling.

    With the choice `none` no call can begin, and text and thoughts are free.

    `answer` are rules in Lark; the one named `answer` is the form of the visible answer (`json_answer`) and is unused
    where a call is required. `parallel` is false for one call at most; a named tool is called exactly once. `thinks`:
    thoughts may come before an answer with a form. `ends` are the texts of the tokens that end an output.
    """
    offered = allowed(tools, choice)
    declared = markup.declared(offered)
    blocks = spelled(markup, declared) if offered else []
    thoughts = written_out(markup)
    writer = Writer(offered, declared, ends, fit, many=parallel and choice in ("auto", "required"))
    if choice not in ("auto", "none"):
        return writer.form(thoughts if thinks else [], blocks[0], None) if blocks else None
    if answer is None and choice == "none":
        return silent(markup, tools)
    if answer is None:
        return writer.text(thoughts, blocks) if blocks else None
    # In one piece: its blank may be the beginning of a thought, too, and the lexer never goes back.
    before, behind = (side and json.dumps(side, ensure_ascii=False) for side in markup.answer)
    form = writer.form(thoughts if thinks else [], blocks[0] if blocks else None, f"{before} answer {behind}")
    return f"{form}\n{answer}"


def json_answer(schema: Schema) -> str:
    return f"answer: %json {document(closed(schema))}"


def literals(markup: Markup) -> str:
    """All literal text that a family writes, in one string: its markers and the fixed parts of its calls."""
    text: Schema = {"type": "string"}
    kinds = {"a": text, "b": {"type": "array", "items": text}, "c": {"type": "object", "properties": {"d": text}}}
    probe = ToolSpec("name", "", {"type": "object", "properties": kinds})
    found = [*markup.openers, *markup.skips, *markup.answer]
    for thought in (*markup.thoughts, *markup.headed):
        found += (thought.opener, *thought.closers)
    for block in (*markup.blocks, *markup.declared((probe,)), *markup.spelled):
        found += (block.opener, *block.closers)
        if block.spelling is not None:
            found += (block.spelling.before, block.spelling.between or "", block.spelling.after)
            found += written(block.spelling.call(probe))
    return "\n".join(found)


def silent(markup: Markup, tools: Sequence[ToolSpec]) -> str | None:
    """The grammar of an output that calls none of these tools; `None` where the family writes no calls."""
    begun = dict.fromkeys(beginnings_of_calls(markup, tools))
    return f"start: NO_CALL\nNO_CALL: TEXT & ~(TEXT {either(map(literal, begun))} TEXT)\n{TEXT}" if begun else None


def beginnings_of_calls(markup: Markup, tools: Sequence[ToolSpec]) -> Iterator[str]:
    """The texts that show that a call begins. Other forms, which models slip into, are text where no call may come.

    Of a header the last word counts: models change the others. Where an opener may open an answer, too, or is no more
    than a bracket, it counts with the name of a tool.
    """
    declared = markup.declared(tools)
    is_headed = bool(markup.headed or markup.spelled)
    own = [block for block in markup.blocks if block.spelling or (block.closers and not is_headed)]
    named = [replace(tool, parameters={}) for tool in tools]
    writer = Writer(named, declared, (), lambda tool, schema: schema, many=False)
    for block in (*own, *spelled(markup, declared)):
        is_bare = block.spelling is not None and writer.is_bare(block)
        if is_bare or (block.opener and markup.answer[0].startswith(block.opener)):
            yield from (block.opener + head for head in writer.heads(block, MAX_HEAD))
        elif block.opener and block.where != "never":
            yield block.opener.split(" ")[-1] if is_headed else block.opener


def written_out(markup: Markup) -> list[Thought]:
    return [*(thought for thought in markup.thoughts if thought.opener), *markup.headed]


def spelled(markup: Markup, declared: Iterable[Block]) -> list[Block]:
    """The blocks that have a spelling, the most common one first."""
    return [block for block in (markup.spelled or (*markup.blocks, *declared)) if block.spelling is not None]


def written(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case Until(marker, ends):
                yield marker
                yield from (f"{marker}{text}" for end in ends for text in written(end))
            case Maybe(inner):
                yield from written(inner)
            case OneOf(options):
                for option in options:
                    yield from written(option)
            case Json() | Pattern() | Closer():
                pass


class Writer:
    """The rules of one grammar as they are needed. One per grammar."""

    def __init__(
        self, tools: Sequence[ToolSpec], declared: Sequence[Block], ends: Collection[str], fit: Fit, *, many: bool
    ) -> None:
        """`declared` are the blocks that exist only for these tools. `many`: any number of calls."""
        self._tools = [replace(tool, parameters=arguments_of(tool)) for tool in tools]
        self._declared = declared
        self._ends = ends
        self._fit = fit
        self._many = many
        self._names: dict[str, str] = {}
        self._closer = ""
        """The text of a `Closer`."""
        self._shared: dict[int, tuple[tuple[Part, ...], str]] = {}
        """Options that have rules, by `id`: much may come behind each of many members."""
        self._shared_ends: dict[int, tuple[tuple[Part, ...], str]] = {}
        """The same behind a text."""

    def rule(self, definition: str, options: str = "") -> str:
        return self._named("r", f"{options}: {definition}")

    def terminal(self, definition: str) -> str:
        return self._named("T", f": {definition}")

    def form(self, thoughts: Sequence[Thought], block: Block | None, answer: str | None) -> str:
        thought = self._lazy(whole(thoughts)) if thoughts else ""
        # Blanks before calls are markup. Before an answer they belong to it, except lines behind a thought.
        wanted = [] if answer is None else [f"{thought and f'({thought} {LINES}?)?'} {answer}"]
        if block is not None:
            follows = self._many and not self._is_last(block) and spelling_of(block).between is None
            more = f"({GAP}? {literal(block.opener)} {self._body(block)})*" if follows else ""
            calls = [f"{literal(block.opener)} {self._body(block)} {more}"]
            calls += [f"{call} {more}" for call in self._calls_in_thoughts(block, thoughts)]
            wanted.append(f"{GAP}? {thought and f'({thought} {GAP}?)?'} {either(calls)}")
        return self._grammar(either(wanted))

    def text(self, thoughts: Sequence[Thought], blocks: Sequence[Block]) -> str:
        free = self._free(thoughts, blocks)
        rest = self.terminal(f"TEXT & ~(TEXT {either(literal(block.opener) for block in blocks)} TEXT)")
        again = [self._lazy(f"{SPACE} {whole(thoughts)}")] if thoughts else []
        last = [free, self.terminal(f"{SPACE} {opening(thoughts)} TEXT")] if thoughts else [free]
        for block in blocks:
            if self.is_bare(block) and block.where != "never":
                begun, heads = self._bare(block, free), self.heads(block, MAX_HEAD)
                # Text up to where it shows that no tool is called.
                no_call = self._lazy(f"TEXT & ~/{beginnings(heads)}/ & ~({either(map(literal, heads))} TEXT)")
                again.append(f"{begun} {no_call}")
            for call in (*self._calls(block, free), *self._calls_in_thoughts(block, thoughts, SPACE)):
                if self._is_last(block):
                    last.append(call)
                elif self._many:
                    again.append(call)
                else:
                    last.append(f"{call} {rest}")
        return self._grammar(f"{either(again)}* {either(last)}" if again else either(last))

    def _free(self, thoughts: Sequence[Thought], blocks: Sequence[Block]) -> str:
        """Text that does not begin like a thought and holds no call in another spelling within a line."""
        excluded = [f"{SPACE} {opening(thoughts)} TEXT"] if thoughts else []
        for block in blocks:
            others = "".join(mark for mark in "{[" if re.match(block.starts, mark) and mark != self._first(block))
            if block.where == "line" and others:
                excluded.append(
                    f"TEXT {literal(block.opener)} {space_in(block)} {regex(f'[{re.escape(others)}]')} TEXT"
                )
        return self.terminal(" & ".join(("TEXT", *(f"~({text})" for text in excluded)))) if excluded else "TEXT"

    def _calls(self, block: Block, free: str) -> Iterator[str]:
        if block.where == "never":
            return
        if self.is_bare(block):
            begun = self._bare(block, free)
            for head, tools in self.heads(block, MAX_HEAD).items():
                yield f"{begun} {literal(head)} {self._body(block, head, tools)}"
            return
        opener, first = literal(block.opener), self._first(block)
        if block.where != "line" or not first:
            # First letters that differ would each need an expression of their own: too many for the lexer.
            start = SPACE if block.where == "start" else free
            yield f"{self._lazy(f'{start} {opener}')} {self._body(block)}"
            return
        line = self.terminal(f"{LINE} & {free}")
        yield f"{self._lazy(f'{line} {opener}')} {self._body(block)}"
        if re.match(block.starts, first):  # it counts in the middle of a line if the inside follows
            trigger = f"{free} {opener} {space_in(block)} {literal(first)}"
            yield f"{self._lazy(trigger)} {self._body(block, first)}"

    def _bare(self, block: Block, free: str) -> str:
        start = {"line": self.terminal(f"{LINE} & {free}"), "start": SPACE, "anywhere": free}[block.where]
        return self._lazy(f"{start} {literal(block.opener)}")

    def _calls_in_thoughts(self, block: Block, thoughts: Sequence[Thought], before: str = "") -> Iterator[str]:
        if not thoughts or block.within == "never" or self.is_bare(block):
            return
        start = {"line": LINE, "start": SPACE, "anywhere": "TEXT", "last": "TEXT"}[block.within]
        trigger = f"{before} {opening(thoughts)} {start} {literal(block.opener)}"
        first = self._first(block)
        if block.within == "line" and first and re.match(block.starts, first):
            yield f"{self._lazy(f'{trigger} {space_in(block)} {literal(first)}')} {self._body(block, first)}"
        else:
            yield f"{self._lazy(trigger)} {self._body(block)}"

    # calls

    def _body(self, block: Block, begun: str = "", tools: Sequence[ToolSpec] | None = None) -> str:
        """A block from behind its opener, and behind blanks and the characters that have begun it.

        Its first call is one of `tools`; `None`: of any tool.
        """
        spelling = spelling_of(block)
        closer = "" if self._is_last(block) else "".join(block.closers[:1])
        self._closer, closer = (closer, "") if spelling.closes else ("", closer)
        first = []
        for tool in self._tools if tools is None else tools:
            parts = merged((spelling.before, *spelling.call(tool)))
            if begun and isinstance(parts[0], str):
                parts = (parts[0].lstrip().removeprefix(begun), *parts[1:])
            if spelling.closes:
                self._share(tool, parts)
            first.append(self.rule(self._sequence(tool, parts)))
        calls = either(first)
        if spelling.between is not None and self._many:
            others = ((tool, (spelling.between, *spelling.call(tool))) for tool in self._tools)
            calls += f" {either(self.rule(self._sequence(tool, parts)) for tool, parts in others)}*"
        return self.rule(f"{calls} {literal(spelling.after + closer)}")

    def heads(self, block: Block, limit: int = 1) -> dict[str, list[ToolSpec]]:
        """The fixed beginnings of calls in this block, blanks aside, each with the tools whose calls have it."""
        spelling = spelling_of(block)
        heads: dict[str, list[ToolSpec]] = {}
        for tool in self._tools:
            head = next(iter(merged((spelling.before, *spelling.call(tool)))), None)
            heads.setdefault(head.lstrip()[:limit] if isinstance(head, str) else "", []).append(tool)
        return heads

    def _first(self, block: Block) -> str:
        """The visible character that all calls in this block begin with; empty when they differ."""
        heads = list(self.heads(block))
        return heads[0] if len(heads) == 1 else ""

    def is_bare(self, block: Block) -> bool:
        """Whether only a tool's name shows that this block is a call."""
        is_declared = any(block is one for one in self._declared)
        return is_declared and not re.match(block.starts, self._first(block) or " ")

    def _is_last(self, block: Block) -> bool:
        """Whether the output ends with the block: its closer is an end token."""
        return bool(block.closers) and block.closers[0] in self._ends

    def _sequence(self, tool: ToolSpec, parts: Sequence[Part]) -> str:
        return " ".join(self._part(tool, part) for part in merged(parts)) or '""'

    def _part(self, tool: ToolSpec, part: Part) -> str:
        match part:
            case str():
                return literal(part)
            case Json(schema):
                return self.rule(f"%json {document(self._fit(tool, standalone(schema, tool.parameters)))}")
            case Until(marker, ends) if ends:
                return either(self._text_with_end(tool, marker, end) for end in ends)
            case Until(marker):
                return self._lazy(f"TEXT {literal(marker)}")
            case Closer():
                return literal(self._closer) or '""'
            case Pattern(expression):
                return self.rule(regex(expression))
            case Maybe(parts):
                return f"({self._sequence(tool, parts)})?"
            case OneOf(options):
                return either(self._option(tool, option) for option in options)

    def _share(self, tool: ToolSpec, parts: Sequence[Part]) -> None:
        """Makes the rules of all that may come behind something, the last first: each begins within the one before."""
        made: set[int] = set()
        waiting = [(part, False) for part in parts]
        while waiting:
            part, is_ready = waiting.pop()
            options = part.ends if isinstance(part, Until) else part.options if isinstance(part, OneOf) else ()
            if is_ready:
                self._part(tool, part)
            elif options and id(part) not in made:
                made.add(id(part))
                waiting += [(part, True), *((inner, False) for option in options for inner in option)]

    def _option(self, tool: ToolSpec, parts: tuple[Part, ...]) -> str:
        """The parts as a rule that is made once, as a sequence where they are short."""
        if len(parts) < 2:
            return self._sequence(tool, parts)
        if id(parts) not in self._shared:
            self._shared[id(parts)] = (parts, self.rule(self._sequence(tool, parts)))
        return self._shared[id(parts)][1]

    def _text_with_end(self, tool: ToolSpec, marker: str, end: tuple[Part, ...]) -> str:
        """Text up to the marker with the beginning of this end, and the rest of the end."""
        if id(end) not in self._shared_ends:
            begun, *rest = merged(self._closer if isinstance(part, Closer) else part for part in end)
            assert isinstance(begun, str)
            text = self._lazy(f"TEXT {literal(marker + begun)}")
            self._shared_ends[id(end)] = (end, self.rule(f"{text} {self._sequence(tool, rest)}"))
        return self._shared_ends[id(end)][1]

    # Lark

    def _lazy(self, definition: str) -> str:
        # The body of a lazy rule must be one terminal.
        return self.rule(self.terminal(definition), "[lazy]")

    def _named(self, kind: str, definition: str) -> str:
        return self._names.setdefault(definition, f"{kind}{len(self._names)}")

    def _grammar(self, start: str) -> str:
        rules = (f"{name}{definition}" for definition, name in self._names.items())
        return "\n".join((f"start: {start}", *rules, TEXT))


def allowed(tools: Sequence[ToolSpec], choice: ToolChoice) -> Sequence[ToolSpec]:
    match choice:
        case "none":
            return ()
        case ("named", name):
            return [tool for tool in tools if tool.name == name][:1]
        case _:
            return tools


def spelling_of(block: Block) -> Spelling:
    assert block.spelling is not None
    return block.spelling


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


def literal(text: str) -> str:
    """A text as it is; its leading blanks apart."""
    visible = text.lstrip()
    blanks = text[: len(text) - len(visible)]
    return " ".join(json.dumps(piece, ensure_ascii=False) for piece in (blanks, visible) if piece)


def regex(expression: str) -> str:
    return "/" + re.sub(r"\\.|/|\n", lambda found: {"/": r"\/", "\n": r"\n"}.get(found[0], found[0]), expression) + "/"


def beginnings(texts: Iterable[str]) -> str:
    """A regular expression of all beginnings of the texts, the empty one and the texts themselves included."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        if text:
            rests.setdefault(text[0], []).append(text[1:])
    options = (
        (char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):x}}}") + beginnings(rest)
        for char, rest in rests.items()
    )
    return f"(?:{'|'.join(options)})?" if rests else ""


def either(options: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 and " " not in distinct[0] else f"({' | '.join(distinct)})"


def opening(thoughts: Sequence[Thought]) -> str:
    return either(literal(thought.opener) for thought in thoughts)


def whole(thoughts: Sequence[Thought]) -> str:
    return either(f"{literal(one.opener)} TEXT {either(map(literal, one.closers))}" for one in thoughts)


def space_in(block: Block) -> str:
    return "" if block.tight else SPACE


# schemas


def document(schema: Schema) -> str:
    """A schema as the text of a document, with options for llguidance."""
    return json.dumps({**schema, "x-guidance": {"whitespace_pattern": BLANKS, **schema.get("x-guidance", {})}})


def arguments_of(tool: ToolSpec) -> Schema:
    """The schema of a tool's arguments, which are an object even if it does not say so."""
    given = readable(unannotated(tool.parameters))
    return closed(given if (MERGED | {"enum", "const"}) & given.keys() else {"type": "object", **given})


def readable(parameters: Schema) -> Schema:
    """The schema of an object without malformed keywords: the spelling of calls relies on its shape."""
    shapes: dict[str, Callable[[Any], bool]] = {
        "x-guidance": lambda value: False,  # ours
        "properties": lambda value: isinstance(value, dict) and all(isinstance(v, dict | bool) for v in value.values()),
        "required": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    }
    return {key: value for key, value in parameters.items() if key not in shapes or shapes[key](value)}


ANNOTATIONS = frozenset({"title", "description", "examples", "default", "$comment"})
NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keywords whose members are schemas under names of their own."""


def unannotated(node: Any) -> Any:
    """A schema without annotations for readers, which are most of the text of most tools."""
    match node:
        case dict():
            return {
                key: {name: unannotated(inner) for name, inner in value.items()}
                if key in NAMED and isinstance(value, dict)
                else value
                if key in ("enum", "const")
                else unannotated(value)
                for key, value in node.items()
                if key not in ANNOTATIONS
            }
        case list():
            return [unannotated(item) for item in node]
        case _:
            return node


MERGED = frozenset({"allOf", "anyOf", "oneOf", "$ref", "not", "if", "then", "else", "dependentSchemas"})
"""Keywords with other schemas of the same value."""
OF_OBJECTS = frozenset(
    {"additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "minProperties"}
)
LONGEST_CHAIN = 8
"""References to references that are followed before a schema stays as it is."""


def closed(schema: Schema) -> Schema:
    """The schema without further properties in each object that names some and does not mention others.

    Models invent properties where they may, and write them without end. Schemas that apply to one value together, as
    those of `allOf`, stay as they are, and so do those that they refer to: none of them names all its properties.
    """
    shared: set[str] = set()
    for _ in range(LONGEST_CHAIN):
        found: set[str] = set()
        made: Schema = _closed(schema, "#", shared, found)
        if found <= shared:
            return made
        shared |= found
    return schema


def is_one(members: object) -> bool:
    return isinstance(members, list) and len(members) == 1


def _closed(node: Any, place: str, shared: Collection[str], found: set[str]) -> Any:
    """The part at `place`, a JSON pointer. The references in what stays as it is are added to `found`."""
    if not isinstance(node, Mapping):
        return node
    merged = MERGED & node.keys()
    alone = not merged or (
        not {"properties", "required", *OF_OBJECTS} & node.keys()
        and (merged in ({"$ref"}, {"anyOf"}, {"oneOf"}) or (merged == {"allOf"} and is_one(node["allOf"])))
    )
    if place in shared or not alone:
        found.update(references(node))
        return node
    made = {}
    for key, value in node.items():
        at = f"{place}/{key}"
        if key in NAMED and isinstance(value, Mapping):
            inner = {name: name.replace("~", "~0").replace("/", "~1") for name in value}
            value = {name: _closed(one, f"{at}/{inner[name]}", shared, found) for name, one in value.items()}
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems", "items") and isinstance(value, list):
            value = [_closed(one, f"{at}/{number}", shared, found) for number, one in enumerate(value)]
        elif key in ("items", "additionalProperties"):
            value = _closed(value, at, shared, found)
        made[key] = value
    names, required = node.get("properties"), node.get("required", [])
    if not isinstance(names, Mapping) or not isinstance(required, list) or OF_OBJECTS & node.keys():
        return made
    return {**made, "additionalProperties": False} if {*map(str, required)} <= names.keys() else made


def standalone(schema: Schema | bool, parameters: Schema) -> Schema:
    """A part of a tool's schema as a document of its own, in which every reference keeps its target."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    home = {key: value for key, value in parameters.items() if key not in ("$schema", "$id", "id")}
    if schema == parameters:
        return home
    if not any(references(schema)):
        return schema
    return {**moved(schema), "$defs": {"parameters": moved(home)}}


def references(node: object) -> Iterator[str]:
    match node:
        case dict():
            if isinstance(reference := node.get("$ref"), str):
                yield reference
            for value in node.values():
                yield from references(value)
        case list():
            for item in node:
                yield from references(item)


def moved(node: Any) -> Any:
    """A schema whose references to its root lead to `$defs.parameters` of the root."""
    match node:
        case dict():
            made = {key: moved(value) for key, value in node.items()}
            reference = made.get("$ref")
            if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
                made["$ref"] = "#/$defs/parameters" + reference[1:]
            return made
        case list():
            return [moved(item) for item in node]
        case _:
            return node
