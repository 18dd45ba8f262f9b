"""How many real outputs are read right: Shepherd's parser and llama.cpp's, case by case, at many cuts.

uv run python -m bench.dialects.protocols

llama.cpp's side is what its own parser returned when the corpus was made (`llamacpp_result`). Needs the conformance
data in ../shared/conformance, or where CONFORMANCE_DIR points.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.machine import SHARED
from rich.console import Console
from rich.table import Table

from shepherd.core import BadCall, Message, ToolCall, ToolSpec, fold
from shepherd.core.events import Finished, Started
from shepherd.dialects import TagDialect, detect
from shepherd.dialects.base import Keep
from shepherd.dialects.detection import without_header

ROOT = Path(os.environ.get("CONFORMANCE_DIR", SHARED / "conformance"))
N_CUTS = 20
Json = dict[str, Any]


def kind_of(case: Json) -> str:
    """What a robust case is about: `mut:prose_after`, `wild:harmony`, `hard`."""
    first, second, *_ = case["id"].split(":")
    return first if first == "hard" else f"{first}:{second}"


def read(case: Json, dialect: TagDialect, chunks: list[str]) -> Json:
    """The message of an output that comes in these chunks, in the corpus' shape."""
    functions = [tool["function"] for tool in case.get("tools") or ()]
    tools = [ToolSpec(f["name"], f.get("description") or "", f.get("parameters") or {}) for f in functions]
    mode: Keep = "keep" if case["options"]["reasoning_format"] == "none" else "split"
    parser = dialect.parser(tools=tools, reasoning=mode)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    message: Message = fold([Started("bench"), *events, *parser.close(), Finished("end")]).message
    calls = [part for part in message.parts if isinstance(part, ToolCall | BadCall)]
    return {
        "content": message.text,
        "reasoning_content": message.reasoning,
        "tool_calls": [{"name": c.name, "arguments": getattr(c, "arguments", ""), "id": c.id} for c in calls],
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    spec = importlib.util.spec_from_file_location("compare", ROOT / "compare.py")
    if spec is None or spec.loader is None or not ROOT.is_dir():
        raise SystemExit(f"there is no conformance data at {ROOT}; set CONFORMANCE_DIR")
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    templates = {path.name: path.read_text("utf-8") for path in (ROOT / "templates").glob("*.jinja")}
    right: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in (ROOT / "chat_cases_robust.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        kind = kind_of(case) + (" (policy)" if case.get("policy") else "")
        total[kind] += 1
        dialect = detect(templates[case["template"]])
        text = without_header(case["options"]["generation_prompt"], dialect) + case["raw"]
        drawn = random.Random(case["id"]).sample(range(len(text)), min(len(text), N_CUTS))
        said = [read(case, dialect, chunks) for chunks in ([text], list(text), *([text[:a], text[a:]] for a in drawn))]
        right[kind] += all(not compare.same(case["expected"], message, case) for message in said)
        lost[kind] += any(not (m["content"] or m["reasoning_content"] or m["tool_calls"]) for m in said)
        other = case["llamacpp_result"].get("msg")
        theirs[kind] += other is not None and not compare.same(case["expected"], other, case)
    table = Table("kind", "cases", "Shepherd, at every cut", "llama.cpp, whole", "empty messages of ours")
    for kind in sorted(total):
        table.add_row(kind, *(str(counter[kind]) for counter in (total, right, theirs, lost)))
    Console().print(table)
    strict = [kind for kind in total if not kind.endswith("(policy)")]
    share = {
        side: sum(counter[k] for k in strict) / sum(total[k] for k in strict)
        for side, counter in (("shepherd", right), ("llama.cpp", theirs))
    }
    Console().print(f"without policy: Shepherd {share['shepherd']:.1%}, llama.cpp {share['llama.cpp']:.1%}")
    kinds = {
        kind: {"cases": total[kind], "shepherd": right[kind], "llama.cpp": theirs[kind], "empty": lost[kind]}
        for kind in sorted(total)
    }
    Console().print(f"written to {machine.save('protocols', {'share': share, 'kinds': kinds})}")


if __name__ == "__main__":
    main()
