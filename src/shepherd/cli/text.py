"""Text for a terminal: control characters made visible, widths in columns, and sizes, ages and counts in words.

Pure. Not here: what prints (`render.py`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shepherd.core.status import ProviderSpending

# -- text that is safe to show ----------------------------------------------------------------------------------------

_HIDDEN: dict[int, int | None] = {code: 0x2400 + code for code in range(0x20) if code not in {0x09, 0x0A}}
_HIDDEN |= {0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD), 0x0D: None}  # None deletes
# These change how a line reads: marks that override the direction, rare line ends, lone surrogates.
_HIDDEN |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029], 0xFFFD)
_HIDDEN |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)

_HIDDEN_SIGN = re.compile(f"[{''.join(map(chr, _HIDDEN))}]")

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
"""An escape sequence, with which programs colour their output or steer the terminal."""


def clean(text: str) -> str:
    """`text` with visible signs for its control characters: text of others must not steer the terminal."""
    return text.translate(_HIDDEN)


def json_text(value: Any, indent: int | None = None) -> str:
    """`value` as JSON, whose hidden characters, and the lone surrogates that UTF-8 cannot encode, are escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _HIDDEN_SIGN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """`clean` text as one line: every run of white space is one space."""
    return clean(" ".join(text.split()))


def readable(output: str) -> str:
    """The output of a program as a terminal shows it, without colours; lines end with a line feed."""
    lines = _ESCAPE.sub("", output).split("\n")
    # A progress bar overwrites its line: only the text behind the last carriage return stays.
    return "\n".join(clean(line.rstrip("\r").rpartition("\r")[2]).expandtabs(4) for line in lines)


def output_line(output: str) -> str:
    """`readable` output as one line: every run of white space is one space."""
    return " ".join(readable(output).split())


# -- widths -----------------------------------------------------------------------------------------------------------


def n_columns(text: str) -> int:
    """How many columns a terminal needs for `text`."""
    return len(text) if text.isascii() else sum(map(_n_columns, text))


