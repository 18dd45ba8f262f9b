"""`shepherd provider replicas`, `drain` and `resume`: what a person sees of a server's replicas, and what changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.scripted_service import ScriptedService, saying
from tests.unit.cli.conftest import shepherd

from shepherd.core.status import Health, ReplicaStatus

Listening = Callable[..., AbstractContextManager[int]]
GROUPS = {
    "vllm": {
        "vllm-1": ReplicaStatus("ready", 2, models=("a", "b", "c", "d")),
        "vllm-2": ReplicaStatus("resting", 0, 12.0, "no connection to 10.0.0.2:8000: \x1b[31mrefused", ("a",)),
    }
}


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService(saying("Hi"), health=Health("ok", "vllm", "", groups=GROUPS))


def test_every_replica_has_a_row(empty_home: Path, listening: Listening, service: ScriptedService) -> None:
    with listening(service) as port:
        shown = shepherd("provider", "replicas", "--url", f"127.0.0.1:{port}", env={"COLUMNS": "160"}).stdout
        programs = json.loads(shepherd("provider", "replicas", "--url", f"127.0.0.1:{port}", "--json").stdout)
    head, first, second = (line.split() for line in shown.splitlines())
    assert head == ["PROVIDER", "REPLICA", "STATE", "OPEN", "MODELS", "REASON"]
    assert first == ["vllm", "vllm-1", "ready", "2", "a,", "b,", "c", "and", "1", "more"]
    assert " ".join(second).startswith("vllm vllm-2 resting 0 a no connection to 10.0.0.2:8000: ")
    assert "\x1b" not in shown
    assert programs["vllm"]["vllm-2"]["rests_s"] == 12.0


def test_one_is_taken_out_and_put_back(empty_home: Path, listening: Listening, service: ScriptedService) -> None:
    with listening(service) as port:
        for verb, words in (
            ("drain", "vllm-1 is draining; 2 answers still running there.\n"),
            ("resume", "vllm-1 is ready.\n"),
        ):
            done = shepherd("provider", verb, "vllm-1", "--url", f"127.0.0.1:{port}")
            assert (done.stdout, done.exit_code) == (words, 0)
        wrong = shepherd("provider", "drain", "vllm-9/x", "--url", f"127.0.0.1:{port}")
        assert wrong.exit_code == 1
        assert "vllm-9" in wrong.output
    assert service.taken_out == [("vllm-1", True), ("vllm-1", False)]


def test_a_server_without_replicas_says_how_to_have_some(empty_home: Path, listening: Listening) -> None:
    with listening(ScriptedService(saying("Hi"))) as port:
        shown = shepherd("provider", "replicas", "--url", f"127.0.0.1:{port}", env={"COLUMNS": "160"}).stdout
    assert "No provider of this server has replicas. base_urls of [providers.NAME]" in shown


def test_where_no_server_runs_one_sentence_says_so(empty_home: Path) -> None:
    done = shepherd("provider", "drain", "vllm-1", "--url", "127.0.0.1:9")
    assert done.exit_code == 1
    assert "no server answers at http://127.0.0.1:9; start one with 'shepherd serve'" in done.output
