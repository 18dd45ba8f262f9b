"""Whether a call may be carried out: the rules, earlier answers of the person, and the question.

    read_only, plan ─▶ deny ─▶ "never" ─▶ ask ─▶ allow ─▶ answered before ─▶ read, the memory, accepted edits ─▶ free
        │               │         │        │                                        └─ anything else ─┐
        └─────── refused ─────────┘        └──────────────────── asked ◀────────────────────────────┘
                                                no person: only the tools that the operator has enabled by name

The person changes the `Mode` of a conversation at any time: in plan mode nothing but reading runs, and with accepted
edits the files of the folder are written without a question.

A call that replaces or deletes a stored fact is not free, and is asked for each time. So is a change of a guarded file
(`tools/sandbox/guarded.py`): no rule and no answer before allows it, and without a person it is refused.

An answer is about the tool as it was: one of an MCP server that has changed is asked for again (`Tool.fingerprint`).

A rule is `name`, `category` or a glob over them, and may end with a glob over the call's subject, in brackets:
`execute_command(git status)`, `http_get(*.example)`, `write_file(notes/*)`. The subject is the command line, the host,
or the file to which the path leads with its links followed, so that `notes/../secret` is not in `notes`.

Not here: which folders and addresses can be touched at all (`tools/sandbox/roots.py`, `tools/sandbox/network.py`). No
rule opens those.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass, replace
from shepherd.process.files import keep_json, read_within
from shepherd.process.pools import in_pool
from shepherd.tools.base import Effect, Person, Question, ToolError, Verdict
from shepherd.tools.sandbox.guarded import why_guarded
from shepherd.tools.sandbox.network import Address
from shepherd.tools.sandbox.roots import home
from shepherd.tools.selection import matches
from shepherd.tools.tool import Tool

logger = logging.getLogger(__name__)

FREE_CATEGORIES = ("memory",)
"""Their writes need no consent, unless they overwrite something: the memory is the model's own notebook. It is not that
of a model too small to be relied on, whose every write is asked for (`asks_writes`)."""
SHELL_SIGNS = ";&|<>`$(){}\\\n\r"
"""Signs by which one command line runs another program; a `*` of an allowing rule does not match them."""
LONGEST_PATH = 4_096
MOST_REMEMBERED = 1_000
"""Answers that a file keeps; the oldest are dropped first."""

Mode = Literal["ask", "edits", "plan"]
MODES: Mapping[Mode, str] = {
    "ask": "asks before a tool changes something, runs a program or calls another machine",
    "edits": "writes files in the working folder without a question, and asks before anything else",
    "plan": "only reads: nothing is changed, and no program runs",
}
EDITS = frozenset({"write_file", "edit_file"})
"""The tools that write a file."""

EFFECTS: Mapping[Effect, str] = {
    "read": "only reads what is on this machine",
    "write": "changes what is on this machine",
    "run": "runs programs",
    "net": "calls other machines",
}


READ_ONLY, PLANNING = "read-only", "in plan mode"
_INSTEAD = {
    READ_ONLY: "continue without it",
    PLANNING: "read what you need, and tell the user what you would do; the user leaves plan mode",
}


class NotPermitted(ToolError):
    """A call that the rules or a person refuse. The sentence contains only the name of the tool."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    """A glob over names and categories."""
    subject: str | None = None
    """A glob over the subject of a call; None = any."""

    @classmethod
    def read(cls, text: str) -> Rule:
        """Raises: `InvalidRequest`."""
        name, bracket, rest = text.strip().partition("(")
        if not name or (bracket and not rest.endswith(")")):
            raise InvalidRequest(
                f"the rule {text[:80]!r} is not valid; write a tool, a category or a glob, and a subject in brackets "
                "if needed: execute_command(git status)"
            )
        return cls(name.strip().casefold(), rest[:-1] if bracket else None)

    def __str__(self) -> str:
        return self.name if self.subject is None else f"{self.name}({self.subject})"

    def is_about(self, tool: Tool) -> bool:
        return matches(tool, [self.name])

    def forbids(self, call: Call) -> bool:
        """Whether it matches a call in any spelling of its subject, or may match it."""
        if not self.is_about(call.tool):
            return False
        if self.subject is None or call.is_doubtful:
            return True
        glob = plain(self.subject).casefold()  # some systems ignore the case of names
        return any(fnmatchcase(it.casefold(), glob) for it in call.spellings)

    def permits(self, call: Call) -> bool:
        """Whether it matches a call beyond doubt."""
        if not self.is_about(call.tool):
            return False
        if self.subject is None or self.subject == "*":
            return True
        if call.kind == "command":  # the line may contain no sign of the shell that the rule does not contain
            anything = f"[^{re.escape(SHELL_SIGNS)}]"
            parts = ({"*": f"{anything}*", "?": anything}.get(char, re.escape(char)) for char in self.subject)
            return re.fullmatch("".join(parts), call.subject) is not None
        # A glob of hosts must not match the rest of an address.
        means_url = "://" in self.subject
        ways = [it for it in call.certain if call.kind != "address" or ("://" in it) == means_url]
        return any(fnmatchcase(it, plain(self.subject)) for it in ways)


def plain(text: str) -> str:
    """The normal form of a name: macOS takes several spellings for the same name."""
    return unicodedata.normalize("NFC", os.path.normcase(text))


# -- the subject of a call --------------------------------------------------------------------------------------------

SubjectKind = Literal["command", "address", "path", "text"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the rules see it."""

    tool: Tool
    effect: Effect
    kind: SubjectKind = "text"
    subject: str = ""
    """For a person, and for remembered answers; empty = the tool has none."""
    certain: tuple[str, ...] = ()
    """The spellings of the subject that leave no doubt."""
    spellings: tuple[str, ...] = ()
    """Those, and all others."""
    is_doubtful: bool = False
    """The subject is not known: every forbidding rule with a subject matches, and no allowing one does."""
    is_within: bool = False
    """The path leads to a place in the folder, with its links followed."""
    guarded: str = ""
    """What the changed file is that is asked for each time; empty = another one."""
    overwrites: bool = False
    """It replaces or deletes what is stored, which is asked for each time."""
    asks_writes: bool = False
    """No write is free, not one to the memory either."""

    @property
    def is_free(self) -> bool:
        """Whether it needs no consent by its kind."""
        is_own = self.tool.category in FREE_CATEGORIES and not (self.overwrites or self.asks_writes)
        return self.effect == "read" or (self.effect == "write" and is_own)

    @property
    def is_edit(self) -> bool:
        """Whether it writes a file in the folder, by a tool of ours."""
        return self.is_within and self.tool.name in EDITS and not self.tool.fingerprint

    @property
    def does(self) -> str:
        return "replaces or deletes what is stored" if self.overwrites else EFFECTS[self.effect]


