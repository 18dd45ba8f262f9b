"""All tools, under unique names that every provider takes.

    registry = Registry.found(files)       ours, those of packages (entry points `shepherd.tools`), of files, by hand
    registry.tools()                       all, the most useful first
    registry.find("Read"), .get("Read")    by name or alias, in any case; None, or a `ToolError` that lists the names
    registry.add(tool, ..., group="x")     returns their names; a name that is taken gets a number
    registry.replace("x", tools)           the tools of an MCP server, which change (`remove("x")`)
    registry.group_of(name), .given()      the origin of a tool; those of files and of `register_tool`
    registry.failures                      what could not be loaded, one sentence each

The program has one `Registry.instance()`, to which `register_tool` adds; all registries that were found get what is
added there. No threads: one event loop, or one thread.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from shepherd.core.dataclasses import dataclass, replace
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
    tool: Tool
    group: str
    origin: object
    """Its class or function: the same one, found twice, is one tool."""


class Registry:
    _instance: ClassVar[Registry | None] = None

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        """By name."""
        self._followers: weakref.WeakSet[Registry] = weakref.WeakSet()
        self.failures: list[str] = []
        """One sentence for each package and file whose tools cannot be used."""
        self._files: set[str] = set()

    @classmethod
    def instance(cls) -> Registry:
        """The one of the program: our tools, those of packages, and those of `register_tool`."""
        if Registry._instance is None:
            from importlib.metadata import entry_points  # noqa: PLC0415 - takes 20 ms to import

            registry = Registry._instance = Registry()
            found = ((package_of(point), point) for point in entry_points(group=ENTRY_POINTS))
            # Ours come first: they keep their names.
            for package, point in sorted(found, key=lambda each: (each[0] != OURS, each[0])):
                registry._take(package, f"the package {package} ({point.value})", point.load)
        return Registry._instance

    @classmethod
    def found(cls, files: Iterable[str | Path] = ()) -> Registry:
        """A new one with all that `instance()` has and gets, and the tools of these Python files. A file or package
        that cannot be used is logged, and listed in `failures`."""
        first = cls.instance()
        registry = cls()
        registry._entries, registry.failures = dict(first._entries), list(first.failures)
        first._followers.add(registry)
        for path in (Path(file).expanduser().resolve() for file in files):
            registry._files.add(str(path))
            registry._take(str(path), f"the file {path}", partial(module_of, path))
        return registry

    # reading

    def tools(self) -> Sequence[Tool]:
        """The most useful first; of equal ones the oldest."""
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
        """`shepherd`, a package, a file, `registered`, or the `group` of `add`; empty for an unknown name."""
        entry = self._entries.get(name)
        return entry.group if entry else ""

    def given(self) -> list[str]:
        """Names of the tools of the operator's files and of `register_tool`."""
        return [name for name, entry in self._entries.items() if entry.group == BY_HAND or entry.group in self._files]

    # changing

    def add(self, *things: object, group: str = BY_HAND) -> list[str]:
        """Add tools; their names in this registry, which may differ from their own.

        A tool of the same function or class as the one of that name replaces it: a file may register its tools, too.

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
        return name

    def _take(self, group: str, what: str, load: Callable[[], object]) -> None:
        """Add the tools of a package or file; a failure is reported."""
        things: list[object] = []
        with self._reported(f"the tools of {what}", group):
            things = find_tools(load())
            if not things:
                raise TypeError("it contains none")
        for thing in things:
            with self._reported(f"a tool of {what}", group):
                self.add(thing, group=group)

    @contextmanager
    def _reported(self, what: str, file: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # foreign code may do anything as it is imported
            logger.debug("%s", what, exc_info=error)
            sentence = f"{what} cannot be used: {type(error).__name__}: {error}{line_of(error, file)}"
            logger.warning("%s", sentence)
            self.failures.append(sentence)


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
    """The tool of a name in a call: by its name, else by an alias, else by the name as every provider takes it."""
    word, plain = name.strip().casefold(), sanitised(name)
    by_name = (each for each in tools if each.name.casefold() == word)
    by_alias = (each for each in tools if any(alias.casefold() == word for alias in each.aliases))
    return next(itertools.chain(by_name, by_alias, (each for each in tools if each.name == plain)), None)


def no_such_tool(name: str, names: Sequence[str]) -> str:
    """The sentence for a tool that does not exist (X8)."""
    left = len(names) - SHOWN_NAMES
    known = ", ".join(names[:SHOWN_NAMES]) + (f" and {left} more" if left > 0 else "")
    return f"there is no tool {name[:80]!r}; " + (f"there are: {known}" if names else "there are none at all")


# -- packages and files ----------------------------------------------------------------------------------------------


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def module_of(path: Path) -> ModuleType:
    """The module of a file, which runs once in the life of a program. Raises: any error of the file."""
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
    """The line of the file that has raised an error, if one has."""
    trace, line = error.__traceback__, error.lineno if isinstance(error, SyntaxError) else None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line and file.endswith(".py") else ""
