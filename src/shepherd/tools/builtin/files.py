"""The file tools: read, write, edit, delete, list, and whether there is one.

Names, arguments and results are the seeds' (requirements 3.2); other names by which models know them are aliases.
Nothing outside the roots can be reached (`tools/sandbox/roots.py`).
"""

from __future__ import annotations

import base64
import codecs
import itertools
import json
import os
from collections.abc import Iterator
from typing import Annotated, Any

from shepherd.core import Image
from shepherd.media.image import NotMedia, find_type, read_header
from shepherd.tools.base import MOST_MEDIA_BYTES, Result, ToolError
from shepherd.tools.builtin.content import (
    Part,
    charset,
    first_bytes,
    in_utf8,
    lines_that_fit,
    opened,
    read_lines,
    sniff,
)
from shepherd.tools.builtin.diff import MOST_CHARS as MOST_COMPARED
from shepherd.tools.builtin.diff import MOST_PLACES, not_found, places_of, unified
from shepherd.tools.results import fits
from shepherd.tools.sandbox.folder import Folder, kind_of
from shepherd.tools.sandbox.roots import Location, MissingPath, NotAFolder, Roots, printable, quoted
from shepherd.tools.signature import as_json, tool
from shepherd.tools.tool import ToolContext

NOTE_TOKENS = 60
"""Kept free for the sentence that says how to read on."""
MOST_ENTRIES = 500
"""Of a folder that are shown."""
MOST_BYTES = 16 << 20
"""Of a file that is edited, and of one call of `write_file`."""
MOST_BASE64_BYTES = 1 << 20
SUMMARY_NAMES = 12
SHOWN_PLACES = 10

PATH = {"file_path": "path", "file": "path", "filename": "path"}
FOLDER = {"directory": "path", "dir": "path", "folder": "path", "directory_path": "path"}


def roots_of(context: ToolContext) -> Roots:
    if context.roots is None:
        raise ToolError("this conversation has no folders; continue without files")
    return context.roots


def stored_result(context: ToolContext, path: str) -> str | None:
    """The result that a path such as `result:3` names; None = the path of a file. Raises: `ToolError`."""
    if not path.strip().lower().startswith("result:"):
        return None
    if context.kept is None:
        raise ToolError(f"this conversation stores no results; {quoted(path)} cannot be read")
    return context.kept.get(path)


# -- reading ----------------------------------------------------------------------------------------------------------


@tool(
    category="filesystem", effect="read", aliases=("Read", "view_file", "open_file"), subject="path",
    argument_aliases={**PATH, "start_line": "offset", "max_lines": "limit"},
)  # fmt: skip
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
    if (result := stored_result(context, path)) is not None:
        return shown_part(context, path, iter([result.encode()]), part)
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
            found, kind = sniff(head)
            wanted = encoding.strip().lower()
            if wanted not in {"", "auto"}:
                found = found or "utf-8" if wanted == "text" else charset(wanted)
                found = "utf-8-sig" if found == "utf-8" and head.startswith(codecs.BOM_UTF8) else found
            if found is None:
                size = f"{place.stat().st_size:,} bytes"
                if wanted in {"", "auto"} and find_type(head) and (image := whole_image(whole)):
                    facts = read_header(image.data or b"")
                    note = f"{name} is {kind} of {facts.width} x {facts.height} pixels, {size}"
                    return Result(note, summary=f"{kind}, {size}", images=(image,))
                note = f'{name} is {kind} of {size}, not text; encoding="base64" would give the bytes themselves'
                return Result(note, summary=f"{kind}, {size}")
            text = whole if found in {"utf-8", "ascii"} else in_utf8(whole, found)
            return shown_part(context, path, text, part, encoding)


def whole_image(blocks: Iterator[bytes]) -> Image | None:
    """The image in a file; None for one that is cut off, damaged or larger than results take."""
    content = first_bytes(blocks, MOST_MEDIA_BYTES)
    try:
        facts = read_header(content)
    except NotMedia:
        return None
    return Image(facts.media_type, content) if facts.is_whole and len(content) <= MOST_MEDIA_BYTES else None


