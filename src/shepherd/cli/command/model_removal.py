"""`shepherd models remove`: removes the files of a model that Shepherd pulled, or a name that a client has given.

Aliases and other lines of a configuration are never changed, only named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shepherd.app.directory.here import names_by_file
from shepherd.cli import configure, render
from shepherd.cli.command.models import find_file, find_loaded
from shepherd.cli.text import format_count, format_size
from shepherd.config import Config
from shepherd.core import EngineError, InvalidRequest
from shepherd.models import catalog, gguf, pulled
from shepherd.models.copies import Copies
from shepherd.models.pull import staging
from shepherd.wire.names import find_name


def run(
    options: Mapping[str, Any], *, name: str | None, unfinished: bool, force: bool, yes: bool, as_json: bool
) -> int:
    config = configure.load_config(options, looks=True)
    root = pulled.models_folder(os.environ, Path.home())
    if (name is None) != unfinished:
        raise InvalidRequest("name the model to remove, or give --unfinished for what pulls have left", field="name")
    left = staging.unfinished(root)
    if name is None:
        return _discard(root, [each for each in left if not each.is_running], "", yes=yes, as_json=as_json)
    mine = [each for each in left if each.name.casefold() == name.casefold()]
    if mine and not any(each.name.casefold() == name.casefold() for each in pulled.pulled_models(root)):
        return _discard(root, mine, name, yes=yes, as_json=as_json)
    copies = Copies(root)
    if find_name(name, config.aliases) is None and (copy := find_name(name, copies.read())) is not None:
        return _forget_copy(copies, copy, yes=yes, as_json=as_json)
    path = find_file(config, name)
    model = next((each for each in pulled.pulled_models(root) if each.path.resolve() == path.resolve()), None)
    files = [model.folder / each.name for each in model.files] if model else list(_others(path, force=force))
    names = {
        name,
        *(model.name for model in (model,) if model),
        *names_by_file(config, os.environ)[0].get(path.resolve(), ()),
    }
    _check_unloaded(config, names)
    n_bytes = sum(file.stat().st_size for file in files if file.stat().st_nlink == 1)
    stale = [copy for copy, meaning in copies.read().items() if meaning in names]
    if not as_json:
        render.show(f"This frees {format_size(n_bytes)}:")
        for file in files:
            render.show(f"  {file}  {format_size(file.stat().st_size)}")
        for line in _mentions(config, names, stale):
            render.show(line)
    if not render.agreed("Remove these files?", "removed", yes=yes):
        return 1
    try:
        if model is not None:
            pulled.remove(root, model.folder)
        else:
            for file in files:
                file.unlink()
        if stale:
            copies.change(dict.fromkeys(stale))
    except OSError as error:
        raise EngineError(f"{error.filename or path} cannot be removed: {error.strerror or error}") from error
    done = {"removed": name, "files": [str(file) for file in files], "freed_bytes": n_bytes, "names": stale}
    render.show_done(done, f"Removed {model.name if model else path}, {format_size(n_bytes)}.", as_json=as_json)
    return 0


def _discard(root: Path, left: Sequence[staging.Unfinished], name: str, *, yes: bool, as_json: bool) -> int:
    """Remove the files of unfinished pulls. Raises: `InvalidRequest` while one of them runs, `EngineError`."""
    for each in left:
        if each.is_running:
            raise InvalidRequest(f"a pull of {each.name} runs; stop it first", field="name")
    n_bytes = sum(each.n_bytes for each in left)
    if not as_json:
        render.show(f"This frees {format_size(n_bytes)}:" if left else "No pull has left anything.")
        for each in left:
            render.show(f"  {each.name}: {format_size(each.n_bytes)} in {each.folder}")
    if left and not render.agreed("Remove these files?", "removed", yes=yes):
        return 1
    try:
        for each in left:
            staging.discard(each)
        if not name:
            staging.discard_waste(root)
    except OSError as error:
        raise EngineError(f"{error.filename or root} cannot be removed: {error.strerror or error}") from error
    done = {"removed": [each.name for each in left], "files": [str(each.folder) for each in left],
            "freed_bytes": n_bytes, "names": []}  # fmt: skip
    words = f"Removed what {format_count(len(left), 'unfinished pull')} had left, {format_size(n_bytes)}."
    render.show_done(done, words, as_json=as_json)
    return 0


def _forget_copy(copies: Copies, copy: str, *, yes: bool, as_json: bool) -> int:
    meaning = copies.read()[copy]
    if not as_json:
        render.show(f"{copy} is another name of {meaning}, whose files stay.")
    if not render.agreed("Remove this name?", "removed", yes=yes):
        return 1
    try:
        copies.change({copy: None})
    except OSError as error:
        raise EngineError(f"the names of models cannot be written: {error.strerror or error}") from error
    render.show_done({"removed": copy, "files": [], "freed_bytes": 0, "names": [copy]}, f"Removed the name {copy}.",
                     as_json=as_json)  # fmt: skip
    return 0


def _others(path: Path, *, force: bool) -> Iterator[Path]:
    """The files of a model that another program, or a person, has put where it is."""
    if path == catalog.embedded():
        raise InvalidRequest("the embedded model is a part of Shepherd and stays", field="name")
    if path.is_dir():
        raise InvalidRequest(f"{path} is a folder of a model for TensorRT-LLM; remove it yourself", field="name")
    if path.parent.name == "blobs":
        raise InvalidRequest(
            f"{path} is a file of Ollama, which other models may share; remove the model with: ollama rm", field="name"
        )
    if any(file.is_symlink() for file in gguf.shards(path)):
        raise InvalidRequest(
            f"{path} is a link into the cache of another program, which other models may share; remove it with that "
            "program, for Hugging Face: hf cache delete",
            field="name",
        )
    if not force:
        raise InvalidRequest(f"{path} was not pulled by Shepherd; --force removes it all the same", field="name")
    yield from gguf.shards(path)


def _check_unloaded(config: Config, names: set[str]) -> None:
    """Raises: `InvalidRequest` for a model that a running server has loaded."""
    running = find_loaded(config)
    word = running and next((each for each in sorted(names) if find_name(each, running.names) is not None), None)
    if running is not None and word is not None:
        raise InvalidRequest(
            f"the server at {running.url} has {word!r} loaded; stop the server, or unload the model with: curl "
            f'{running.url}/api/generate -d \'{{"model": "{word}", "keep_alive": 0}}\'',
            field="name",
        )


def _mentions(config: Config, names: set[str], copies: Sequence[str]) -> Iterator[str]:
    """A line for each name of the model that stays."""
    for alias, meaning in config.aliases.items():
        if meaning in names:
            yield f"aliases.{alias} stands for it; the configuration is not changed."
    for model in config.models:
        if model.name in names:
            yield f"models.{model.name} is this file; the configuration is not changed."
    if copies:
        yield f"These names are removed with it: {', '.join(copies)}"
