"""Files whose change is asked for each time, because what is in them runs or decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import Text, ToolCall
from shepherd.tools.base import Form, Question, Verdict
from shepherd.tools.builtin import files
from shepherd.tools.permission import ConsentStore, Permission
from shepherd.tools.sandbox.guarded import HOOK, OTHER, OWN, SHELL, why_guarded
from shepherd.tools.sandbox.roots import Roots
from shepherd.tools.tool import ToolContext
from shepherd.tools.toolbox import ConversationToolbox

GUARDED: Mapping[str, str] = {
    "/p/shepherd.toml": OWN,
    "/p/Shepherd.TOML": OWN,
    "/p/sub/shepherd.json": OWN,
    "/p/shepherd_memory.db": OWN,
    "/p/shepherd_memory.db-wal": OWN,
    "/home/u/.config/shepherd/config.toml": OWN,
    "/data/mine.db-wal": OWN,
    "/p/.git/hooks/pre-commit": HOOK,
    "/p/.git/config": HOOK,
    "/p/.GIT/hooks/pre-commit": HOOK,
    "/p/.g\u200cit/hooks/pre-commit": HOOK,
    "/p/.git./hooks/pre-commit": HOOK,
    "/p/.git": HOOK,
    "/srv/repo.git/hooks/update": HOOK,
    "/p/.husky/pre-push": HOOK,
    "/home/u/.bashrc": SHELL,
    "/home/u/.bash_profile": SHELL,
    "/home/u/.profile": SHELL,
    "/home/u/.zshenv": SHELL,
    "/home/u/.config/fish/config.fish": SHELL,
    "/home/u/.config/autostart/x.desktop": SHELL,
    "/home/u/.local/share/systemd/user/x.service": SHELL,
    "/home/u/.ssh/authorized_keys": OTHER,
    "/p/.envrc": OTHER,
    "/p/.vscode/tasks.json": OTHER,
}


@pytest.mark.parametrize(("path", "why"), GUARDED.items())
def test_a_file_that_runs_or_decides_is_guarded_in_any_spelling(path: str, why: str) -> None:
    assert why_guarded(path, ["/home/u/.config/shepherd", "/data/mine.db"]) == why


@pytest.mark.parametrize(
    "path", ["/p/a.toml", "/p/src/git/a.py", "/p/.gitignore", "/p/.github/x.yml", "/p/bashrc", "/p/my_shepherd.toml",
             "/p/shepherd.toml.md", "/data/mine.dba", "/p/.config/a", "/p/fish/config.fish"]
)  # fmt: skip
def test_another_file_is_not(path: str) -> None:
    assert why_guarded(path, ["/data/mine.db"]) == ""


class Answering:
    """A person that gives one answer to every question."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.questions: list[Question] = []

    async def allow(self, question: Question) -> Verdict:
        self.questions.append(question)
        return self.verdict

    async def fill(self, form: Form) -> None:
        return None


async def call(folder: Path, name: str, arguments: dict[str, Any], **rules: Any) -> str:
    """What a model reads of a call of a file tool, where everything is allowed and enabled."""
    box = ConversationToolbox(
        lambda: [files.write_file, files.edit_file, files.delete_file],
        context=ToolContext(roots=Roots.of([str(folder)], str(folder))),
        permission=Permission(allow=["*"], enabled=["*"], folder=folder, **rules),
        n_ctx=8192,
    )
    ran = await box.run(ToolCall("1", name, json.dumps(arguments)))
    return "".join(part.text for part in ran.result.parts if isinstance(part, Text))


@pytest.mark.parametrize("path", ["shepherd.toml", ".git/hooks/pre-commit", "notes/../shepherd.toml", "link", "dir/x"])
async def test_without_a_person_no_rule_lets_a_guarded_file_be_written(tmp_path: Path, path: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "link").symlink_to(".git/hooks/pre-commit")
    (tmp_path / "dir").symlink_to(".git/hooks")
    answer = await call(tmp_path, "write_file", {"path": path, "content": "evil"})
    assert "the user must be asked about each change, and no user is present" in answer
    assert not (tmp_path / "shepherd.toml").exists()
    assert [*(tmp_path / ".git" / "hooks").iterdir()] == []
    assert '"success":true' in (await call(tmp_path, "write_file", {"path": "a.txt", "content": "x"})).replace(" ", "")


async def test_a_guarded_file_is_not_edited_or_deleted_and_neither_is_a_link_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text("max_rounds = 1\n")
    edit = {"path": "shepherd.toml", "old": "1", "new": "2"}
    assert "no user is present" in await call(tmp_path, "edit_file", edit)
    assert "no user is present" in await call(tmp_path, "delete_file", {"path": "shepherd.toml"})
    assert file.read_text() == "max_rounds = 1\n"
    file.rename(tmp_path / "plain")
    file.symlink_to("plain")
    assert "no user is present" in await call(tmp_path, "delete_file", {"path": "shepherd.toml"})
    assert file.is_symlink()


async def test_a_person_is_asked_each_time_and_no_answer_is_kept(tmp_path: Path) -> None:
    person, kept = Answering("always"), ConsentStore(tmp_path / "kept.json")
    for content in ("a", "b"):
        arguments = {"path": "shepherd.toml", "content": content}
        assert "success" in await call(tmp_path, "write_file", arguments, person=person, answers=kept)
    assert [(each.why, each.each_time) for each in person.questions] == [(OWN, True)] * 2
    assert kept.of(tmp_path) == {}
    refused = await call(tmp_path, "write_file", {"path": "shepherd.toml", "content": "c"}, person=Answering("no"))
    assert "the user refused" in refused
    assert (tmp_path / "shepherd.toml").read_text() == "b"
