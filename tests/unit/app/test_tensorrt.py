"""Model directories from the configuration to the answer: over the FAKE library in real processes, with real mpirun.

No TensorRT-LLM runs here. What is real: the processes, Open MPI, the socket, the vocabulary, templates, surfaces.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests import command_line

from shepherd import config as configuration
from shepherd.app import tensorrt
from shepherd.app.directory.entries import Machine, ModelRegistry
from shepherd.core import ConfigError

pytest.importorskip("tokenizers", reason="the package 'tokenizers' is not installed")
from tests.fakes import model_directory

FAKES = Path(model_directory.__file__).parent
SAYS = [["cup", "Place a cup on the table."], ["", "Hello to you."]]
needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (openmpi-bin)")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake library can be found, here and in the processes that are started."""
    monkeypatch.syspath_prepend(str(FAKES))
    paths = [str(FAKES), *(path for path in (str(Path(configuration.__file__).parents[2]), str(FAKES.parents[1])))]
    monkeypatch.setenv("PYTHONPATH", ":".join(paths))
    monkeypatch.setenv("OMPI_MCA_rmaps_base_oversubscribe", "1")
    monkeypatch.delenv("TLLM_DISABLE_MPI", raising=False)


@contextmanager
def all_ended() -> Iterator[None]:
    """No process is left behind."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    left = [each for each in psutil.Process().children(recursive=True) if each.pid not in before]
    _, left = psutil.wait_procs(left, timeout=30)
    assert not left


def ranks() -> list[psutil.Process]:
    """The ranks of our children, in order."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ends just now
            if "shepherd.engine.trtllm" in process.cmdline() and "mpirun" not in process.name():
                found.append((int(process.environ().get("OMPI_COMM_WORLD_RANK", 0)), process))
    return [process for _, process in sorted(found, key=lambda pair: pair[0])]


def config_of(folder: Path, text: str, **flags: Any) -> configuration.Config:
    file = folder / "shepherd.toml"
    file.write_text(text)
    return configuration.load(flags={"threads": 1, **flags}, env={}, cwd=folder, user_dir=folder / "none", file=file)


# what is known before a model is loaded


@pytest.fixture
def registry(tmp_path: Path) -> Callable[..., ModelRegistry]:
    def made(text: str, **flags: Any) -> ModelRegistry:
        return ModelRegistry(config_of(tmp_path, text, **flags), env={}, machine=Machine(2**40))

    return made


@pytest.mark.usefixtures("fake")
def test_a_directory_is_a_model_of_tensorrt_and_says_what_it_is(
    registry: Callable[..., ModelRegistry], tmp_path: Path
) -> None:
    folder = model_directory.make(tmp_path / "two", "engine", n_ctx=700, tp=1, pp=2)
    (entry,) = registry(f'[models.m]\npath = "{folder}"\n').entries.values()
    card = entry.card
    assert (entry.backend, entry.title, card.kind, card.n_ctx, card.n_slots) == ("tensorrt", "two", "chat", 700, 4)
    assert card.capabilities == ("completion",)
    assert card.description.startswith("LlamaForCausalLM")
    assert entry.residency.is_alone
    assert entry.residency.n_bytes == 0, "it takes the memory of the GPUs"


