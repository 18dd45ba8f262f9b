"""`shepherd models list`, `shepherd models remove`, and what `shepherd models info` says of a draft model."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.fakes.hub import Hub
from tests.scripted_service import ScriptedService, saying
from tests.unit.app.directory.test_names import NAME, put
from tests.unit.cli.conftest import Home, listen

from shepherd.core.status import ModelCard
from shepherd.models import draft, pulled
from shepherd.models.catalog import embedded
from shepherd.models.copies import Copies
from shepherd.models.gguf import read_header
from shepherd.models.sizing import fit

pytestmark = pytest.mark.model


@pytest.fixture
def root(home: Home) -> Path:
    return pulled.models_folder(home.env, home.folder)


def rows(home: Home) -> dict[str, dict[str, object]]:
    done = home.run("models", "list", "--json")
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_the_list_says_what_a_model_is_called_and_whether_it_fits(home: Home, root: Path) -> None:
    model = put(root)
    (home.folder / "shepherd.toml").write_text(
        f'memory_budget = "1 MiB"\n[models.mine]\npath = "{NAME}"\n[models.lost]\npath = "gone.gguf"\n'
        '[aliases]\nfast = "mine"\n[server]\nport = 0\n'
    )
    Copies(root).change({"copied": "mine"})
    found = rows(home)
    assert found[NAME]["path"] == str(model.path)
    assert found[NAME]["configured"] == ["mine"]
    assert found[NAME]["aliases"] == ["fast", "copied"]
    assert (found[NAME]["fits"], found[NAME]["loaded"]) == (False, None)
    assert "does not exist" in str(found["lost"]["problem"])
    assert found["embedded"]["source"] == "embedded"
    shown = home.run("models", "list").stdout
    assert "mine, fast, copied" in shown
    assert "not usable" in shown
    (home.folder / "shepherd.toml").write_text("[server]\nport = 0\n")
    assert rows(home)[NAME]["fits"] is True


def test_a_running_server_is_asked_what_is_loaded(home: Home, root: Path) -> None:
    model = put(root)
    service = ScriptedService(saying("a"))
    service.cards = (ModelCard("mine", 4096, 1), ModelCard("base", 4096, 1, loaded=False))
    with listen(service) as port:
        (home.folder / "shepherd.toml").write_text(
            f'[models.mine]\npath = "{NAME}"\n[models.base]\npath = "embedded"\n[server]\nport = {port}\n'
        )
        found = rows(home)
        assert [found[name]["loaded"] for name in (NAME, "embedded")] == [True, False]
        assert re.search(rf"{NAME} .* loaded +mine", home.run("models", "list").stdout)
        for name in (NAME, "mine"):
            done = home.run("models", "remove", name, "--yes")
            assert done.returncode == 1
            assert f"the server at http://127.0.0.1:{port} has 'mine' loaded; stop the server, or unload" in done.stderr
    assert model.path.exists()


def test_a_pulled_model_goes_with_all_of_its_files(home: Home, root: Path) -> None:
    model = put(root)
    (home.folder / "shepherd.toml").write_text(
        f'[models.mine]\npath = "{NAME}"\n[aliases]\nfast = "mine"\n[server]\nport = 0\n'
    )
    Copies(root).change({"copied": "mine", "other": "lamb"})
    refused = home.run("models", "remove", "fast")
    assert (refused.returncode, model.path.exists()) == (1, True)
    assert "no terminal on which to ask; add --yes" in refused.stderr
    done = home.run("models", "remove", "fast", "--yes")
    assert done.returncode == 0, done.stderr
    assert "aliases.fast stands for it; the configuration is not changed." in done.stdout
    assert "models.mine is this file" in done.stdout
    assert "These names are removed with it: copied" in done.stdout
    assert list(pulled.pulled_models(root)) == []
    assert not (root / "hf").exists()
    assert Copies(root).read() == {"other": "lamb"}
    assert home.run("models", "remove", "other", "--yes").returncode == 0
    assert Copies(root).read() == {}


def test_what_was_freed_counts_no_file_that_stays_elsewhere(home: Home, root: Path) -> None:
    model = put(root)
    (home.folder / "shepherd.toml").write_text("[server]\nport = 0\n")
    os.link(model.path, home.folder / "kept.bin")
    done = json.loads(home.run("models", "remove", NAME, "--yes", "--json").stdout)
    assert done == {"removed": NAME, "files": [str(model.path)], "freed_bytes": 0, "names": []}
    assert (home.folder / "kept.bin").exists()


def test_files_of_others_stay(home: Home, root: Path) -> None:
    (home.folder / "shepherd.toml").write_text("[server]\nport = 0\n")
    own = home.folder / "own.gguf"
    content = put(root).path.read_bytes()
    own.write_bytes(content)
    hub = home.folder / ".cache-hub"
    home.env["HF_HUB_CACHE"] = str(hub)
    blob, link = hub / "models--o--r" / "blobs" / "b", hub / "models--o--r" / "snapshots" / "c" / "r-Q8_0.gguf"
    for file in (blob, link):
        file.parent.mkdir(parents=True)
    blob.write_bytes(content)
    link.symlink_to(blob)
    for words, sentence in (
        (("embedded", "--force"), "is a part of Shepherd and stays"),
        (("own.gguf",), "was not pulled by Shepherd; --force removes it all the same"),
        ((str(link), "--force"), "is a link into the cache of another program"),
        (("nothing-like-it", "--force"), "no model is called 'nothing-like-it'"),
    ):
        done = home.run("models", "remove", *words, "--yes")
        assert (done.returncode, done.stdout) == (1, "")
        assert sentence in done.stderr
    assert own.exists()
    assert blob.exists()
    assert home.run("models", "remove", "own.gguf", "--force", "--yes").returncode == 0
    assert not own.exists()


def test_info_knows_other_names(home: Home) -> None:
    (home.folder / "shepherd.toml").write_text('[models.mine]\npath = "embedded"\n[aliases]\nfast = "mine"\n')
    assert json.loads(home.run("models", "info", "fast", "--json").stdout)["path"].endswith("lamb.gguf")


def test_what_a_pull_would_cost_is_listed_and_nothing_is_transferred(home: Home, root: Path) -> None:
    put(root, "hf/acme/tiny-GGUF/tiny-Q8_0", "hf:acme/tiny-GGUF:Q8_0")
    (home.folder / "shepherd.toml").write_text('memory_budget = "800 MiB"\n[server]\nport = 0\n')
    with Hub() as hub:
        home.env |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(home.folder / "hub")}
        home.env.pop("HF_HUB_OFFLINE", None)
        sizes = {"tiny-Q4_K_M.gguf": 1, "tiny-Q8_0-00001-of-00002.gguf": 2, "tiny-Q8_0-00002-of-00002.gguf": 3}
        hub.put_repo("acme/tiny-GGUF", {name: b"GGUF" * n for name, n in {**sizes, "mmproj-F16.gguf": 5}.items()})
        done = home.run("models", "list", "hf:acme/tiny-GGUF", "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        facts = [(each["name"], each["size_bytes"], each["n_files"], each["fits"], each["here"]) for each in found]
        assert facts == [
            ("hf:acme/tiny-GGUF:Q8_0", 40, 3, True, True),
            ("hf:acme/tiny-GGUF:Q4_K_M", 24, 2, True, False),
        ]
        assert [each["chosen"] for each in found] == [True, False]
        one = home.run("models", "list", "hf:acme/tiny-GGUF:q4_k_m").stdout
        assert re.search(r"tiny-GGUF:Q4_K_M +24 .*chosen", one)
        assert "Q8_0" not in one
        (home.folder / "shepherd.toml").write_text("memory_budget = 150\n[server]\nport = 0\n")
        small = json.loads(home.run("models", "list", "hf:acme/tiny-GGUF", "--json").stdout)
        assert [(each["fits"], each["chosen"]) for each in small] == [(False, False)] * 2
        for words, sentence in (("hf:acme/tiny-GGUF:Q9", "has no 'Q9'"), ("hf:acme/none", "acme/none")):
            wrong = home.run("models", "list", words)
            assert (wrong.returncode, wrong.stdout) == (1, "")
            assert sentence in wrong.stderr
        assert hub.n_sent("cdn") == 0
    assert home.run("models", "list", "nonsense words").returncode == 1


def test_info_says_what_the_draft_model_needs_or_why_it_is_none(home: Home, tmp_path: Path) -> None:
    lamb = read_header(embedded())
    cells = draft.cells_of(lamb, lamb.n_ctx_train, 4, flash_attention=False)
    needed = fit(lamb, [cells]).needed
    (home.folder / "shepherd.toml").write_text(
        '[models.mine]\npath = "embedded"\ndraft = "embedded"\n[models.own]\npath = "embedded"\n'
        '[caches.own]\nmodel = "own"\ndraft = "embedded"\n[models.plain]\npath = "embedded"\n'
    )

    def told(*arguments: str | Path) -> dict[str, object] | None:
        done = home.run("models", "info", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, object] | None = json.loads(done.stdout).get("draft")
        return found

    expected = {"path": str(embedded()), "size_bytes": lamb.size_bytes, "context": cells.n_ctx, "memory_bytes": needed}
    assert told("mine") == told("own") == told("plain", "--draft", "embedded") == expected
    assert told("plain") is None
    shown = home.run("models", "info", "mine").stdout
    assert f"a context of {cells.n_ctx} tokens" in shown
    (tmp_path / "page.gguf").write_bytes(b"<html>")
    for file, problem in (("gone.gguf", "does not exist"), ("page.gguf", "is a web page, not GGUF")):
        assert problem in str((told("mine", "--draft", tmp_path / file) or {})["problem"])
        assert "not usable: " in home.run("models", "info", "mine", "--draft", tmp_path / file).stdout
