"""How much Python runs: counts, which do not depend on how busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal


def executed(work: Callable[[], object], event: Literal["line", "opcode"]) -> int:
    """How many lines or instructions run in `work`, each turn of a loop counted."""
    n = 0

    def trace(frame: FrameType, happened: str, _: object) -> Any:
        nonlocal n
        frame.f_trace_opcodes = event == "opcode"
        n += happened == event
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return n
