"""What is being pulled: for each model a folder in `.partial`, with what came until now.

    .partial/HASH/        files that are whole and checked, and FILE.part
    .partial/HASH.plan    what the pull brings: its identity, and its name for lists
    .partial/HASH.lock    held by what works on the folder; it stays: one that is deleted could be locked twice

What a pull leaves that was stopped stays until the same is pulled again, or until `discard`. Functions block.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shepherd.core import EngineError, InvalidRequest, ShepherdError
from shepherd.core.dataclasses import dataclass
from shepherd.models.pull.plan import Plan
from shepherd.models.pulled import PARTIAL, ModelFile, pulled_models
from shepherd.models.sizing import gib
from shepherd.process.files import find_object, try_lock

SPARE_BYTES = 2**28
"""Left free on the disk."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What an interrupted pull has left, or what a running one has brought."""

    name: str
    """As that of the model; of the folder, where no plan can be read."""
    spec: str
    """For `shepherd pull`; empty where no plan can be read."""
    n_bytes: int
    """On this machine so far."""
    size_bytes: int
    """Of the whole; 0 where it is not known."""
    changed_at: float
    """Seconds since 1970."""
    folder: Path
    is_running: bool


def folder_of(root: Path, plan: Plan) -> Path:
    """Where the files of a plan are until the model is whole."""
    return root / PARTIAL / hashlib.sha256(plan.place.encode()).hexdigest()[:24]


def prepare(root: Path, staged: Path, plan: Plan) -> None:
    """Make the folder ready for this plan, and check the room. Needs the lock. Raises: `ShepherdError`, `OSError`."""
    if (find_object(plan_file(staged)) or {}).get("identity") != plan.identity:
        shutil.rmtree(staged, ignore_errors=True)
        spec = plan.address if plan.origin == "url" else plan.name
        facts = {"identity": plan.identity, "name": plan.name, "spec": spec, "size_bytes": plan.size_bytes}
        plan_file(staged).write_text(json.dumps(facts), encoding="utf-8")
    staged.mkdir(exist_ok=True)
    here = {file.sha256: model.folder / file.name for model in pulled_models(root) for file in model.files}
    for file in plan.files:
        target = staged / file.name
        if file.sha256 in here and not target.exists():
            try:
                os.link(here[file.sha256], target)
            except OSError:  # another disk, or one without links: it is transferred
                continue
    sizes = [size_of(staged / file.name) or size_of(part(staged, file)) for file in plan.files]
    needed, free = plan.size_bytes - sum(sizes), shutil.disk_usage(staged).free
    if needed + SPARE_BYTES > free:
        raise no_room(root, f"{gib(needed)} are to come and {gib(free)} are free")


def unfinished(root: Path) -> list[Unfinished]:
    """What pulls have left in the folder of models, the oldest first."""
    found = [_look(folder) for folder in _folders(root)]
    return sorted((each for each in found if each is not None), key=lambda each: each.changed_at)


def discard(found: Unfinished) -> None:
    """Remove what a pull has left. Raises: `InvalidRequest` while one runs; `OSError`."""
    with _lock(found.folder) as is_free:
        if not is_free:
            raise InvalidRequest(f"a pull of {found.name} runs; stop it first", field="name")
        shutil.rmtree(found.folder)
        plan_file(found.folder).unlink(missing_ok=True)


def discard_named(root: Path, name: str) -> bool:
    """Remove what the unfinished pulls of a name have left; False where there are none. Raises: `InvalidRequest` while
    one runs; `EngineError`."""
    left = [each for each in unfinished(root) if each.name.casefold() == name.casefold()]
    try:
        for each in left:
            discard(each)
    except OSError as error:
        raise EngineError(f"{error.filename or root} cannot be removed: {error.strerror or error}") from error
    return bool(left)


def discard_waste(root: Path) -> None:
    """Remove what removals have left that were killed."""
    for waste in (root / PARTIAL).glob("removed-*"):
        shutil.rmtree(waste, ignore_errors=True)


def lock_file(staged: Path) -> Path:
    return staged.with_suffix(".lock")


def plan_file(staged: Path) -> Path:
    return staged.with_suffix(".plan")


def part(staged: Path, file: ModelFile) -> Path:
    return staged / f"{file.name}.part"


def size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def no_room(folder: Path, why: str) -> ShepherdError:
    return ShepherdError(
        f"{folder}: {why}; free some room, or name a folder on another disk with SHEPHERD_MODELS", status=507
    )


def _look(folder: Path) -> Unfinished | None:
    """None for one that has just become a model, or was removed, and for one in a folder of another user."""
    facts = find_object(plan_file(folder)) or {}
    name, spec, size_bytes = facts.get("name"), facts.get("spec"), facts.get("size_bytes")
    try:
        # Links to files of whole models take no room, and go with nothing.
        stats = [stat for file in folder.iterdir() if (stat := file.stat()).st_nlink == 1]
        changed_at = max((stat.st_mtime for stat in stats), default=folder.stat().st_mtime)
        with _lock(folder) as is_free:
            return Unfinished(
                name if isinstance(name, str) else folder.name,
                spec if isinstance(spec, str) else "",
                sum(stat.st_size for stat in stats),
                size_bytes if isinstance(size_bytes, int) else 0,
                changed_at,
                folder,
                not is_free,
            )
    except OSError:
        return None


def _folders(root: Path) -> Iterator[Path]:
    try:
        yield from (each for each in (root / PARTIAL).iterdir() if each.is_dir() and "-" not in each.name)
    except OSError:  # there is none
        return


@contextmanager
def _lock(staged: Path) -> Iterator[bool]:
    """Whether no other process works on it; as long as this lasts, none begins to."""
    with lock_file(staged).open("ab") as file:
        yield try_lock(file.fileno())
