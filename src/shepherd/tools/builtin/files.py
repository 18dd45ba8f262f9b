"""The file tools: read, write, edit, delete, list, and whether there is one.

Names, arguments and results are the seeds' (requirements 3.2); other names by which models know them are aliases. What
is outside of the roots cannot be reached (`tools/sandbox/roots.py`). What cannot be done is said in one sentence that
tells how to go on. Not here: what is in the files of a whole tree (`search.py`).
"""

from __future__ import annotations

import base64
import codecs
import itertools
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import wraps
from typing import Annotated, Any

from shepherd.tools.base import Result, ToolError
from shepherd.tools.builtin.content import charset, in_utf8, lines_that_fit, opened, read_lines, room_in, sniff
from shepherd.tools.builtin.diff import MOST_CHARS as MOST_COMPARED
from shepherd.tools.builtin.diff import unified
from shepherd.tools.builtin.near_match import MOST_PLACES, not_found, places_of
from shepherd.tools.results import fits
from shepherd.tools.sandbox.folder import Folder, kind_of
from shepherd.tools.sandbox.roots import Location, MissingPath, NotAFolder, Roots, printable, quoted
from shepherd.tools.signature import as_json, in_thread, tool
from shepherd.tools.tool import ToolContext

NOTE_TOKENS = 60
"""Kept free of what is shown: for the sentence that says how to read on."""
MOST_ENTRIES = 500
"""Of a folder that are shown."""
MOST_BYTES = 16 << 20
"""Of a file that is changed in memory, and of what is written at once."""
MOST_BASE64_BYTES = 1 << 20
SUMMARY_NAMES = 12
SHOWN_PLACES = 10

HERE = re.compile(
    r"(\./)?([\s_.-]*(current|working|this|the|my|here|root|project|files?|directory|dir|folder|cwd|pwd))+[\s_.-]*"
)
"""What models say who mean the current folder."""
PATH = {"file_path": "path", "file": "path", "filename": "path"}
FOLDER = {"directory": "path", "dir": "path", "folder": "path", "directory_path": "path"}


def roots_of(context: ToolContext) -> Roots:
    if context.roots is None:
        raise ToolError("this conversation has no folders; continue without files")
    return context.roots


def preview(change: Callable[..., str]) -> Callable[[ToolContext, Mapping[str, Any]], Awaitable[str]]:
    """The diff of a change that is not made, as `Tool.preview` wants it."""

    @wraps(change)
    async def run(context: ToolContext, arguments: Mapping[str, Any]) -> str:
        diff: str = await in_thread(lambda: change(context, **arguments))
        return diff

    return run


# -- looking ----------------------------------------------------------------------------------------------------------


@tool(
    category="filesystem",
    effect="read",
    aliases=("Read", "view_file", "open_file"),
    argument_aliases={**PATH, "start_line": "offset", "max_lines": "limit"},
    subject="path",
)
def read_file(
    context: ToolContext,
    path: str,
    *,
    offset: Annotated[int, "first line"] = 1,
    limit: Annotated[int, "lines; -1 = all"] = -1,
    column: int = 1,
    encoding: Annotated[str, "auto, text, base64"] = "auto",
) -> Result:
    """Read a text file."""
    if offset < 0 or column < 0 or limit < -1 or limit == 0:
        raise ToolError("offset and column must be at least 1; limit, too, or -1 for all lines")
    part = (max(offset, 1), None if limit == -1 else limit, max(column, 1))
    if path.strip().lower().startswith("result:"):
        if context.kept is None:
            raise ToolError(f"this conversation stores no results; {quoted(path)} cannot be read")
        return shown_part(context, path, iter([context.kept.get(path).encode()]), part)
    with roots_of(context).find(path) as place:
        if kind_of(place.stat()) == "directory":
            raise ToolError(f"{quoted(path)} is a folder; list_directory shows what is in it")
        with opened(place.folder, place.name) as blocks:
            head = next(blocks, b"")
            name = printable(path)
            if not head:
                return Result(f"{name} is empty", summary="empty")
            whole = itertools.chain([head], blocks)
            if encoding.strip().lower() == "base64":
                return in_base64(context, name, whole)
            found, kind = read_as(encoding, head)
            if found is None:
                size = f"{place.stat().st_size:,} bytes"
                note = f'{name} is {kind} of {size}, not text; encoding="base64" would give the bytes themselves'
                return Result(note, summary=f"{kind}, {size}")
            text = whole if found in {"utf-8", "ascii"} else in_utf8(whole, found)
            return shown_part(context, path, text, part, encoding)


