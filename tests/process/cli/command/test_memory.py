"""The tests of `tests/unit/cli/command/test_memory.py` that start programs."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.command.test_memory import (
    Shell,
    shell,  # noqa: F401 - fixtures
)
from tests.unit.engine.tiny_bert import write_bert

from shepherd.memory import Entry
from shepherd.memory.search.reranking import blended


def test_a_search_is_ordered_by_the_configured_reranker_and_its_own_places(shell: Shell) -> None:
    rank = write_bert(shell.folder / "rank.gguf", pooling=4, n_labels=1)
    bodies = ["a b c d", "a c", "a b p", "b n"]
    with shell.store() as store:
        for body in bodies:
            store.archive([Entry("user", body)])

    def found() -> list[str]:
        return [each["user_message"] for each in shell.json("search", "a b")["results"]]

    before = found()
    shell.env["SHEPHERD_TRUST"] = "1"
    Path("shepherd.toml").write_text('[memory]\nreranker = "rank.gguf"\n')
    ranked = [before[at] for at in blended([rank.score(rank.pair("a b", body)) for body in before])]
    assert ranked != before, "otherwise this tests nothing"
    assert found() == ranked
    Path("shepherd.toml").write_text('[memory]\nreranker = "embedded"\n')
    assert "has no classifier" in shell.run("search", "a b", ends=1).stderr
