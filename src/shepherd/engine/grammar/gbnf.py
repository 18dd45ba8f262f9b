"""Translates GBNF, llama.cpp's grammar format, to Lark.

A grammar without recursion becomes one terminal, which is matched as a whole. In a recursive grammar every character
is a terminal of its own and everything else a rule. Longer terminals would be quicker, but llguidance's lexer takes as
much text as it can and never goes back: `a+ a+` leaves nothing for the second, and the library may then hang.

Not supported: references to tokens (`<think>`, `<[123]>`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from shepherd.core import InvalidRequest
from shepherd.engine.grammar.lark import refuse_length, sort_by_use

MAX_NESTED = 100
"""Nesting of brackets."""
MAX_REPEATS = 100_000


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text."""

    text: str


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """One character inside, or outside, of some ranges."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Name:
    """A reference to a rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts in a row."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part `least` to `most` times; `most` None = no limit."""

    part: Part
    least: int
    most: int | None


Part = Text | CharacterClass | Name | Sequence | Choice | Repeat


def gbnf_to_lark(text: str, *, root: str = "start", field: str | None = None) -> str:
    """Lark rules for a GBNF grammar; `root` is the name of the start rule and the prefix of all other names.

    Raises: `InvalidRequest` with the line of the error.
    """
    refuse_length(text, field)
    rules = GbnfParser(text, field).rules()
    if "root" not in rules:
        _refuse(field, "has no rule named 'root'")
    for name, rule in rules.items():
        for used in _names(rule):
            if used not in rules:
                _refuse(field, f"uses the rule {used!r} in {name!r} and does not define it")
    return LarkWriter(rules, root).text()


def _refuse(field: str | None, what: str) -> NoReturn:
    raise InvalidRequest(f"{field or 'the grammar'} {what}", field=field)


def _inside(part: Part) -> tuple[Part, ...]:
    match part:
        case Sequence(parts) | Choice(parts):
            return parts
        case Repeat(inner):
            return (inner,)
    return ()


def _names(part: Part) -> Iterator[str]:
    waiting = [part]
    while waiting:
        part = waiting.pop()
        waiting += _inside(part)
        if isinstance(part, Name):
            yield part.name


# -- reading -------------------------------------------------------------------------------------------------------