def shown_part(context: ToolContext, path: str, blocks: Iterator[bytes], part: Part, encoding: str = "auto") -> Result:
    """As many of the requested lines as there is room for, and how to read on."""
    offset = part[0]
    budget = max(context.budget - NOTE_TOKENS, context.budget // 2, 1)
    try:
        lines = read_lines(blocks, part, budget, context.count)
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
    content = first_bytes(blocks, MOST_BASE64_BYTES)
    text, size = base64.b64encode(content).decode(), size_of(content, MOST_BASE64_BYTES)
    if len(content) > MOST_BASE64_BYTES or not fits(text, context.budget, context.count):
        raise ToolError(f"{name} has {size}: too much to be shown as base64, which may have {context.budget:,} tokens")
    return Result(text, summary=size)


@tool(
    category="filesystem", effect="read", aliases=("List", "LS", "list_dir", "list_files"), subject="path",
    argument_aliases={**PATH, **FOLDER},
)  # fmt: skip
def list_directory(
    context: ToolContext, path: str = ".", details: Annotated[bool, "sizes and kinds"] = False
) -> Result:
    """List the files in a folder."""
    with roots_of(context).find(path) as place:
        if (kind := kind_of(place.stat())) != "directory":
            raise ToolError(f"{quoted(path)} is a {kind}, not a folder" + "; read_file shows it" * (kind == "file"))
        with place.open_folder() as folder:
            entries = folder.scan()
            lines = [line for name, _ in entries[:MOST_ENTRIES] if (line := entry(folder, name, details))]
    if not entries:
        return Result(f"{printable(path or '.')} is empty", summary="empty")
    n_shown = lines_that_fit(lines, context.budget - NOTE_TOKENS, context.count)
    n_left = len(entries) - n_shown
    rest = f'\n[{n_left:,} more of {len(entries):,}; search_files(path={quoted(path or ".")}, glob="a*") finds some]'
    names = [printable(name) for name, _ in entries[:SUMMARY_NAMES]]
    return Result(
        "\n".join(lines[:n_shown]) + rest * (n_left > 0),
        summary=", ".join(names) + (", ..." if len(entries) > SUMMARY_NAMES else ""),
    )


def entry(folder: Folder, name: str, details: bool) -> str:
    """The line of one entry of a folder; empty if it is gone. A link is shown and not followed."""
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


@tool(category="filesystem", effect="read", argument_aliases={**PATH, **FOLDER}, subject="path")
def file_exists(context: ToolContext, path: str) -> dict[str, Any]:
    """Is there such a file or folder?"""
    try:
        with roots_of(context).find(path) as place:
            return {"exists": True, "type": kind_of(place.stat())}
    except MissingPath:
        return {"exists": False}


def size_of(content: bytes, most: int) -> str:
    """For a person; `content` may be cut, as by `first_bytes`."""
    return f"{len(content):,} bytes" if len(content) <= most else f"over {most:,} bytes"


# -- changing ---------------------------------------------------------------------------------------------------------


def old_content(place: Location, most: int) -> bytes | None:
    """The content of a file, of a large one the beginning, a little more than `most`; None = there is no file yet.
    Raises: `ToolError` for a folder; `NotAFile`, `OSError`.
    """
    if (status := place.look()) is None:
        return None
    if kind_of(status) == "directory":
        raise ToolError(f"{quoted(place.shown)} is a folder; give the path of a file")
    with opened(place.folder, place.name) as blocks:
        return first_bytes(blocks, most)


def change_of(old: bytes | None, new: bytes | None, name: str) -> str:
    """For a person: a diff of text, else the sizes."""
    texts: list[str | None] = []
    for side in (old, new):
        encoding = sniff(side or b"")[0] if len(side or b"") <= MOST_COMPARED else None
        if encoding is None:
            before, after = ("nothing" if each is None else size_of(each, MOST_COMPARED) for each in (old, new))
            return "" if old == new else f"{name}: {before} become {after}"
        texts.append(None if side is None else side.decode(encoding, errors="replace").removeprefix("\ufeff"))
    return unified(texts[0], texts[1], name)


def new_content(path: str, content: str, encoding: str) -> bytes:
    """The bytes that a call of `write_file` writes. Raises: `ToolError`."""
    if path.endswith(("/", os.sep)) or not path.strip():
        raise ToolError(f"{quoted(path)} is not the name of a file; give a file name, missing folders are created")
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


def would_write(context: ToolContext, path: str, content: str, encoding: str = "text") -> str:
    new = new_content(path, content, encoding)
    try:
        with roots_of(context).find(path) as place:
            return change_of(old_content(place, MOST_COMPARED), new, place.shown)
    except NotAFolder:
        raise
    except MissingPath:  # of folders on the way, which would be created
        return change_of(None, new, printable(path))


@tool(
    category="filesystem", effect="write", aliases=("Write", "create_file", "save_file"), subject="path",
    argument_aliases={**PATH, "text": "content", "contents": "content"},
    preview=lambda context, arguments: would_write(context, **arguments),
)  # fmt: skip
def write_file(
    context: ToolContext, path: str, content: str, encoding: Annotated[str, "text, base64"] = "text"
) -> Result:
    """Create or overwrite a file."""
    new = new_content(path, content, encoding)
    roots = roots_of(context)
    with roots.writing, roots.find(path, make=True) as place:
        old = old_content(place, MOST_COMPARED)
        action = "created" if place.replace(new) else "overwrote"
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
    """The text of a file, with the codec and the errors to encode it again without a loss."""
    if len(content) > MOST_BYTES:
        raise ToolError(f"{shown} has over {MOST_BYTES:,} bytes: too large for edit_file")
    encoding, kind = sniff(content)
    if encoding is None:
        raise ToolError(f"{shown} is {kind}, not text; it cannot be edited")
    codec, errors = "utf-8", "surrogateescape"
    if encoding in {"utf-16", "utf-32"}:  # in both, the mark of little endian begins with the same bytes
        is_little = content.startswith(codecs.BOM_UTF16_LE)
        codec, errors = f"{encoding}-le" if is_little else f"{encoding}-be", "strict"
    try:
        return content.decode(codec, errors), codec, errors
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
    category="filesystem", effect="write", aliases=("Edit", "str_replace", "replace_in_file"), subject="path",
    argument_aliases={
        **PATH, "old_string": "old", "old_str": "old", "old_text": "old",
        "new_string": "new", "new_str": "new", "new_text": "new",
    },
    preview=lambda context, arguments: would_edit(context, **arguments),
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
        place.replace(after)
        diff = change_of(before, after, place.shown)
    lines = [line for line in diff.split("\n")[2:] if line[:1] in {"+", "-"}]
    n_new, n_old = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    answer = {"success": True, "path": path, "replacements": n_places, "bytes": len(after)}
    return Result(as_json(answer), summary=f"edited {printable(path)} (+{n_new} -{n_old} lines)", diff=diff)


def would_delete(context: ToolContext, path: str) -> str:
    with roots_of(context).find(path, follow=False) as place:
        return removal(place)


def removal(place: Location) -> str:
    """The diff of a deletion. Raises: `ToolError` for a folder, `MissingPath`."""
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
    category="filesystem", effect="write", aliases=("remove_file",), subject="path", argument_aliases=PATH,
    preview=lambda context, arguments: would_delete(context, **arguments),
)  # fmt: skip
def delete_file(context: ToolContext, path: str) -> Result:
    """Delete a file."""
    roots = roots_of(context)
    with roots.writing, roots.find(path, follow=False) as place:
        diff = removal(place)
        place.unlink()
    return Result(as_json({"success": True, "path": path}), summary=f"deleted {printable(path)}", diff=diff)
