"""`search_files`: lines that match a pattern in the files of a tree, or files by their names.

    walk the tree ─▶ names that the glob takes ─▶ text, in chunks ─▶ matching lines ─▶ as many as there is room for
                                                      └─ patterns: in a child (`process/isolated.py`),
                                                         since one may never end; plain text: here

Links are not followed; binary files and the folders that `tools/sandbox/tree.py` skips are not searched.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from shepherd.core.dataclasses import dataclass, field
from shepherd.process.isolated import WorkFailed, run_isolated
from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.content import in_utf8, lines_that_fit, opened, sniff
from shepherd.tools.builtin.diff import occurrences
from shepherd.tools.builtin.files import FOLDER, NOTE_TOKENS, PATH, roots_of, stored_result
from shepherd.tools.sandbox.folder import Folder, kind_of
from shepherd.tools.sandbox.roots import Location, printable, quoted
from shepherd.tools.sandbox.tree import alternatives, glob_matches, walk
from shepherd.tools.signature import in_thread, tool
from shepherd.tools.tool import ToolContext

MOST_SECONDS = 20.0
"""Then the search stops and shows its results."""
MOST_FILE_BYTES = 8 << 20
"""Of a file in a tree; larger ones are searched only when `path` names them."""
CHUNK_CHARS = 1 << 20
BATCH_CHARS = 4 << 20
"""Of text that is sent to the child at once."""
MOST_SHOWN = 1_000
LONGEST_LINE = 300
"""Of a line that is shown, around the match."""
LONGEST_PATTERN = 2_000
MOST_CONTEXT = 50
MODES = {"content": "content", "files": "files", "files_with_matches": "files", "count": "count"}
PLAIN = re.compile(r"[^\\\[\](){}*+?.^$|]+")
"""A pattern that stands for itself."""
GLOB = re.compile(r"\*|[^\\\[]*[^\\\[]\*\*")
"""Patterns that are globs and not regular expressions."""


@tool(
    category="filesystem", effect="read", aliases=("Grep", "Glob", "find_files", "search"), subject="path",
    argument_aliases={
        **PATH, **FOLDER, "query": "pattern", "regex": "pattern", "text": "pattern", "include": "glob",
        "file_pattern": "glob", "literal": "fixed", "fixed_strings": "fixed", "case_insensitive": "ignore_case",
        "-i": "ignore_case", "-C": "context", "-A": "context", "-B": "context", "context_lines": "context",
        "context_before": "context", "context_after": "context", "output_mode": "mode", "head_limit": "limit",
        "max_results": "limit", "line_numbers": "", "-n": "", "multiline": "",
    },
)  # fmt: skip
async def search_files(
    call: ToolContext,
    pattern: Annotated[str, "regex; empty: find names by glob"] = "",
    path: str = ".",
    glob: Annotated[str, "such as *.py"] = "",
    *,
    fixed: Annotated[bool, "plain text, no regex"] = False,
    ignore_case: bool = False,
    context: Annotated[int, "lines around"] = 0,
    mode: Annotated[str, "content, files, count"] = "content",
    limit: int = 100,
) -> Result:
    """Search the text of files, or their names."""
    if not glob and not fixed and GLOB.match(pattern):
        pattern, glob = "", pattern
    if not pattern and not glob:
        raise ToolError('give a pattern, for text in files, or a glob such as "*.py", for names of files')
    if len(pattern) > LONGEST_PATTERN or len(glob) > LONGEST_PATTERN:
        raise ToolError(f"pattern and glob may have {LONGEST_PATTERN:,} characters")
    if (chosen := MODES.get(mode.strip().lower())) is None:
        raise ToolError(f"mode must be content, files or count, not {mode[:40]!r}")
    if limit < 1 or context < 0:
        raise ToolError("limit must be at least 1, context at least 0")
    search = Search(
        call, pattern, path, alternatives(glob), fixed=fixed, ignore_case=ignore_case,
        context=min(context, MOST_CONTEXT), mode=chosen, limit=min(limit, MOST_SHOWN),
    )  # fmt: skip
    try:
        result: Result = await in_thread(search.run)
    finally:
        search.is_over = True  # also for its thread, when we are cancelled
    return result


@dataclass(frozen=True, slots=True)
class Chunk:
    name: str
    first: int
    """The number of its first line, from 1."""
    text: str


Hit = tuple[int, int]
"""A line of a chunk, from 0, and the character in it where the match begins."""


@dataclass(slots=True)
class Search:
    """One search, in a thread."""

    call: ToolContext
    pattern: str
    path: str
    globs: Sequence[Sequence[str]]
    """A file must match one of them; empty = all files."""
    fixed: bool
    ignore_case: bool
    context: int
    mode: str
    limit: int
    is_over: bool = False
    lines: list[str] = field(default_factory=list)
    """To be shown."""
    counts: Counter[str] = field(default_factory=Counter)
    """Matching lines by file."""
    n_files: int = 0
    is_more: bool = False
    """More than `limit` has been found."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Files that were not searched, by reason."""
    closed: list[str] = field(default_factory=list)
    """Folders that may not be read."""
    until: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS)

    def run(self) -> Result:
        """Raises: `ToolError`."""
        if (text := stored_result(self.call, self.path)) is not None:
            self.look_in(cut(self.path, iter([text])))
            return self.result()
        with roots_of(self.call).find(self.path) as place:
            match kind_of(place.stat()):
                case "file" if self.pattern:
                    self.look_in(self.chunks(place.folder, place.name, place.shown, None))
                case "file":
                    self.lines.append(place.shown)
                case "directory":
                    with place.open_folder() as folder:
                        files = self.files(place, folder)
                        if self.pattern:
                            self.look_in(chunk for file in files for chunk in self.chunks(*file, MOST_FILE_BYTES))
                        else:
                            self.lines = [shown for _, _, shown in itertools.islice(files, self.limit)]
                            self.is_more = next(files, None) is not None
                case kind:
                    raise ToolError(f"{quoted(self.path)} is a {kind}; only files can be searched")
        return self.result()

    @property
    def is_late(self) -> bool:
        return self.is_over or time.monotonic() > self.until

    def files(self, place: Location, folder: Folder) -> Iterator[tuple[Folder, str, str]]:
        """The files that the globs take: the open folder, the name in it, the path from the working folder."""
        above = () if place.shown == "." else (place.shown,)
        for inner, names, kind in walk(folder, self.closed):
            if self.is_late:
                return
            if kind == "file" or (kind != "directory" and not self.pattern):
                shown = "/".join([*above, *names])
                if not self.globs or any(
                    glob_matches(each, names) or glob_matches(each, shown.split("/")) for each in self.globs
                ):
                    yield inner, names[-1], printable(shown)

    def chunks(self, folder: Folder, name: str, shown: str, most: int | None) -> Iterator[Chunk]:
        """The text of a file; none if it is binary, too large or cannot be read."""
        try:
            status = folder.look(name)
            if status is None or (most is not None and status.st_size > most):
                self.skipped["too large" if status else "gone"] += 1
                return
            with opened(folder, name) as blocks:
                head = next(blocks, b"")
                encoding, _ = sniff(head)
                if encoding is None:
                    self.skipped["not text"] += 1
                    return
                self.n_files += 1
                text = in_utf8(itertools.chain([head], blocks), encoding)
                yield from cut(shown, (block.decode() for block in text))
        except OSError:
            self.skipped["not readable"] += 1

    # what matches

    def look_in(self, chunks: Iterable[Chunk]) -> None:
        batch: list[Chunk] = []
        n_batches = 0
        for chunk in chunks:
            batch.append(chunk)
            if sum(len(each.text) for each in batch) >= BATCH_CHARS:
                self.match(batch)
                batch, n_batches = [], n_batches + 1
                if self.is_more or self.is_late:
                    return
        if batch or not n_batches:  # without text, too: a wrong pattern is an error
            self.match(batch)

    def match(self, chunks: Sequence[Chunk]) -> None:
        most = {"content": self.limit + 1, "files": 1, "count": BATCH_CHARS}[self.mode]  # of a chunk
        words = [chunk.text for chunk in chunks]
        found: list[list[Hit]]
        if not self.ignore_case and (self.fixed or PLAIN.fullmatch(self.pattern)):
            found = [lines_with(self.pattern, text, most) for text in words]
        else:
            payload = {
                "pattern": re.escape(self.pattern) if self.fixed else self.pattern,
                "ignore_case": self.ignore_case,
                "texts": words,
                "most": most,
            }
            try:
                found = run_isolated("shepherd.tools.builtin.search:lines_that_match", payload)
            except WorkFailed as error:
                raise ToolError(f"the pattern {quoted(self.pattern)}: {error.message}") from error
        for chunk, hits in zip(chunks, found, strict=True):
            room = self.limit - (self.counts.total() if self.mode == "content" else len(self.counts))
            if hits and room <= 0 and (self.mode == "content" or chunk.name not in self.counts):
                self.is_more = True
                return
            if hits and self.mode == "content":
                self.is_more = len(hits) > room
                hits = hits[:room]
                self.lines += self.format_hits(chunk, dict(hits))
            if hits:
                self.counts[chunk.name] += len(hits)

    def format_hits(self, chunk: Chunk, hits: Mapping[int, int]) -> Iterator[str]:
        lines = chunk.text.removesuffix("\n").split("\n")
        around = range(-self.context, self.context + 1)
        wanted = sorted({at + step for at in hits for step in around if 0 <= at + step < len(lines)})
        before = None
        for at in wanted:
            if self.context and (self.lines or before is not None) and before != at - 1:
                yield "--"
            sign = ":" if at in hits else "-"
            line = clipped(lines[at].removesuffix("\r"), hits.get(at, 0))
            yield f"{chunk.name}{sign}{chunk.first + at}{sign}{line}"
            before = at

    def result(self) -> Result:
        lines = {
            "content": self.lines,
            "files": self.lines if not self.pattern else list(self.counts),
            "count": self.lines if not self.pattern else [f"{name}: {n:,}" for name, n in self.counts.items()],
        }[self.mode]
        n_fit = lines_that_fit(lines, self.call.budget - NOTE_TOKENS, self.call.count) if lines else 0
        notes = []
        if n_fit < len(lines) or self.is_more:
            notes.append("there is more; narrow it down with path, glob or pattern")
        if self.is_late:
            notes.append(f"stopped after {MOST_SECONDS:g} s; narrow it down with path or glob")
        skipped = [f"{n:,} {why}" for why, n in self.skipped.items()]
        if self.closed:
            skipped.append(f"the {'folder' if len(self.closed) == 1 else f'{len(self.closed):,} folders, one of them'} "
                           f"{quoted(roots_of(self.call).shown(self.closed[0]))}")  # fmt: skip
        if skipped:
            notes.append("skipped: " + ", ".join(skipped))
        note = f"\n[{'; '.join(notes)}]" if notes else ""
        if not lines:
            sought = f"line matches {quoted(self.pattern)}" if self.pattern else "file has such a name"
            files = f" in {numbered(self.n_files, 'file')}" if self.pattern else ""
            return Result(f"No {sought}{files}.{note}", summary="nothing found")
        where = numbered(len(self.counts if self.pattern else lines), "file")
        found = f"{numbered(self.counts.total(), 'line')} in {where}" if self.pattern else where
        return Result("\n".join(lines[:n_fit]) + note, summary=found)


