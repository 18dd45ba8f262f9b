"""The memory that `models/sizing.py` foresees, against what the library takes and what the process then holds.

    uv run python -m bench.models.memory_fit   # five architectures of about 0.5 GB; JSON on stdout, a table on stderr

`library` is the sum of the buffers that llama.cpp reports when it makes them; it is compared with the same parts of the
estimate. `resident` is what the process holds more than before the load, after a context filled to the last cell and a
step of all sequences at once: it is compared with all of the estimate. `alone` is the same before that step: what one
conversation takes, since pages of the others' states and logits are there only once they are written.

Before that, the windows of architectures in `models/sizing.py` are compared with llama.cpp's source.
"""

from __future__ import annotations

import contextlib
import json
import logging
import platform
import re
import subprocess
import sys
from array import array
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from bench.models.memory_shapes import SHAPES, model
from bench.rig.llama_tools import source

from shepherd.engine.base import Chunk
from shepherd.engine.llamacpp import library
from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.models import gguf
from shepherd.models.sizing import FULL_FIRST, WINDOWED, Cells, fit

CASES = {
    "default": Cells(2048, n_seq=4),
    "flash, q8_0, narrow windows": Cells(
        2048, ("q8_0", "q8_0"), n_seq=32, n_ubatch=256, swa_full=False, flash_attention=True
    ),
}
MODELS = [*((name, "Q8_0") for name in SHAPES if name not in ("smollm2", "llama-1b")), ("llama", "Q4_0")]
SIZE = re.compile(r" (\w+) buffer size = +([0-9.]+) MiB")


class Buffers(logging.Handler):
    """What the library reports, in bytes, by kind."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        for what, size in SIZE.findall(record.getMessage()):
            self.found[what] = self.found.get(what, 0) + float(size) * 2**20


def measure(path: Path, cells: Cells) -> dict[str, Any]:
    """One model with one cache, in this process."""
    heard = Buffers()
    library.logger.addHandler(heard)
    library.logger.setLevel(logging.DEBUG)
    library.start_library()
    me = psutil.Process()
    before = me.memory_info().rss
    options = ContextOptions(
        cells.n_ctx, n_seq=cells.n_seq, n_ubatch=cells.n_ubatch, flash_attention=cells.flash_attention,
        cache_type_k=cells.types[0], cache_type_v=cells.types[1], swa_full=cells.swa_full,
    )  # fmt: skip
    with (
        contextlib.closing(Weights.load(path)) as weights,
        contextlib.closing(LlamaRuntime(weights, options)) as runtime,
    ):
        library.logger.setLevel(logging.INFO)
        tokens = array("i", (index % 997 for index in range(runtime.n_batch)))
        most = cells.n_ctx - cells.n_seq
        for start in range(0, most, len(tokens)):
            assert runtime.decode([Chunk(0, tokens[: most - start], start, logits=True)]) == "ok"
        alone = me.memory_info().rss - before
        step = [Chunk(seq, tokens[:1], 0 if seq else most, logits=True) for seq in range(cells.n_seq)]
        assert runtime.decode(step) == "ok"
        resident = me.memory_info().rss - before
    header = gguf.read_header(path)
    found = fit(header, [cells], repacked=library.repacked_types())
    return {
        "foreseen": found.total,
        "library": round(sum(heard.found.values())),
        "resident": resident,
        "alone": alone,
        "by_kind": heard.found,
        **asdict(found),
    }


PATTERN = re.compile(r"load_swa_pattern\(ml, (\d+)(?:, *(?:/\*dense_first=\*/)?(true))?\)")
NAMED = {"openai-moe": "gpt-oss"}
"""Files of the source that are not called as their architecture."""


def check_windows() -> None:
    """Stop where the table of windows differs from the library's source; `lfm2` has another form there."""
    found: dict[str, tuple[int, bool]] = {}
    for file in (source() / "src" / "models").glob("*.cpp"):
        if match := PATTERN.search(file.read_text()):
            found[NAMED.get(file.stem, file.stem)] = (int(match[1]), match[2] is not None)
    ours = {name: (every, name in FULL_FIRST) for name, every in WINDOWED.items() if every}
    assert ours == found, sorted(set(ours.items()) ^ set(found.items()))
    sys.stderr.write(f"windows: {len(ours)} architectures are as in the source\n")


def main() -> None:
    check_windows()
    rows = []
    for name, kind in MODELS:
        model(name, kind=kind)
        for case in CASES:
            ended = subprocess.run(
                [sys.executable, "-m", "bench.models.memory_fit", name, kind, case], stdout=subprocess.PIPE, check=True
            )
            row = json.loads(ended.stdout)
            row = {"model": f"{name} {kind}", "case": case, **row}
            rows.append(row)
            total, alone = row["foreseen"], row["alone"] / 2**20
            off, held = (total - row["scratch"]) / row["library"] - 1, total / row["resident"] - 1
            sys.stderr.write(
                f"{row['model']:16} {case:30} foreseen {total / 2**20:7.1f} MiB  library {row['library'] / 2**20:7.1f} "
                f"({off:+.1%})  resident {row['resident'] / 2**20:7.1f} ({held:+.1%})  alone {alone:7.1f}\n"
            )
    worst = {
        "library": max(abs((row["foreseen"] - row["scratch"]) / row["library"] - 1) for row in rows),
        "resident": max(abs(row["foreseen"] / row["resident"] - 1) for row in rows),
    }
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    print(json.dumps({"taken": taken, "machine": platform.processor(), "worst": worst, "rows": rows}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        name, kind, case = sys.argv[1:]
        print(json.dumps(measure(model(name, kind=kind), CASES[case])))
    else:
        main()
