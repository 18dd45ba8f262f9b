"""Translates GBNF, llama.cpp's grammar format, to Lark.

A grammar without recursion becomes one terminal, which is matched as a whole. In a recursive grammar every character
is a terminal of its own and everything else a rule. Longer terminals would be quicker, but llguidance's lexer takes as
much text as it can and never goes back: `a+ a+` leaves nothing for the second, and the library may then hang.

Not supported: references to tokens (`<think>`, `<[123]>`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, NoReturn

from shepherd.core import InvalidRequest
from shepherd.engine.grammar.lark import refuse_length, sort_by_use

MAX_NESTED = 100
MAX_REPEATS = 100_000


class Piece(NamedTuple):
    kind: Literal["lark", "text", "name"]
    """Finished Lark; literal text, which is written in one of two ways; the name of a rule, which is replaced."""
    text: str


Rule = list[Piece]


def gbnf_to_lark(text: str, *, root: str = "start", field: str | None = None) -> str:
    """Lark rules for a GBNF grammar; `root` is the name of the start rule and the prefix of all other names.

    Raises: `InvalidRequest` with the line of the error.
    """
    refuse_length(text, field)
    rules = GbnfParser(text, field).rules()
    if "root" not in rules:
        _refuse(field, "has no rule named 'root'")
    uses = {name: dict.fromkeys(text for kind, text in rule if kind == "name") for name, rule in rules.items()}
    for name, used in uses.items():
        for other in used:
            if other not in rules:
                _refuse(field, f"uses the rule {other!r} in {name!r} and does not define it")
    return _written(rules, uses, root)


def _refuse(field: str | None, what: str) -> NoReturn:
    raise InvalidRequest(f"{field or 'the grammar'} {what}", field=field)


# -- reading -------------------------------------------------------------------------------------------------------

_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_MORE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*\|")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_BRACES = re.compile(r"\{\s*(\d+)\s*(,?)\s*(\d*)\s*\}")
_ESCAPE = re.compile(r"""\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([tnr\\"\[\]/-]))""")
_SIGNS = {"{0,}": "*", "{1,}": "+", "{0,1}": "?"}
_PLAIN = {"t": "\t", "n": "\n", "r": "\r"}


class GbnfParser:
    def __init__(self, text: str, field: str | None) -> None:
        self._text = text
        self._field = field
        self._at = 0

    def rules(self) -> dict[str, Rule]:
        """The rules by name; of two with one name the later one."""
        rules: dict[str, Rule] = {}
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

    def _choice(self, nested: int) -> Rule:
        if nested > MAX_NESTED:
            self._fail(f"brackets are nested deeper than {MAX_NESTED}")
        parts = [self._sequence(nested)]
        while found := _MORE.match(self._text, self._at):
            self._at = found.end()
            self._skip(_BLANK_LINES)
            parts.append(self._sequence(nested))
        return _joined(parts, " | ")

    def _sequence(self, nested: int) -> Rule:
        parts: list[Rule] = []
        blank = _BLANK_LINES if nested else _BLANK
        while (part := self._element(nested)) is not None:
            self._skip(blank)
            signs: list[str] = []
            while sign := self._times():
                signs.append(f"){sign}")
                self._skip(blank)
            parts.append([Piece("lark", "(" * len(signs)), *part, Piece("lark", "".join(signs))] if signs else part)
        return _joined(parts, " ") if parts else [Piece("text", "")]

    def _element(self, nested: int) -> Rule | None:
        if self._take('"'):
            return [Piece("text", self._string())]
        if self._take("["):
            return [Piece("lark", self._letters())]
        if self._take("("):
            self._skip(_BLANK_LINES)
            part = self._choice(nested + 1)
            self._skip(_BLANK_LINES)
            if not self._take(")"):
                self._fail("')' is missing")
            return part
        if self._take("."):
            return [Piece("lark", _ANY)]
        if self._text.startswith(("<", "!<"), self._at):
            self._fail("references to tokens are not supported; write their text")
        return [Piece("name", self._word(""))] if _WORD.match(self._text, self._at) else None

    def _times(self) -> str:
        """A repetition in Lark; empty if none follows."""
        sign = self._text[self._at : self._at + 1]
        if sign in ("*", "+", "?"):
            self._at += 1
            return sign
        if sign != "{":
            return ""
        found = _BRACES.match(self._text, self._at)
        if found is None:
            self._fail("a repetition is {m}, {m,} or {m,n}")
        least = int(found[1][:9])
        most = int(found[3][:9]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            self._fail(f"a repetition goes from a smaller to a larger number, up to {MAX_REPEATS}")
        self._at = found.end()
        written = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
        return _SIGNS.get(written, written)

    def _string(self) -> str:
        text = ""
        while not self._take('"'):
            text += self._character('the closing "')
        return text

    def _letters(self) -> str:
        """A character class in Lark."""
        negated = self._take("^")
        ranges = ""
        while not self._take("]"):
            first = last = self._character("the closing ]")
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._character("the closing ]")
            if last < first:
                self._fail(f"the range {first}-{last} runs backwards")
            ranges += _spelled(first) if first == last else f"{_spelled(first)}-{_spelled(last)}"
        if not ranges and not negated:
            self._fail("[] matches nothing")
        return f"/[{'^' if negated else ''}{ranges}]/" if ranges else _ANY

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

_ANY = "/(?s:.)/"


def _written(rules: Mapping[str, Rule], uses: Mapping[str, Collection[str]], root: str) -> str:
    """The rules that the root needs: one terminal if the grammar is regular, else rules of single characters."""
    is_regular = "root" not in sort_by_use(uses)[1]
    taken = {root}

    def new_name(name: str) -> str:
        plain = f"{root}_{re.sub('[^A-Za-z0-9]', '_', name)}"
        plain = plain.upper() if is_regular else plain.lower()
        n = 1
        while (wanted := f"{plain}_{n}" if n > 1 else plain) in taken:
            n += 1
        taken.add(wanted)
        return wanted

    names = {"root": root, **{name: new_name(name) for name in rules if name != "root"}}
    needed, waiting = dict.fromkeys(["root"]), ["root"]
    while waiting:
        for used in uses[waiting.pop()]:
            if used not in needed:
                needed[used] = None
                waiting.append(used)

    def written(piece: Piece) -> str:
        if piece.kind == "name":
            return names[piece.text]
        if piece.kind == "lark":
            return piece.text
        if is_regular or not piece.text:
            return _literal(piece.text)
        return "(" + " ".join(map(_literal, piece.text)) + ")"

    lines = [f"{names[name]}: {''.join(map(written, rules[name]))}" for name in needed]
    if is_regular:  # the root is a rule of one terminal
        whole = new_name("root")
        lines[0] = f"{root}: {whole}\n{whole}: {lines[0].removeprefix(f'{root}: ')}"
    return "\n".join(lines) + "\n"


def _joined(parts: list[Rule], between: str) -> Rule:
    if len(parts) == 1:
        return parts[0]
    joined = [Piece("lark", "(")]
    for part in parts:
        joined += [*part, Piece("lark", between)]
    return [*joined[:-1], Piece("lark", ")")]


def _literal(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _spelled(character: str) -> str:
    return character if character.isascii() and character.isalnum() else f"\\u{{{ord(character):x}}}"
