"""The tests of `tests/process/engine/test_worker.py` that take long."""

from __future__ import annotations

import sys

import pytest
from tests.process.engine.test_contract import expected, job, steps, tokens
from tests.process.engine.test_worker import (
    SERVE,
    nothing_is_left,  # noqa: F401 - fixtures
    started,
)
from tests.unit.engine.kinds import child

from shepherd.core import EngineError
from shepherd.engine.worker.messages import ADDRESS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sessions and sockets in folders are of POSIX")


async def test_a_child_that_never_connects_is_an_error_that_says_why() -> None:
    with pytest.raises(EngineError, match=r"^the process of the engine of cache 'main' has not connected within 2 s$"):
        started("import time; time.sleep(1000)", connect_s=2.0)
    with pytest.raises(
        EngineError,
        match=r"^the process of the engine of cache 'main' ended with exit status 0; its last words: not today$",
    ):
        started("print('not today')")
    with pytest.raises(EngineError, match="was killed by SIGABRT"):
        started("import os; os.abort()")
    with pytest.raises(
        EngineError, match=r"^the process of the engine of cache 'main' cannot be started: .*No such file"
    ):
        child(command=["/nowhere/python"])


SILENT = f"""
import os, socket
silent = socket.socket(socket.AF_UNIX)
silent.connect(os.environ[{ADDRESS!r}])
"""


async def test_a_process_that_connects_and_says_nothing_does_not_keep_the_right_one_out() -> None:
    engine = started(SILENT + SERVE)
    assert tokens(await steps(engine.submit(job("abc", 5)))) == expected("abc", 5)
    engine.close()
