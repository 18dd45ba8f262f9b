"""The files below a folder, in a stable order, and globs.

Paths are compared part by part: the regular expressions of `pathspec` take hours for a foreign rule `*a*a*a*a*a*a*a*b`.
Skipped are `SKIPPED` and what a `.gitignore` on the way names, unless the walk begins there. Links are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from shepherd.core.dataclasses import dataclass
from shepherd.tools.base import ToolError
from shepherd.tools.sandbox.folder import EntryKind, Folder

SKIPPED = frozenset({
    ".cache", ".git", ".gradle", ".hg", ".hypothesis", ".jj", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache",
    ".svn", ".tox", ".venv", "__pycache__", "node_modules",
})  # fmt: skip
"""Names of folders whose files a search leaves out; and paths:"""
NO_FILES = frozenset({"/dev", "/proc", "/sys"})
DEEPEST = 64
"""Levels of folders; each holds a handle."""
MOST_IGNORE_BYTES = 1 << 16
MOST_RULES = 300
"""Of one `.gitignore`: each is tried on each name."""
MOST_GLOBS = 64
"""Of one glob with alternatives in braces."""

Found = tuple[Folder, tuple[str, ...], EntryKind | None]
"""The open folder of an entry, its names from the top, and its kind; None = another kind."""


def walk(
    folder: Folder, closed: list[str] | None = None, above: tuple[str, ...] = (), rules: tuple[Rule, ...] = ()
) -> Generator[Found, None, None]:
    """All entries below a folder, a folder before its entries. `closed` gets the paths of those that cannot be read."""
    refused = [] if closed is None else closed
    try:
        entries = folder.scan()
        if any(name == ".gitignore" and kind == "file" for name, kind in entries):
            rules += tuple(rules_in(folder, len(above)))
    except OSError:
        refused.append(folder.path)
        return
    for name, kind in entries:
        names = (*above, name)
        if ignores(rules, names, kind == "directory"):
            continue
        yield folder, names, kind
        if kind != "directory" or name in SKIPPED or os.path.join(folder.path, name) in NO_FILES:
            continue
        try:
            if len(names) == DEEPEST:
                raise OSError
            with folder.child(name) as child:
                yield from walk(child, refused, names, rules)
        except OSError:
            refused.append(os.path.join(folder.path, name))


# -- .gitignore -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of a `.gitignore`."""

    depth: int
    """Of its folder below the top."""
    parts: tuple[str, ...]
    is_negated: bool
    only_folders: bool


def rules_in(folder: Folder, depth: int) -> Iterator[Rule]:
    """Raises: `OSError`."""
    handle = folder.open(".gitignore")
    try:
        text = os.read(handle, MOST_IGNORE_BYTES).decode(errors="replace")
    finally:
        os.close(handle)
    for line in text.split("\n")[:MOST_RULES]:
        glob = re.sub(r"(?<!\\)[ \r]+$", "", line).removeprefix("!")
        if glob.strip("/") and not line.startswith("#"):
            parts = [as_fnmatch(part) for part in glob.removeprefix("/").removesuffix("/").split("/")]
            if len(parts) == 1 and not glob.startswith("/"):
                parts.insert(0, "**")  # a name in any folder
            if parts[-1] == "**":
                parts.append("*")  # what is in a folder, not the folder
            yield Rule(depth, tuple(parts), line.startswith("!"), glob.endswith("/"))


def as_fnmatch(part: str) -> str:
    part = re.sub(r"(?<!\\)\[\^", "[!", part)
    return "**" if re.fullmatch(r"\*{2,}", part) else re.sub(r"\\([^!])", r"[\1]", part).replace("\\!", "!")


def ignores(rules: Iterable[Rule], names: Sequence[str], is_folder: bool) -> bool:
    """The verdict of the last rule that matches."""
    verdict = False
    for rule in rules:
        if verdict == rule.is_negated and (is_folder or not rule.only_folders):
            verdict ^= glob_matches(rule.parts, names[rule.depth :])
    return verdict


# -- globs ------------------------------------------------------------------------------------------------------------


def alternatives(glob: str) -> list[list[str]]:
    """The globs without braces of a glob, each in its parts; `**` is any number of folders. Raises: `ToolError`."""
    waiting = [glob if "{" in glob or "," not in glob else f"{{{glob}}}"] if glob else []
    found = []
    while waiting:
        each = waiting.pop()
        braces = re.search(r"\{([^{}]*)\}", each)
        if braces is None:
            found.append(parts_of(each.replace("\\", "/")))
        else:
            waiting += [each[: braces.start()] + word + each[braces.end() :] for word in braces[1].split(",")]
        if len(found) + len(waiting) > MOST_GLOBS:
            raise ToolError(f"the glob {glob[:80]!r} stands for more than {MOST_GLOBS} globs; use fewer")
    return found


def parts_of(glob: str) -> list[str]:
    """A glob without a `/` matches a name in any folder."""
    parts = [part for part in glob.split("/") if part not in {"", "."}]
    return parts if "/" in glob else ["**", *parts]


def glob_matches(parts: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a glob matches the file with these names, from the top."""

    def passed(places: Iterable[int]) -> set[int]:
        reached = set()
        for place in places:
            reached.add(place)
            while place < len(parts) and parts[place] == "**":
                place += 1
                reached.add(place)
        return reached

    places = passed([0])
    for name in names:
        places = passed(
            place if parts[place] == "**" else place + 1
            for place in places
            if place < len(parts) and (parts[place] == "**" or fnmatchcase(name, parts[place]))
        )
    return len(parts) in places
