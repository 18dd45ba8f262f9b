"""The memory that `models/sizing.py` foresees for a projector, against what the process then holds.

    uv run python -m bench.models.projector_fit   # random weights, two layers each; JSON on stdout, a table on stderr

`library` is what llama.cpp reports for a computation when it loads the projector: of a smaller image, for kinds that
take images as they are. `resident` is what the process holds more than before the load, after the largest image was
encoded. Both sums contain the file. Real projectors have ten times the layers, and the same buffers.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from tests.unit.engine import tiny_projector as tiny
from tests.unit.engine.tiny_gguf import N_EMBD

from shepherd.engine.base import Media
from shepherd.engine.llamacpp import library
from shepherd.engine.llamacpp.projector import Projector
from shepherd.engine.llamacpp.weights import Weights
from shepherd.models.projector import read_projector


class Case(NamedTuple):
    kind: str
    width: int
    n_ff: int
    patch: int
    size: int
    """Pixels on a side of its images or tiles."""
    side: int
    """Of the image that is encoded."""


CASES = {
    "CLIP large, 336": Case("llava", 1024, 4096, 14, 336, 336),
    "SigLIP so400m, 896 (Gemma 3)": Case("gemma3", 1152, 4304, 14, 896, 896),
    "SigLIP base, tiles of 512 (SmolVLM)": Case("idefics", 768, 3072, 16, 512, 512),
    "Qwen2-VL, 4096 tokens": Case("qwen", 640, 2560, 14, 560, 1792),
}
COMPUTE = re.compile(r"compute buffer size = +([0-9.]+) MiB")


class Buffers(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        for size in COMPUTE.findall(record.getMessage()):
            self.size_bytes = max(self.size_bytes, float(size) * 2**20)


def write(case: Case, folder: Path) -> tuple[Path, Path]:
    """A model, and the projector of the case for it."""
    recipe = tiny.PROJECTORS[case.kind]
    sizes = {tiny.WIDTH: case.width, 4 * tiny.WIDTH: 4 * case.width, tiny.N_FF: case.n_ff, tiny.PATCH: case.patch}
    tensors = {name: tuple(sizes.get(size, size) for size in shape) for name, shape in recipe.tensors.items()}
    position = "v.position_embd.weight"
    if position in tensors:
        extra = recipe.tensors[position][0] - (recipe.image_size // tiny.PATCH) ** 2
        tensors[position] = ((case.size // case.patch) ** 2 + extra, case.width)
    assert N_EMBD not in sizes
    keys = {**recipe.keys, **({"vision.preproc_image_size": case.side} if case.kind == "idefics" else {})}
    model, projector = tiny.write_seeing(case.kind, folder)
    tiny.WIDTH, tiny.N_FF, tiny.PATCH, tiny.N_HEAD = case.width, case.n_ff, case.patch, case.width // 64
    tiny.write_projector(replace(recipe, tensors=tensors, image_size=case.size, keys=keys), projector)
    return model, projector


def measure(case: Case) -> dict[str, Any]:
    """One projector, in this process."""
    from PIL import Image

    heard, image = Buffers(), io.BytesIO()
    Image.new("RGB", (case.side, case.side), "grey").save(image, "PNG")
    library.logger.addHandler(heard)
    library.logger.setLevel(logging.DEBUG)
    library.start_library()
    with tempfile.TemporaryDirectory() as folder:
        model, path = write(case, Path(folder))
        found = read_projector(path)
        me = psutil.Process()
        with contextlib.closing(Weights.load(model)) as weights:
            before = me.memory_info().rss
            with contextlib.closing(Projector.load(path, weights, n_threads=2)) as projector:
                media = next(each for each in projector.read(image.getvalue()) if isinstance(each, Media))
                projector._encode(media)
                resident = me.memory_info().rss - before
    return {
        "tokens": media.n_tokens,
        "file": found.size_bytes,
        "buffers": found.buffer_bytes,
        "library": round(heard.size_bytes),
        "resident": resident,
    }


def main() -> None:
    rows = []
    for name in CASES:
        ended = subprocess.run(
            [sys.executable, "-m", "bench.models.projector_fit", name], stdout=subprocess.PIPE, check=True
        )
        row = {"projector": name, **json.loads(ended.stdout)}
        rows.append(row)
        total = row["file"] + row["buffers"]
        row["off"] = round(total / row["resident"] - 1, 3)
        mib = {key: row[key] / 2**20 for key in ("file", "buffers", "library", "resident")}
        sys.stderr.write(
            f"{name:36} file {mib['file']:6.1f} MiB  buffers {mib['buffers']:6.1f}  (library's at load "
            f"{mib['library']:6.1f})  resident {mib['resident']:6.1f} ({row['off']:+.1%})\n"
        )
    taken = datetime.now(UTC).isoformat(timespec="seconds")
    print(json.dumps({"taken": taken, "machine": platform.processor(), "rows": rows}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(CASES[sys.argv[1]])))
    else:
        main()
