"""Models in the stores of other programs, each built small in a home folder of its own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from shepherd.core import ConfigError
from shepherd.models import catalog

DIGEST = "ab" * 32


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with nothing in it but an empty working folder."""
    (tmp_path / "home" / "work").mkdir(parents=True)
    return tmp_path / "home"


def find(spec: str, home: Path, env: Mapping[str, str] | None = None) -> Path:
    return catalog.find(spec, env=env or {}, home=home, cwd=home / "work")


def scan(home: Path, env: Mapping[str, str] | None = None) -> list[catalog.LocalModel]:
    return list(catalog.scan(env=env or {}, home=home, cwd=home / "work"))


def put(path: Path, content: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def put_hugging_face(hub: Path, repo: str, *names: str) -> list[Path]:
    """Files as the Hugging Face cache keeps them: links in a snapshot to blobs."""
    folder = hub / f"models--{repo.replace('/', '--')}"
    links = []
    for index, name in enumerate(names):
        blob = put(folder / "blobs" / f"blob{index}", b"GGUF" + bytes(index))
        link = folder / "snapshots" / "c0ffee" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
        links.append(link)
    return links


def put_ollama(store: Path, *name: str, digest: str = f"sha256:{DIGEST}") -> Path:
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'0' * 64}"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": digest},
    ]
    put(store.joinpath("manifests", "some.host", *name), json.dumps({"layers": layers}).encode())
    return put(store / "blobs" / f"sha256-{DIGEST}")


def test_the_embedded_model_is_in_the_package(home: Path) -> None:
    path = find("embedded", home)
    assert path.name == "lamb.gguf"
    assert path.read_bytes()[:4] == b"GGUF"


def test_the_embedded_model_is_the_one_of_its_checksum() -> None:
    model = catalog.embedded()
    checksum = hashlib.sha256(model.read_bytes()).hexdigest()
    assert model.with_name("lamb.gguf.sha256").read_text() == f"{checksum}  lamb.gguf\n", "run: make ship-model"


GOOD = b"GGUF" + bytes(range(256)) * 16
FLIPPED = GOOD[:1000] + bytes([GOOD[1000] ^ 4]) + GOOD[1001:]
SUM = f"{hashlib.sha256(GOOD).hexdigest()}  lamb.gguf\n".encode()


@pytest.mark.parametrize(
    ("content", "sums", "fault"),
    [
        (GOOD, SUM, None),
        (FLIPPED, SUM, "is damaged: its 4,100 bytes do not have the checksum that lamb.gguf.sha256 says"),
        (GOOD[:3000], SUM, "is damaged: its 3,000 bytes"),
        (b"", SUM, "is damaged: its 0 bytes"),
        (GOOD, b"", "is damaged: its 4,100 bytes"),
        (GOOD, SUM.replace(b"a", b"\xff"), "is damaged: its 4,100 bytes"),
        (GOOD, None, r"lamb\.gguf\.sha256 of the package cannot be read \(No such file"),
        (None, SUM, r"lamb\.gguf of the package cannot be read \(No such file"),
    ],
)
def test_a_damaged_file_of_the_package_is_found_by_its_checksum(
    content: bytes | None, sums: bytes | None, fault: str | None, tmp_path: Path
) -> None:
    model = tmp_path / "lamb.gguf"
    for file, written in ((model, content), (tmp_path / "lamb.gguf.sha256", sums)):
        if written is not None:
            file.write_bytes(written)
    if fault is None:
        catalog.check_sum(model)
        return
    with pytest.raises(ConfigError, match=f"{fault}.*; install Shepherd again, or name another model") as raised:
        catalog.check_sum(model)
    assert raised.value.file == str(model)


@pytest.mark.parametrize("content", [GOOD, FLIPPED], ids=["whole", "damaged"])
@pytest.mark.parametrize("spec", ["embedded", "work/models/lamb.gguf", "lamb.gguf", "Lamb", "~/link.gguf"])
def test_the_model_of_the_package_is_checked_by_whichever_name_it_is_found(
    spec: str, content: bytes, home: Path
) -> None:
    model = put(home / "work" / "models" / "lamb.gguf", content)
    put(model.with_name("lamb.gguf.sha256"), SUM)
    (home / "link.gguf").symlink_to(model)

    def find_shipped() -> Path:
        full = str(home / spec) if spec.startswith("work") else spec
        return catalog.find(full, env={}, home=home, cwd=home / "work", shipped=model)

    if content == GOOD:
        assert find_shipped().samefile(model)
    else:
        with pytest.raises(ConfigError, match="this model of the package is damaged") as raised:
            find_shipped()
        assert raised.value.file == str(model)