def read_as(encoding: str, head: bytes) -> tuple[str | None, str]:
    """The encoding to read a file in that begins so, None = none; and what kind of file it is then."""
    wanted = encoding.strip().lower()
    found, kind = sniff(head)
    if wanted in {"", "auto"}:
        return found, kind
    name = found or "utf-8" if wanted == "text" else charset(wanted)
    return ("utf-8-sig" if name == "utf-8" and head.startswith(codecs.BOM_UTF8) else name), kind


def shown_part(
    context: ToolContext, path: str, blocks: Iterator[bytes], part: tuple[int, int | None, int], encoding: str = "auto"
) -> Result:
    """As much of the lines asked for as there is room for, and how to read on."""
    offset, limit, column = part
    budget = max(context.budget - NOTE_TOKENS, context.budget // 2, 1)
    try:
        lines = read_lines(blocks, offset, limit, column, room_in(budget, context.count))
    except ToolError as error:
        raise ToolError(f"{quoted(path)}: {error.message}") from error
    last = lines.next - (lines.column == 1)
    of = f" of {lines.total:,}" if lines.total is not None else ""
    which = f"line {offset:,}" if last <= offset else f"lines {offset:,}-{last:,}"
    summary = f"{which}{of}" if not (offset == 1 and lines.is_end) else f"{last:,} line{'s' * (last != 1)}"
    if not lines.is_cut:
        return Result(lines.text, summary=summary)
    rest = f"offset={lines.next}" + (f", column={lines.column}" if lines.column > 1 else "")
    rest += f", encoding={json.dumps(encoding)}" if encoding != "auto" else ""
    where = f"up to character {lines.column - 1:,} of the last one, " if lines.column > 1 else ""
    note = f"[This is {which}{of}, {where}read_file(path={quoted(path)}, {rest}) reads on.]"
    return Result(lines.text + "\n" * (not lines.text.endswith("\n")) + note, summary=summary)


def in_base64(context: ToolContext, name: str, blocks: Iterator[bytes]) -> Result:
    content = b""
    for block in blocks:
        content += block
        if len(content) > MOST_BASE64_BYTES:
            break
    text = base64.b64encode(content).decode()
    if len(content) > MOST_BASE64_BYTES or not fits(text, context.budget, context.count):
        size = f"{len(content):,} bytes" if len(content) <= MOST_BASE64_BYTES else f"over {MOST_BASE64_BYTES:,} bytes"
        raise ToolError(f"{name} has {size}: too much to be shown as base64, which may have {context.budget:,} tokens")
    return Result(text, summary=f"{len(content):,} bytes")


@tool(
    category="filesystem",
    effect="read",
    aliases=("List", "LS", "list_dir", "list_files"),
    argument_aliases={**PATH, **FOLDER},
    subject="path",
)
def list_directory(
    context: ToolContext, path: str = ".", details: Annotated[bool, "sizes and kinds"] = False
) -> Result:
    """List the files in a folder."""
    roots = roots_of(context)
    path, note = or_here(roots, path)
    with roots.find(path) as place:
        if (kind := kind_of(place.stat())) != "directory":
            raise ToolError(f"{quoted(path)} is a {kind}, not a folder" + "; read_file shows it" * (kind == "file"))
        with place.open_folder() as folder:
            entries = folder.scan()
            lines = [line for name, _ in entries[:MOST_ENTRIES] if (line := entry(folder, name, details))]
    if not entries:
        return Result(f"{printable(path or '.')} is empty{note}", summary="empty")
    n_shown = lines_that_fit(lines, context.budget - NOTE_TOKENS, context.count)
    n_left = len(entries) - n_shown
    rest = f'\n[{n_left:,} more of {len(entries):,}; search_files(path={quoted(path or ".")}, glob="a*") finds some]'
    names = [printable(name) for name, _ in entries[:SUMMARY_NAMES]]
    return Result(
        "\n".join(lines[:n_shown]) + rest * (n_left > 0) + note,
        summary=", ".join(names) + (", ..." if len(entries) > SUMMARY_NAMES else ""),
    )


def entry(folder: Folder, name: str, details: bool) -> str:
    """One line about something in a folder; empty if it has gone meanwhile. A link is shown and not followed."""
    if (status := folder.look(name)) is None:
        return ""
    match kind_of(status):
        case "directory":
            return f"{printable(name)}/"
        case "symlink":
            return f"{printable(name)} -> {printable(folder.link(name) or '?')}"
        case "file":
            return f"{printable(name)}  {status.st_size:,} bytes" if details else printable(name)
        case kind:
            return f"{printable(name)}  {kind}" if details else printable(name)


def or_here(roots: Roots, path: str) -> tuple[str, str]:
    """The path, or the current folder where a model describes it and does not name it; and a line that says so."""
    said = path.strip(" \"'")
    if HERE.fullmatch(said.casefold()):
        try:
            with roots.find(path) as place:
                place.stat()
        except MissingPath:
            return ".", f'\n(there is no {quoted(said)}; this is the current folder, ".")'
    return path, ""


@tool(category="filesystem", effect="read", argument_aliases={**PATH, **FOLDER}, subject="path")
def file_exists(context: ToolContext, path: str) -> dict[str, Any]:
    """Is there such a file or folder?"""
    try:
        with roots_of(context).find(path) as place:
            return {"exists": True, "type": kind_of(place.stat())}
    except MissingPath:
        return {"exists": False}


# -- changing ---------------------------------------------------------------------------------------------------------


def old_content(place: Location, most: int) -> bytes | None:
    """What is in a file, or the beginning of it, a little more than `most`; None = there is none yet.

    Raises: `ToolError` for a folder; `NotAFile`, `OSError`.
    """
    if (status := place.look()) is None:
        return None
    if kind_of(status) == "directory":
        raise ToolError(f"{quoted(place.shown)} is a folder; give the path of a file")
    content = b""
    with opened(place.folder, place.name) as blocks:
        for block in blocks:
            content += block
            if len(content) > most:
                break
    return content


def change_of(old: bytes | None, new: bytes | None, name: str) -> str:
    """For a person: a diff of text, else the sizes."""
    encodings = [sniff(side or b"")[0] if len(side or b"") <= MOST_COMPARED else None for side in (old, new)]
    if all(encodings):
        before, after = (
            None if side is None else side.decode(encoding, errors="replace").removeprefix("\ufeff")
            for side, encoding in zip((old, new), encodings, strict=True)
            if encoding
        )
        return unified(before, after, name)
    sizes = ["nothing" if side is None else f"{len(side):,} bytes" if len(side) <= MOST_COMPARED else
             f"over {MOST_COMPARED:,} bytes" for side in (old, new)]  # fmt: skip
    return "" if old == new else f"{name}: {sizes[0]} become {sizes[1]}"


def new_content(content: str, encoding: str) -> bytes:
    """What a model wants to write, as bytes. Raises: `ToolError`."""
    wanted = encoding.strip().lower()
    try:
        if wanted == "base64":
            written = base64.b64decode("".join(content.split()), validate=True)
        else:
            written = content.encode("utf-8" if wanted in {"", "auto", "text"} else charset(wanted))
    except UnicodeEncodeError as error:
        char = error.object[error.start]
        raise ToolError(f"the content cannot be written as {error.encoding}: it has no sign for {char!r}") from error
    except ValueError as error:
        raise ToolError(f"the content is not base64 ({error}); leave encoding out to write text") from error
    if len(written) > MOST_BYTES:
        raise ToolError(f"the content has {len(written):,} bytes; at most {MOST_BYTES:,} can be written at once")
    return written


def check_name(path: str) -> None:
    if path.endswith(("/", os.sep)) or not path.strip():
        raise ToolError(f"{quoted(path)} is not the name of a file; give a file name, missing folders are created")


def would_write(context: ToolContext, path: str, content: str, encoding: str = "text") -> str:
    check_name(path)
    new = new_content(content, encoding)
    try:
        with roots_of(context).find(path) as place:
            return change_of(old_content(place, MOST_COMPARED), new, place.shown)
    except NotAFolder:
        raise
    except MissingPath:  # folders on the way to it, which would be made
        return change_of(None, new, printable(path))


@tool(
    category="filesystem",
    effect="write",
    aliases=("Write", "create_file", "save_file"),
    argument_aliases={**PATH, "text": "content", "contents": "content"},
    preview=preview(would_write),
    subject="path",
)
def write_file(
    context: ToolContext, path: str, content: str, encoding: Annotated[str, "text, base64"] = "text"
) -> Result:
    """Create or overwrite a file."""
    check_name(path)
    new = new_content(content, encoding)
    roots = roots_of(context)
    with roots.writing, roots.find(path, make=True) as place:
        old = old_content(place, MOST_COMPARED)
        action = "created" if place.folder.replace(place.name, new) else "overwrote"
        diff = change_of(old, new, place.shown)
    answer = {"success": True, "path": path, "bytes": len(new), "action": action}
    return Result(as_json(answer), summary=f"{action} {printable(path)} ({len(new):,} bytes)", diff=diff)


def edited(place: Location, old: str, new: str, replace_all: bool) -> tuple[bytes, bytes, int]:
    """A file before and after, and how many places have changed. Raises: `ToolError`, `MissingPath`, `OSError`."""
    shown = quoted(place.shown)
    place.stat()
    before = old_content(place, MOST_BYTES) or b""
    text, codec, errors = editable(before, shown)
    if "\r\n" in text and (old not in text or text.count("\n") == text.count("\r\n")):
        # Models write plain line ends; the file keeps its own.
        old, new = (side.replace("\r\n", "\n").replace("\n", "\r\n") for side in (old, new))
    places = places_of(old, text)
    if not places:
        hint = not_found(old, text)
        raise ToolError(
            f"the old text is not in {shown}; " + (f"copy it exactly. {hint}" if hint else "read_file shows what is")
        )
    if len(places) > 1 and not replace_all:
        more = f" and {len(places) - SHOWN_PLACES} more" if len(places) > SHOWN_PLACES else ""
        lines = ", ".join(map(str, places[:SHOWN_PLACES]))
        raise ToolError(
            f"the old text occurs {len(places)} times{' or more' if len(places) == MOST_PLACES else ''} in {shown}, at "
            f"the lines {lines}{more}; give more of the text around it so that it occurs once, or set replace_all=true"
        )
    n_places = text.count(old)
    if len(text) + n_places * (len(new) - len(old)) > MOST_BYTES:
        raise ToolError(f"{shown} would become too large; at most {MOST_BYTES:,} bytes can be written at once")
    return before, text.replace(old, new).encode(codec, errors), n_places


def editable(content: bytes, shown: str) -> tuple[str, str, str]:
    """The text of a file, and how to encode it again: what is no text in it, and a mark at its beginning, stay."""
    if len(content) > MOST_BYTES:
        raise ToolError(f"{shown} has over {MOST_BYTES:,} bytes: too large for edit_file")
    encoding, kind = sniff(content)
    if encoding is None:
        raise ToolError(f"{shown} is {kind}, not text; it cannot be edited")
    try:
        match encoding:
            case "utf-16":
                codec = "utf-16-le" if content.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
                return content.decode(codec), codec, "strict"
            case "utf-32":
                codec = "utf-32-le" if content.startswith(codecs.BOM_UTF32_LE) else "utf-32-be"
                return content.decode(codec), codec, "strict"
            case _:
                return content.decode("utf-8", "surrogateescape"), "utf-8", "surrogateescape"
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{shown} begins like {encoding} and is not valid {encoding}; edit_file cannot edit it"
        ) from error


