"""Measures in two seconds which defaults of a model are wrong on this machine: flash attention and the threads.

    Setup ─▶ find: <cache folder>/probes/<model>-<build>-<machine>-<setup>.json ─▶ Verdict ─▶ the next start uses it
       └─none─▶ measure, in a child ─▶ Verdict ─▶ keep

The child makes a context of each kind, fills them with copies of one computed cell (`LlamaRuntime.repeat`), and
computes single tokens behind them in turn: each value and the default come one right after the other, in changing
order, and count as the ratio of their times. A value replaces the default when the median of its ratio is above `CLEAR`
with 95 % confidence. All else leaves the default, and is remembered as well: a crash, a hang, no difference, a model
that is too slow for two seconds. Only a machine that others keep busy, and a child that is not wanted any more, leave
no verdict.

A child, and no second context of the loaded model: the library answers many errors by abort(), which no process
survives. Its weights are the pages of the file that the engine has mapped already. `nice` gives the engine all the
processor time that it wants. A GPU has no such pages, so nothing is measured there, where threads matter little and the
library decides about flash attention.

Not here: when a probe runs (`app/probing.py`), the search over all settings (`optimize`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shepherd.core import ShepherdError
from shepherd.engine.llamacpp.machine import n_processors, processors
from shepherd.engine.llamacpp.selftest import results_id
from shepherd.models import gguf
from shepherd.process import child

if TYPE_CHECKING:
    from shepherd.engine.llamacpp.runtime import LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

BUDGET_S, GRACE_S = 2.0, 0.25
"""Computing of a probe, loading the model not counted, and what the last round may take longer than the one before."""
FLASH_SHARE = 0.55
"""Of the budget, where both settings are asked about."""
DEPTH = 4096
"""Cells in front of the tokens that are computed; fewer in a smaller context, and where so many take much memory."""
MARGIN = 512
"""Cells for the tokens that are computed."""
RUN_S = 0.01
"""Seconds of one run at least: more than a clock and a scheduler are wrong by."""
LONGEST_RUN = 16
"""Tokens of one run."""
LEAST_PAIRS = 5
"""Of so few ratios the smallest is below their median with 97 % confidence."""
SLOWEST_S = BUDGET_S / (2 * LEAST_PAIRS)
"""A token that takes longer leaves no time for a comparison."""
CLEAR = 1.05
"""How many times as fast as the default a value must be."""
TIMEOUT_S, SLOWEST_BYTES_PER_S = 60.0, 64 << 20
"""Time for a child, plus the time to read the model at this speed, from the memory where the engine has it."""
BUSY, LEAST_LOOK_S = 0.5, 0.3
"""Processors that others may keep busy of those that the threads need; seconds of a look at them."""
MOST_MEMORY_BYTES = 4 << 30
"""Memory for a child besides the size of the model."""
MOST_THREADS = 512
"""The library's own limit."""
_OVER = f"{BUDGET_S:g} s were over before there was a result"
_TOO_SLOW = f"{BUDGET_S:g} s are not enough for a comparison: a token takes {{:.2g}} s"

Value = bool | int


@dataclass(frozen=True, slots=True)
class Setup:
    """A model, and the settings that it has: what they leave open is measured."""

    model: gguf.Header
    n_threads: int | None = None
    flash_attention: bool | None = None
    """None also where the type of the cells decides."""
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    swa_full: bool = True
    repack: bool = True

    @property
    def asks(self) -> tuple[str, ...]:
        """The keys of `[models.NAME]` that are open."""
        has_flash = self.flash_attention is None and not self.cache_type_v.startswith("q")
        return (*(("flash_attn",) if has_flash else ()), *(("n_threads",) if self.n_threads is None else ()))

    def task(self) -> dict[str, Any]:
        """What the child must know, as JSON can hold it."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "model"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known about one setting."""

    setting: str
    """A key of `[models.NAME]`."""
    default: Value
    value: Value
    """What is used: the default, or what is clearly faster."""
    why: str
    """What was measured, or why nothing was; for people."""

    @property
    def words(self) -> str:
        """As a file would have it."""
        return f"{self.setting} = {json.dumps(self.value)}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a probe."""

    at: str
    """The day, as ISO 8601 has it."""
    depth: int = 0
    computed_s: float = 0.0
    findings: tuple[Finding, ...] = ()
    problem: str = ""
    """Why the child ended too early."""

    def changed(self, setting: str) -> Value | None:
        """The value that replaces the default; None = the default stays."""
        found = next((each for each in self.findings if each.setting == setting), None)
        return None if found is None or found.value == found.default else found.value

    @property
    def changes(self) -> str:
        """The settings that replace a default, as a file would have them; empty if all stay."""
        return ", ".join(each.words for each in self.findings if each.value != each.default)

    @property
    def flash_attention(self) -> bool | None:
        value = self.changed("flash_attn")
        return None if value is None else bool(value)

    @property
    def n_threads(self) -> int | None:
        value = self.changed("n_threads")
        return None if value is None else int(value)


