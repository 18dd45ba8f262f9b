"""The probe of a model's defaults: what is compared and decided, what is kept, children that end badly, a real one."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shepherd.engine.llamacpp import probe
from shepherd.engine.llamacpp.machine import processors
from shepherd.engine.llamacpp.probe import LEAST_PAIRS, Finding, Setup, Value, Verdict
from shepherd.engine.llamacpp.runtime import LlamaRuntime
from shepherd.engine.llamacpp.weights import Weights
from shepherd.models import gguf
from shepherd.process import child

FOUND = Finding("flash_attn", False, True, "on is 1.40 times as fast as off (at least 1.30, 20 pairs)")


@pytest.fixture
def setup(lamb: Path) -> Setup:
    return Setup(gguf.read_header(lamb))


class Machine:
    """Computes a token in a known time, and slower for a while now and then."""

    def __init__(self, seconds: dict[Value, float], *, noise: Callable[[], float] = lambda: 1.0) -> None:
        self.seconds = seconds
        self.noise = noise
        self.asked: list[tuple[Value, int]] = []
        self.spent_s = 0.0

    def __call__(self, value: Value, n: int) -> float:
        self.asked.append((value, n))
        took_s = n * self.seconds[value] * self.noise()
        self.spent_s += took_s
        return took_s


# -- comparing --------------------------------------------------------------------------------------------------------


def test_each_value_is_compared_with_the_default_in_changing_order_within_the_budget() -> None:
    machine = Machine({2: 0.004, 1: 0.002, 4: 0.008})
    ratios = probe.compared(machine, (2, 1, 4), budget_s=1.0, n_most=10_000)
    assert set(ratios) == {1, 4}
    assert {round(each, 6) for each in ratios[1]} == {2.0}
    assert {round(each, 6) for each in ratios[4]} == {0.5}
    assert 0.9 < machine.spent_s <= 1.0
    rounds = [[value for value, _ in machine.asked[at : at + 3]] for at in range(3, len(machine.asked), 3)]
    assert {order[0] for order in rounds} == {2, 1, 4}, "each is the first one now and then"
    assert all(sorted(map(int, order)) == [1, 2, 4] for order in rounds)


def test_no_more_tokens_are_computed_than_there_are_cells_for() -> None:
    machine = Machine({False: 1e-5, True: 1e-5})
    probe.compared(machine, (False, True), budget_s=10.0, n_most=100)
    assert sum(n for value, n in machine.asked if value is True) <= 100
    assert max(n for _, n in machine.asked) <= probe.LONGEST_RUN


def test_a_model_that_is_too_slow_for_the_budget_is_said_to_be() -> None:
    machine = Machine({False: 0.3, True: 0.1})
    with pytest.raises(probe._Unclear, match=r"2 s are not enough for a comparison: a token takes 0\.3 s"):
        probe.compared(machine, (False, True), budget_s=1.0, n_most=480)
    assert machine.spent_s <= 1.0
    just = probe.compared(Machine({False: 0.1, True: 0.1}), (False, True), budget_s=1.21, n_most=480)
    assert len(just[True]) == LEAST_PAIRS


def test_time_that_is_over_ends_the_comparison_with_the_pairs_so_far() -> None:
    machine = Machine({False: 0.01, True: 0.01})

    def run(value: Value, n: int) -> float:
        if len(machine.asked) > 12:
            raise probe._Unclear("aborted")
        return machine(value, n)

    assert len(probe.compared(run, (False, True), budget_s=10.0, n_most=480)[True]) == 5


# -- deciding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratios", "value"),
    [
        ([1.3] * 4, True),
        ([1.3, 1.4, 1.5, 1.06], True),
        ([1.3, 1.4, 1.5, 1.04], False),
        ([0.7] * 10, False),
        ([1.02] * 50, False),
        ([1.2] * 30 + [0.3, 0.5], True),
        ([1.2] * 16 + [0.9] * 14, False),
    ],
)
def test_a_default_gives_way_to_what_is_clearly_faster_only(ratios: list[float], value: bool) -> None:
    finding = probe.decided("flash_attn", False, {True: ratios})
    assert finding.value is value
    assert finding.why.startswith("on is ")
    assert f"{len(ratios)} pairs" in finding.why


def test_of_several_that_are_faster_the_one_that_is_surely_so_is_taken() -> None:
    ratios = {1: [1.5, 1.6, 1.7, 1.0], 4: [1.2] * 4, 2: [1.3] * 4}
    assert probe.decided("n_threads", 8, ratios).value == 2


def test_noise_alone_changes_hardly_a_default() -> None:
    """The interval of the median is wrong at its lower end in one case of forty, and 5 % must be passed as well."""
    dice = random.Random(7)
    changed = 0
    for _ in range(300):
        machine = Machine({False: 0.01, True: 0.01}, noise=lambda: dice.lognormvariate(0, 0.15))
        ratios = probe.compared(machine, (False, True), budget_s=1.1, n_most=480)
        changed += probe.decided("flash_attn", False, ratios).value is True
    assert changed <= 6


def test_a_difference_of_a_fifth_is_found_in_noise() -> None:
    dice = random.Random(7)
    found = 0
    for _ in range(100):
        machine = Machine({False: 0.012, True: 0.01}, noise=lambda: dice.lognormvariate(0, 0.08))
        ratios = probe.compared(machine, (False, True), budget_s=1.1, n_most=480)
        found += probe.decided("flash_attn", False, ratios).value is True
    assert found >= 95


@pytest.mark.parametrize(
    ("usual", "n_usable", "counts"),
    [
        (1, 1, (1,)), (1, 2, (1, 2)), (1, 64, (1, 2)), (2, 2, (2, 1)), (4, 4, (4, 2, 3)), (4, 8, (4, 2, 3, 8)),
        (8, 12, (8, 4, 7, 12)), (3, 3, (3, 1, 2)),
    ],
)  # fmt: skip
def test_threads_are_compared_that_this_process_may_use(usual: int, n_usable: int, counts: tuple[int, ...]) -> None:
    assert probe.thread_counts(usual, n_usable) == counts


@pytest.mark.parametrize(
    ("given", "asks"),
    [
        ({}, ("flash_attn", "n_threads")),
        ({"n_threads": 2}, ("flash_attn",)),
        ({"flash_attention": False}, ("n_threads",)),
        ({"cache_type_v": "q8_0"}, ("n_threads",)),
        ({"cache_type_k": "q8_0"}, ("flash_attn", "n_threads")),
        ({"n_threads": 1, "flash_attention": True}, ()),
    ],
)
def test_what_the_user_has_set_is_not_asked_about(
    given: dict[str, object], asks: tuple[str, ...], setup: Setup
) -> None:
    assert replace(setup, **given).asks == asks  # type: ignore[arg-type]  # a table


# -- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_a_verdict_is_kept_per_model_build_machine_and_setup(setup: Setup, tmp_path: Path) -> None:
    from shepherd.engine.llamacpp import selftest
    from shepherd.engine.llamacpp.machine import hardware

    verdict = Verdict("2026-11-23", 4096, 1.5, (FOUND, Finding("n_threads", 2, 2, "no difference")), "")
    assert probe.find(tmp_path, setup) is None
    probe.keep(tmp_path, setup, verdict)
    assert probe.find(tmp_path, setup) == verdict
    assert (verdict.flash_attention, verdict.n_threads, verdict.changes) == (True, None, "flash_attn = true")
    assert probe.find(tmp_path, replace(setup, cache_type_k="q8_0")) is None
    assert probe.find(tmp_path, replace(setup, n_threads=2)) is None
    file = probe.file_of(tmp_path, setup)
    model, build, machine, rest = file.name.split("-")
    assert (model, build, machine) == (setup.model.digest()[:16], selftest.build_id(), hardware())
    for other in (f"{'0' * 16}-{build}-{machine}", f"{model}-{'0' * 16}-{machine}", f"{model}-{build}-{'0' * 12}"):
        file = file.rename(file.with_name(f"{other}-{rest}"))
        assert probe.find(tmp_path, setup) is None, "that of another model, build or machine does not count"


@pytest.mark.model
@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"findings": 7}',
        '{"value": true',
        '"value": "yes"',
        '"value": 4',
        '"value": 0',
        '"setting": "n_threads"',
    ],
)
def test_a_damaged_verdict_is_none(damage: str, setup: Setup, tmp_path: Path) -> None:
    probe.keep(tmp_path, setup, Verdict("2026-11-23", 64, 1.5, (FOUND,)))
    file = probe.file_of(tmp_path, setup)
    whole = file.read_text("utf-8")
    key = damage.partition(":")[0]
    changed = whole.replace('"value": true', damage) if key == '"value"' else damage
    changed = whole.replace('"setting": "flash_attn"', damage) if key == '"setting"' else changed
    assert changed != whole
    file.write_text(changed, "utf-8")
    assert probe.find(tmp_path, setup) is None


# -- children ---------------------------------------------------------------------------------------------------------


def measured(setup: Setup, code: str, timeout_s: float = 60.0) -> Verdict | None:
    return probe.measure(setup, depth=64, command=(sys.executable, "-c", f"import os\n{code}"), timeout_s=timeout_s)


def told(*lines: object) -> str:
    return "".join(f"print({json.dumps(json.dumps(line))}, flush=True)\n" for line in lines)


FINDING = {"setting": "flash_attn", "default": False, "value": True, "why": "faster"}
ASKS = ({"asks": "flash_attn"}, FINDING, {"asks": "n_threads"})


def test_a_crash_is_a_verdict_that_names_what_was_asked_and_keeps_what_was_found(setup: Setup) -> None:
    verdict = measured(setup, told(*ASKS) + "os.abort()")
    assert verdict is not None
    assert verdict.problem == "the process that measures did crash (SIGABRT) while asking about n_threads"
    assert verdict.flash_attention is True
    first = measured(setup, told(ASKS[0]) + "os.abort()")
    assert first is not None
    assert "asking about flash_attn" in first.problem
    assert first.flash_attention is None


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("os.abort()", "did crash (SIGABRT) while loading the model"),
        ("import time; time.sleep(60)", "did hang for more than 0 s while loading the model"),
        ("raise SystemExit('no such thing')", "did fail (exit status 1) while loading the model (no such thing)"),
        (told({"problem": "m.gguf cannot be loaded (why)"}), "m.gguf cannot be loaded (why)"),
        (told({"setting": "flash_attn", "value": 7}), "the child that measures has written what is no result"),
    ],
)
def test_a_child_that_ends_badly_is_a_verdict_without_changes(code: str, problem: str, setup: Setup) -> None:
    verdict = measured(setup, code, 0.3 if "sleep" in code else 60.0)
    assert verdict is not None
    assert verdict.problem.endswith(problem)
    assert verdict.changes == ""


def test_a_busy_machine_leaves_no_verdict_whatever_was_found(setup: Setup) -> None:
    assert measured(setup, told(*ASKS, {"busy": True})) is None


def test_a_child_that_is_not_wanted_is_killed(setup: Setup) -> None:
    command = (sys.executable, "-c", "import threading; threading.Event().wait()")
    with pytest.raises(child.Cancelled):
        probe.measure(setup, depth=64, command=command, is_wanted=lambda: False)


def test_processors_that_other_programs_use_are_not_free() -> None:
    others = probe._Others()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burner:
        free = others.free()
        burner.kill()
    assert free < len(processors()) + probe.BUSY - 0.1


# -- the real library -------------------------------------------------------------------------------------------------


@contextmanager
def context(lamb: Path, n_ctx: int, *, flash: bool = False) -> Iterator[object]:
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

    options = ContextOptions(n_ctx, n_seq=2, n_threads=1, flash_attention=flash)
    with closing(Weights.load(lamb)) as weights, closing(LlamaRuntime(weights, options)) as runtime:
        yield runtime


@pytest.mark.model
@pytest.mark.parametrize("flash", [False, True])
def test_cells_are_repeated_until_they_fill_what_is_asked_for(flash: bool, lamb: Path) -> None:
    from array import array

    from shepherd.engine.base import Chunk
    from shepherd.engine.llamacpp.runtime import LlamaRuntime

    with context(lamb, 512, flash=flash) as runtime:
        assert isinstance(runtime, LlamaRuntime)
        assert runtime.repeat(0, 1, 256) == 0, "there is nothing to repeat"
        assert runtime.decode([Chunk(0, array("i", [5]), 0, logits=True)]) == "ok"
        assert runtime.repeat(0, 1, 300) == 256
        assert runtime.held(1) == (-1, -1)
        done = [runtime.decode([Chunk(0, array("i", [7]), n + 1, logits=True)]) for n in range(257)]
        assert done == ["ok"] * 256 + ["full"], "256 cells are copies, and 256 are left"


@pytest.mark.model
def test_threads_that_were_measured_reach_the_library(lamb: Path) -> None:
    from shepherd.engine.llamacpp.library import C
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime, default_threads
    from shepherd.engine.llamacpp.weights import Weights

    assert default_threads(10**9, 1) == 1
    with closing(Weights.load(lamb)) as weights:
        for options, threads in (
            (ContextOptions(256, most_threads=1), (1, 1)),
            (ContextOptions(256, most_threads=1, n_threads=3), (3, 3)),
            (ContextOptions(256, most_threads=1, n_threads_batch=2), (1, 2)),
        ):
            with closing(LlamaRuntime(weights, options)) as runtime:
                assert (C.llama_n_threads(runtime._context), C.llama_n_threads_batch(runtime._context)) == threads
                runtime.use_threads(2)
                assert C.llama_n_threads(runtime._context) == 2


@pytest.mark.model
@pytest.mark.costly
def test_the_embedded_model_is_measured_for_real(setup: Setup) -> None:
    verdict = probe.measure(setup, depth=256, is_background=False)
    assert verdict is not None
    assert verdict.problem == ""
    assert next(each.setting for each in verdict.findings) == "flash_attn"
    assert all(
        "times as fast as" in each.why or "2 s were" in each.why or "2 s are" in each.why for each in verdict.findings
    )
    assert verdict.depth in (0, 256), "0: not one token was computed in time"
    assert verdict.computed_s > 0


@pytest.mark.model
@pytest.mark.costly
@pytest.mark.skipif(len(processors()) > 8, reason="a program on each processor would disturb others too much")
def test_a_machine_that_other_programs_use_is_not_measured(setup: Setup) -> None:
    with contextlib.ExitStack() as stack:
        for _ in processors():
            burner = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(burner.kill)
        assert probe.measure(setup, depth=64) is None


@pytest.mark.model
@pytest.mark.costly
def test_what_the_library_refuses_keeps_the_default(setup: Setup) -> None:
    """72 GiB of cells, and a child may have about 4: no context can be made."""
    wide = replace(setup, cache_type_k="f32", cache_type_v="f32")
    verdict = probe.measure(wide, depth=6_291_456, is_background=False)
    assert verdict is not None
    assert (verdict.changes, verdict.problem) == ("", "")
    assert "context" in verdict.findings[0].why


@pytest.mark.model
@pytest.mark.parametrize(("took_s", "is_measured"), [([0.5, 0.02], True), ([0.02], True), ([0.5, 0.5], False)])
def test_a_first_token_that_reads_the_model_from_the_disk_counts_for_nothing(
    took_s: list[float], is_measured: bool, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(took_s)
    monkeypatch.setattr(probe._Subject, "run", lambda *_: next(times))
    with closing(Weights.load(setup.model.path)) as weights:
        subject = probe._Subject(weights, {**setup.task(), "n_threads": 1, "depth": 1})
        monkeypatch.setattr(LlamaRuntime, "repeat", lambda *_: 1)
        with contextlib.nullcontext() if is_measured else pytest.raises(probe._Unclear):
            subject.open(False)


@pytest.mark.model
def test_a_model_that_does_not_load_is_a_verdict(setup: Setup, tmp_path: Path) -> None:
    gone = replace(setup.model, path=tmp_path / "gone.gguf")
    verdict = probe.measure(replace(setup, model=gone), depth=64)
    assert verdict is not None
    assert "gone.gguf" in verdict.problem
    assert "Traceback" not in verdict.problem
    assert "fail" not in verdict.problem, "it is said in the words of the reader"
