"""Where pulled models are, and what makes one whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import ConfigError
from shepherd.models import catalog, pulled
from shepherd.models.pulled import ModelFile, PulledModel

HERE = "hf/Qwen/Qwen3-GGUF/Qwen3-Q4_K_M"


def put_model(root: Path, place: str, name: str, *files: tuple[str, str], **facts: Any) -> PulledModel:
    """A model as a pull leaves it: `files` are names with roles."""
    folder = root / place
    folder.mkdir(parents=True)
    found = []
    for index, (file, role) in enumerate(files):
        (folder / file).write_bytes(b"GGUF" + bytes(index))
        found.append(ModelFile(file, 4 + index, "ab" * 32, role))  # type: ignore[arg-type]
    origin = name.partition(":")[0] if ":" in name else "url"
    model = PulledModel(name, origin, "https://x", "c0ffee", 1.5, folder, tuple(found), **facts)  # type: ignore[arg-type]
    pulled.write_record(model)
    return model


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture
def root(home: Path) -> Path:
    return pulled.models_folder({"XDG_DATA_HOME": str(home / "data")}, home)


def put_qwen(root: Path) -> PulledModel:
    shards = [(f"Qwen3-Q4_K_M-{index:05}-of-00002.gguf", "model") for index in (1, 2)]
    return put_model(root, HERE, "hf:Qwen/Qwen3-GGUF:Q4_K_M", *shards, ("mmproj-F16.gguf", "projector"))


def test_a_model_goes_through_its_record_unchanged(root: Path) -> None:
    model = put_qwen(root)
    assert list(pulled.pulled_models(root)) == [model]
    assert model.path.name == "Qwen3-Q4_K_M-00001-of-00002.gguf"
    assert model.projector == model.folder / "mmproj-F16.gguf"
    assert model.size_bytes == 4 + 5 + 6


def _edit(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def edit(folder: Path) -> None:
        record = json.loads((folder / pulled.RECORD).read_bytes())
        change(record)
        (folder / pulled.RECORD).write_text(json.dumps(record))

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "Qwen3-Q4_K_M-00002-of-00002.gguf").unlink(),
        lambda folder: (folder / "Qwen3-Q4_K_M-00002-of-00002.gguf").write_bytes(b"GG"),
        lambda folder: (folder / "mmproj-F16.gguf").unlink(),
        lambda folder: (folder / pulled.RECORD).unlink(),
        lambda folder: (folder / pulled.RECORD).write_text("{"),
        lambda folder: (folder / pulled.RECORD).write_text("[]"),
        _edit(lambda record: record.pop("files")),
        _edit(lambda record: record.update(version=2)),
        _edit(lambda record: record.update(files=record["files"][2:])),
        _edit(lambda record: record["files"][0].update(name="../../../../../secret")),
        _edit(lambda record: record["files"][0].update(role="devil")),
        _edit(lambda record: record["files"][0].update(more=1)),
    ],
)
def test_nothing_that_is_not_whole_is_a_model(root: Path, damage: Callable[[Path], Any]) -> None:
    (root / "../../../../secret").resolve().parent.mkdir(parents=True, exist_ok=True)
    damage(put_qwen(root).folder)
    other = put_model(root, "url/host/b", "b", ("b.gguf", "model"))
    assert list(pulled.pulled_models(root)) == [other]


def test_what_is_being_pulled_is_no_model(root: Path, home: Path) -> None:
    put_model(root, f"{pulled.PARTIAL}/hf/o/r/x", "hf:o/r:Q4_0", ("x.gguf", "model"))
    assert list(pulled.pulled_models(root)) == []
    env = {"SHEPHERD_MODELS": str(root)}
    assert [each.source for each in catalog.scan(env=env, home=home, cwd=home / "work")] == ["embedded"]


def test_a_staged_folder_becomes_the_model_and_takes_the_place_of_an_older_one(root: Path) -> None:
    old = put_qwen(root)
    staged = put_model(root, f"{pulled.PARTIAL}/hf/new", old.name, ("new.gguf", "model")).folder
    pulled.install(root, staged, old.folder)
    (model,) = pulled.pulled_models(root)
    assert [file.name for file in model.files] == ["new.gguf"]
    assert sorted(path.name for path in old.folder.iterdir()) == ["new.gguf", pulled.RECORD]


def test_a_removed_model_leaves_no_empty_folder_and_its_neighbours(root: Path) -> None:
    model = put_qwen(root)
    near = put_model(root, "hf/Qwen/Other/q", "hf:Qwen/Other:Q8_0", ("q-Q8_0.gguf", "model"))
    pulled.remove(root, model.folder)
    assert list(pulled.pulled_models(root)) == [near]
    assert [path.name for path in (root / "hf/Qwen").iterdir()] == ["Other"]
    assert list((root / pulled.PARTIAL).iterdir()) == []
    pulled.remove(root, near.folder)
    assert not (root / "hf").exists()
    assert root.exists()


def test_the_catalogue_finds_pulled_models_by_their_names(root: Path, home: Path) -> None:
    env = {"XDG_DATA_HOME": str(home / "data")}
    qwen = put_qwen(root)
    theirs = put_model(root, "ollama/registry.ollama.ai/library/tiny-m/7b", "ollama:tiny-m:7b", ("m.gguf", "model"))
    web = put_model(root, "url/host/tiny", "tiny", ("tiny.gguf", "model"))

    def find(spec: str) -> Path:
        return catalog.find(spec, env=env, home=home, cwd=home / "work")

    assert find("hf:qwen/qwen3-gguf") == find("hf:Qwen/Qwen3-GGUF:q4_k_m") == qwen.path
    assert find("ollama:tiny-m:7b") == theirs.path
    assert find("tiny") == web.path
    with pytest.raises(catalog.NotPulled, match=r"this machine has Q4_K_M, and not 'Q8_0'"):
        find("hf:Qwen/Qwen3-GGUF:Q8_0")
    with pytest.raises(catalog.NotPulled, match=r"did you mean tiny-m:7b\?"):
        find("ollama:tiny-m")
    names = [(each.name, each.source) for each in catalog.scan(env=env, home=home, cwd=home / "work")][1:]
    assert names == [(each.name, "Shepherd") for each in (qwen, theirs, web)]
    store = next(each for each in catalog.folders(env=env, home=home, cwd=home) if each.source == "Shepherd")
    assert store.count == 3
    shutil.rmtree(root)
    with pytest.raises(ConfigError):
        find("tiny")