# -- what is kept -----------------------------------------------------------------------------------------------------


def folder_of(cache_folder: Path) -> Path:
    """Where verdicts are kept, with the lock that one probe at a time holds."""
    return cache_folder / "probes"


def file_of(cache_folder: Path, setup: Setup) -> Path:
    """The file of a verdict: for this model, build, machine and settings."""
    settings = hashlib.sha256(repr(setup.task()).encode()).hexdigest()[:8]
    return folder_of(cache_folder) / f"{results_id(setup.model)}-{settings}.json"


def find(cache_folder: Path, setup: Setup) -> Verdict | None:
    """The verdict of an earlier probe; None if there is none that can be read."""
    stored = child.kept(file_of(cache_folder, setup))
    try:
        return verdict_of(stored) if stored is not None else None
    except (KeyError, TypeError, ValueError):  # of another version, or damaged
        return None


def keep(cache_folder: Path, setup: Setup, verdict: Verdict) -> None:
    """Store a verdict. A folder that is not writable keeps none."""
    child.keep(file_of(cache_folder, setup), {"model": setup.model.path.name, **asdict(verdict)})


def verdict_of(stored: Mapping[str, Any]) -> Verdict:
    """A stored verdict. Raises: `KeyError`, `TypeError`, `ValueError` for anything else."""
    found = tuple(Finding(**each) for each in stored["findings"])
    for each in found:
        is_flag = each.setting == "flash_attn"
        if type(each.value) is not (bool if is_flag else int) or not (is_flag or 1 <= each.value <= MOST_THREADS):
            raise ValueError(each)
    texts = (str(stored["at"]), int(stored["depth"]), float(stored["computed_s"]))
    return Verdict(*texts, findings=found, problem=str(stored["problem"]))


# -- measuring --------------------------------------------------------------------------------------------------------


def measure(
    setup: Setup,
    *,
    depth: int,
    use_extra_bufts: bool = True,
    is_wanted: Callable[[], bool] = lambda: True,
    is_background: bool = True,
    command: tuple[str, ...] = (sys.executable, "-m", "shepherd.engine.llamacpp.probe"),
    timeout_s: float | None = None,
) -> Verdict | None:
    """The verdict, measured in a child; None when other programs keep the machine busy. Blocks.

    depth: cells in front of the computed tokens, at most. is_background: the child has the lowest priority, and
    measures nothing on a busy machine.

    Raises: `child.Cancelled`.
    """
    task = {
        **setup.task(),
        "path": str(setup.model.path),
        "asks": setup.asks,
        "depth": depth,
        "use_extra_bufts": use_extra_bufts and setup.repack,
        "is_background": is_background,
    }
    if timeout_s is None:
        timeout_s = TIMEOUT_S + setup.model.size_bytes / SLOWEST_BYTES_PER_S
    ended = child.run((*command, json.dumps(task)), timeout_s=timeout_s, is_wanted=is_wanted)
    today = datetime.now(UTC).date().isoformat()
    told: dict[str, Any] = {"at": today, "depth": 0, "computed_s": 0.0, "findings": [], "problem": ""}
    step, lines = "loading the model", ended.answer.splitlines()
    with contextlib.suppress(ValueError, TypeError, KeyError):  # the last line may be cut off
        for line in lines:
            match json.loads(line):
                case {"busy": _}:
                    return None
                case {"asks": str(setting)}:
                    step = f"asking about {setting}"
                case {"setting": _} as finding:
                    told["findings"].append(finding)
                case {"problem": str(problem)}:
                    return Verdict(today, problem=problem)
                case {"depth": _} as facts:
                    told |= facts
    if ended.status != 0:
        last = f" ({ended.words.splitlines()[-1][:200]})" if ended.status > 0 and ended.words else ""
        told["problem"] = f"the process that measures did {child.died(ended.status, timeout_s)} while {step}{last}"
    try:
        return verdict_of(told)
    except (ValueError, TypeError):
        return Verdict(today, problem="the child that measures has written what is no result")


# -- the child --------------------------------------------------------------------------------------------------------


class _Unclear(Exception):
    """There is nothing to compare with: too slow, or refused by the library. The text says why."""


class _Busy(Exception):
    """Other programs compute on this machine."""


