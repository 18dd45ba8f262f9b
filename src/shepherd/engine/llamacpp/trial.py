"""Loads a model for the first time on this machine in a child process, so that a crash does not end the server.

    Header ─▶ digest known? ──yes──▶ nothing          the verdict: <cache folder>/trials/<build>-<digest>.json
                   └─no─▶ child: load, tokenise, compute a token ─▶ stored, or one `EngineError`

`models/soundness.py` refuses faults that are known to abort; this finds the others. Only good verdicts are stored: a
file that failed is tried again, since it may have been repaired. The digest covers the header and the sizes of the
files, not the tensors' data: wrong numbers there do not end a process.

A good verdict does not cover everything. The child computes on the CPU only and without the extra buffer types, so that
it uses no GPU memory and no second copy of the weights (the file is mapped, and its pages are shared with the process
that loads it next). So GPU kernels, AMX, repacked weights, long contexts and quantised caches are first used by the
server itself; the self-test covers those of the CPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.core import ConfigError, EngineError, Sampling
from shepherd.core.pairs import Pairs
from shepherd.models import catalog, gguf, soundness
from shepherd.process import child, isolated

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.pooled import Pooling
    from shepherd.engine.llamacpp.weights import Weights

logger = logging.getLogger(__name__)

TIMEOUT_S, SLOWEST_BYTES_PER_S = 120.0, 16 << 20
"""Time for a child, plus the time to read the model at this speed: a large model may take minutes from a slow disk."""
MOST_MEMORY_BYTES = 4 << 30
"""Memory for a child besides the size of the model: a damaged count must not use up the machine's memory."""
_HEADER_BYTES = 8 << 20
N_CTX = 256
_EVERY_BYTE = "".join(map(chr, (*range(0x100), *range(0x100, 0x800, 0x3F), *range(0x800, 0xD800, 0xFC1))))
_EVERY_BYTE += "".join(map(chr, range(0x10000, 0x110000, 0x1F041)))
"""A text of characters of every length, with nearly every byte that UTF-8 has."""


def prove(
    path: Path,
    cache_folder: Path,
    *,
    build: str,
    pooling: Pooling | None = None,
    makes_vectors: bool = False,
    projector: Path | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
    command: Sequence[str] | None = None,
    timeout_s: float | None = None,
) -> None:
    """Check that this build of the library can load a model, in a child if that is not known yet. Blocks.

    build: `selftest.build_id()`. pooling, makes_vectors, projector: how the model will be used; a reranker
    is one that makes vectors with the pooling `rank`.

    Raises: `ConfigError` for a damaged file, `EngineError` for one that does not load, `child.Cancelled`.
    """
    header = gguf.read_header(path)
    soundness.check(header)
    use = "vectors" if makes_vectors else "chat"
    file = _verdict(header, cache_folder, build, use if projector is None else f"{use}-{_digest(projector)}")
    file = file or (None if projector is None else cache_folder / "trials" / f"{build}-{_digest(projector)}.json")
    if file is None or child.kept(file) is not None:
        return
    logger.info("checking %s in a child process: this build of the library has not loaded it yet", path.name)
    n_bytes = header.size_bytes + (projector.stat().st_size if projector is not None else 0)
    if timeout_s is None:
        timeout_s = TIMEOUT_S + n_bytes / SLOWEST_BYTES_PER_S
    began_s = time.monotonic()
    task = {"path": str(header.path), "makes_vectors": makes_vectors, "pooling": pooling}
    task |= {"projector": str(projector) if projector is not None else None}
    program = isolated.command("shepherd.engine.llamacpp.trial:load_task", memory_bytes=n_bytes + MOST_MEMORY_BYTES)
    ended = child.run(command or program, timeout_s=timeout_s, is_wanted=is_wanted, task=isolated.line(task))
    if ended.status == 0:
        logger.info("%s is sound, after %.1f s", path.name, time.monotonic() - began_s)
        child.keep(file, {"model": path.name})
        return
    logger.info("%s does not load: status %d. The library wrote: %s", path.name, ended.status, ended.words or "nothing")
    raise EngineError(_refusal(header, ended, timeout_s))


def is_proved(header: gguf.Header, cache_folder: Path, *, build: str) -> bool:
    """Whether this model needs no further trial for at least one use. Raises: `ConfigError`."""
    files = (_verdict(header, cache_folder, build, use) for use in ("chat", "vectors"))
    return any(file is None or child.kept(file) is not None for file in files)


