"""The projector of a model (mmproj): the file that turns images, or sound, into what the model reads.

    mmproj = PATH       this one
    mmproj = "none"     no projector: the model reads text only
    not set             beside the model: named after it, or in a folder that holds no other model; in Ollama's manifest

Pure but for reading files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass
from shepherd.models import catalog, gguf, gguf_file
from shepherd.models.sizing import image_buffers

NONE = "none"
PLACED = frozenset({"hunyuanvl", "deepseek4v"})
"""Kinds of projectors for which equal images are other tokens at other places: they number the images of a prompt, or
align them."""


@dataclass(frozen=True, slots=True)
class ProjectorFile:
    """The facts in the header of a projector."""

    path: Path
    takes_images: bool
    takes_audio: bool
    size_bytes: int
    buffer_bytes: int = 0
    """Besides the file, at the largest image."""


def find_projector(model: Path, setting: str | None) -> ProjectorFile | None:
    """The projector named by `mmproj`, or found beside the model; None without one. Raises: `ConfigError`."""
    if setting == NONE:
        return None
    if setting is not None:
        path = Path(setting).expanduser()
        if not path.is_file():
            raise ConfigError(f'mmproj names no file: {path}; give the path of the model\'s projector, or "none"')
        return read_projector(path)
    found = _beside(model) or catalog.projector_blob(model)
    return read_projector(found) if found is not None else None


def read_projector(path: Path) -> ProjectorFile:
    """The header of a projector. Raises: `ConfigError` if the file is something else."""
    metadata = gguf_file.read_file(path).metadata
    if metadata.get("general.architecture") != "clip":
        raise ConfigError(f'{path.name} is no projector (mmproj) but a model; name the projector, or "none"')
    kinds = {str(metadata.get(key)) for key in ("clip.projector_type", "clip.vision.projector_type")}
    if found := kinds & PLACED:
        raise ConfigError(
            f"{path.name} is a projector of the kind {found.pop()}, which reads an image by what stands before it, and "
            'cannot be used here; set mmproj = "none" to use the model for text only'
        )
    # Files from before there was sound have the first key only.
    takes_images, takes_audio = (metadata.get(f"clip.has_{what}_encoder") is True for what in ("vision", "audio"))
    return ProjectorFile(
        path, takes_images, takes_audio, path.stat().st_size, image_buffers(metadata) if takes_images else 0
    )


def _beside(model: Path) -> Path | None:
    """The projector in a model's folder that is named after it, else the only kind of it beside no other model."""
    try:
        files = sorted(file for file in model.parent.iterdir() if file.name.lower().endswith(".gguf"))
    except OSError:
        return None
    projectors = [file for file in files if _is_projector(file)]
    name = _plain(model)
    named = [file for file in projectors if _plain(file) == name]
    others = {_plain(file) for file in files if gguf.is_model(file)} - {name}
    return _best(named or (projectors if not others else ()))


def _is_projector(file: Path) -> bool:
    return "mmproj" in file.name.lower() and not gguf.is_model(file)


def _best(files: Iterable[Path]) -> Path | None:
    """Of copies in several number formats the one in half precision: smaller ones see worse, larger ones no better."""
    return min(files, key=lambda file: (not re.search(r"(?i)(?<!b)f16", file.name), file.name), default=None)


def _plain(file: Path) -> str:
    """The name of a model in that of a file, without its number format and the marks of a projector."""
    name = re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", file.name.lower())
    words = re.split(r"[-_.]+", name)
    return "-".join(word for word in words if word != "mmproj" and not _FORMAT.fullmatch(word))


_FORMAT = re.compile(r"i?q\d\w*|[kmsl0-9]{1,2}|xs|xl|ud|bf16|f16|f32|fp16|mxfp4\w*|model|gguf")