def test_no_other_model_is_compared_with_a_checksum_beside_it(home: Path) -> None:
    model = put(home / "work" / "lamb.gguf", FLIPPED)
    put(model.with_name("lamb.gguf.sha256"), SUM)
    assert find("./lamb.gguf", home) == model


def test_a_file_that_is_damaged_while_the_program_runs_is_found(tmp_path: Path) -> None:
    model = put(tmp_path / "lamb.gguf", GOOD)
    put(tmp_path / "lamb.gguf.sha256", SUM)
    catalog.check_sum(model)
    put(model, FLIPPED)
    os.utime(model, (1, 1))  # the clock of a file may be coarse
    with pytest.raises(ConfigError, match="damaged"):
        catalog.check_sum(model)


def test_a_path_is_found_from_the_working_folder_its_models_folder_and_the_home_folder(home: Path) -> None:
    here, below = put(home / "work" / "a.gguf"), put(home / "work" / "models" / "sub" / "b.gguf")
    at_home = put(home / "c.gguf")
    assert find("a.gguf", home) == here
    assert find("sub/b.gguf", home) == below
    assert find("~/c.gguf", home) == at_home
    assert find(str(at_home), home) == at_home


def test_a_folder_of_shards_gives_the_first_one(home: Path) -> None:
    shards = [put(home / "work" / "big" / f"big-{index:05}-of-00002.gguf") for index in (1, 2)]
    put(home / "work" / "big" / "._big-00001-of-00002.gguf")
    put(home / "work" / "big" / "mmproj-f16.gguf")
    assert find("big", home) == find("big/big-00002-of-00002.gguf", home) == shards[0]


