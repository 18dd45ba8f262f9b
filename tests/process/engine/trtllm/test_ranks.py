"""Real ranks under Open MPI: they leave together, with one exit code, and nothing of them is left."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests import cases
from tests.places import ROOT
from tests.process.engine.trtllm.group import MARK, environment, eventually, kill, left, needs_mpi, program, start

from shepherd.engine.trtllm.launch import RANKS, without_complaints

pytestmark = needs_mpi

N_RANKS = cases.amount([2], [2, 3, 4] * 3 + [2])
"""How many ranks each test has; ten times, beside busy processes, in an exhaustive run."""

every_size = pytest.mark.parametrize("n_ranks", N_RANKS, ids=[f"{n}-{at}" for at, n in enumerate(N_RANKS)])
SOON_S = 15.0
"""Much less than what a test would wait for ranks that hang, and more than a busy machine needs."""


@pytest.fixture(scope="module", autouse=True)
def load() -> Iterator[None]:
    """Three busy processes on two cores."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cases.amount(0, 3))]
    yield
    for each in busy:
        each.kill()
        each.wait()


@every_size
@pytest.mark.parametrize("code", [0, 4])
def test_all_ranks_leave_together_with_the_code_of_rank_0(n_ranks: int, code: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()
        assert group.ready[2] == n_ranks
        group.ask("session")
        found = group.ask("task", "where")
        assert [rank for rank, _, _ in found] == list(range(n_ranks))
        assert len({pid for _, pid, _ in found}) == n_ranks
        group.tell("end", code)
        assert group.end() == code
        words = group.words()
        assert words.count("banner of rank") == words.count("banner of rank 0") == 1
        assert all(words.count(f"[rank {rank}] leaves with {code}\n") == 1 for rank in range(n_ranks))


@every_size
def test_ranks_leave_that_never_served_and_that_served_twice(n_ranks: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect().tell("exit", 0)
        assert group.end() == 0
    with start(tmp_path, n_ranks) as group:
        group.connect()
        for _ in range(2):
            group.ask("session")
            assert len(group.ask("task", "where")) == n_ranks
            group.ask("shutdown")
        group.tell("end", 0)
        assert group.end() == 0


@every_size
def test_waiting_costs_no_processor_time(n_ranks: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()

        def busy_s(seconds: float) -> float:
            others = [process for rank, process in group.ranks().items() if rank > 0]
            before = sum(sum(each.cpu_times()[:2]) for each in others)
            time.sleep(seconds)  # what is measured is a time
            return (sum(sum(each.cpu_times()[:2]) for each in others) - before) / len(others)

        assert len(group.ranks()) == n_ranks
        # One that spins takes seconds even on a crowded machine; the clock of a process counts in hundredths of one.
        assert busy_s(4) <= 0.4, "waiting for an order"
        group.ask("session")
        assert busy_s(4) <= 0.4, "waiting for a task"
        group.tell("end", 0)
        assert group.end() == 0


@pytest.mark.parametrize(("how", "status"), [("exit 3", {3}), ("SIGKILL", {137})])
@every_size
def test_a_rank_that_dies_in_a_task_ends_all(n_ranks: int, how: str, status: set[int], tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()
        group.ask("session")
        group.tell("start", "die", n_ranks - 1, how)
        assert group.end() in status
        assert group.took["end"] < SOON_S


@pytest.mark.parametrize("serving", [False, True])
@every_size
def test_a_rank_that_is_killed_while_it_waits_ends_all(n_ranks: int, serving: bool, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()
        if serving:
            group.ask("session")
        group.ranks()[1].kill()
        assert group.end() == 137
        assert group.took["end"] < SOON_S


@pytest.mark.parametrize("rank", [0, 1])
@every_size
def test_a_rank_whose_import_fails_ends_all(n_ranks: int, rank: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks, STANDIN_FAILS_ON=str(rank)) as group:
        assert group.end() == 1
        assert "RuntimeError: the stand-in fails" in group.words()


@every_size
def test_a_library_that_cannot_be_imported_is_one_sentence(n_ranks: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks, STANDIN_LACKS_CUDA="1") as group:
        assert group.end() == 1
        words = [each for each in without_complaints(group.words()).splitlines() if "banner" not in each]
        sentence = (
            "shepherd: tests.process.engine.trtllm.standin cannot be imported: libcudart.so.13: cannot open shared"
        )
        assert words == [f"{sentence} object file: No such file or directory"]


@pytest.mark.parametrize(
    ("order", "status"), [(("raise",), 1), (("die", 3), 3), (("broken session",), 1), (("kill",), 137)], ids=str
)
@every_size
def test_rank_0_that_dies_ends_all(n_ranks: int, order: tuple[object, ...], status: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()
        if order == ("kill",):
            os.kill(group.ready[1], signal.SIGKILL)
        else:
            group.tell(*order)
        assert group.end() == status
        assert group.took["end"] < SOON_S


@pytest.mark.parametrize("serving", [False, True])
@every_size
def test_sigterm_to_rank_0_is_an_orderly_end(n_ranks: int, serving: bool, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()
        if serving:
            group.ask("session")
        os.kill(group.ready[1], signal.SIGTERM)
        assert group.end() == 0
        assert "the host ends" in group.words()


@every_size
def test_sigterm_to_mpirun_ends_all(n_ranks: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()
        group.process.terminate()
        assert group.end() != 0
        assert group.took["end"] < SOON_S


@every_size
def test_ranks_whose_mpirun_is_killed_end(n_ranks: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks) as group:
        group.connect()
        group.process.kill()
        assert group.end() == -signal.SIGKILL


@pytest.mark.parametrize("how", ["stop", "hang"])
@every_size
def test_a_rank_that_does_not_leave_is_ended_by_force(n_ranks: int, how: str, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks, leave_s=2) as group:
        group.connect()
        group.ask("session")
        group.ask("start", "die", 1, how)
        group.tell("end", 0)
        assert group.end() == 1
        assert "does not leave within 2 s" in group.words()


@every_size
def test_ranks_that_hang_at_the_start_end_with_mpirun(n_ranks: int, tmp_path: Path) -> None:
    with start(tmp_path, n_ranks, STANDIN_STOPS_ON="1") as group:
        assert eventually(lambda: any(each.status() == psutil.STATUS_STOPPED for each in group.ranks().values()))
        group.process.terminate()
        assert group.end() != 0


@every_size
def test_a_wrong_number_of_ranks_is_one_sentence(n_ranks: int, tmp_path: Path) -> None:
    def change(command: list[str]) -> list[str]:
        return ["env", f"{RANKS}={n_ranks + 1}", *command]

    with start(tmp_path, n_ranks, change=change) as group:
        assert group.end() == 2
        sentence = f"shepherd: mpirun started {n_ranks} ranks, but this engine needs {n_ranks + 1}; "
        assert without_complaints(group.words()).startswith(sentence)
        assert len(without_complaints(group.words()).splitlines()) == 1


@every_size
def test_another_mpi_is_one_sentence(n_ranks: int, tmp_path: Path) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text(
        "#!/bin/bash\n"
        'n=$2; while [ "$1" != PROGRAM ]; do shift; done; shift\n'
        'for ((i = 1; i < n; i++)); do PMI_RANK=$i PMI_SIZE=$n "$@" & done\n'
        'PMI_RANK=0 PMI_SIZE=$n "$@"; status=$?; wait; exit $status\n'
    )
    launcher.chmod(0o755)

    def change(command: list[str]) -> list[str]:
        at = command.index(sys.executable)
        return [str(launcher), *command[1:at], "PROGRAM", *command[at:]]

    with start(tmp_path, n_ranks, change=change) as group:
        assert group.end() == 2
        assert without_complaints(group.words()).startswith("shepherd: mpirun is not Open MPI's ")
        assert len(without_complaints(group.words()).splitlines()) == 1


@every_size
def test_shepherd_under_a_foreign_mpirun_is_refused(n_ranks: int, tmp_path: Path) -> None:
    code = (
        "from shepherd.core.errors import ConfigError\nfrom shepherd.engine.trtllm.launch import plan\n"
        "try: plan((1, 2, 1))\nexcept ConfigError as error: print(error)"
    )
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = ["mpirun", "--oversubscribe", "-n", str(n_ranks), *root, sys.executable, "-c", code]
    found = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.count("start it without mpirun") == n_ranks


# The program that starts the ranks


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("phase", ["idle", "computing", "child"])
@pytest.mark.parametrize("wish", ["mpirun", "spawn"])
@pytest.mark.parametrize("_time", range(cases.amount(1, 10)))
def test_ranks_end_when_shepherd_is_killed(
    _time: int, wish: str, phase: str, number: signal.Signals, tmp_path: Path
) -> None:
    variables = {"RANKS_TEST_IDLE": "1"} if phase == "idle" else {"RANKS_TEST_CHILD": "1"} if phase == "child" else {}
    environ = environment(
        tmp_path, RANKS_TEST_WISH=wish, RANKS_TEST_LEAVE_S="2", RANKS_TEST_UNTIL=str(tmp_path / "end"), **variables
    )
    with program(environ, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline().decode().strip() == ("idle" if phase == "idle" else "computing")
            n_processes = 2 if wish == "spawn" and phase == "idle" else 4
            assert eventually(lambda: len(left(environ[MARK])) >= n_processes)
            parent.send_signal(number)
            assert parent.wait(10) == -number
            assert eventually(lambda: not left(environ[MARK]), SOON_S), left(environ[MARK])
        finally:
            kill(environ[MARK])


@pytest.mark.parametrize("wish", ["mpirun", "spawn"])
@pytest.mark.parametrize("variables", [{}, {"RANKS_TEST_CHILD": "1"}], ids=["socket", "child"])
@pytest.mark.parametrize("_time", range(cases.amount(1, 10)))
def test_ctrl_c_in_the_terminal_does_not_reach_the_ranks(
    _time: int, variables: dict[str, str], wish: str, tmp_path: Path
) -> None:
    until = tmp_path / "end"
    environ = environment(tmp_path, RANKS_TEST_WISH=wish, RANKS_TEST_UNTIL=str(until), **variables)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "tests.process.engine.trtllm.parent_program"], environ)
    shown = b""

    def wait_for(words: bytes) -> None:
        nonlocal shown
        while words not in shown:
            shown += os.read(terminal, 1000)

    try:
        wait_for(b"computing\r\n")
        os.write(terminal, b"\x03")
        wait_for(b"interrupted 1\r\n")
        until.touch()
        wait_for(b"computed [True, True]\r\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert eventually(lambda: not left(environ[MARK]), 10)
    finally:
        kill(environ[MARK])
        os.close(terminal)


# Spawn mode


@pytest.mark.parametrize(
    ("order", "status"),
    [(("end", 0), 0), (("end", 4), 4), (("die", 3), 3), (("raise",), 1), (("SIGTERM",), 0)],
    ids=str,
)
def test_the_library_starts_the_other_ranks_in_spawn_mode(
    order: tuple[object, ...], status: int, tmp_path: Path
) -> None:
    with start(tmp_path, 2, wish="spawn") as group:
        group.connect()
        assert group.ready[2] == 1
        group.ask("session")
        assert [rank for rank, _, _ in group.ask("task", "where")] == [0, 1]
        if order == ("SIGTERM",):
            group.process.terminate()
        else:
            group.tell(*order)
        assert group.end() == status


def test_the_check_finds_a_process_that_is_left(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    with subprocess.Popen(["sleep", "60"], env=environ, start_new_session=True) as planted:
        assert eventually(lambda: [each.pid for each in left(environ[MARK])] == [planted.pid])
        kill(environ[MARK])
    assert left(environ[MARK]) == []
