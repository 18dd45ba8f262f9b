"""A tree of processes: its mark finds daemons, and its end ends them all. See `tools/builtin/test_shell.py`, too."""

import os
import sys

import psutil
import pytest
from tests.in_time import becomes_true

from shepherd.process.tree import MARK, ProcessTree, exit_code_of, start

DAEMON = "import subprocess as s; p = s.Popen(['sleep', '60'], start_new_session=True); print(p.pid, flush=True)"


@pytest.mark.skipif(sys.platform == "win32", reason="sessions are of POSIX")
def test_the_end_of_a_tree_is_that_of_a_daemon_whose_parent_has_ended() -> None:
    env = {**os.environ, MARK: "outer"}
    with start([sys.executable, "-c", DAEMON], env=env, mark="mine") as process:
        tree = ProcessTree(process.pid, "mine")
        assert process.stdout is not None
        daemon = psutil.Process(int(process.stdout.readline()))
        # Linux closes the pipe that `Popen` waits for before the new program has its environment.
        assert becomes_true(lambda: bool(daemon.environ()))
        assert daemon.environ()[MARK] == "outer mine", "a Shepherd in this one finds its own as well"
        assert tree.end(0.0)
        assert tree.background == ["sleep 60"]
        assert psutil.wait_procs([daemon], timeout=60)[1] == []
        assert exit_code_of(process) is not None
