"""The tests of `tests/unit/app/directory/test_entries.py` that start programs."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.command_line import run
from tests.unit.app.directory.test_entries import (
    header_of,
    registry,  # noqa: F401 - fixtures
)
from tests.unit.dialects.test_derive import CALLS, template

from shepherd.app.directory.entries import ModelRegistry


def test_what_is_told_of_a_chat_format_is_what_the_loaded_model_uses(
    registry: Callable[..., ModelRegistry], tmp_path: Path
) -> None:
    """Whether a family knows the template or it is derived, wherever it is found, whatever the configuration sets."""
    derivable = template(CALLS["json"])
    sources = {"derived": derivable, "hermes": "<tool_call>{{ tools }}<think>", "plain": "{{ messages }}"}
    for name, source in sources.items():
        header_of(tmp_path / f"{name}.gguf", "llama", tokenizer__chat_template=source)
    folder = tmp_path / "beside"
    folder.mkdir()
    header_of(folder / "beside.gguf", "llama")
    (folder / "chat_template.jinja").write_text(derivable)
    (tmp_path / "bare").mkdir()
    header_of(tmp_path / "bare" / "bare.gguf", "llama")
    text = "".join(f'[models.{path.stem}]\npath = "{path}"\n' for path in sorted(tmp_path.rglob("*.gguf")))
    text += f'[models.chosen]\npath = "{tmp_path / "derived.gguf"}"\ndialect = "plain"\n'
    entries = registry(text).entries
    told = {name: entry.card.capabilities[1:] for name, entry in entries.items()}
    both = ("tools", "thinking")
    assert told == {"beside": both, "derived": both, "hermes": both, "plain": (), "bare": (), "chosen": ("tools",)}
    assert entries["beside"].card.template == derivable
    assert entries["bare"].card.template == ""
    for name in told.keys() - {"chosen"}:  # `models info` looks at files, not at the configuration
        header = entries[name].header
        assert header is not None
        shown = json.loads(run("models", "info", header.path, "--json").stdout)
        assert tuple(word for word in both if shown[word]) == told[name]