def about(tool: Tool, arguments: Mapping[str, Any], folder: Path, own: Sequence[str] = ()) -> Call:
    """A call with its subject; relative paths begin in `folder`. `own`: see `why_guarded`. Reads the disk to follow
    links."""
    effect = tool.effect_of(arguments)
    given = arguments.get(tool.subject) if tool.subject else None
    if given is None and tool.subject:
        given = tool.parameters.get("properties", {}).get(tool.subject, {}).get("default")
    if given is None:
        return Call(tool, effect)
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
    if effect == "run":
        return Call(tool, effect, "command", text, (text,), (plain(text),))
    if tool.category == "filesystem":
        return _about_path(Call(tool, effect, "path", text), folder, own)
    if tool.category == "http":
        return _about_address(Call(tool, effect, "address", text))
    return Call(tool, effect, "text", text, (plain(text),), (plain(text),))


def _about_path(call: Call, folder: Path, own: Sequence[str]) -> Call:
    """Where a path leads, as `Roots` walks it: from the folder if it is within, and from the root of the disk."""
    text = call.subject
    loosely = (plain(text), plain(os.path.basename(text.rstrip("/"))))
    try:
        if len(text) > LONGEST_PATH:
            raise ValueError(text)
        real = os.path.realpath(folder / home(text))
        parent, name = os.path.split(os.path.normpath(folder / home(text)))  # the link itself, which can be deleted
        link = os.path.join(os.path.realpath(parent), name)
    except (OSError, ValueError):  # a NUL in it
        return replace(call, spellings=loosely, is_doubtful=True)
    base = str(folder)
    within = base if base.endswith(os.sep) else base + os.sep
    ways = (".", real) if real == base else (real[len(within) :], real) if real.startswith(within) else (real,)
    certain = tuple(map(plain, ways))
    guarded = "" if call.effect == "read" else why_guarded(real, own) or why_guarded(link, own)
    return replace(
        call,
        subject=ways[0],
        certain=certain,
        spellings=(*certain, *loosely),
        is_within=real.startswith(within),
        guarded=guarded,
    )