def check_edit(old: str, new: str) -> None:
    if not old:
        raise ToolError("the old text is empty; write_file writes a whole file")
    if old == new:
        raise ToolError("the old and the new text are the same; nothing would change")


def would_edit(context: ToolContext, path: str, old: str, new: str, replace_all: bool = False) -> str:
    check_edit(old, new)
    with roots_of(context).find(path) as place:
        before, after, _ = edited(place, old, new, replace_all)
        return change_of(before, after, place.shown)


@tool(
    category="filesystem",
    effect="write",
    aliases=("Edit", "str_replace", "replace_in_file"),
    argument_aliases={
        **PATH, "old_string": "old", "old_str": "old", "old_text": "old",
        "new_string": "new", "new_str": "new", "new_text": "new",
    },
    preview=preview(would_edit),
    subject="path",
)  # fmt: skip
def edit_file(context: ToolContext, path: str, old: str, new: str, replace_all: bool = False) -> Result:
    """Replace a text in a file that is there exactly once."""
    check_edit(old, new)
    roots = roots_of(context)
    with roots.writing, roots.find(path) as place:
        status = place.stat()
        before, after, n_places = edited(place, old, new, replace_all)
        now = place.stat()
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (status.st_ino, status.st_size, status.st_mtime_ns):
            raise ToolError(f"{quoted(path)} was changed by another program during this call; read it again")
        place.folder.replace(place.name, after)
        diff = change_of(before, after, place.shown)
    lines = [line for line in diff.split("\n")[2:] if line[:1] in {"+", "-"}]
    n_new, n_old = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    answer = {"success": True, "path": path, "replacements": n_places, "bytes": len(after)}
    return Result(as_json(answer), summary=f"edited {printable(path)} (+{n_new} -{n_old} lines)", diff=diff)


