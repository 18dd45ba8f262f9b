"""What pulls have left: `models list`, `models remove`, and what the shell completes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.app.directory.test_names import NAME, put
from tests.unit.cli.conftest import Home, shepherd

from shepherd.models import pulled
from shepherd.models.pull import staging
from shepherd.models.pull.plan import Plan
from shepherd.models.pulled import ModelFile
from shepherd.process.files import try_lock

REPO = "hf:acme/tiny-GGUF:Q4_K_M"


def leave(root: Path, name: str = REPO, n_bytes: int = 3_000_000) -> Path:
    """What a pull of 10 MB leaves that has brought so much."""
    plan = Plan(
        name, "hf", "https://hub", "c0ffee", f"hf/{name[3:8]}", (ModelFile("m.gguf", 10_000_000),), {"m.gguf": ""}
    )
    staged = staging.folder_of(root, plan)
    staged.parent.mkdir(parents=True, exist_ok=True)
    staging.prepare(root, staged, plan)
    staging.part(staged, plan.files[0]).write_bytes(b"GGUF" + bytes(n_bytes - 4))
    os.utime(staging.part(staged, plan.files[0]), (1.7e9, 1.7e9))
    return staged


@pytest.fixture
def root(home: Home) -> Path:
    (home.folder / "shepherd.toml").write_text("[server]\nport = 0\n")
    return pulled.models_folder(home.env, home.folder)


@pytest.mark.model
def test_the_list_has_what_a_pull_has_left_with_its_share_its_age_and_what_to_do(home: Home, root: Path) -> None:
    staged = leave(root)
    (row,) = [
        each for each in json.loads(home.run("models", "list", "--json").stdout) if each["source"] == "unfinished"
    ]
    assert row["age_s"] > 1e6
    assert (row["name"], row["path"], row["size_bytes"], row["total_bytes"]) == (
        REPO,
        str(staged),
        3_000_000,
        10_000_000,
    )
    assert row["problem"] == (
        f"a pull ended here; go on with: shepherd pull {REPO}; or remove it with: shepherd models remove {REPO}"
    )
    text = home.run("models", "list").stdout
    assert "30% of 9.5 MiB" in text
    assert "days ago" in text
    assert f"{REPO}: a pull ended here; go on with" in text
    with staging.lock_file(staged).open("ab") as file:
        assert try_lock(file.fileno())
        text = home.run("models", "list").stdout
        assert "30% of 9.5 MiB, running" in text
        assert "a pull ended here" not in text


@pytest.mark.model
def test_what_a_pull_has_left_is_removed_by_name_and_not_while_it_runs(home: Home, root: Path) -> None:
    staged, other = leave(root), leave(root, "hf:other/x:Q8_0")
    with staging.lock_file(staged).open("ab") as file:
        assert try_lock(file.fileno())
        done = home.run("models", "remove", REPO, "--yes")
        assert done.returncode != 0
        assert f"a pull of {REPO} runs; stop it first" in done.stderr
        assert staged.exists()
    assert "add --yes" in home.run("models", "remove", REPO).stderr
    assert staged.exists()
    done = home.run("models", "remove", REPO.upper().replace("HF:", "hf:"), "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["freed_bytes"] == 3_000_000
    assert not staged.exists()
    assert other.exists()


@pytest.mark.model
def test_all_that_pulls_have_left_goes_at_once_and_whole_models_and_running_pulls_stay(home: Home, root: Path) -> None:
    model, staged, running = put(root), leave(root), leave(root, "hf:other/x:Q8_0")
    waste = root / pulled.PARTIAL / "removed-0123"
    waste.mkdir()
    with staging.lock_file(running).open("ab") as file:
        assert try_lock(file.fileno())
        done = home.run("models", "remove", "--unfinished", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Removed what 1 unfinished pull had left, 2.9 MiB." in done.stdout
    assert (staged.exists(), waste.exists(), running.exists(), model.path.exists()) == (False, False, True, True)
    for words in ((), (REPO, "--unfinished")):
        done = home.run("models", "remove", *words)
        assert "name the model to remove, or give --unfinished" in done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("shepherd models remove hf:", REPO),
        ("shepherd models remove ", NAME),
        ("shepherd pull hf:acme", REPO),
        ("shepherd pull hf:Qwen/Qwen3-8B", "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M"),
    ],
)
def test_names_of_pulled_models_unfinished_pulls_and_suggestions_are_completed(
    tmp_path: Path, words: str, offered: str
) -> None:
    root = tmp_path / "models"
    put(root)
    leave(root)
    env = {"_SHEPHERD_COMPLETE": "zsh_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    result = shepherd(env=env | {"SHEPHERD_MODELS": str(root)})
    assert offered.replace(":", "\\:") in result.output.splitlines() or offered in result.output.splitlines()
    assert "embedded" not in result.output