def _about_address(call: Call) -> Call:
    """The host, with its port, and the whole address, as the HTTP tools read it."""
    try:
        target = Address.of(call.subject)
    except ToolError:
        return replace(call, spellings=(call.subject,), is_doubtful=True)
    ways = (target.host, f"{target.host}:{target.port}", target.url)
    return replace(call, subject=target.host, certain=ways, spellings=(*ways, call.subject))


# -- remembered answers -----------------------------------------------------------------------------------------------


Key = tuple[str, str]
"""The name of a tool, and the subject of a call."""


class ConsentStore:
    """The file of the calls that were answered with "always", by folder. Several processes may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def of(self, folder: Path) -> dict[Key, str]:
        """The calls that are allowed in a folder, each with the fingerprint of its tool; none if the file cannot be
        read."""
        found = self._read().get(str(folder), [])
        rows = (
            row
            for row in found
            if isinstance(row, list) and len(row) in {2, 3} and all(isinstance(it, str) for it in row)
        )
        return {(name, subject): "".join(rest) for name, subject, *rest in rows}

    def add(self, folder: Path, key: Key, fingerprint: str = "") -> None:
        """Remember an answer. Raises: `OSError`."""
        self._change(folder, lambda kept: {**{each: kept[each] for each in kept if each != key}, key: fingerprint})

    def drop(self, folder: Path, forgotten: Callable[[Key], bool]) -> None:
        """Raises: `OSError`."""
        self._change(folder, lambda kept: {each: kept[each] for each in kept if not forgotten(each)})

    def _change(self, folder: Path, change: Callable[[dict[Key, str]], dict[Key, str]]) -> None:
        # Read again each time: another process may have written. Of two at the same moment one answer is asked again.
        everything = self._read()
        rows = [[*key, *filter(None, (fingerprint,))] for key, fingerprint in change(self.of(folder)).items()]
        everything[str(folder)] = rows[-MOST_REMEMBERED:]
        if not rows:
            del everything[str(folder)]
        keep_json(self.path, {"version": 1, "allowed": everything})

    def _read(self) -> dict[str, Any]:
        try:
            read = json.loads(read_within(self.path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("the calls that are always allowed cannot be read, and are asked again: %s: %s",
                           self.path, error)  # fmt: skip
            return {}
        allowed = read.get("allowed") if isinstance(read, dict) else None
        return allowed if isinstance(allowed, dict) else {}


# -- the decision -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of any call of a tool."""

    verdict: Literal["free", "asked", "refused", "shown"]
    """`shown`: its change is shown and not made."""
    why: str