def would_delete(context: ToolContext, path: str) -> str:
    with roots_of(context).find(path, follow=False) as place:
        return removal(place)


def removal(place: Location) -> str:
    """What is lost, for a person. Raises: `ToolError` for a folder, `MissingPath`."""
    kind = kind_of(place.stat())
    if kind == "directory":
        raise ToolError(f"{quoted(place.shown)} is a folder; delete_file deletes only files")
    if kind == "symlink":
        return f"{place.shown}: the link to {printable(place.folder.link(place.name) or '?')} is removed"
    if kind != "file":
        return f"{place.shown}: the {kind} is removed"
    try:
        return change_of(old_content(place, MOST_COMPARED), None, place.shown)
    except OSError:  # it may be deleted and not read
        return f"{place.shown}: the file is removed"


@tool(
    category="filesystem",
    effect="write",
    aliases=("remove_file",),
    argument_aliases=PATH,
    preview=preview(would_delete),
    subject="path",
)
def delete_file(context: ToolContext, path: str) -> Result:
    """Delete a file."""
    roots = roots_of(context)
    with roots.writing, roots.find(path, follow=False) as place:
        diff = removal(place)
        place.folder.unlink(place.name)
    return Result(as_json({"success": True, "path": path}), summary=f"deleted {printable(path)}", diff=diff)
