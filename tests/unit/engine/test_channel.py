"""What crosses between a process and its child, and what does not: a child may send anything."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import ContextFull, Evicted, InvalidRequest
from shepherd.engine.base import Admitted, CachedPrefix, Done, PromptScores, Scored
from shepherd.engine.gate import Gate
from shepherd.engine.kv.tiers.arena import Region
from shepherd.engine.llamacpp.model import CacheFacts, ModelFacts, PooledFacts
from shepherd.engine.llamacpp.remote import ReaderFacts, RemoteFacts, _Encoded
from shepherd.engine.stats import CacheStats, Histogram, SequenceStats
from shepherd.engine.worker.channel import Channel
from shepherd.engine.worker.messages import (
    Beat,
    Ended,
    EngineFacts,
    Failed,
    Kept,
    Logged,
    Progress,
    Ready,
    Returned,
    State,
    Steps,
)
from shepherd.process.child import Child


@pytest.fixture
def ends() -> Iterator[tuple[Any, Channel]]:
    """The child's raw connection, and the channel of this process."""
    here, there = multiprocessing.Pipe()
    yield there, Channel(here)
    here.close()
    there.close()


class Evil:
    """Runs a program where it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def shown(values: list[Any]) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(values))


def test_every_answer_crosses_as_it_is(ends: tuple[Any, Channel]) -> None:
    there, channel = ends
    histogram = Histogram()
    histogram.observe(0.5)
    sequence = SequenceStats(1, "idle", "name", 10, 0, 5, 5, 3, 1.5, 2.0)
    stats = CacheStats(100, eviction_s=histogram, sequences=(sequence,))
    model = ModelFacts(("a",), (CacheFacts("f", "why", True, 10),), PooledFacts("n", 8, "mean", 512))
    facts = RemoteFacts(model, ReaderFacts(b"d", True, False))
    answers = [
        Progress("weights", 0.5),
        Ready((EngineFacts(Gate("main", 100), 75),), facts),
        State(0, stats, None, True),
        Beat(),
        Steps(
            1, [5, Scored(5, -0.5, ((5, -0.5),)), PromptScores(()), Admitted(1, 2), Evicted(1, 5, (0,)), Done("end", 3)]
        ),
        Returned(2, CachedPrefix(5, ((0, 5),), "cells")),
        Returned(3, [array("i", [1, 2])]),
        Returned(4, (array("i"), 7)),
        Returned(5, _Encoded(b"1234", 1, (2,), ())),
        Failed(6, InvalidRequest("no", field="a.b")),
        Failed(7, ContextFull(needed=5, limit=4, cache="main")),
        Kept("main/k", Region(0, 5)),
        Kept("main/k", None),
        Logged("shepherd", 30, "text"),
        Ended(),
    ]
    there.send(answers)
    got = channel.receive()
    assert shown(got) == shown(answers)
    assert got[2].stats.eviction_s.counts == histogram.counts


@pytest.mark.parametrize(
    "value",
    [
        Evil(os.system, "touch {}"),
        Evil(eval, "open({!r}, 'w')"),
        Evil(Child, ["touch", "{}"], {}),
        Evil(getattr, "x", "upper"),
        Evil(Path, "{}"),
        Evil(pickle.loads, b"N."),
    ],
    ids=["system", "eval", "a class of ours that starts programs", "getattr", "a path", "loads"],
)
def test_nothing_else_is_built_of_what_a_child_sends(value: Evil, ends: tuple[Any, Channel], tmp_path: Path) -> None:
    there, channel = ends
    mark = tmp_path / "mark"
    function, arguments = value.call
    told = [each.format(str(mark)) if isinstance(each, str) else each for each in arguments]
    there.send([Returned(1, Evil(function, *told))])
    with pytest.raises(pickle.UnpicklingError, match="is no value that crosses"):
        channel.receive()
    assert not mark.exists()


@pytest.mark.parametrize("text", [b"", b"\x80", b"garbage", b"\x80\x05]\x94K\x01a" * 3, pickle.dumps({"a": 1})])
def test_what_is_no_list_is_no_message(text: bytes, ends: tuple[Any, Channel]) -> None:
    there, channel = ends
    there.send_bytes(text)
    with pytest.raises(pickle.UnpicklingError):
        channel.receive()


def test_a_message_has_a_limit(ends: tuple[Any, Channel]) -> None:
    there, channel = ends
    os.write(there.fileno(), b"\xff\xff\xff\xff" + (1 << 40).to_bytes(8, "big"))  # a length of 1 TiB
    with pytest.raises(OSError, match="bad message length"):
        channel.receive()


def test_messages_arrive_whole_however_they_are_cut(ends: tuple[Any, Channel]) -> None:
    there, channel = ends
    messages = [[], [1, "two"], [Steps(1, [5, Done("end", 3)])], [b"x" * 5_000]]
    packed = [pickle.dumps(each, pickle.HIGHEST_PROTOCOL) for each in messages]
    large = b"\xff\xff\xff\xff" + len(packed[1]).to_bytes(8, "big") + packed[1]
    sent = b"".join(len(each).to_bytes(4, "big") + each for each in packed) + large
    for size in (1, 3, 7, 1000, len(sent)):
        got: list[Any] = []
        for at in range(0, len(sent), size):
            os.write(there.fileno(), sent[at : at + size])
            got += channel.arrived()
        assert shown(got) == shown([*messages, messages[1]])
    there.close()
    with pytest.raises(EOFError):
        next(channel.arrived())


@pytest.mark.parametrize("length", [b"\x7fgar", b"\x80\0\0\0", b"\xff\xff\xff\xff" + b"\x01" * 8])
def test_a_length_that_no_message_has_is_garbage_before_it_has_come(length: bytes, ends: tuple[Any, Channel]) -> None:
    there, channel = ends
    os.write(there.fileno(), length)
    with pytest.raises(pickle.UnpicklingError, match="not a message: it would have"):
        next(channel.arrived())


def test_an_open_file_crosses(ends: tuple[Any, Channel], tmp_path: Path) -> None:
    there, channel = ends
    file = tmp_path / "file"
    file.write_text("text")
    with file.open() as opened:
        channel.send([1])
        channel.send_handle(opened.fileno())
    other = Channel(there, is_trusted=True)
    assert other.receive() == [1]
    handle = other.receive_handle()
    assert os.read(handle, 10) == b"text"
    os.close(handle)