@pytest.mark.usefixtures("fake")
def test_settings_of_llama_cpp_are_ignored_with_a_warning(
    registry: Callable[..., ModelRegistry], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = model_directory.make(tmp_path / "m", n_ctx=512)
    text = f'[models.m]\npath = "{folder}"\ngpu_layers = 48\nflash_attn = true\n[caches.m]\nmodel = "m"\nn_ctx = 9999\n'
    (entry,) = registry(text).entries.values()
    assert "models.m: gpu_layers, n_threads and flash_attn are ignored by tensorrt" in caplog.text
    assert "cache 'm' holds 512 of the 9999 tokens that n_ctx asks for" in caplog.text
    assert entry.plans[0].n_ctx == 512


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[models.m]\npath = "{hf}"\npooling = "mean"\n', "pooling: TensorRT-LLM makes no vectors"),
        ('[models.m]\npath = "{hf}"\n[caches.a]\nmodel = "m"\n[caches.b]\nmodel = "m"\n',
         "caches.b.model: TensorRT-LLM makes one cache of a model"),
        ('[models.m]\npath = "{hf}"\n[caches.a]\nmodel = "m"\nrepeatable = true\n',
         "caches.a.repeatable: TensorRT-LLM gives no repeatable answers; leave it out, or run a GGUF file"),
        ('[models.m]\npath = "{hf}"\ndraft = "embedded"\n',
         "models.m.draft: TensorRT-LLM has no draft models here; leave draft out, or run a GGUF file with llama.cpp"),
        ('[models.m]\npath = "{hf}"\n[caches.a]\nmodel = "m"\ndraft = "embedded"\n', "caches.a.draft: TensorRT-LLM"),
        ('[models.m]\npath = "embedded"\ndraft = "{hf}"\n', "and guesses for no other library; name a GGUF file"),
        ('[models.m]\npath = "{hf}"\n[models.m.tensorrt]\ngpus = 4\nstages = 3\n',
         "stages = 3 does not divide gpus = 4: each stage has as many GPUs as the others; set gpus to a multiple of 3"),
        ('[models.m]\npath = "{hf}"\n[tensorrt]\nstages = 2\n', None),
        ('[models.m]\npath = "{hf}"\n[memory]\nembedding_model = "{hf}"\n', "makes no vectors; name a GGUF file"),
        ('backend = "tensorrt"\n', "lamb.gguf is a GGUF file, which llama.cpp runs; name the folder"),
        ('[models.m]\npath = "{gone}"\n', "rank1.engine is missing"),
        ('[models.m]\npath = "{old}"\n', None),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("fake")
def test_what_cannot_run_is_refused_before_anything_is_loaded(
    registry: Callable[..., ModelRegistry], tmp_path: Path, text: str, says: str | None
) -> None:
    folders = {
        "hf": model_directory.make(tmp_path / "hf"),
        "gone": model_directory.make(tmp_path / "g", "engine", pp=2),
    }
    (folders["gone"] / "rank1.engine").unlink()
    folders["old"] = model_directory.make(tmp_path / "old", "engine")
    made = text
    for name, folder in folders.items():
        made = made.replace(f"{{{name}}}", str(folder))
    if says is None:
        assert registry(made).entries
    else:
        with pytest.raises(ConfigError, match=re.escape(says)):
            registry(made)


def test_without_the_library_one_sentence_says_how_to_get_it_and_what_else_there_is(
    registry: Callable[..., ModelRegistry], tmp_path: Path
) -> None:
    if tensorrt.installed(None) is not None:
        pytest.skip("TensorRT-LLM is installed here")
    folder = model_directory.make(tmp_path / "m")
    with pytest.raises(ConfigError) as caught:
        registry(f'[models.m]\npath = "{folder}"\n')
    assert str(caught.value) == (
        f"{folder}: this model is for TensorRT-LLM, which is not installed: install it from NVIDIA's package index, "
        "with CUDA 13 and Open MPI, in an environment of its own, and name its Python in [tensorrt] "
        "('shepherd help tensorrt'), or run a GGUF file of the model with llama.cpp, or start trtllm-serve and "
        "name it as a provider"
    )
    done = command_line.run("--backend", "tensorrt", "--model", folder, "-p", "Hello", cwd=tmp_path)
    assert done.returncode == 1
    assert "which is not installed: install it from NVIDIA's package index" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "case",
    [
        ("1.2.1", "engine", None),
        ("1.2.0", "engine", "this engine was built by TensorRT-LLM 1.2.1, and 1.2.0 is installed, which cannot run it"),
        ("1.3.0rc22", "engine", "TensorRT-LLM 1.3.0rc22 runs no prebuilt engines"),
        ("1.3.0rc22", "checkpoint", None),
    ],
)
@pytest.mark.usefixtures("fake")
def test_the_version_that_is_installed_must_be_that_of_the_engine(
    registry: Callable[..., ModelRegistry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Any
) -> None:
    version, kind, says = case
    facts = tmp_path / "site" / f"tensorrt_llm-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = model_directory.make(tmp_path / "m", kind)
    text = f'[models.m]\npath = "{folder}"\n'
    if says is None:
        assert registry(text).entries["m"].backend == "tensorrt"
    else:
        with pytest.raises(ConfigError, match=re.escape(says)):
            registry(text)


@pytest.mark.usefixtures("fake")
def test_models_and_doctor_show_directories(tmp_path: Path) -> None:
    model_directory.make(tmp_path / "models" / "two", "engine", n_ctx=700, tp=2, pp=2)
    model_directory.make(tmp_path / "models" / "hf", n_ctx=512)
    listed = command_line.run("models", "list", cwd=tmp_path).stdout
    assert re.search(r"^two +models .* 700 *$", listed, re.MULTILINE)
    assert re.search(r"^hf +models .* 512 *$", listed, re.MULTILINE)
    shown = command_line.run("models", "info", "two", cwd=tmp_path).stdout
    assert "GPUs" in shown
    assert "4 (tensor 2 x pipeline 2 x context 1)" in shown
    told = json.loads(command_line.run("models", "info", "hf", "--json", cwd=tmp_path).stdout)
    assert (told["kind"], told["context"], told["dialect"], told["tensorrt_llm"]) == ("checkpoint", 512, "plain", "yes")
    checked = command_line.run("--model", "two", "doctor", cwd=tmp_path).stdout
    assert re.search(r"model two: .*two \(LlamaForCausalLM, None\), for TensorRT-LLM|model two: ", checked)
    assert "TensorRT-LLM: installed" in checked


# an environment of its own


# conversations


# surfaces


# the page

PAGE = (FAKES.parents[1] / "docs" / "tensorrt.md").read_text("utf-8")


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_the_examples_of_the_page_are_configurations(tmp_path: Path, text: str) -> None:
    assert config_of(tmp_path, text).warnings == ()


def test_the_page_names_the_errors_in_the_words_of_the_code() -> None:
    table = PAGE.partition("| it says | do |")[2]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) > 25
    source = " ".join(path.read_text("utf-8") for path in (FAKES.parents[1] / "src" / "shepherd").rglob("*.py"))
    source = re.sub(r'"\s+f?"', "", source)  # a sentence may be several literals
    source = source.replace("{CONFIG}", "config.json").replace("{TOKENIZER}", "tokenizer.json")
    source = re.sub(r"\{[^{}]*\}", "", source)
    for row in rows:
        words = [part.strip(" ,:'\"") for part in re.split(r"\.\.\.|\d[\d.]*|'\w+'", row)]
        missing = [part for part in words if len(part) > 8 and part not in source]
        assert not missing, f"no message has the words {missing}"