def _n_columns(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def cut(text: str, width: int, mark: str = "…") -> str:
    """`text`, or its beginning and `mark` where it needs more than `width` columns."""
    if n_columns(text) <= width:
        return text
    used = len(mark)
    for at, character in enumerate(text):
        used += _n_columns(character)
        if used > width:
            return text[:at] + mark * (width > 0)
    return text


_WORD = re.compile(r" *(?:[^ ']*'shepherd [^']*'[^ ]*|[^ ]+)")
"""A word with the blanks before it; a command in quotes is one where it fits, since people copy it."""


def last_line(told: str) -> str:
    """The last line that a program has written; at most 300 characters."""
    return next((line.strip() for line in reversed(told.splitlines()) if line.strip()), "")[:300]


def wrapped(text: str, width: int | None, hang: int | None = None) -> list[str]:
    """The lines of `text`, broken between words where they need more than `width` columns; None = nowhere. No word is
    broken: one that is too long stays whole, and the terminal breaks it. A broken line goes on below its last column,
    which begins behind two spaces, or below its first word; or `hang` columns from the left."""
    rows: list[str] = []
    for line in text.split("\n"):
        row, indent = "", " " * (_hang(line, width) if hang is None else hang)
        for word in [line] if width is None or n_columns(line) <= width else _words(line, width):
            if row.strip() and width is not None and n_columns(row + word) > width:
                rows.append(row)
                row, word = indent, word.lstrip(" ")
            row += word
        rows.append(row)
    return rows


def _words(line: str, width: int) -> Iterator[str]:
    for word in _WORD.findall(line):
        yield from [word] if n_columns(word.lstrip(" ")) <= width else re.findall(r" *[^ ]+", word)


_LEAST_LAST = 24
"""Columns of the last column of a line; where there is less room, it goes on below the first word."""


def _hang(line: str, width: int | None) -> int:
    """Where a broken line goes on."""
    begins = [n_columns(line[: gap.end()]) for gap in re.finditer(r"[^ ] {2,}", line[: width or 0])]
    fitting = [at for at in begins if width is not None and at <= width - _LEAST_LAST]
    return fitting[-1] if fitting else len(line) - len(line.lstrip(" "))


def packed(pieces: Iterable[str], mark: str, width: int | None) -> list[str]:
    """Lines of as many whole pieces as fit, with `mark` between; None = one line."""
    rows: list[str] = []
    for piece in pieces:
        longer = f"{rows[-1]}{mark}{piece}" if rows else piece
        if rows and (width is None or n_columns(longer) <= width):
            rows[-1] = longer
        else:
            rows.append(piece)
    return rows


Pieces = Sequence[tuple[str, str]]
"""Of one line: texts, each with its style."""


def broken(line: Pieces, width: int) -> list[Pieces]:
    """A line of pieces as lines of at most `width` columns, broken between words. The last piece goes on below itself,
    or begins on the next line where the pieces before leave less than 24 columns."""
    *before, (last, style) = line or [("", "")]
    left = sum(n_columns(text) for text, _ in before)
    if left + n_columns(last) <= width:
        return [line]
    if width - left >= _LEAST_LAST:
        first, *rest = wrapped(last, width - left, 0)
        return [[*before, (first, style)], *([(" " * left, ""), (row.lstrip(" "), style)] for row in rest)]
    rows: list[list[tuple[str, str]]] = [[]]
    room = width
    for text, look in before:
        shown = text.rstrip() if room == width or n_columns(text) > room else text
        if rows[-1] and n_columns(shown) > room:
            rows.append([])
            shown, room = f"  {shown.strip()}", width
        rows[-1].append((shown, look))
        room -= n_columns(shown)
    return [*(row for row in rows if row), *([(row, style)] for row in wrapped(f"    {last.strip()}", width))]


_LEAST_COLUMN = 16
"""Columns of a value; where there is less room behind its name, it stands below."""


def field_lines(fields: Mapping[str, str], width: int | None = None) -> list[str]:
    """A `Name: value` line for each field, the values in one column; broken between words."""
    left = max(map(len, fields), default=0) + 2
    lines: list[str] = []
    for name, value in fields.items():
        if width is not None and width - left < min(_LEAST_COLUMN, n_columns(value)):
            lines += [f"{name}:", *wrapped(f"  {value}", width)]
        else:
            room = None if width is None else width - left
            first, *rest = [row for line in value.split("\n") for row in wrapped(line, room)]
            lines += [f"{name + ':':<{left - 1}} {first}", *(f"{'':<{left}}{row}" for row in rest)]
    return lines


_GAP = "  "
"""Between two columns of a table."""


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None
) -> list[tuple[str, bool]]:
    """The lines of a table of at most `width` columns, and whether each is a head: with columns as wide as their cells;
    or with cells that are broken between words; or, where the words are too long for that, each row as lines
    `NAME: value`. None = as wide as it needs."""
    cells = [[*columns], *([*row] for row in rows)]
    if not columns:
        return []
    natural = [max(map(n_columns, each)) for each in zip(*cells, strict=True)]
    least = [max(n_columns(word) for cell in each for word in [*cell.split(), ""]) for each in zip(*cells, strict=True)]
    room = None if width is None else width - len(_GAP) * (len(columns) - 1)
    if room is not None and sum(least) > room:
        return _records(columns, rows, width)
    while room is not None and (excess := sum(natural) - room) > 0:
        at = max((n for n in range(len(natural)) if natural[n] > least[n]), key=lambda n: natural[n] - least[n])
        natural[at] -= min(excess, max(1, (natural[at] - least[at]) // 2))
    lines: list[tuple[str, bool]] = []
    for n, row in enumerate(cells):
        parts = [
            [cell] if room is None else wrapped(cell.strip(), column) for cell, column in zip(row, natural, strict=True)
        ]
        texts = (_GAP.join(map(_filled, part, natural)).rstrip() for part in zip_longest(*parts, fillvalue=""))
        lines += [(text, n == 0) for text in texts]
    return lines


def _records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[tuple[str, bool]]:
    """Each row as its first cell, and the others below it, those with something in them."""
    lines: list[tuple[str, bool]] = []
    for row in rows:
        lines += [(line, True) for line in wrapped(row[0].strip(), width, 0)]
        named = {name: cell.strip() for name, cell in zip(columns[1:], row[1:], strict=True) if cell.strip()}
        plain = named.pop("", None)
        room = None if width is None else width - len(_GAP)
        below = [*field_lines(named, room), *(wrapped(plain, room) if plain else [])]
        lines += [(f"{_GAP}{line}", False) for line in below]
    return lines


def _filled(text: str, width: int) -> str:
    return text + " " * (width - n_columns(text))


# -- numbers ----------------------------------------------------------------------------------------------------------


def bar(done: float, total: float, width: int = 16) -> str:
    """A bar of `width` columns between two edges, filled to the share `done / total`."""
    filled = round(width * min(1.0, max(0.0, done / total))) if total else 0
    return f"▕{'█' * filled}{'░' * (width - filled)}▏"


def format_size(n_bytes: int) -> str:
    """A number of bytes in powers of 1024, such as `1.5 GiB`."""
    value = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_age(seconds: float) -> str:
    """An age in its largest unit, such as `5 min`, `1 day` or `12 days`."""
    for limit, unit_s, unit in ((60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h")):
        if seconds < limit:
            return f"{int(max(0.0, seconds) / unit_s)} {unit}"
    return format_count(int(seconds / 86_400), "day")


def format_rate(per_s: float | None) -> str:
    """A number per second, such as `12.5` or `340`; `-` for None."""
    return "-" if per_s is None else f"{per_s:.{0 if per_s >= 100 else 1}f}"


def spending_text(spending: ProviderSpending) -> str:
    """What a provider has cost today, and its limits, such as `12,000 of 100,000 tokens, 0.25 of 2.00 today`."""
    from shepherd.core.status import money_text

    today = spending.today
    tokens = f"{today.tokens:,}" + (f" of {spending.budget_tokens:,}" if spending.budget_tokens is not None else "")
    of_money = f" of {money_text(spending.budget_money)}" if spending.budget_money is not None else ""
    money = f", {money_text(today.money)}{of_money}" if today.money or of_money else ""
    return f"{tokens} tokens{money} today"


def format_count(count: int, noun: str) -> str:
    """A count with its noun, such as `1 message` or `3 messages`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