def _verdict(header: gguf.Header, cache_folder: Path, build: str, use: str) -> Path | None:
    """The file of a good verdict on a model; None for the one in the package and its copies: the self-test loads it."""
    digest = header.digest()
    return None if digest == _embedded_digest() else cache_folder / "trials" / f"{build}-{digest}-{use}.json"


@cache
def _embedded_digest() -> str:
    with contextlib.suppress(ConfigError):  # another model can be loaded where this one is damaged
        return gguf.read_header(catalog.embedded()).digest()
    return ""


def _digest(projector: Path) -> str:
    """A hash of the beginning of a projector, which holds its header, and of its size."""
    with projector.open("rb") as file:
        return hashlib.sha256(file.read(_HEADER_BYTES) + b"%d" % projector.stat().st_size).hexdigest()[:32]


def _refusal(header: gguf.Header, ended: child.Ended, timeout_s: float) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):  # the child reported an error itself
        return str(json.loads(ended.answer)["error"])
    became = "hangs" if ended.status == child.HUNG else "ends"
    last = next((line for line in reversed(ended.words.splitlines()) if "GGML_" in line or "what()" in line), "")
    last = last or next(reversed(ended.words.splitlines()), "")
    words = f": {last.strip()[-200:]}" if last else ""
    how = child.died(ended.status, timeout_s)
    return (
        f"{header.path.name} {became} the process that loads it ({how}{words}); the file is damaged, or newer than the "
        "library: download it again, choose another file of this model, or update Shepherd"
    )


# -- in the child -----------------------------------------------------------------------------------------------------


def load_task(task: dict[str, Any]) -> None:
    """`load` with the arguments that `prove` sends."""
    projector = Path(task["projector"]) if task["projector"] else None
    load(Path(task["path"]), makes_vectors=task["makes_vectors"], pooling=task["pooling"], projector=projector)


def load(
    path: Path, *, makes_vectors: bool = False, pooling: Pooling | None = None, projector: Path | None = None
) -> None:
    """Load a model and compute with it, in this process. Raises: `ShepherdError`."""
    from shepherd.engine.llamacpp.weights import Weights  # noqa: PLC0415 - only the child needs it

    with contextlib.closing(Weights.load(path, use_extra_bufts=False, cpu_only=True)) as weights:
        if weights.has_text:
            weights.tokenize(_EVERY_BYTE)
        if makes_vectors:
            from shepherd.engine.llamacpp.embedding import EmbeddingModel  # noqa: PLC0415
            from shepherd.engine.llamacpp.reranking import RerankModel  # noqa: PLC0415

            if pooling == "rank":
                with RerankModel(weights, n_tokens=N_CTX) as reranker:
                    reranker.score(Pairs((("a", "b"),), truncate=True))
                return
            with EmbeddingModel(weights, pooling=pooling, n_tokens=N_CTX) as embedder:
                embedder.encode(["a"])
            return
        answer(weights, [max(weights.bos or 0, 0)], n_ubatch=32)
        if projector is not None:
            from shepherd.engine.llamacpp.projector import Projector  # noqa: PLC0415

            with contextlib.closing(Projector.load(projector, weights, n_threads=1, use_gpu=False)) as made:
                made.try_out()


def answer(
    weights: Weights, prompt: Sequence[int], *, n_ubatch: int | None = None, n_threads: int | None = None
) -> None:
    """Compute a prompt and two tokens of its answer. Raises: `EngineError`."""
    from shepherd.engine.base import Chunk  # noqa: PLC0415 - only the child needs these
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime  # noqa: PLC0415

    options = ContextOptions(N_CTX, n_ubatch=n_ubatch, n_threads=n_threads)
    with contextlib.closing(LlamaRuntime(weights, options)) as runtime:
        tokens = array("i", prompt)
        assert runtime.decode([Chunk(0, tokens, 0, logits=True)]) == "ok"
        sampler = runtime.sampler(Sampling(temperature=0), tokens)
        token = sampler.sample(0)
        assert runtime.decode([Chunk(0, array("i", [token]), len(tokens), logits=True)]) == "ok"
        assert 0 <= sampler.sample(0) < weights.n_vocab
        sampler.close()
