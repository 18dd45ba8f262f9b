"""How many families are read by derivation alone: each is hidden in turn, and its real outputs are read.

    uv run python -m bench.dialects.derive [--quick]

A family is hidden by taking what the templates of its models derive (`dialects.derive`) in its place. Its outputs are
those of llama.cpp's corpus (`chat_cases*.jsonl`), read whole and compared as the tests compare them; `robust` are
outputs with slips. `without` derivation, the dialect `plain` reads them, which knows the markers of many families. A
family counts as read if all its templates that print calls are derived, and nine of ten outputs are read as expected.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

from bench.rig import machine
from rich.console import Console
from rich.table import Table
from tests.unit.dialects.conformance import cases, shared_templates
from tests.unit.dialects.test_conformance import FENCED, shown, tools_of, wanted

from shepherd.dialects import TagDialect, derive, detect, get, parse
from shepherd.dialects.base import Keep

OTHER_NOTATIONS = {
    "functionary": "messages with headers",
    "harmony": "messages with headers",
    "muse": "messages with headers",
    "gemma4": "a notation of its own",
    "minimax-m3": "a tag for each name",
}
"""Families whose calls are neither JSON, nor tagged pairs, nor Python in a block of their own."""
WHY = {
    "apriel": "1.6 opens its thoughts with a sentence, not with a tag",
    "kimi-k3": "its tags are made of several control tokens and words",
}
ENOUGH = 0.9


def is_read(case: dict[str, Any], dialect: TagDialect) -> bool:
    """Whether a dialect reads an output as expected."""
    kept: Keep = "keep" if case["options"]["reasoning_format"] == "none" else "split"
    opened = case["options"]["generation_prompt"]
    message = parse(case["raw"], dialect=dialect, tools=tools_of(case), prefill=opened, reasoning=kept)
    return bool(shown(message, case) == wanted(case))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    quick = arguments.parse_args().quick
    families: dict[str, list[str]] = defaultdict(list)
    derived: dict[str, TagDialect | None] = {}
    for name, source in shared_templates().items():
        if printed := derive.observed(source):
            found = derive.derived(printed)
            known = detect(source).name
            families[known if known != "plain" else name.removesuffix(".jinja")].append(name)
            derived[name] = found.fitted(source) if found else None
    if not families:
        raise SystemExit("no conformance data: set CONFORMANCE_DIR")
    rows: list[dict[str, Any]] = []
    kinds = ("chat_cases", "chat_cases_roundtrip", "chat_cases_robust")
    every = [(kind, case) for kind in kinds for case in cases(kind)[:: 20 if quick else 1]]
    for family, names in sorted(families.items()):
        row: dict[str, Any] = {"family": family, "templates": len(names)}
        row["derived"] = sum(derived[name] is not None for name in names)
        for part in ("outputs", "robust"):
            own = [
                case
                for kind, case in every
                if case["template"] in names and not case.get("policy") and not case["id"].endswith(FENCED)
                if (part == "robust") == kind.endswith("robust")
            ]
            plain = {name: get("plain").fitted(shared_templates()[name]) for name in names}
            row[part] = len(own)
            spoken = {name: derived[name] or plain[name] for name in names}
            row[f"{part} read"] = sum(is_read(case, spoken[case["template"]]) for case in own)
            row[f"{part} plain"] = sum(is_read(case, plain[case["template"]]) for case in own)
        row["read"] = row["derived"] == row["templates"] and row["outputs read"] >= ENOUGH * row["outputs"]
        row["why not"] = "" if row["read"] else OTHER_NOTATIONS.get(family, WHY.get(family, "?"))
        row["notation"] = OTHER_NOTATIONS.get(family, "one of the three")
        rows.append(row)
    of_three = [row for row in rows if row["family"] not in OTHER_NOTATIONS]
    summary = {
        "families with calls": len(rows),
        "read": sum(row["read"] for row in rows),
        "of the three notations": len(of_three),
        "of these read": sum(row["read"] for row in of_three),
    }
    table = Table(title=f"{summary['of these read']} of {summary['of the three notations']} are read")
    for column in ("family", "derived", "outputs", "without", "robust", "without", "why not"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row["family"],
            f"{row['derived']} of {row['templates']}",
            f"{row['outputs read']} of {row['outputs']}",
            str(row["outputs plain"]),
            f"{row['robust read']} of {row['robust']}",
            str(row["robust plain"]),
            row["why not"],
        )
    Console().print(table)
    print(summary, machine.save("derive", {"summary": summary, "families": rows}, quick=quick))


if __name__ == "__main__":
    main()
