"""Runs the probe of a model (`engine/llamacpp/probe.py`) in the background, once, when nothing else is to be done.

    model loaded ─▶ add ─▶ thread: quiet for a while? ─▶ lock of the cache folder ─▶ child ─▶ verdict in a file
                                      ▲─────── a job came: the child is killed ──┘        └▶ the next start reads it

It holds no cells and no lock of the engines, and changes no setting of a model that is loaded: the flash attention of a
context decides how its cells lie in memory, and the conversations that are kept on disk with it. A verdict counts from
the next start on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from shepherd.config import ModelConfig
from shepherd.engine.llamacpp import probe
from shepherd.engine.llamacpp.probe import Setup, Verdict
from shepherd.models import gguf
from shepherd.models.sizing import Cells, fit
from shepherd.process.child import Cancelled
from shepherd.process.files import try_lock

logger = logging.getLogger(__name__)

QUIET_S, LOOK_S = 3.0, 0.25
"""Seconds without a job before a probe; seconds between two looks."""
LONGEST_QUIET_S, MOST_TRIES = 300.0, 12
"""The quiet doubles whenever a probe was in vain; after so many times the next start tries again."""
MOST_CELLS_BYTES = 256 << 20
"""Cells of one context of a probe: of large ones it fills less."""
FREE_SHARE = 0.5
"""Of the memory that is free now a probe may use so much."""


def setup_of(header: gguf.Header, model: ModelConfig, cells: Cells) -> Setup:
    """What a probe of a model measures. cells: of its first cache."""
    return Setup(
        header,
        n_threads=model.n_threads,
        flash_attention=model.flash_attn,
        cache_type_k=cells.types[0],
        cache_type_v=cells.types[1],
        swa_full=cells.swa_full,
        repack=model.repack is not False,
    )


def why_not(setup: Setup, wanted: bool | None) -> str:
    """Why a model is not measured and no verdict on it is used; empty if it is. wanted: its key `probe`."""
    from shepherd.engine.llamacpp.library import devices  # noqa: PLC0415 - loads the native library
    from shepherd.engine.llamacpp.runtime import SMALL_MODEL  # noqa: PLC0415

    if wanted is False:
        return "switched off (probe = false)"
    if not setup.asks:
        return "not measured: the configuration sets flash_attn and n_threads"
    if devices():
        return "not measured: there is a GPU, for which the library decides"
    if wanted is None and setup.model.n_params < SMALL_MODEL:
        return f"not measured: so small a model is fast enough with one thread (fewer than {SMALL_MODEL:,} parameters)"
    return ""


def known(cache_folder: Path, header: gguf.Header, model: ModelConfig, cells: Cells) -> Verdict | None:
    """The verdict that counts for a model; None = its defaults do."""
    setup = setup_of(header, model, cells)
    return None if why_not(setup, model.probe) else probe.find(cache_folder, setup)


def depth_of(header: gguf.Header, cells: Cells) -> int:
    """How many cells a probe fills, in a context of this size."""
    depth = min(probe.DEPTH, max(cells.n_ctx - probe.MARGIN, 64))
    while depth > 64 and fit(header, [replace(cells, n_ctx=depth)]).cells > MOST_CELLS_BYTES:
        depth //= 2
    return depth


class Prober:
    """Measures the models that are added, one after the other, in a thread that ends when there is nothing left to
    measure. Any thread; `close` once."""

    def __init__(
        self,
        cache_folder: Path,
        *,
        use_extra_bufts: bool,
        n_jobs: Callable[[], int | None],
        quiet_s: float = QUIET_S,
        measure: Callable[..., Verdict | None] = probe.measure,
    ) -> None:
        """`n_jobs`: how many jobs the engines of this process have had; None while there is one, or a model is being
        loaded. Called from the thread."""
        self._cache_folder = cache_folder
        self._use_extra_bufts = use_extra_bufts
        self._n_jobs = n_jobs
        self._quiet_s = quiet_s
        self._measure = measure
        self._waiting: deque[tuple[Setup, Cells]] = deque()
        self._lock = threading.Lock()
        """Guards `_waiting` and `_thread`."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, header: gguf.Header, model: ModelConfig, cells: Cells) -> None:
        """Measure a model that has just been loaded, unless a verdict is known, or there is a reason not to."""
        setup = setup_of(header, model, cells)
        if why_not(setup, model.probe):
            return
        with self._lock:
            if self._closed.is_set() or any(setup == each for each, _ in self._waiting):
                return
            self._waiting.append((setup, cells))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="shepherd-probe", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Kill the child, and wait for the thread."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    # the thread

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closed.is_set() or not self._waiting:
                    self._thread = None
                    return
                setup, cells = self._waiting[0]
            name = setup.model.path.name
            try:
                self._probe(setup, cells)
            except OSError as error:
                logger.debug("%s is not measured: %s", name, error)
            except Exception:  # whatever is wrong with it, the models work
                logger.exception("%s could not be measured", name)
            with self._lock:
                self._waiting.popleft()

    def _probe(self, setup: Setup, cells: Cells) -> None:
        """Raises: `OSError` if nothing can be kept."""
        name, quiet_s = setup.model.path.name, self._quiet_s
        if probe.find(self._cache_folder, setup) is not None:
            return
        depth = depth_of(setup.model, cells)
        for _ in range(MOST_TRIES):
            if (n_jobs := self._quiet(quiet_s)) is None:
                return
            quiet_s = min(2 * quiet_s, LONGEST_QUIET_S)
            with self._only_one() as is_only:
                if not is_only:
                    continue
                if probe.find(self._cache_folder, setup) is not None:  # by another Shepherd, meanwhile
                    return
                if why := _lack(setup.model, cells, depth, is_repacked=setup.repack):
                    logger.debug("%s is not measured now: %s", name, why)
                    continue
                logger.debug("measuring %s", name)
                try:
                    verdict = self._measure(
                        setup,
                        depth=depth,
                        use_extra_bufts=self._use_extra_bufts,
                        is_wanted=lambda expected=n_jobs: not self._closed.is_set() and self._n_jobs() == expected,
                    )
                except Cancelled:
                    logger.debug("measuring %s was interrupted", name)
                    continue
                if verdict is None:
                    logger.debug("%s is not measured now: other programs keep the processors busy", name)
                    continue
                probe.keep(self._cache_folder, setup, verdict)
                logger.info("measured %s, for the next start: %s", name, described(verdict))
                return

    def _quiet(self, quiet_s: float) -> int | None:
        """Wait until there was no job for so long; the number of jobs so far, or None if this was closed."""
        seen, since_s = self._n_jobs(), time.monotonic()
        while seen is None or time.monotonic() - since_s < quiet_s:
            if self._closed.wait(LOOK_S):
                return None
            if (now := self._n_jobs()) != seen or now is None:
                seen, since_s = now, time.monotonic()
        return None if self._closed.is_set() else seen

    @contextlib.contextmanager
    def _only_one(self) -> Iterator[bool]:
        """Whether no other Shepherd with this cache folder measures now. Raises: `OSError`."""
        folder = probe.folder_of(self._cache_folder)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield try_lock(descriptor)
        finally:
            os.close(descriptor)  # and with it the lock


def described(verdict: Verdict) -> str:
    """A verdict in words."""
    words = [
        f"{each.words}{'' if each.value != each.default else ' as by default'} ({each.why})"
        for each in verdict.findings
    ]
    return "; ".join([*words, *([verdict.problem] if verdict.problem else [])]) or "there is nothing to choose from"


def _lack(header: gguf.Header, cells: Cells, depth: int, *, is_repacked: bool) -> str:
    """Why there is not enough memory for a probe; empty if there is."""
    import psutil  # noqa: PLC0415 - only a probe needs these

    from shepherd.engine.llamacpp.library import repacked_types  # noqa: PLC0415

    context = replace(cells, n_ctx=depth + probe.MARGIN, n_seq=2, n_outputs=2, n_ubatch=32)
    found = fit(header, [context, context], repacked=repacked_types() if is_repacked else ())
    needed, free = found.total - found.weights, psutil.virtual_memory().available
    return f"it needs {needed >> 20} MiB, {free >> 20} MiB are free" if needed > FREE_SHARE * free else ""
