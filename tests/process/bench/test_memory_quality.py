"""How well the memory finds evidence, by the program as a person starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import memory_quality
from tests.places import BENCH
from tests.unit.bench.test_memory_quality import turn, written
from tests.unit.engine.tiny_bert import write_bert


def test_an_evaluation_is_one_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = [turn("Ann", "D1:1", "I adopted a dog from the shelter in Ulm"), turn("Bob", "D1:2", "I play the violin")]
    asked = {"question": "Which instrument does Bob play?", "evidence": ["D1:2"], "category": 4}
    talk = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": session}
    file = str(written(tmp_path / "locomo10.json", [{"sample_id": "conv-1", "conversation": talk, "qa": [asked]}]))
    assert memory_quality.main([file]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: found[name] for name in ("R@1", "R@5", "R@10", "MRR")} == {"R@1": 1, "R@5": 1, "R@10": 1, "MRR": 1}
    write_bert(tmp_path / "rank.gguf", pooling=4, n_labels=1)
    assert memory_quality.main([file, "--reranker", str(tmp_path / "rank.gguf")]) == 0
    assert json.loads(capsys.readouterr().out)["R@5"] == 1


def test_the_script_runs_by_its_path_from_any_folder(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "memory_quality.py"), "nowhere.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "shepherd: there is no file or folder nowhere.json\n"
