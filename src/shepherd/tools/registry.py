"""All the tools there are, under names that every provider takes and nothing else has.

    registry = Registry.found(files)       ours, those of packages (entry points `shepherd.tools`), of files, by hand
    registry.tools()                       all, the most useful first
    registry.find("Read"), .get("Read")    by name or alias, whatever case; None, or a `ToolError` that lists the names
    registry.add(tool, ..., group="x")     the names they got; a name that is taken gets a number
    registry.replace("x", tools)           the tools of an MCP server, which come, change and go (`remove("x")`)
    registry.group_of(name), .given()      where a tool is from; those that the operator has given himself
    registry.failures                      what could not be loaded, one sentence each

The program has one `Registry.instance()`, to which `register_tool` adds; what is added there, all registries that were
found have, too. No threads: one event loop, or one thread.

Not here: what can be a tool (`user_tools.py`), which of the tools a model is offered (`selection.py`), and what stands
before a call (`toolbox.py`).
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from shepherd.tools import selection
from shepherd.tools.base import ToolError
from shepherd.tools.tool import Tool
from shepherd.tools.user_tools import as_tool, find_tools, origin_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

logger = logging.getLogger(__name__)

ENTRY_POINTS = "shepherd.tools"
OURS = "shepherd"
"""The group of our own tools, which is the name of the package that they come with."""
BY_HAND = "registered"
"""The group of what `register_tool` adds."""
MOST_CHARS = 64
"""Of a name: what OpenAI, Anthropic and Gemini take."""
SHOWN_NAMES = 60
"""In a sentence for a model."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tool in a registry."""

    tool: Tool
    group: str
    origin: object
    """What it was made of: the same thing, found twice, is one tool."""


