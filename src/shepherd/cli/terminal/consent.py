"""Asks the person at the terminal during a turn: may this call run, may this server have this data.

    execute_command wants to run a program             finished lines
      npm test
    [y] once  [s] in this conversation ...             live, replaced by the choice

The question hides the live lines until the answer. It shows every character of its subject, because no character may
hide another one. Nothing runs by accident: Enter means no, and so does the end of the terminal.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from rich.text import Text

from shepherd.cli.terminal import form as forms
from shepherd.cli.terminal.bell import Bell
from shepherd.cli.terminal.call_view import DIFF_LINES, diff_style, folded, row
from shepherd.cli.terminal.keyboard import END, ENTER, TerminalKeyboard
from shepherd.cli.terminal.screen import Draw, Screen
from shepherd.core.dataclasses import dataclass
from shepherd.tools.base import Effect, Form, Question, Verdict
from shepherd.tools.permission import EFFECTS

ARGUMENT_LINES = 10
"""Lines of one argument before it is unfolded."""
SUBJECT_LINES = 40
"""Lines of the subject of a call."""
MESSAGE_LINES = 40
"""Lines of the message of a server."""

_WANTS: Mapping[Effect, str] = {
    "read": "look at something",
    "write": "change something",
    "run": "run a program",
    "net": "call another machine",
}
_VERDICTS: Mapping[str, tuple[Verdict, str, str]] = {
    "y": ("once", "once", "Allowed once."),
    "s": ("session", "this conversation", "Allowed in this conversation."),
    "a": ("always", "always here", "Always allowed in this folder."),
    "n": ("no", "no", "Not allowed."),
    "d": ("never", "never", "Not allowed in this conversation."),
}
_YES_OR_NO: Mapping[str, tuple[str, str]] = {"y": ("yes", "Yes."), "n": ("no", "No.")}
_SEND: Mapping[str, tuple[str, str]] = {
    "y": ("send", "Sent."),
    "e": ("fill in again", "Once more."),
    "n": ("no", "Not sent."),
}


class TerminalPerson:
    """The person in front of a screen. Questions are asked one after the other."""

    def __init__(self, screen: Screen, keyboard: TerminalKeyboard | None = None, bell: Bell | None = None) -> None:
        """`keyboard`: None = standard input. `bell`: rings where a question waits; None = none does."""
        self._screen = screen
        self._bell = bell or Bell()
        self._keyboard = keyboard or TerminalKeyboard()
        self._lock = asyncio.Lock()
        self._n_asked = 0
        """Open and waiting questions."""
        self._withdrawn: set[asyncio.Task[Any]] = set()
        self._refresh: Callable[[], None] = lambda: None
        """Draws the keys of the open question again."""

    async def allow(self, question: Question) -> Verdict:
        usable = {key: row for key, row in _VERDICTS.items() if not (question.each_time and key in "sa")}
        choices = {key: (words, answer) for key, (_, words, answer) in usable.items()}
        async with self._attention() as show:
            return _VERDICTS[await self._choose(show, list(_question(question)), choices)][0]

    async def fill(self, form: Form) -> Mapping[str, Any] | None:
        """The values; None = refused. A form that the server withdraws stays until the person has ended the line that
        is open; see `settled`."""
        asking = asyncio.create_task(self._fill(form))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.cancel()
            self._withdrawn.add(asking)
            asking.add_done_callback(self._withdrawn.discard)
            with suppress(asyncio.CancelledError):
                await asyncio.wait({asking}, timeout=0)
            raise

    async def settled(self) -> None:
        async with self._lock:
            pass

    async def _fill(self, form: Form) -> Mapping[str, Any] | None:
        async with self._attention() as show:
            parts = list(_request(form))
            try:
                fields = [] if form.url else forms.fields(form.fields)
            except ValueError as error:
                show(self._rows([*parts, note(f"{error} Refused.", "red")]))
                return None
            if not fields:
                return {} if await self._choose(show, parts, _YES_OR_NO) == "y" else None
            show(self._rows(parts))
            return await self._fill_in(show, fields)

    async def confirm(self, question: str) -> bool:
        """The answer to a question of the program itself."""
        async with self._attention() as show:
            lines = [Text(), row(exposed(question, in_one_line=True), "bold yellow", wraps=True)]
            return await self._choose(show, [Part(lines)], _YES_OR_NO) == "y"

    @asynccontextmanager
    async def _attention(self) -> AsyncIterator[Draw]:
        """The screen and the keyboard, for one question at a time."""
        self._n_asked += 1
        self._refresh()
        try:
            async with self._lock:
                called = self._bell.waiting("a question waits for your answer")
                with self._screen.front() as show, self._keyboard.listen(), called:
                    try:
                        yield show
                    except asyncio.CancelledError:
                        show(self._rows([note("Not answered.")]))
                        raise
        finally:
            self._n_asked -= 1
            self._refresh()

    async def _choose(
        self, show: Draw, parts: Sequence[Part], choices: Mapping[str, tuple[str, str]], default: str = "n"
    ) -> str:
        """The key of one of the `choices` (key -> text of the option, text after the choice). `default`: the key for
        Enter; empty = none."""
        hidden = [part for part in parts if part.format_lines(self._room) is not part.lines]

        def draw(shown: Sequence[Part] = ()) -> None:
            show(self._rows(shown), self._options(choices, default, can_unfold=bool(hidden)))

        draw(parts)
        self._refresh = draw
        try:
            while True:
                key = await self._keyboard.key()
                if key == "v" and hidden:
                    whole, hidden = [Part(part.lines) for part in hidden], []
                    draw(whole)
                key = {ENTER: default, END: "n"}.get(key, key)
                if key in choices:
                    show(self._rows([note(choices[key][1])]))
                    return key
        finally:
            self._refresh = lambda: None

    async def _fill_in(self, show: Draw, fields: Sequence[forms.Field]) -> dict[str, Any] | None:
        show(self._rows([note("Ctrl-D refuses.")]))
        answers = {field.name: field.default for field in fields}
        while True:
            values: dict[str, Any] = {}
            for field in fields:
                answer = await self._ask(show, field, answers[field.name])
                if answer is None:
                    show(self._rows([note("Refused.")]))
                    return None
                answers[field.name] = answer
                if (value := field.read(answer)) is not None:
                    values[field.name] = value
            key = "y" if len(fields) == 1 else await self._choose(show, [], _SEND, default="")
            if key != "e":
                return values if key == "y" else None

    async def _ask(self, show: Draw, field: forms.Field, draft: str) -> str | None:
        """An answer that the field accepts; None = refused."""
        title = exposed(field.title, in_one_line=True)
        show(self._rows([Part(list(_field(field)))]))
        while True:
            answer = await self._keyboard.line(f"  {title}: ", draft)
            if answer is None:
                return None
            show(self._rows([Part([row(f"  {title}: {exposed(answer, in_one_line=True)}", wraps=True)])]))
            try:
                field.read(answer)
            except ValueError as error:
                show(self._rows([note(f"  {error}", "red")]))
                draft = answer
            else:
                return answer

    def _rows(self, parts: Sequence[Part]) -> list[str]:
        from shepherd.cli.terminal.markdown import to_rows  # heavy, and most chats have no question

        lines = (line for part in parts for line in part.format_lines(self._room))
        return [row for line in lines for row in to_rows(line, self._screen.console)]

    @property
    def _room(self) -> int:
        """The most lines of one part, so that the others stay visible."""
        return max(5, self._screen.console.height - 12)

    def _options(self, choices: Mapping[str, tuple[str, str]], default: str, *, can_unfold: bool = False) -> list[str]:
        words = {key: word for key, (word, _) in choices.items()} | ({"v": "view all of it"} if can_unfold else {})
        text = Text()
        for key, word in words.items():
            text.append(f"[{key}]", "bold").append(f" {word}  ")
        if default:
            text.append(f"Enter: {choices[default][0]}", "dim")
        if (n_waiting := self._n_asked - 1) > 0:
            text.append(f"  ({n_waiting} more question{'' if n_waiting == 1 else 's'})", "dim")
        return self._rows([Part([text])])


# -- what is shown ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """Lines of a question, folded where they are many."""

    lines: list[Text]
    most: int | None = None

    def format_lines(self, room: int) -> list[Text]:
        """All of the lines, the very same, or fewer of them."""
        return self.lines if self.most is None else folded(self.lines, min(self.most, room))


def note(text: str, style: str = "dim") -> Part:
    return Part([row(text, style, wraps=True)])


def exposed(text: str, *, in_one_line: bool = False) -> str:
    """`text` with a visible sign for every hidden character: control characters, characters without width, and marks
    of direction. Unlike `readable`, it removes no escape codes."""
    shown = "".join(_exposed(character) for character in text)
    return shown.replace("\n", "␊") if in_one_line else shown


def _exposed(character: str) -> str:
    if character == "\n" or character.isprintable():  # except for unusual spaces
        return character
    return chr(0x2400 + ord(character)) if character < " " else "�"


def _question(question: Question) -> Iterator[Part]:
    name = exposed(question.tool, in_one_line=True)
    is_usual = question.why in {"", EFFECTS[question.effect]}
    why = "" if is_usual else f" ({exposed(question.why, in_one_line=True)})"
    yield Part([Text(), row(f"{name} wants to {_WANTS[question.effect]}{why}", "bold yellow", wraps=True)])
    if question.subject:
        yield Part(_block(question.subject, "bold"), SUBJECT_LINES)
    for name, value in question.arguments.items():
        if value != question.subject:
            yield Part(_argument(name, value), ARGUMENT_LINES)
    if question.diff:
        lines = exposed(question.diff.strip("\n")).split("\n")
        yield Part([row(f"  {line}", diff_style(line), wraps=True) for line in lines], DIFF_LINES)


def _argument(name: str, value: Any) -> list[Text]:
    label = exposed(name, in_one_line=True)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if "\n" in text:
        return [row(f"  {label}:", wraps=True), *_block(text, "dim", indent="    ")]
    return [row(f"  {label}: {exposed(text)}", "dim", wraps=True)]


def _block(text: str, style: str, indent: str = "  ") -> list[Text]:
    return [row(f"{indent}{line}", style, wraps=True) for line in exposed(text).split("\n")]


def _request(form: Form) -> Iterator[Part]:
    server = exposed(form.server, in_one_line=True)
    yield Part([Text(), row(f"The MCP server {server} asks:", "bold yellow", wraps=True)])
    yield Part(_block(form.message.strip("\n"), ""), MESSAGE_LINES)
    if form.url:
        yield note("It asks you to open this page yourself. Answer yes to agree:")
        yield Part([row(f"  {exposed(form.url, in_one_line=True)}", "bold", wraps=True)])
        yield note(f"  on the machine {_host(form.url)}", "yellow")


def _host(url: str) -> str:
    """The host of an address, in ASCII, so that no letter looks like another."""
    try:
        host = urlsplit(url).hostname or ""
        return host.encode("idna").decode() or "?"
    except ValueError:  # also for a host that IDNA cannot encode
        return "?"


def _field(field: forms.Field) -> Iterator[Text]:
    if field.description:
        yield row(f"  {exposed(field.description, in_one_line=True)}", wraps=True)
    for number, (_, shown) in enumerate(field.choices, start=1):
        yield row(f"  {number}. {exposed(shown, in_one_line=True)}", wraps=True)
    yield row(f"  ({field.hint})", "dim", wraps=True)