class Permission:
    """The calls that one conversation may make. On one event loop; questions wait for each other."""

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        enabled: Iterable[str] = (),
        read_only: bool = False,
        dry_run: bool = False,
        person: Person | None = None,
        answers: ConsentStore | None = None,
        folder: Path | None = None,
        own: Sequence[str] = (),
        asks_writes: bool = False,
    ) -> None:
        """`enabled`: the names that the operator has chosen; without a person, they are allowed. `answers`: keeps
        "always"; None = for the conversation only. `folder`: the folder where relative paths begin and for which
        "always" is kept; None = the working folder. `own`: our files and folders besides those of a usual name, which
        are guarded. `asks_writes`: as in `Call`. Raises: `InvalidRequest` for a rule that cannot be read.
        """
        self.read_only, self.dry_run = read_only, dry_run
        """May change at any time, as the mode and the rules may."""
        self.mode: Mode = "ask"
        self.allow, self.ask, self.deny = (tuple(map(Rule.read, rules)) for rules in (allow, ask, deny))
        self.person = person
        self._asks_writes = asks_writes
        self._own = tuple(os.path.realpath(each) for each in own)
        self._enabled = tuple(map(Rule.read, enabled))
        self._answers = answers
        self.folder = Path(os.path.realpath(folder or Path.cwd()))
        """A `ConversationToolbox` sets it to the base of its file tools."""
        self._session: dict[Key, str] = {}
        """Allowed in this conversation, each with the fingerprint of its tool."""
        self._refused: set[Key] = set()
        self._asking = asyncio.Lock()

    async def check(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        preview: Callable[[], Awaitable[str]] | None = None,
        *,
        overwrites: bool = False,
    ) -> None:
        """Return if a call is free, or when a person allows it. `preview` makes the diff of the question; what it
        raises, this raises. `overwrites`: it replaces or deletes what is stored. A dry run has no questions. Raises:
        `NotPermitted` with the reason, and what the model should do.
        """
        call = about(tool, arguments, self.folder, self._own)
        call = replace(call, overwrites=overwrites, asks_writes=self._asks_writes)
        if not self._is_asked(call) or self.dry_run:
            return
        rule = next((rule for rule in self.ask if rule.forbids(call)), None)
        if self.person is None and rule:
            raise NotPermitted(
                f"the user must be asked about this call (ask: {rule}), and no user is present; continue without it"
            )
        if self.person is None and call.guarded:
            raise NotPermitted(
                f"this is {call.guarded}: the user must be asked about each change, and no user is present; continue "
                "without it, or tell the user"
            )
        if self.person is None:
            if any(rule.is_about(tool) for rule in self._enabled):
                return
            raise NotPermitted(
                f"{tool.name} {call.does}, and no user is present to allow it; it needs --allow-tools "
                f"{tool.name} (tools.allow). Continue without it, or tell the user"
            )
        async with self._asking:
            # The answer to the question before may also apply to this call.
            if not self._is_asked(call):
                return
            diff = await preview() if preview is not None else ""
            why = next((f"the rule ask: {rule}" for rule in self.ask if rule.forbids(call)), call.does)
            why = call.guarded or await in_pool("tools", self._change_of, call) or why
            each_time = bool(call.guarded) or call.overwrites
            question = Question(tool.name, arguments, call.effect, call.subject, diff, why, each_time)
            verdict = await self.person.allow(question)
            if verdict == "never" or not each_time:
                await in_pool("tools", self._remember, call, verdict)
        if verdict not in {"once", "session", "always"}:
            raise NotPermitted(
                f"the user refused this call of {tool.name}; do not repeat it, ask the user what to do instead"
            )

    def remembered(self) -> list[str]:
        """The answers so far, a line each: a rule, and for how long."""

        def format_rule(tool: str, subject: str) -> str:
            return f"{tool}({subject})" if subject else tool

        kept = self._answers.of(self.folder) if self._answers else []
        return [
            *(f"{format_rule(*pair)}: yes, in this conversation" for pair in self._session),
            *(f"{format_rule(*pair)}: no, in this conversation" for pair in sorted(self._refused)),
            *(f"{format_rule(*pair)}: yes, always in {self.folder}" for pair in kept),
        ]

    def forget(self, pattern: str | None = None) -> int:
        """Forget the answers about the calls that a rule matches, or all; their number. Raises: `InvalidRequest`,
        `OSError`.
        """
        rule = Rule.read(pattern or "*")

        def is_meant(pair: Key) -> bool:
            return fnmatchcase(pair[0].casefold(), rule.name) and (
                rule.subject is None or rule.subject == pair[1] or fnmatchcase(pair[1], rule.subject)
            )

        kept = [pair for pair in (self._answers.of(self.folder) if self._answers else []) if is_meant(pair)]
        ours = [pair for pair in (*self._session, *self._refused) if is_meant(pair)]
        if self._answers and kept:
            self._answers.drop(self.folder, is_meant)
        for pair in ours:
            self._session.pop(pair, None)
            self._refused.discard(pair)
        return len(kept) + len(ours)

    def _is_asked(self, call: Call) -> bool:
        """Whether a person must be asked about a call; False = it is free. Raises: `NotPermitted` if it is refused."""
        tool, key = call.tool, (call.tool.name, call.subject)
        if closed := self._closed(tool, call.effect):
            raise NotPermitted(
                f"this conversation is {closed}, and {tool.name} {EFFECTS[call.effect]}; {_INSTEAD[closed]}"
            )
        if rule := next((rule for rule in self.deny if rule.forbids(call)), None):
            raise NotPermitted(f"the user's rules forbid this call of {tool.name} (deny: {rule}); continue without it")
        if key in self._refused:
            raise NotPermitted(f"the user refused this call of {tool.name} for this conversation; continue without it")
        if call.guarded or any(rule.forbids(call) for rule in self.ask):
            return True
        if any(rule.permits(call) for rule in self.allow) or self._session.get(key) == tool.fingerprint:
            return False
        if call.is_free or (self.mode == "edits" and call.is_edit):
            return False
        return not (self._answers and self._answers.of(self.folder).get(key) == tool.fingerprint)

    def _closed(self, tool: Tool, effect: Effect) -> str:
        """What the conversation is, where it refuses all such calls; empty = it does not."""
        if effect == "read" or tool.name == "http_get":
            return ""
        return READ_ONLY if self.read_only else PLANNING if self.mode == "plan" else ""

    def _change_of(self, call: Call) -> str:
        """Says that a tool is no longer the one that was allowed; empty = it is, or was not."""
        key, now = (call.tool.name, call.subject), call.tool.fingerprint
        before = self._session.get(key) or (self._answers.of(self.folder).get(key) if self._answers else "")
        return "it has changed since you allowed it" if now and before and before != now else ""

    def _remember(self, call: Call, verdict: Verdict) -> None:
        key = (call.tool.name, call.subject)
        if verdict == "never":
            self._refused.add(key)
            self._session.pop(key, None)
        if verdict == "session":
            self._session[key] = call.tool.fingerprint
        if verdict != "always":
            return
        try:
            if self._answers is not None:
                self._answers.add(self.folder, key, call.tool.fingerprint)
                return
        except OSError as error:
            logger.warning('the answer "always" cannot be saved, and counts for this conversation only: %s', error)
        self._session[key] = call.tool.fingerprint

    def explain(self, tool: Tool) -> Decision:
        """The outcome of calls of a tool, as far as it is known without arguments."""
        try:
            effect = tool.effect_of({})
        except Exception:  # a function of arguments that are not there
            effect = "run"
        what = EFFECTS[effect]

        def met(rules: Sequence[Rule]) -> str:
            """The rule about any call of it."""
            return next((str(rule) for rule in rules if rule.subject in {None, "*"} and rule.is_about(tool)), "")

        if closed := self._closed(tool, effect):
            return Decision("refused", f"{closed}, and it {what}")
        if rule := met(self.deny):
            return Decision("refused", f"deny: {rule}")
        if self.dry_run and effect != "read":
            return Decision("shown" if tool.preview else "refused", f"dry run, and it {what}")
        if rule := met(self.ask):
            return Decision("asked" if self.person is not None else "refused", f"ask: {rule}")
        if rule := met(self.allow):
            return Decision("free", f"allow: {rule}")
        if Call(tool, effect, asks_writes=self._asks_writes).is_free:
            why = what if effect == "read" else "the memory is the model's own"
            return Decision("free", why + (", unless it replaces or deletes a value" if tool.overwrites else ""))
        if self.mode == "edits" and tool.name in EDITS and not tool.fingerprint:
            return Decision("free", "in the working folder (accept edits)")
        if self.person is not None:
            return Decision("asked", what)
        if rule := met(self._enabled):
            return Decision("free", f"enabled: {rule}")
        return Decision("refused", f"it {what}, and no user is present to allow it")