def compared(
    run: Callable[[Value, int], float], values: Sequence[Value], *, budget_s: float, n_most: int
) -> Mapping[Value, list[float]]:
    """For each value behind the first one, how many times as fast as the first it is, once for each round.

    run: computes so many tokens with a value, and returns the seconds. n_most: tokens that a value may compute in all.

    Raises: `_Unclear` if the budget is not enough for `LEAST_PAIRS`.
    """
    firsts = {value: run(value, 1) for value in values}  # wakes threads and pages
    once_s, n_most = max(firsts.values()), n_most - 1
    n = max(1, min(LONGEST_RUN, round(RUN_S / max(once_s, 1e-6)), n_most // (2 * LEAST_PAIRS)))
    ratios: dict[Value, list[float]] = {value: [] for value in values[1:]}
    rounds_s: list[float] = []
    left_s, round_s = budget_s - sum(firsts.values()), n * sum(firsts.values())
    while round_s <= left_s and n <= n_most:
        at = len(rounds_s) % len(values)
        try:
            took_s = {value: run(value, n) for value in (*values[at:], *values[:at])}
        except _Unclear:  # the time is over
            break
        for value in values[1:]:
            ratios[value].append(took_s[values[0]] / took_s[value])
        rounds_s.append(sum(took_s.values()))
        left_s, n_most, round_s = left_s - rounds_s[-1], n_most - n, middle(rounds_s)
    if len(rounds_s) < LEAST_PAIRS:
        raise _Unclear(_TOO_SLOW.format(once_s))
    return ratios


def middle(values: Sequence[float]) -> float:
    """The median, of an even number the larger one; `statistics` takes long to import."""
    return sorted(values)[len(values) // 2]


def lowest(ratios: Sequence[float]) -> float:
    """What the median is above with at least 95 % confidence, whatever the distribution is; of few ratios the
    smallest."""
    return sorted(ratios)[max(0, int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))]


def decided(setting: str, default: Value, ratios: Mapping[Value, Sequence[float]]) -> Finding:
    """The value that is clearly the fastest, or the default."""
    best = max(ratios, key=lambda value: lowest(ratios[value]))
    value = best if lowest(ratios[best]) > CLEAR else default
    measured = "; ".join(
        f"{_word(each)} is {middle(found):.2f} times as fast as {_word(default)} "
        f"(at least {lowest(found):.2f}, {len(found)} pairs)"
        for each, found in ratios.items()
    )
    return Finding(setting, default, value, measured)


def _word(value: Value) -> str:
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


class _Subject:
    """The contexts of a probe, made as they are needed."""

    def __init__(self, weights: Weights, task: Mapping[str, Any]) -> None:
        from shepherd.engine.llamacpp.runtime import usual_threads  # noqa: PLC0415 - only the child needs it

        self.weights = weights
        self.task = task
        self.usual: int = task["n_threads"] or usual_threads(weights.n_params)
        self.depth = 0
        self.spent_s = 0.0
        self._runtimes: dict[bool, LlamaRuntime] = {}
        """By flash attention."""
        self._n_computed = {False: 0, True: 0}

    def open(self, flash: bool) -> None:
        """Make a context and fill it. Raises: `_Unclear`, `EngineError` if the library refuses it."""
        from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime  # noqa: PLC0415 - as above

        if flash in self._runtimes:
            return
        options = ContextOptions(
            self.task["depth"] + MARGIN,
            n_seq=2,
            n_batch=32,
            n_threads=self.usual,
            flash_attention=flash,
            cache_type_k=self.task["cache_type_k"],
            cache_type_v=self.task["cache_type_v"],
            swa_full=self.task["swa_full"],
        )
        runtime = self._runtimes[flash] = LlamaRuntime(self.weights, options)
        once_s = self.run(flash, self.usual, 1)
        if once_s > SLOWEST_S:  # perhaps the first token has read the model from the disk
            once_s = self.run(flash, self.usual, 1)
        if once_s > SLOWEST_S:
            raise _Unclear(_TOO_SLOW.format(once_s))
        began_s = time.perf_counter()
        # A recurrent state has no cells that could be copied.
        self.depth = 0 if self.weights.is_recurrent else runtime.repeat(0, 1, self.task["depth"])
        self.spent_s += time.perf_counter() - began_s

    def run(self, flash: bool, n_threads: int, n_tokens: int) -> float:
        """The seconds that so many tokens take, one after the other."""
        from shepherd.engine.base import Chunk  # noqa: PLC0415 - as above

        runtime, start = self._runtimes[flash], self._n_computed[flash]
        runtime.use_threads(n_threads)
        token = array("i", (3 % self.weights.n_vocab,))
        n, began_s = 0, time.perf_counter()
        while n < n_tokens and runtime.decode([Chunk(0, token, start + n, logits=True)]) == "ok":
            n += 1
        took_s = time.perf_counter() - began_s
        self._n_computed[flash] += n
        self.spent_s += took_s
        if n < n_tokens:  # `end` has aborted it
            raise _Unclear(_OVER)
        return took_s

    def end(self) -> None:
        """Abort what is computed now, and whatever is computed next. Any thread."""
        for runtime in list(self._runtimes.values()):
            runtime.interrupt(True)

    def left(self, flash: bool) -> int:
        """Tokens that a context still has cells for."""
        return MARGIN - self._n_computed[flash]


def thread_counts(usual: int, n_usable: int) -> tuple[int, ...]:
    """The numbers of threads that are compared, the usual one first: half of it, one left to others, one for each
    hardware thread of the cores."""
    others = {usual // 2, usual - 1, min(2 * usual, n_usable)} - {0, usual}
    return (usual, *sorted(others))


def _asked(subject: _Subject, counts: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """The findings, each behind a line that says what is asked."""
    task = subject.task
    flash = bool(task["flash_attention"]) or task["cache_type_v"].startswith("q")
    if "flash_attn" in task["asks"] and not subject.weights.is_recurrent:
        yield {"asks": "flash_attn"}
        finding = _flash(subject, budget_s=BUDGET_S * (FLASH_SHARE if len(counts) > 1 else 1.0))
        yield asdict(finding)
        flash = bool(finding.value)
    if len(counts) > 1:
        yield {"asks": "n_threads"}
        yield asdict(_threads(subject, flash, counts))


def _flash(subject: _Subject, *, budget_s: float) -> Finding:
    try:
        subject.open(False)
        subject.open(True)
        ratios = compared(
            lambda value, n: subject.run(bool(value), subject.usual, n),
            (False, True),
            budget_s=budget_s - subject.spent_s,
            n_most=subject.left(False),
        )
    except (_Unclear, ShepherdError) as error:
        return Finding("flash_attn", False, False, str(error))
    return decided("flash_attn", False, ratios)


def _threads(subject: _Subject, flash: bool, counts: Sequence[int]) -> Finding:
    try:
        subject.open(flash)
        ratios = compared(
            lambda value, n: subject.run(flash, value, n),
            counts,
            budget_s=BUDGET_S - subject.spent_s,
            n_most=subject.left(flash) // len(counts),
        )
    except (_Unclear, ShepherdError) as error:
        return Finding("n_threads", counts[0], counts[0], str(error))
    return decided("n_threads", counts[0], ratios)


class _Others:
    """What other programs compute on the processors that this one may use."""

    def __init__(self) -> None:
        self._before = self._now()

    def free(self) -> float:
        """How many threads had a processor to themselves since the start, or since the last call."""
        time.sleep(max(0.0, self._before[0] + LEAST_LOOK_S - time.monotonic()))
        now = self._now()
        wall_s, all_s, own_s = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        return len(processors()) - (all_s - own_s) / wall_s + BUSY

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """The time, and the seconds of processors that all programs have used, and this one."""
        import psutil  # noqa: PLC0415 - only the child needs it

        times = psutil.cpu_times(percpu=True)
        mine = [times[n] for n in processors() if n < len(times)]
        # The time of guests is counted in that of the user, too.
        extra = ("idle", "iowait", "guest", "guest_nice")
        busy_s = sum(sum(each) - sum(getattr(each, name, 0.0) for name in extra) for each in mine)
        return time.monotonic(), busy_s, time.process_time()


def _measured(task: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    from shepherd.engine.llamacpp.weights import Weights  # noqa: PLC0415 - only the child needs it

    others = _Others()
    weights = Weights.load(Path(task["path"]), use_extra_bufts=task["use_extra_bufts"], cpu_only=True)
    subject = _Subject(weights, task)
    counts = thread_counts(subject.usual, n_processors()) if "n_threads" in task["asks"] else (subject.usual,)
    if task["is_background"]:
        free = others.free()
        counts = tuple(n for n in counts if n <= free)
        if subject.usual not in counts:
            raise _Busy
    over = threading.Timer(BUDGET_S + GRACE_S, subject.end)
    over.daemon = True
    over.start()
    yield from _asked(subject, counts)
    if task["is_background"] and max(counts) > others.free():
        raise _Busy
    yield {"depth": subject.depth, "computed_s": round(subject.spent_s, 3)}


def _child(text: str) -> int:
    import psutil  # noqa: PLC0415 - only the child needs it

    task = json.loads(text)
    with contextlib.suppress(psutil.Error, OSError):
        if task["is_background"]:
            psutil.Process().nice(getattr(psutil, "IDLE_PRIORITY_CLASS", 19))  # Windows has names for them
    child.end_with_parent()

    def tell(line: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()  # the next call may end the process

    try:
        child.limit_memory(gguf.read_header(task["path"]).size_bytes + MOST_MEMORY_BYTES)
        for line in _measured(task):
            tell(line)
    except _Busy:
        tell({"busy": True})
    except ShepherdError as error:
        tell({"problem": error.message})
    return 0


if __name__ == "__main__":
    sys.exit(_child(sys.argv[1]))
