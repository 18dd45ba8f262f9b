"""The markup of a template's calls, taken from what it prints around the sentinels of one.

before            name   inside                     after              between two calls
<tool_call>{"name": "NAME", "arguments": {... 734   }}</tool_call>     }}</tool_call><tool_call>{"name": "
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from shepherd.core import ToolSpec
from shepherd.core.dataclasses import dataclass, replace
from shepherd.dialects.derive.answers import (
    GIVEN,
    IDS,
    KEY,
    NUMBER,
    NUMBER_KEY,
    OTHER,
    TEXT,
    TOOL,
    VALUE,
    Answers,
    behind_thoughts,
    call_spans,
)
from shepherd.dialects.families.generic import TAGGED, strays, unmarked, unspelt
from shepherd.dialects.families.lfm import argument
from shepherd.dialects.parse.bodies.header import Header, HeaderBody, ReadHeader, read_named
from shepherd.dialects.parse.bodies.json_body import JsonBody
from shepherd.dialects.parse.bodies.named import Form, NamedBody
from shepherd.dialects.parse.bodies.pairs import PairsBody
from shepherd.dialects.parse.bodies.python_body import PythonBody
from shepherd.dialects.parse.bodies.tagged import TaggedBody
from shepherd.dialects.parse.bodies.text_body import TextBody
from shepherd.dialects.parse.call import Calls, Fault, Found, Keys
from shepherd.dialects.parse.markup import Block, MakeBody
from shepherd.dialects.parse.spelling import ARGUMENTS, Part, Pattern, Spell, Spelling, json_call, named_call, value
from shepherd.dialects.parse.values import find_tool, kinds, object_text
from shepherd.dialects.render.frame import TAG, n_same, shared_end, shared_start


@dataclass(frozen=True, slots=True)
class Sample:
    """A call with its surroundings: `before name inside after`, or `before name inside between name inside after`."""

    before: str
    inside: str
    after: str
    between: str | None
    """`None` if the template prints no two calls in one answer."""
    empty: str
    """What stands behind the name of a call without arguments."""
    has_cdata: bool

    @classmethod
    def of(cls, answers: Answers) -> Sample | None:
        text, spans = answers.texts["call"], call_spans(answers.texts["call"])
        spoken = answers.texts.get("spoken", "")
        at = spoken.find(TEXT) + len(TEXT)
        if at >= len(TEXT) and (places := call_spans(spoken)) and at < places[0][0] and not answers.around[0]:
            text, spans = spoken[at:], [(start - at, stop - at) for start, stop in places]
        if len(spans) != 1:
            return None
        start, stop = spans[0]
        twice = answers.texts.get("twice", "")
        pair = call_spans(twice)
        return cls(
            behind_thoughts(text[:start], answers.thoughts),
            text[start + len(TOOL) : stop],
            text[stop:],
            twice[pair[0][1] : pair[1][0]] if len(pair) == 2 else None,
            answers.texts.get("empty", "").rpartition(OTHER)[2],
            any("<![CDATA[" in text for text in answers.texts.values()),
        )


Guess = tuple[tuple[Block, ...], tuple[str, ...], Callable[[Sequence[ToolSpec]], tuple[Block, ...]]]


def guesses(sample: Sample) -> Iterator[Guess]:
    """The ways to read such calls, the likeliest first."""
    for guess in (*json_guesses(sample), *python_guesses(sample), *pair_guesses(sample)):
        if all(is_sign(block.opener) for block in guess[0]):
            yield guess


@dataclass(frozen=True, slots=True)
class Written:
    opener: str
    before: str
    lead: str
    """Before the name of each call."""
    tail: str
    """Behind the arguments of each call."""
    between: str | None
    after: str
    closers: tuple[str, ...]
    skips: tuple[str, ...] = ()
    """The tags around all calls, if each of them has tags of its own."""

    @classmethod
    def of(cls, opening: str, lead: str, tail: str, between: str | None) -> Written:
        """`opening` is what stands before the notation of the calls, `lead` from there to the first name."""
        opener = opening.strip()
        lead = opening[len(opening.rstrip()) :] + lead
        tags, skips = TAG.findall(opener), ()
        if between is not None and tags and opener not in between and tags[-1] in between:
            at = opener.rindex(tags[-1])
            inner = between[: between.index(tags[-1])]
            skips = (*TAG.findall(opener[:at]), *(tag for tag in TAG.findall(tail) if tag not in inner))
            opener = opener[at:]
        if between is None or (opener and opener in between):
            block = tail if between is None else shared_start(between[: between.index(opener)], tail)
            closers = tuple(TAG.findall(block)[-1:])
            inner = block[: block.rindex(closers[0])] if closers else block.rstrip()
            return cls(opener, "", lead, inner, None, "", closers, skips)
        n_tail = len(shared_start(tail, between))
        n_lead = min(n_same(lead[::-1], between[::-1]), len(between) - n_tail)
        closers, rest = tuple(TAG.findall(tail[n_tail:])[-1:]), tail[n_tail:]
        return cls(
            opener,
            lead[: len(lead) - n_lead],
            lead[len(lead) - n_lead :],
            tail[:n_tail],
            between[n_tail : len(between) - n_lead],
            rest[: rest.rindex(closers[0])] if closers else rest.rstrip(),
            closers,
            skips,
        )

    def block(self, body: MakeBody, call: Spell, starts: str, *, tight: bool = False) -> Block:
        spelling = Spelling(call, self.before, self.between, self.after)
        return Block(self.opener, self.closers, body, starts=starts, tight=tight, spelling=spelling)


def is_sign(opener: str) -> bool:
    """Whether a text is no word of a sentence."""
    return re.search(r"[^\w\s.]", opener) is not None


# -- JSON --------------------------------------------------------------------------------------------------------------


def json_guesses(sample: Sample) -> Iterator[Guess]:
    text = sample.before + TOOL + sample.inside + sample.after
    found = arguments_in(text)
    if found is None:
        return
    start, stop = found
    name = len(sample.before)
    mid, tail = text[name + len(TOOL) : start], text[stop:]
    within = stop - (len(text) - len(sample.after))  # how much of the tail the arguments themselves have
    between = None if sample.between is None else sample.between[within:]
    whole = next((span for span in json_in(text, stop) if span[0] < name), None)
    if whole is None:
        yield from named_guesses(sample.before, mid, tail, between)
        return
    at, held = whole
    # A word needs the bracket behind it to be a marker.
    n_opening = at + 1 if text[at] == "[" and not is_sign(text[:at]) else at
    written = Written.of(text[:n_opening], text[n_opening:name], tail, between)
    lead = written.lead if written.opener else written.lead.lstrip().removeprefix("{")
    spell = json_call(*with_ids(lead + "{}" + mid), ARGUMENTS, *with_ids(written.tail))
    if written.opener:
        body = partial(JsonBody, keys=keys_of(held))
        yield (written.block(body, spell, r"[{\[]"),), written.skips, strays
    elif text[at] == "{":
        bare = partial(unmarked, openers={"{": Spelling(spell), "[": None})
        yield unspelt(TAGGED), (), bare


def json_in(text: str, stop: int) -> Iterator[tuple[int, object]]:
    """Where the objects and arrays begin that reach to `stop` or farther, and their values; the outermost first."""
    for mark in re.finditer(r"[{\[]", text[:stop]):
        try:
            held, end = json.JSONDecoder().raw_decode(text, mark.start())
        except (ValueError, RecursionError):
            continue
        if end >= stop:
            yield mark.start(), held


def arguments_in(text: str) -> tuple[int, int] | None:
    """Where the arguments stand as JSON, or as JSON within a string."""
    for mark in re.finditer(r'\{|"(?=\{\\?")', text):
        try:
            held, end = json.JSONDecoder().raw_decode(text, mark.start())
            held = json.loads(held) if isinstance(held, str) else held
        except (ValueError, RecursionError):
            continue
        if held == GIVEN:
            return mark.start(), end
    return None


def keys_of(held: object) -> Keys:
    """The names of the members of a call object; the usual ones where it is none."""
    item = held[0] if isinstance(held, list) and held else held
    members = item if isinstance(item, dict) else {}
    names = tuple(key for key, given in members.items() if given == TOOL)
    others = tuple(key for key, given in members.items() if given in (GIVEN, json.dumps(GIVEN)))
    ids = tuple(key for key, given in members.items() if given == IDS[0])
    usual = Keys()
    return Keys((*names, *usual.name), (*others, *usual.arguments), ids) if names and others else Keys(id=ids)


def with_ids(text: str) -> Iterator[Part]:
    """The text with any id for that of a sentinel."""
    for piece in re.split(f"({'|'.join(IDS)})", text):
        yield Pattern("[a-zA-Z0-9]{9}") if piece in IDS else piece


def named_guesses(before: str, mid: str, tail: str, between: str | None) -> Iterator[Guess]:
    opening = before.lstrip()
    run = RUN.match(opening)
    openers = TAG.findall(run[0]) if run and run[0] else [opening.rstrip()]
    head = opening[run.end() :] if run and run[0] else ""
    if not openers[0]:
        return
    written = Written.of(openers[0], opening[len(openers[0]) :], tail, between)
    own = next((opener for opener in openers if between is not None and opener in between), "")
    ends = TAG.findall(between[: between.index(own)]) if between and own else []
    closers = tuple(reversed(TAG.findall(tail)))
    marks = (tag for tag in (*TAG.findall(head + mid), *([] if TAG.search(mid) else [mid.strip()])))
    fenceless = mid.strip().removesuffix("```json").removesuffix("```").strip()
    form = Form(
        re.compile(rf"(?:{other_ids(head.strip())})?\s*(?P<name>[\w.$/@-]+)\s*(?:{other_ids(fenceless)})?"),
        tuple(dict.fromkeys(mark for mark in marks if mark and "```" not in mark)),
        tuple(openers),
        tuple(dict.fromkeys(end for end in ends if end not in closers[:1])),
        chained=True,
    )
    spell = json_call(*with_ids(f"{written.lead}{{}}{mid}"), ARGUMENTS, *with_ids(written.tail))
    first = replace(written.block(partial(NamedBody, form=form), spell, r"[\w<\[]", tight=True), closers=closers)
    if re.match(r"<[|｜]|\[", first.opener):  # a control token: no thought speaks of it
        first = replace(first, within="anywhere")
    yield (first, *(replace(first, opener=opener, spelling=None) for opener in openers[1:])), (), strays
    # A header with several words: its opener is all that stands before the name.
    written = Written.of(before, "", tail, between)
    if written.opener:
        head_of = re.compile(rf"\s*(?P<name>[\w.$/@-]+){blanks(fenceless)}")
        spell = json_call(*with_ids(f"{written.lead}{{}}{mid}"), ARGUMENTS, *with_ids(written.tail))
        yield (
            (written.block(partial(HeaderBody, read=named_by(head_of)), spell, r"\w", tight=True),),
            written.skips,
            strays,
        )


def named_by(head: re.Pattern[str]) -> ReadHeader:
    def read(opener: str, text: str, at: int, final: bool, tools: Sequence[ToolSpec]) -> Header | None:
        found = head.match(text, at)
        if found is None:
            return Header(at, declined=opener) if final or len(text) - at > LONGEST_HEAD else None
        return Header(found.end(), inside=partial(JsonBody, read=partial(read_named, found["name"])))

    return read


LONGEST_HEAD = 160
RUN = re.compile(rf"(?:(?:{TAG.pattern})\s*)*")


def other_ids(text: str) -> str:
    """A regular expression for a text, with any id for that of a sentinel and any number for a number."""
    pieces = re.split(rf"({IDS[0]}|\d+)", text)
    known = {IDS[0]: r"(?P<id>[\w.:-]*)"}
    return "".join(known.get(piece, r"\d+" if piece.isdigit() else re.escape(piece)) for piece in pieces)


# -- Python ------------------------------------------------------------------------------------------------------------


def python_guesses(sample: Sample) -> Iterator[Guess]:
    if not re.match(rf"\({KEY}=['\"]", sample.inside) or not sample.after.startswith(")"):
        return
    opening = sample.before.rstrip().removesuffix("[")
    written = Written.of(opening, sample.before[len(opening) :], sample.after, sample.between)
    if not written.opener:
        return
    spell = named_call(braced(written.lead) + "{}(", argument, written.tail, between=", ")
    is_list = "[" in sample.before[len(opening) :]
    yield (written.block(PythonBody, spell, r"\[" if is_list else r"\w", tight=not is_list),), written.skips, strays


def braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


# -- tagged pairs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pairs:
    """A call whose values stand between tags: `NAME mid (key K value V end)* tail`."""

    mid: str
    key: str
    value: str
    other: str
    end: str
    tail: str

    @classmethod
    def of(cls, sample: Sample) -> Pairs | None:
        first, _, rest = sample.inside.partition(KEY)
        value, _, rest = rest.partition(VALUE)
        joint, _, other = rest.partition(NUMBER_KEY)
        end = shared_start(joint, sample.after)
        key = joint[len(end) :]
        if not (end.strip() and key.strip() and value.strip() and first.endswith(key)):
            return None
        other = other.removesuffix(str(NUMBER))
        return cls(first.removesuffix(key), key, value, other, end, sample.after[len(end) :])

    def spell(self, tool: ToolSpec, name: str) -> tuple[Part, ...]:
        allowed = kinds(tool, name)
        before = self.value if not allowed or "string" in allowed else self.other
        return (f"{self.key}{name}{before}", *value(tool, name, self.end))

    def read(self, text: str, tools: Sequence[ToolSpec], whole: bool) -> Calls:
        how = f"write NAME{self.mid}{self.key}KEY{self.value}VALUE{self.end}"
        name = re.compile(rf"\s*([^\s<>\"'\[\]|]+){blanks(self.mid)}").match(text)
        if name is None or not whole:
            return (Fault(f"the call cannot be read; {how}", name[1] if name else ""),)
        n_before, n_behind = n_same(self.value, self.other), n_same(self.value[::-1], self.other[::-1])
        middle = re.escape(self.value)
        if self.value != self.other:
            middle = re.escape(self.value[:n_before]) + "[^<>]{0,64}?"
            middle += re.escape(self.value[len(self.value) - n_behind :])
        key, end, tail = blanks(self.key), re.escape(self.end.rstrip()), blanks(self.tail)
        follows = rf"(?=\s*(?:{key}|{tail}|\Z))"
        pair = re.compile(rf"\s*{key}([^<>]{{1,128}}?){middle}(.*?){end}{follows}", re.DOTALL)
        found: list[tuple[str, str]] = []
        at = name.end()
        while one := pair.match(text, at):
            found.append((one[1], one[2]))
            at = one.end()
        rest = text[at:].strip()
        if rest and not self.tail.strip().startswith(rest):
            return (Fault(f"the call cannot be read from {rest[:20]!r} on; {how}", name[1]),)
        return (Found(name[1], object_text(find_tool(tools, name[1]), found)),)


def blanks(text: str) -> str:
    """A regular expression for a text with any blanks where it has some, and any number for a number."""
    made = "".join(r"\d+" if piece.isdigit() else re.escape(piece) for piece in re.split(r"(\d+)", text.strip()))
    return r"\s*" + re.sub(r"(?:\\\s)+", r"\\s*", made)


def pair_guesses(sample: Sample) -> Iterator[Guess]:
    pairs = Pairs.of(sample)
    if pairs is None:
        return
    between = None if sample.between is None else sample.between.removeprefix(pairs.end)
    opening = sample.before.lstrip()
    run = RUN.match(opening)
    n_tags = run.end() if run else 0
    written = Written.of(opening[: n_tags or None], opening[n_tags or len(opening) :], pairs.tail, between)
    empty = sample.empty.removeprefix(pairs.mid).partition(pairs.tail.strip() or "\0")[0]
    nothing = empty.removesuffix(pairs.tail[: len(pairs.tail) - len(pairs.tail.lstrip())])

    def spelled(lead: str, tail: str) -> Spell:
        opener = f"{braced(lead)}{{}}{braced(pairs.mid)}"
        return named_call(opener, pairs.spell, tail, empty="" if nothing.strip() else nothing)

    body: MakeBody | None = None
    if re.search(r"<\S*param", pairs.key) and "<" in written.opener:
        padded = pairs.value.endswith("\n") and pairs.end.startswith("\n")
        body = partial(TaggedBody, padded=padded, cdata=sample.has_cdata)
    elif "arg_key" in pairs.key and n_tags:
        body = PairsBody
    if body:
        spell = spelled(written.lead, written.tail)
        yield ((written.block(body, spell, r"[\w<\n]" if n_tags else r"\w", tight=not n_tags),), written.skips, strays)
    # Any other tags: a block is what stands from the beginning of a call's own tag to its end.
    own, cut = opening, pairs.tail
    if between is not None:
        own = opening if opening.strip() in between else shared_end(opening, between)
        cut = between[: between.rindex(own.strip())] if own.strip() else ""
    opener, closer = own.strip(), cut.strip()
    if opener and closer:
        around = (*TAG.findall(opening[: len(opening) - len(own)]), *TAG.findall(pairs.tail))
        one = Written(opener, "", "", "", None, "", (closer,))
        read = partial(TextBody, read=replace(pairs, tail=cut).read)
        block = one.block(read, spelled("", cut[: cut.index(closer)]), r"\S", tight=True)
        yield (block,), tuple(tag for tag in around if tag not in cut), strays