def test_a_folder_of_several_models_asks_for_one_of_them(home: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        put(home / "work" / "many" / name)
    with pytest.raises(ConfigError, match=r"name one of them: a\.gguf, b\.gguf"):
        find("many", home)


def put_checkpoint(folder: Path, architecture: str = "Qwen3ForCausalLM") -> Path:
    config = {"architectures": [architecture], "max_position_embeddings": 4096}
    put(folder / "config.json", json.dumps(config).encode())
    put(folder / "tokenizer.json", b"{}")
    put(folder / "model.safetensors", bytes(2000))
    return folder


def test_a_folder_with_a_configuration_is_a_model_itself(home: Path) -> None:
    folder = put_checkpoint(home / "work" / "models" / "big")
    assert find("big", home) == find(str(folder), home) == find("models/big", home) == folder
    assert ("big", "models", 2000) in [(each.name, each.source, each.size_bytes) for each in scan(home)]
    file = put(home / "work" / "big.gguf")
    assert find("BIG", home) == file, "of two with a name, the file is llama.cpp's, as before"
    put(folder / "model.gguf")
    assert find("models/big", home) == folder / "model.gguf"


def test_a_repository_without_gguf_files_is_a_folder_and_only_models_that_write_are_listed(home: Path) -> None:
    hub = home / ".cache" / "huggingface" / "hub"
    folder = put_checkpoint(hub / "models--acme--tiny" / "snapshots" / "c0ffee")
    put_checkpoint(hub / "models--acme--vectors" / "snapshots" / "c0ffee", "BertModel")
    assert find("hf:acme/tiny", home) == folder
    assert [each.name for each in scan(home) if each.source == "Hugging Face"] == ["hf:acme/tiny"]
    with pytest.raises(ConfigError, match="nor in the Hugging Face cache"):
        find("hf:acme/tiny:Q4_K_M", home)


def test_a_mistyped_path_names_its_nearest_neighbour(home: Path) -> None:
    put(home / "work" / "qwen3-8b.gguf")
    with pytest.raises(ConfigError, match=r"does not exist \(did you mean qwen3-8b\.gguf\?\)"):
        find("./qwen3-8B-q4.gguf", home)


@pytest.mark.parametrize("spec", ["", "x" * 5000, "a\0b.gguf", "./none.gguf", "none", "hf:none", "hf:a/b/c", "ollama:"])
def test_whatever_is_asked_for_gets_one_sentence(home: Path, spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find(spec, home)
    assert "\n" not in caught.value.message


# Hugging Face


@pytest.mark.parametrize("variables", [{}, {"HF_HOME": "h"}, {"HF_HUB_CACHE": "h/hub"}, {"XDG_CACHE_HOME": "h"}])
def test_a_repository_is_found_wherever_the_cache_is(home: Path, variables: dict[str, str]) -> None:
    env = {name: str(home / value) for name, value in variables.items()}
    hub = {"": home / ".cache/huggingface/hub", "XDG_CACHE_HOME": home / "h/huggingface/hub"}.get(
        next(iter(variables), ""), home / "h/hub"
    )
    (link,) = put_hugging_face(hub, "Qwen/Qwen3-GGUF", "Qwen3-Q4_K_M.gguf")
    assert find("hf:Qwen/Qwen3-GGUF", home, env) == link
    assert find("hf:qwen/qwen3-gguf:q4_k_m", home, env) == link
    assert [model.name for model in scan(home, env) if model.source == "Hugging Face"] == ["hf:Qwen/Qwen3-GGUF:Q4_K_M"]


def test_the_quantisation_chooses_among_the_files_of_a_repository(home: Path) -> None:
    hub = home / ".cache/huggingface/hub"
    q4, q8, big1, big2 = put_hugging_face(
        hub, "o/r", "r-Q4_K_M.gguf", "r.Q8_0.gguf", "BF16/r-BF16-00001-of-00002.gguf", "BF16/r-BF16-00002-of-00002.gguf"
    )
    assert find("hf:o/r:Q4_K_M", home) == q4
    assert find("hf:o/r:q8_0", home) == q8
    assert find("hf:o/r:BF16", home) == big1
    assert big2.exists()
    with pytest.raises(ConfigError, match="choose hf:o/r:QUANT out of BF16, Q4_K_M, Q8_0"):
        find("hf:o/r", home)
    with pytest.raises(ConfigError, match=r"this machine has BF16, Q4_K_M, Q8_0, and not 'q2_k'; .*pull hf:o/r:q2_k"):
        find("hf:o/r:q2_k", home)


def test_a_repository_that_is_not_there_comes_with_the_command_that_gets_it(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"get it with: shepherd pull hf:o/r:Q4_K_M") as caught:
        find("hf:o/r:Q4_K_M", home)
    assert isinstance(caught.value, catalog.NotPulled)


# Ollama


def test_an_ollama_model_is_found_by_name_and_tag(home: Path) -> None:
    store = home / ".ollama/models"
    blob = put_ollama(store, "library", "llama3.2", "1b")
    put_ollama(store, "somebody", "theirs", "latest")
    assert find("ollama:llama3.2:1b", home) == blob
    assert find("ollama:somebody/theirs", home) == blob
    assert [model.name for model in scan(home) if model.source == "Ollama"] == ["ollama:llama3.2:1b"]
    with pytest.raises(ConfigError, match=r"did you mean llama3\.2:1b\?\); .* shepherd pull ollama:llama3\.2"):
        find("ollama:llama3.2", home)


def test_the_ollama_store_may_be_elsewhere(home: Path) -> None:
    blob = put_ollama(home / "o", "library", "m", "latest")
    assert find("ollama:m", home, {"OLLAMA_MODELS": str(home / "o")}) == blob


@pytest.mark.parametrize("digest", ["sha256:../../../secret", "", f"sha256:{DIGEST}/x", f"md5:{DIGEST}"])
def test_a_manifest_cannot_lead_out_of_the_store(home: Path, digest: str) -> None:
    put_ollama(home / ".ollama/models", "library", "m", "latest", digest=digest)
    with pytest.raises(ConfigError, match="names no model"):
        find("ollama:m", home)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"layers": 1}', b'{"layers": [{}]}', b"\xff", b'{"layers": [1]}']
)
def test_a_damaged_manifest_is_an_error_for_one_model_and_none_for_a_scan(home: Path, content: bytes) -> None:
    put(home / ".ollama/models/manifests/h/library/m/latest", content)
    with pytest.raises(ConfigError, match="pull the model again"):
        find("ollama:m", home)
    assert [model.source for model in scan(home)] == ["embedded"]


