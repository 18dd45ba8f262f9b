"""The models that Shepherd pulled: where they are, and which files each consists of.

    models_folder            the data folder's shepherd/models, or $SHEPHERD_MODELS
    ├ hf/OWNER/REPO/STEM/             one folder for each model, with all that belongs to it
    │   ├ …-00001-of-00002.gguf       every shard
    │   ├ mmproj-F16.gguf             its projector, where it has one
    │   └ pulled.json                 the record: its name, and each file with size and SHA-256
    ├ ollama/HOST/NAMESPACE/NAME/TAG/
    ├ pypi/PACKAGE/VERSION/           `newest` where none was named
    ├ url/HOST/STEM/
    └ .partial/                       what is being pulled or removed; nothing here is a model

A model's folder is made in `.partial` and appears by one rename, so it is whole from its first moment; `remove` takes
it away by one rename, too. No file is shared between models but by hard links: a folder can be removed without a look
at the others. `find` in `catalog.py` knows these models by the names in their records.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from shepherd.core.dataclasses import asdict, dataclass
from shepherd.process.files import read_within

logger = logging.getLogger(__name__)

RECORD = "pulled.json"
PARTIAL = ".partial"
_VERSION = 1
_DEPTH = 5
"""Levels of folders between `models_folder` and a record."""

Origin = Literal["hf", "ollama", "pypi", "url"]
PREFIXES = ("hf:", "ollama:", "pypi:")
"""How the name of a model begins that can be pulled and is no address."""
Role = Literal["model", "projector", "other"]
"""`other`: a template, a licence, parameters."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model that is pulled, or is to be."""

    name: str
    """In the model's folder."""
    size_bytes: int
    sha256: str = ""
    """As the source names it, else of the file as it came; empty while neither is known."""
    role: Role = "model"


@dataclass(frozen=True, slots=True)
class PulledModel:
    """One pulled model: all of its files were there, in these sizes, when it was read."""

    name: str
    """The name that `catalog.find` accepts, such as `hf:Qwen/Qwen3-8B-GGUF:Q4_K_M`, `ollama:qwen3:8b` or a stem."""
    origin: Origin
    address: str
    """Where it came from."""
    revision: str
    """The commit, the digest of the manifest, or version and checksum of the wheel; empty for a URL without one."""
    pulled_at: float
    """Seconds since 1970."""
    folder: Path
    files: tuple[ModelFile, ...]

    @property
    def path(self) -> Path:
        """What to load: the file, or the first shard."""
        return self.folder / next(file.name for file in self.files if file.role == "model")

    @property
    def projector(self) -> Path | None:
        return next((self.folder / file.name for file in self.files if file.role == "projector"), None)

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)


def user_folders(env: Mapping[str, str], home: Path) -> tuple[Path, Path]:
    """This system's folders for data and for caches of programs."""
    if sys.platform == "darwin":
        return home / "Library" / "Application Support", home / "Library" / "Caches"
    if sys.platform == "win32":
        local = Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
        return local, local
    return Path(env.get("XDG_DATA_HOME") or home / ".local/share"), Path(env.get("XDG_CACHE_HOME") or home / ".cache")


def models_folder(env: Mapping[str, str], home: Path) -> Path:
    """Where pulled models are; it may not exist yet."""
    return Path(env.get("SHEPHERD_MODELS") or user_folders(env, home)[0] / "shepherd" / "models")


def pulled_models(root: Path) -> Iterator[PulledModel]:
    """Every whole model in `root`, which `models_folder` names, in the order of their folders. A folder whose record
    cannot be read, or whose files are not those of the record, is skipped and logged."""
    for origin in get_args(Origin):
        for folder in _folders(root / origin, _DEPTH - 1):
            try:
                yield read_record(folder)
            except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
                logger.info("%s is not a whole model: %s", folder, error or type(error).__name__)


def read_record(folder: Path) -> PulledModel:
    """Raises: `OSError`, `ValueError`, `KeyError` or `TypeError` where there is no model that is whole."""
    record = json.loads(read_within(folder / RECORD))
    if record["version"] != _VERSION or record["origin"] not in get_args(Origin):
        raise ValueError(f"the record has the version {record['version']!r} and the origin {record['origin']!r}")
    files = tuple(ModelFile(**file) for file in record["files"])
    for file in files:
        if Path(file.name).name != file.name or file.role not in get_args(Role):
            raise ValueError(f"the record names the file {file.name!r} ({file.role})")
        if (size := (folder / file.name).stat().st_size) != file.size_bytes:
            raise ValueError(f"{file.name} has {size} of {file.size_bytes} bytes")
    if all(file.role != "model" for file in files):
        raise ValueError("the record names no model")
    facts = {name: record[name] for name in ("name", "origin", "address", "revision", "pulled_at")}
    return PulledModel(**facts, folder=folder, files=files)


def write_record(model: PulledModel) -> None:
    """Write the record into the model's folder. Raises: `OSError`."""
    record: dict[str, Any] = {"version": _VERSION, **asdict(model)}
    del record["folder"]
    (model.folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def install(root: Path, staged: Path, folder: Path) -> None:
    """Make the staged folder, which is whole, the model `folder`; an older one leaves. Raises: `OSError`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    old = _put_aside(root, folder) if folder.exists() else None
    staged.rename(folder)
    if old is not None:
        shutil.rmtree(old)


def remove(root: Path, folder: Path) -> None:
    """Remove a model's folder, and those above it that are empty then. Raises: `OSError`."""
    shutil.rmtree(_put_aside(root, folder))
    for above in folder.parents:
        if above == root or not above.is_relative_to(root):
            break
        try:
            above.rmdir()
        except OSError:  # others are in it
            break


def _put_aside(root: Path, folder: Path) -> Path:
    waste = root / PARTIAL / f"removed-{uuid.uuid4().hex}"
    waste.parent.mkdir(parents=True, exist_ok=True)
    return folder.rename(waste)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    """Folders that hold a record, sorted."""
    if os.path.isfile(folder / RECORD):
        yield folder
        return
    try:
        below = sorted(each for each in folder.iterdir() if each.is_dir()) if depth else []
    except OSError:
        return
    for each in below:
        yield from _folders(each, depth - 1)
