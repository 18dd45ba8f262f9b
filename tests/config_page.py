"""docs/config-keys.md, made of the schema: each key, its values, its default, its flag and its variable.

python tests/config_page.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from shepherd.cli.main import cli
from shepherd.config.kinds import SAMPLING, Kind, Table
from shepherd.config.schema import ENVIRONMENT, FLAGS, SCHEMA, SHORTHANDS, SPELLED, Config
from shepherd.core import Sampling

PAGE = Path(__file__).parent.parent / "docs" / "config-keys.md"
HEAD = """\
# Every key of the configuration

This page is made from the schema: what each key accepts, and what holds where nothing is set (empty: Shepherd
decides). What the keys are for is in [config](config.md).
"""
WITHOUT_END = re.compile(r" to (?:2147483647|9223372036854775807|1e\+12)$")
OPTIONS = {option for each in cli.params for option in (*each.opts, *each.secondary_opts)}
STANDS_FOR = {key: f"{table}.NAME.{name}" for key, table, name in reversed(SHORTHANDS) if "." not in key}
STANDS_FOR |= {"model": "the model of the default cache", "model_path": "the same, always a local one"}


def made() -> str:
    """The page as it has to be."""
    single = {name: kind for name, kind in SCHEMA.items() if isinstance(kind, Kind)}
    tables = {name: kind for name, kind in SCHEMA.items() if isinstance(kind, Table) and name != "sampling"}
    parts = [HEAD, "## At the top\n", _section("", single, _defaults(Config))]
    for name, table in {**tables, "sampling": SAMPLING}.items():
        parts += _parts(name, table, Sampling if name == "sampling" else _class_of(Config, name))
    return "\n".join(parts)


def _parts(name: str, table: Table, cls: type | None) -> Iterator[str]:
    yield f"## {_title(name, table)}\n"
    own = {key: kind for key, kind in table.keys.items() if isinstance(kind, Table) and key not in SCHEMA}
    single = {key: kind for key, kind in table.keys.items() if key not in own}
    yield _section(f"{name}.", single, _defaults(cls) if cls else {})
    for key, kind in own.items():
        inner = f"{name}.NAME" if table.form == "named" else name
        yield from _parts(f"{inner}.{key}", kind, _class_of(cls, key) if cls else None)


def _title(name: str, table: Table) -> str:
    return {"named": f"`[{name}.NAME]`", "list": f"`[[{name}]]`"}.get(table.form, f"`[{name}]`")


def _section(before: str, keys: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    rows = [["key", "value", "default", "flag, variable, what it stands for"]]
    for key, kind in keys.items():
        value = (
            kind.expected.replace(" that is not empty", "")
            if isinstance(kind, Kind)
            else f"a table, as [`[{key}]`](#{key})"
        )
        by = [_flag(before + key), *(f"`{name}`" for name, its_key in ENVIRONMENT.items() if its_key == before + key)]
        if not before and key in STANDS_FOR:
            by.append(f"`{STANDS_FOR[key]}`" if "." in STANDS_FOR[key] else STANDS_FOR[key])
        rows.append([f"`{key}`", WITHOUT_END.sub(" on", value), _shown(defaults.get(key)), ", ".join(filter(None, by))])
    head, *rest = [
        list(row) for row in zip(*(column for column in zip(*rows, strict=True) if any(column[1:])), strict=True)
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rest))


def _flag(key: str) -> str:
    """The option of `shepherd` that sets it."""
    for name, its_key in FLAGS.items():
        option = SPELLED.get(name, "--" + name.replace("_", "-"))
        if its_key == key and option in OPTIONS:
            return f"`{option}`"
    return ""


def _defaults(cls: type) -> dict[str, Any]:
    return {each.name: each.default for each in fields(cls) if each.default is not MISSING}


def _class_of(cls: type, key: str) -> type | None:
    """The dataclass of a table."""

    def within(hint: Any) -> Iterator[type]:
        if is_dataclass(hint):
            yield cast("type", hint)
        for each in get_args(hint):
            yield from within(each)

    return next(within(get_type_hints(cls).get(key)), None)


def _shown(value: Any) -> str:
    return "" if value in (None, (), "") or is_dataclass(value) else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    PAGE.write_text(made(), "utf-8")