def numbered(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'s' * (n != 1)}"


# -- text -------------------------------------------------------------------------------------------------------------


def cut(name: str, pieces: Iterator[str]) -> Iterator[Chunk]:
    """The text in chunks of whole lines, but for lines that are longer than a chunk."""
    first, text = 1, ""
    for piece in pieces:
        text += piece
        if len(text) < CHUNK_CHARS:
            continue
        end = text.rfind("\n") + 1 or len(text)
        yield Chunk(name, first, text[:end])
        first += text.count("\n", 0, end)
        text = text[end:]
    if text:
        yield Chunk(name, first, text)


def lines_with(wanted: str, text: str, most: int) -> list[Hit]:
    """The lines in which `wanted` begins."""
    places = ((line, at - text.rfind("\n", 0, at) - 1) for line, at in occurrences(wanted, text, once_a_line=True))
    return [*itertools.islice(places, most)]


def lines_that_match(payload: Mapping[str, Any]) -> list[list[Hit]]:
    """For `run_isolated`: the lines of each text that match a regular expression. Raises: `ToolError`."""
    try:
        regex = re.compile(payload["pattern"], re.IGNORECASE if payload["ignore_case"] else 0)
    except (re.error, OverflowError) as error:
        raise ToolError(f"it is not a regular expression ({error}); fixed=true searches for plain text") from error
    found: list[list[Hit]] = []
    for text in payload["texts"]:
        lines = text.removesuffix("\n").split("\n")
        matches = ((at, regex.search(line.removesuffix("\r"))) for at, line in enumerate(lines))
        found.append([*itertools.islice(((at, match.start()) for at, match in matches if match), payload["most"])])
    return found


def clipped(line: str, column: int) -> str:
    """At most `LONGEST_LINE` characters of a line, around the match."""
    if len(line) <= LONGEST_LINE:
        return line
    start = max(0, min(column - LONGEST_LINE // 4, len(line) - LONGEST_LINE))
    end = start + LONGEST_LINE
    return f"{'…' * (start > 0)}{line[start:end]}{'…' * (end < len(line))}"