class Registry:
    """See the head of this file."""

    _instance: ClassVar[Registry | None] = None

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        """By name."""
        self._followers: weakref.WeakSet[Registry] = weakref.WeakSet()
        self._failures: list[str] = []
        self._files: set[str] = set()
        self.version = 0
        """Another one after every change."""

    @classmethod
    def instance(cls) -> Registry:
        """The one of the program: our tools, those of packages, and what was registered by hand."""
        if Registry._instance is None:
            registry = Registry._instance = Registry()
            registry._find_packages()
        return Registry._instance

    @classmethod
    def found(cls, files: Iterable[str | Path] = ()) -> Registry:
        """A new one with all that `instance()` has and gets, and the tools of these Python files.

        A file or package that cannot be used is told to the log, and listed in `failures`.
        """
        first = cls.instance()
        registry = cls()
        registry._entries, registry._failures = dict(first._entries), list(first._failures)
        first._followers.add(registry)
        for file in files:
            registry._load(Path(file).expanduser().resolve())
        return registry

    # what there is

    def tools(self) -> Sequence[Tool]:
        """The most useful first; of equal ones those that were there first."""
        return sorted((entry.tool for entry in self._entries.values()), key=selection.rank)

    def find(self, name: str) -> Tool | None:
        return find(name, self.tools())

    def get(self, name: str) -> Tool:
        """Raises: `ToolError` that lists the names."""
        tools = self.tools()
        if (found := find(name, tools)) is None:
            raise ToolError(no_such_tool(name, [each.name for each in tools]))
        return found

    def group_of(self, name: str) -> str:
        """`shepherd`, a package, a file, `registered`, or what `add` was told; empty for an unknown name."""
        entry = self._entries.get(name)
        return entry.group if entry else ""

    def given(self) -> list[str]:
        """Names of the tools that the operator has given himself, by hand or in a file: he wants them to be used."""
        return [name for name, entry in self._entries.items() if entry.group == BY_HAND or entry.group in self._files]

    @property
    def failures(self) -> Sequence[str]:
        """One sentence for each package and file whose tools cannot be used."""
        return tuple(self._failures)

    # what comes and goes

    def add(self, *things: object, group: str = BY_HAND) -> list[str]:
        """Their names in this registry, which may have had to be changed.

        What was made of the same function or class as one of that name takes its place: a file may both register what
        it has and be looked through.

        Raises: `TypeError` for something that is no tool; then none is added.
        """
        made = [(as_tool(thing), thing) for thing in things]
        names = [self._put(each, group, thing) for each, thing in made]
        for registry in self._followers:
            registry.add(*things, group=group)
        return names

    def register_tool(self, thing: object) -> str:
        """Add one tool; the name it got. Raises: `TypeError` for something that is no tool."""
        return self.add(thing)[0]

    def remove(self, group: str) -> None:
        """Take out all tools of a group."""
        self._entries = {name: entry for name, entry in self._entries.items() if entry.group != group}
        self.version += 1
        for registry in self._followers:
            registry.remove(group)

    def replace(self, group: str, tools: Iterable[object]) -> list[str]:
        """Take out all tools of a group and put these in; their names."""
        self.remove(group)
        return self.add(*tools, group=group)

    def _put(self, made: Tool, group: str, thing: object) -> str:
        origin = origin_of(thing)
        wanted = sanitised(made.name)
        held = self._entries.get(wanted)
        if held is not None and held.origin is origin:
            name, group = wanted, held.group
        else:
            name = free_name(wanted, self._entries)
            if name != wanted:
                assert held is not None
                logger.warning(
                    "the tool %r of %s gets the name %r: %s has a tool of that name", made.name, group, name, held.group
                )
        self._entries[name] = Entry(replace(made, name=name), group, origin)
        self.version += 1
        return name

    # where they come from

    def _find_packages(self) -> None:
        from importlib.metadata import entry_points  # noqa: PLC0415 - takes 20 ms to import

        # Ours come first: they keep their names.
        found = sorted(entry_points(group=ENTRY_POINTS), key=lambda each: (package_of(each) != OURS, package_of(each)))
        for point in found:
            self._take(package_of(point), f"the package {package_of(point)} ({point.value})", point.load)

    def _load(self, path: Path) -> None:
        self._files.add(str(path))
        self._take(str(path), f"the file {path}", lambda: module_of(path))

    def _take(self, group: str, what: str, load: Callable[[], object]) -> None:
        """Add what a package or file has; if that fails, say so and go on without it."""
        things: list[object] = []
        with self._told(f"the tools of {what}", group):
            things = find_tools(load())
            if not things:
                raise TypeError("it contains none")
        for thing in things:
            with self._told(f"a tool of {what}", group):
                self.add(thing, group=group)

    @contextmanager
    def _told(self, what: str, file: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # a stranger's code may do anything as it is imported
            logger.debug("%s", what, exc_info=error)
            sentence = f"{what} cannot be used: {type(error).__name__}: {error}{line_of(error, file)}"
            logger.warning("%s", sentence)
            self._failures.append(sentence)


ToolRegistry = Registry
"""The seeds' name of it."""


# -- names ------------------------------------------------------------------------------------------------------------


def sanitised(name: str) -> str:
    """The name as every provider takes it."""
    return selection.normalized(name)[:MOST_CHARS]


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """The name, or the first of `name_2`, `name_3` ... that is not taken."""
    name, n = wanted, 1
    held = frozenset(taken)
    while name in held:
        n += 1
        name = f"{wanted[: MOST_CHARS - len(str(n)) - 1]}_{n}"
    return name


def find(name: str, tools: Sequence[Tool]) -> Tool | None:
    """The tool that a model means: by name, else by alias, else by what the name would be if it were a tool's."""
    word = name.strip().casefold()
    for each in tools:
        if each.name.casefold() == word:
            return each
    for each in tools:
        if any(alias.casefold() == word for alias in each.aliases):
            return each
    plain = sanitised(name)
    return next((each for each in tools if each.name == plain), None)


def no_such_tool(name: str, names: Sequence[str]) -> str:
    """The sentence for a tool that a model has made up (X8)."""
    left = len(names) - SHOWN_NAMES
    known = ", ".join(names[:SHOWN_NAMES]) + (f" and {left} more" if left > 0 else "")
    return f"there is no tool {name[:80]!r}; " + (f"there are: {known}" if names else "there are none at all")


# -- packages and files ----------------------------------------------------------------------------------------------


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def module_of(path: Path) -> ModuleType:
    """The module that a file is; run once in the life of a program, whoever asks.

    Raises: whatever the file does.
    """
    from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415 - for few

    path = path.resolve()
    name = f"shepherd_tools_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise FileNotFoundError(f"there is no such file: {path}")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TypeError("the name of a file of tools must end in .py")
    module = sys.modules[name] = module_from_spec(spec)  # there, since dataclasses look for their module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def line_of(error: BaseException, file: str) -> str:
    """Where in the file an error is from, if it is from there."""
    trace, line = error.__traceback__, error.lineno if isinstance(error, SyntaxError) else None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line and file.endswith(".py") else ""