_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_MORE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*\|")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_BRACES = re.compile(r"\{\s*(\d+)\s*(,?)\s*(\d*)\s*\}")
_ESCAPE = re.compile(r"""\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([tnr\\"\[\]/-]))""")
_PLAIN = {"t": "\t", "n": "\n", "r": "\r"}
_TIMES: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class GbnfParser:
    """Parses one grammar."""

    def __init__(self, text: str, field: str | None) -> None:
        self._text = text
        self._field = field
        self._at = 0

    def rules(self) -> dict[str, Part]:
        """The rules by name; of two with one name the later one."""
        rules: dict[str, Part] = {}
        self._skip(_BLANK_LINES)
        while self._at < len(self._text):
            name = self._word("the name of a rule")
            self._skip(_BLANK)
            if not self._take("::="):
                self._fail("'::=' is missing")
            self._skip(_BLANK_LINES)
            rules[name] = self._choice(0)
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                self._fail("the rule should have ended here")
            self._skip(_BLANK_LINES)
        return rules

    def _choice(self, nested: int) -> Part:
        if nested > MAX_NESTED:
            self._fail(f"brackets are nested deeper than {MAX_NESTED}")
        parts = [self._sequence(nested)]
        while found := _MORE.match(self._text, self._at):
            self._at = found.end()
            self._skip(_BLANK_LINES)
            parts.append(self._sequence(nested))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, nested: int) -> Part:
        parts: list[Part] = []
        blank = _BLANK_LINES if nested else _BLANK
        while (part := self._element(nested)) is not None:
            self._skip(blank)
            while times := self._times():
                part = Repeat(part, *times)
                self._skip(blank)
            parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _element(self, nested: int) -> Part | None:
        if self._take('"'):
            return Text(self._string())
        if self._take("["):
            return self._letters()
        if self._take("("):
            self._skip(_BLANK_LINES)
            part = self._choice(nested + 1)
            self._skip(_BLANK_LINES)
            if not self._take(")"):
                self._fail("')' is missing")
            return part
        if self._take("."):
            return CharacterClass((), negated=True)
        if self._text.startswith(("<", "!<"), self._at):
            self._fail("references to tokens are not supported; write their text")
        return Name(self._word("")) if _WORD.match(self._text, self._at) else None

    def _times(self) -> tuple[int, int | None] | None:
        sign = self._text[self._at : self._at + 1]
        if sign in _TIMES:
            self._at += 1
            return _TIMES[sign]
        if sign != "{":
            return None
        found = _BRACES.match(self._text, self._at)
        if found is None:
            self._fail("a repetition is {m}, {m,} or {m,n}")
        least = int(found[1][:9])
        most = int(found[3][:9]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            self._fail(f"a repetition goes from a smaller to a larger number, up to {MAX_REPEATS}")
        self._at = found.end()
        return least, most

    def _string(self) -> str:
        text = ""
        while not self._take('"'):
            text += self._character('the closing "')
        return text

    def _letters(self) -> Part:
        negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        while not self._take("]"):
            first = last = self._character("the closing ]")
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._character("the closing ]")
            if last < first:
                self._fail(f"the range {first}-{last} runs backwards")
            ranges.append((first, last))
        if not ranges and not negated:
            self._fail("[] matches nothing")
        return CharacterClass(tuple(ranges), negated)

    def _character(self, awaited: str) -> str:
        character = self._text[self._at : self._at + 1]
        if not character or character in "\r\n":
            self._fail(f"{awaited} is missing")
        if character != "\\":
            self._at += 1
        else:
            found = _ESCAPE.match(self._text, self._at)
            if found is None:
                self._fail("this escape is not known")
            number = int(found[1] or found[2] or found[3] or "0", 16)
            character = _PLAIN.get(found[4], found[4]) if found[4] else chr(min(number, 0x110000 - 1))
            if number > 0x10FFFF:
                self._fail("this escape is beyond Unicode")
            self._at = found.end()
        if "\ud800" <= character <= "\udfff":
            self._fail("half a surrogate pair is not a character")
        return character

    def _word(self, awaited: str) -> str:
        found = _WORD.match(self._text, self._at)
        if found is None:
            self._fail(f"{awaited} is missing")
        self._at = found.end()
        return found.group()

    def _take(self, sign: str) -> bool:
        if not self._text.startswith(sign, self._at):
            return False
        self._at += len(sign)
        return True

    def _skip(self, blank: re.Pattern[str]) -> None:
        found = blank.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _fail(self, what: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        near = self._text[self._at : self._at + 20].split("\n")[0]
        place = f"before {near!r}" if near else "at the end of the line"
        _refuse(self._field, f"cannot be read at line {line}, column {column}, {place}: {what}")


# -- writing -------------------------------------------------------------------------------------------------------


class LarkWriter:
    """Writes rules as Lark: one terminal if the grammar is regular, else rules of single characters."""

    def __init__(self, rules: dict[str, Part], root: str) -> None:
        self._rules = rules
        self._root = root
        self._is_regular = "root" not in sort_by_use({name: {*_names(rule)} for name, rule in rules.items()})[1]
        self._taken = {root}
        self._names = {"root": root}
        for name in rules:
            if name != "root":
                self._names[name] = self._new(name)

    def text(self) -> str:
        """The rules that the root needs."""
        needed, waiting = dict.fromkeys(["root"]), ["root"]
        while waiting:
            for used in _names(self._rules[waiting.pop()]):
                if used not in needed:
                    needed[used] = None
                    waiting.append(used)
        literal = _literal if self._is_regular else _single
        lines = [f"{self._names[name]}: {_written(self._rules[name], self._names, literal)}" for name in needed]
        if self._is_regular:  # the root is a rule of one terminal
            whole = self._new("root")
            lines[0] = f"{self._root}: {whole}\n{whole}: {lines[0].removeprefix(f'{self._root}: ')}"
        return "\n".join(lines) + "\n"

    def _new(self, name: str) -> str:
        plain = f"{self._root}_{re.sub('[^A-Za-z0-9]', '_', name)}"
        plain = wanted = plain.upper() if self._is_regular else plain.lower()
        n = 1
        while wanted in self._taken:
            n += 1
            wanted = f"{plain}_{n}"
        self._taken.add(wanted)
        return wanted


def _literal(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _single(text: str) -> str:
    return "(" + " ".join(map(_literal, text)) + ")" if text else '""'


def _written(part: Part, names: dict[str, str], literal: Callable[[str], str]) -> str:
    """A part in Lark; `literal` writes texts."""
    match part:
        case Text(text):
            return literal(text)
        case CharacterClass(ranges, negated):
            if not ranges:
                return "/(?s:.)/"
            spelled = "".join(
                _spelled(first) if first == last else f"{_spelled(first)}-{_spelled(last)}" for first, last in ranges
            )
            return f"/[{'^' if negated else ''}{spelled}]/"
        case Name(name):
            return names[name]
        case Sequence(parts):
            return "(" + " ".join(_written(inner, names, literal) for inner in parts) + ")" if parts else '""'
        case Choice(parts):
            return "(" + " | ".join(_written(inner, names, literal) for inner in parts) + ")"
        case Repeat(inner, least, most):
            return f"({_written(inner, names, literal)}){_times(least, most)}"


def _spelled(character: str) -> str:
    return character if character.isascii() and character.isalnum() else f"\\u{{{ord(character):x}}}"


def _times(least: int, most: int | None) -> str:
    sign = next((sign for sign, times in _TIMES.items() if times == (least, most)), "")
    return sign or (f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}")
