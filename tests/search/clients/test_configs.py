"""The ready configurations in configs/: each loads without a warning and sends requests where its text says."""

from __future__ import annotations

import pytest
from tests.places import ROOT

from shepherd import config
from shepherd.backends.router import Route

CONFIGS = ROOT / "configs"

EXPECTED = {
    "claude-code": {
        "claude-haiku-4-5-20251001": "fast",
        "claude-3-5-Haiku": "fast",
        "claude-opus-5": "main",
        "x": "main",
    },
    "codex": {"coder": "main", "gpt-6": "main"},
    "opencode": {"fast": "fast", "claude-haiku-4-5": "fast", "coder": "main"},
    "pi": {"coder": "main", "x": "main"},
    "aider": {"fast": "fast", "claude-haiku-4-5": "fast", "coder": "main"},
    "open-webui": {"tasks": "tasks", "chat": "main"},
    "continue": {"completion": "typing", "chat": "main"},
}
"""By file: the cache that each name leads to."""


def read(name: str) -> config.Config:
    return config.load(env={}, cwd=CONFIGS.parent, user_dir=CONFIGS, file=CONFIGS / f"{name}.toml", read_files=False)


def test_the_table_names_every_file() -> None:
    assert {file.stem for file in CONFIGS.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_ready_configuration_loads_and_routes_as_it_says(name: str) -> None:
    found = read(name)
    assert found.warnings == ()
    for model, cache in EXPECTED[name].items():
        rules = [
            rule for rule in found.routes if Route("", rule.match, rule.model, rule.endpoint).takes(model, "/v1/x")
        ]
        assert rules[0].cache == cache, model
        assert bool(rules[0].background) == (cache in {"fast", "tasks"}), model
    described = {cache.name for cache in found.caches if cache.description}  # the others are made for their models
    assert {rule.cache for rule in found.routes} == described
    assert found.server.host == "127.0.0.1"


def test_claude_code_has_two_caches_on_one_model() -> None:
    found = read("claude-code")
    assert {cache.name: cache.n_ctx for cache in found.caches} == {"main": 65536, "fast": 8192}
    assert {cache.model for cache in found.caches} == {"coder"}
