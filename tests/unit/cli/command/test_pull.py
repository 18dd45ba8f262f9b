"""`shepherd pull`, `models search`, `models suggest`, and the offer of a pull, from a hub on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests import command_line
from tests.fakes.hub import Cut, Hub, Status

from shepherd.models import catalog
from shepherd.models.suggestions import SUGGESTIONS

LAMB = catalog.embedded().read_bytes()
SIZE = f"{len(LAMB) / 2**20:.1f} MiB"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        hub.put_repo("acme/lamb-GGUF", {"lamb-Q8_0.gguf": LAMB, "lamb-F16.gguf": LAMB + bytes(8)})
        yield hub


@pytest.fixture
def env(hub: Hub, tmp_path: Path) -> Mapping[str, str]:
    """The variables of a machine whose hub is on loopback; the format is named, or the memory is large enough."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
    return {**kept, "HOME": str(home), "HF_ENDPOINT": hub.url, "SHEPHERD_MODELS": str(tmp_path / "models")}


Shepherd = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shepherd(env: Mapping[str, str], tmp_path: Path) -> Shepherd:
    return lambda *words: command_line.run(*words, env=env, cwd=tmp_path / "home" / "work")


def test_a_pull_says_what_it_chose_and_how_to_go_on_and_the_second_that_it_is_here(
    shepherd: Shepherd, tmp_path: Path
) -> None:
    done = shepherd("pull", "hf:acme/lamb-GGUF")
    path = tmp_path / "models/hf/acme/lamb-GGUF/lamb-Q8_0/lamb-Q8_0.gguf"
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        f"hf:acme/lamb-GGUF:Q8_0 is here: {path} ({SIZE})\nChat with it: shepherd -m hf:acme/lamb-GGUF:Q8_0\n"
    )
    assert "the format is Q8_0, nearly without loss" in done.stderr
    assert path.read_bytes() == LAMB
    again = shepherd("pull", "hf:acme/lamb-GGUF:Q8_0", "--json")
    assert json.loads(again.stdout) == {
        "name": "hf:acme/lamb-GGUF:Q8_0",
        "path": str(path),
        "projector": None,
        "size_bytes": len(LAMB),
        "is_new": False,
    }


def test_an_interruption_of_the_network_is_said(shepherd: Shepherd, hub: Hub) -> None:
    hub.fail("resolve", Status(503, {"Retry-After": "0"}))
    hub.fail("cdn", Cut(3_000_000))
    done = shepherd("pull", "hf:acme/lamb-GGUF:q8_0")
    assert done.returncode == 0, done.stderr
    assert f"the connection to {hub.host} failed" in done.stderr
    assert "fails at the moment (HTTP 503); trying again in 0 s" in done.stderr


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("acme/lamb-GGUF", "did you mean hf:acme/lamb-GGUF?"),
        ("hf:acme/lamb-GGUF:Q4_0", f"has no 'Q4_0'; it has F16 ({SIZE}), Q8_0 ({SIZE}); did you mean Q8_0?"),
        ("hf:acme/none", "has no repository acme/none, or keeps it private: check the name, or give a token"),
    ],
)
def test_what_cannot_be_pulled_is_one_sentence_and_status_one(shepherd: Shepherd, source: str, sentence: str) -> None:
    done = shepherd("pull", source)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("shepherd: ")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


def test_a_search_lists_what_the_hub_has(shepherd: Shepherd, hub: Hub) -> None:
    hub.gated.add("acme/lamb-GGUF")
    done = shepherd("models", "search", "LAMB")
    assert re.search(r"hf:acme/lamb-GGUF +9 +apache-2.0 +needs a token", done.stdout)
    found = json.loads(shepherd("models", "search", "lamb", "--json").stdout)
    assert found == [{"name": "hf:acme/lamb-GGUF", "downloads": 9, "licence": "apache-2.0", "gated": True}]
    assert shepherd("models", "search", "nothing", "like", "it").stdout.startswith("Nothing with GGUF files")


def test_the_suggestions_mark_what_fits(shepherd: Shepherd) -> None:
    rows = json.loads(shepherd("models", "suggest", "--json").stdout)
    assert [row["spec"] for row in rows] == [each.spec for each in SUGGESTIONS]
    fits = [row["fits"] for row in rows]
    assert fits == sorted(fits, reverse=True), "by memory"
    printed = shepherd("models", "suggest").stdout
    assert printed.count(" fits ") == sum(fits)


def test_without_a_terminal_a_missing_model_names_the_command(shepherd: Shepherd, hub: Hub) -> None:
    done = shepherd("-m", "hf:acme/lamb-GGUF:Q8_0", "-p", "Hello!")
    assert done.returncode == 1
    assert "get it with: shepherd pull hf:acme/lamb-GGUF:Q8_0" in done.stderr
    assert hub.seen == []
