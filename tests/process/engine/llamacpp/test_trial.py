"""A model's first load: in a child that may crash or hang, once per file and build."""

import json
import logging
import shutil
import sys
from pathlib import Path

import pytest
from tests.unit.engine.tiny_gguf import RECIPES, write

from shepherd.core import ConfigError, EngineError
from shepherd.engine.llamacpp import trial
from shepherd.models import catalog, gguf
from shepherd.process import child

LAMB = catalog.embedded()
ASSERTION = "/build/vendor/llama.cpp/src/llama-vocab.cpp:2544: GGML_ASSERT(a.size() == b.size()) failed"


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


PASS, NEVER = python(""), python("raise SystemExit('tested again')")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    write(RECIPES["plain-1"], path)
    return path


def prove(path: Path, command: tuple[str, ...], *, build: str = "b", makes_vectors: bool = False) -> None:
    trial.prove(path, path.parent / "cache", build=build, command=command, makes_vectors=makes_vectors)


def test_a_child_that_aborts_is_an_error_with_the_librarys_last_words(model: Path) -> None:
    code = f"import os; os.write(2, b'loading\\n{ASSERTION}\\nand more\\n'); os.abort()"
    with pytest.raises(
        EngineError, match=r"model\.gguf ends the process that loads it \(crash \(SIGABRT\): "
    ) as caught:
        prove(model, python(code))
    assert ASSERTION in caught.value.message
    assert "\n" not in caught.value.message
    assert "download it again" in caught.value.message


def test_a_child_that_hangs_is_an_error(model: Path) -> None:
    with pytest.raises(EngineError, match=r"model\.gguf hangs the process that loads it \(hang for more than 0 s\)"):
        trial.prove(
            model, model.parent, build="b", command=python("import threading; threading.Event().wait()"), timeout_s=0
        )


def test_a_refusal_of_the_library_is_reported_in_its_words(model: Path) -> None:
    code = f"import sys; print({json.dumps({'error': 'model.gguf cannot be loaded (why)'})!r}); sys.exit(1)"
    with pytest.raises(EngineError) as caught:
        prove(model, python(code))
    assert caught.value.message == "model.gguf cannot be loaded (why)"


def test_a_good_verdict_is_kept_for_the_file_the_build_and_the_use(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        prove(model, PASS)
    assert "checking model.gguf in a child process" in caplog.text
    assert "model.gguf is sound" in caplog.text
    prove(model, NEVER)
    shutil.copy(model, model.with_name("copy.gguf"))
    prove(model.with_name("copy.gguf"), NEVER)
    for other in ({"build": "c"}, {"makes_vectors": True}):
        with pytest.raises(EngineError, match="tested again"):
            prove(model, NEVER, **other)


def test_a_file_that_has_changed_is_tried_again(model: Path) -> None:
    prove(model, PASS)
    content = model.read_bytes()
    model.write_bytes(content.replace(b"llama.context_length", b"llama.Context_length"))
    with pytest.raises(EngineError, match="tested again"):
        prove(model, NEVER)
    model.write_bytes(content + bytes(32))
    with pytest.raises(EngineError, match="tested again"):
        prove(model, NEVER)


def test_a_bad_verdict_is_not_kept(model: Path) -> None:
    with pytest.raises(EngineError):
        prove(model, NEVER)
    prove(model, PASS)
    prove(model, NEVER)


def test_what_the_reader_refuses_never_reaches_a_child(model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(ConfigError, match="the download is not complete"):
        prove(model, NEVER)


def test_nothing_waits_so_the_child_is_killed(model: Path) -> None:
    with pytest.raises(child.Cancelled):
        trial.prove(
            model,
            model.parent,
            build="b",
            command=python("import threading; threading.Event().wait()"),
            is_wanted=lambda: False,
        )


def test_the_model_in_the_package_needs_no_trial(tmp_path: Path) -> None:
    trial.prove(LAMB, tmp_path, build="b", command=NEVER)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_copy_of_the_model_in_the_package_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "lamb.gguf"
    path.write_bytes(LAMB.read_bytes().replace(b"llama.context_length", b"llama.Context_length"))
    with pytest.raises(EngineError, match="tested again"):
        prove(path, NEVER)


@pytest.mark.model
@pytest.mark.parametrize("kind", ["plain-1", "recurrent", "hybrid-swa"])
def test_models_of_several_memories_pass_for_real(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(RECIPES[kind], path)
    assert not trial.is_proved(gguf.read_header(path), tmp_path, build="b")
    trial.prove(path, tmp_path, build="b")
    assert trial.is_proved(gguf.read_header(path), tmp_path, build="b")


@pytest.mark.model
def test_a_model_is_tried_for_vectors_too(tmp_path: Path) -> None:
    path = tmp_path / "lamb.gguf"
    path.write_bytes(LAMB.read_bytes() + bytes(32))
    trial.prove(path, tmp_path, build="b", makes_vectors=True)
    assert len(list((tmp_path / "trials").iterdir())) == 1


@pytest.mark.model
def test_a_file_that_the_reader_accepts_and_the_library_aborts_on_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "hybrid.gguf"
    write(RECIPES["hybrid"], path)
    content = path.read_bytes()
    key = b"lfm2.attention.head_count" + (4).to_bytes(4, "little")
    assert content.count(key + (2).to_bytes(4, "little")) == 1
    path.write_bytes(content.replace(key + (2).to_bytes(4, "little"), key + (1).to_bytes(4, "little")))
    with pytest.raises(
        EngineError, match=r"hybrid\.gguf ends the process that loads it \(crash \(SIGABRT\).*GGML_ASSERT"
    ):
        trial.prove(path, tmp_path, build="b")