def test_a_missing_blob_is_named(home: Path) -> None:
    put_ollama(home / ".ollama/models", "library", "m", "latest").unlink()
    with pytest.raises(ConfigError, match="file for 'ollama:m' is missing"):
        find("ollama:m", home)


# All stores


def test_every_store_is_scanned_once_in_order(home: Path) -> None:
    put(home / "work/models/deep/a.gguf", b"GGUF12345")
    put(home / "work/b.gguf")
    put_hugging_face(home / ".cache/huggingface/hub", "o/r", "c-Q8_0.gguf")
    put_ollama(home / ".ollama/models", "library", "d", "7b")
    put(home / ".lmstudio/models/owner/repo/e.gguf")
    put(home / ".cache/lm-studio/models/owner/repo/f.gguf")
    put(home / "llama/g.gguf")
    put(home / "data/shepherd/models/h.gguf")
    (home / "work/link.gguf").symlink_to(home / "work/b.gguf")
    env = {"LLAMA_CACHE": str(home / "llama"), "XDG_DATA_HOME": str(home / "data")}
    found = scan(home, env)
    assert [(model.source, model.name) for model in found] == [
        ("embedded", "embedded"),
        ("models", "a"),
        ("here", "b"),
        ("Hugging Face", "hf:o/r:Q8_0"),
        ("Ollama", "ollama:d:7b"),
        ("LM Studio", "e"),
        ("LM Studio", "f"),
        ("llama.cpp", "g"),
        ("Shepherd", "h"),
    ]
    assert found[1].size_bytes == 9
    for model in found:
        assert find(model.name, home, env) == model.path


def test_a_bare_name_is_found_in_any_store_whatever_its_case(home: Path) -> None:
    path = put(home / ".lmstudio/models/owner/repo/Qwen3-8B-Q4_K_M.gguf")
    assert find("qwen3-8b-q4_k_m", home) == path
    with pytest.raises(ConfigError, match=r"no model is called 'qwen3-8b' \(did you mean Qwen3-8B-Q4_K_M\?\)"):
        find("qwen3-8b", home)


def test_shards_count_as_one_model_of_their_whole_size(home: Path) -> None:
    for index in (1, 2, 3):
        put(home / f"work/models/big-{index:05}-of-00003.gguf", bytes(100))
    put(home / "work/models/part-00001-of-00002.gguf")
    assert [(model.name, model.size_bytes) for model in scan(home)[1:]] == [("big", 300)]


def test_a_link_to_nowhere_and_a_folder_called_gguf_are_passed_over(home: Path) -> None:
    (home / "work/dead.gguf").symlink_to(home / "gone")
    (home / "work/folder.gguf").mkdir()
    assert [model.source for model in scan(home)] == ["embedded"]


def test_folders_tell_what_is_there_and_what_is_not(home: Path) -> None:
    put(home / "work/models/a.gguf")
    (home / ".ollama").mkdir()
    (home / ".ollama/models").write_text("no folder")
    found = {folder.path: folder for folder in catalog.folders(env={}, home=home, cwd=home / "work")}
    models, ollama, lmstudio = (found[home / place] for place in ("work/models", ".ollama/models", ".lmstudio/models"))
    assert (models.exists, models.readable, models.count) == (True, True, 1)
    assert (ollama.exists, ollama.count) == (True, 0)
    assert (lmstudio.exists, lmstudio.readable, lmstudio.count) == (False, False, 0)


def test_an_endless_folder_does_not_hang_a_scan(home: Path) -> None:
    (home / "work/models").mkdir()
    (home / "work/models/loop").symlink_to(home / "work/models")
    put(home / "work/models/a.gguf")
    assert [model.name for model in scan(home)] == ["embedded", "a"]
