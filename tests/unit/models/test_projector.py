"""Where the projector of a model is found, and what is refused in its place."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.engine.tiny_gguf import RECIPES, write
from tests.unit.engine.tiny_projector import PROJECTORS, write_projector

from shepherd.core import ConfigError
from shepherd.models.projector import find_projector
from shepherd.models.sizing import image_buffers


@pytest.mark.parametrize(
    ("model", "files", "found"),
    [
        ("gemma-3-4b-it-Q4_K_M.gguf", ["mmproj-model-f16.gguf"], "mmproj-model-f16.gguf"),
        ("gemma-3-4b-it-Q4_K_M.gguf", ["mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
        ("a-Q8_0.gguf", ["b-Q8_0.gguf", "mmproj-b-f16.gguf"], None),
        ("a-Q8_0.gguf", ["b-Q8_0.gguf", "mmproj-b-f16.gguf", "a-mmproj-Q8_0.gguf"], "a-mmproj-Q8_0.gguf"),
        ("a-Q8_0.gguf", ["a-Q4_0.gguf", "mmproj-a-f16.gguf"], "mmproj-a-f16.gguf"),
        ("a-00001-of-00002.gguf", ["a-00002-of-00002.gguf", "mmproj-f16.gguf"], "mmproj-f16.gguf"),
        ("a.gguf", ["b.gguf", "mmproj-f16.gguf"], None),
        ("a.gguf", ["b.gguf"], None),
    ],
)
def test_a_projector_beside_the_model_is_found(tmp_path: Path, model: str, files: list[str], found: str | None) -> None:
    for name in files:
        write_projector("llava", tmp_path / name)
    (tmp_path / model).touch()
    projector = find_projector(tmp_path / model, None)
    assert (projector and projector.path.name) == found
    assert projector is None or (projector.takes_images, projector.takes_audio) == (True, False)
    assert find_projector(tmp_path / model, "none") is None


def test_ollamas_projector_is_that_of_its_manifest(tmp_path: Path) -> None:
    blobs = [tmp_path / "blobs" / f"sha256-{digit * 64}" for digit in "abc"]
    blobs[0].parent.mkdir()
    blobs[0].touch()
    blobs[2].touch()
    write_projector("llava", blobs[1])
    for name, layers in {"seeing": "ab", "blind": "c"}.items():
        manifest = tmp_path / "manifests" / "registry.ollama.ai" / "library" / name / "latest"
        manifest.parent.mkdir(parents=True)
        kinds = ("application/vnd.ollama.image.model", "application/vnd.ollama.image.projector")
        made = [
            {"mediaType": kind, "digest": f"sha256:{digit * 64}"} for kind, digit in zip(kinds, layers, strict=False)
        ]
        manifest.write_text(json.dumps({"layers": made}))
    projector = find_projector(blobs[0], None)
    assert projector is not None
    assert projector.path == blobs[1]
    assert projector.size_bytes == blobs[1].stat().st_size
    assert find_projector(blobs[2], None) is None


def test_what_is_no_projector_is_refused(tmp_path: Path) -> None:
    write(RECIPES["plain-1"], tmp_path / "model.gguf")
    with pytest.raises(ConfigError, match=re.escape("model.gguf is no projector (mmproj) but a model")):
        find_projector(tmp_path / "model.gguf", str(tmp_path / "model.gguf"))
    with pytest.raises(ConfigError, match="mmproj names no file"):
        find_projector(tmp_path / "model.gguf", str(tmp_path / "missing.gguf"))
    write_projector(replace(PROJECTORS["llava"], kind="hunyuanvl"), tmp_path / "placed.gguf")
    with pytest.raises(ConfigError, match=r'kind hunyuanvl.*mmproj = "none"'):
        find_projector(tmp_path / "model.gguf", str(tmp_path / "placed.gguf"))
    (tmp_path / "mmproj.gguf").write_bytes(b"<html>")
    with pytest.raises(ConfigError):
        find_projector(tmp_path / "model.gguf", str(tmp_path / "mmproj.gguf"))


CLIP = {"patch_size": 14, "image_size": 336, "embedding_length": 1024, "feed_forward_length": 4096}
QWEN = {**CLIP, "image_size": 560, "spatial_merge_size": 2}


@pytest.mark.parametrize(
    ("kind", "keys", "n_patches"),
    [
        ("mlp", CLIP, 24 * 24),
        ("qwen2vl_merger", QWEN, 4096 * 4),
        ("qwen2vl_merger", {**QWEN, "image_max_pixels": 140 * 140}, 100),
        ("pixtral", {**CLIP, "image_size": 1540}, 1024),
        ("mlp", {**CLIP, "image_size": 2**31}, 64_000_000 // 196),
        ("mlp", {}, 0),
    ],
)
def test_buffers_are_those_of_the_largest_image(kind: str, keys: dict[str, int], n_patches: int) -> None:
    metadata = {"clip.projector_type": kind, **{f"clip.vision.{key}": value for key, value in keys.items()}}
    pixels = 2 * 3 * 196 if n_patches else 0
    n = image_buffers(metadata)
    row = (13 * 1024 + 4096) // 2 + pixels
    assert abs(n - 4 * n_patches * row) <= 4 * 6 * 196
