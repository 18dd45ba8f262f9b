"""The header of a model that is not here, without a download: the first megabytes of its files, or its `config.json`.

    source ─ plan_of ─▶ Plan ─ GET, Range: bytes=0-N ─▶ files that end in a hole ─▶ gguf.read_header
    a repository without GGUF files ─ GET config.json ─▶ Fields

A file in GGUF begins with all that describes it; a vocabulary makes that some megabytes. What was not transferred is a
hole of the file's real size, so every check of the reader holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from shepherd.core import BadReply, ConfigError, InvalidRequest
from shepherd.models import gguf
from shepherd.models.checkpoint import Fields, read_json
from shepherd.models.gguf_file import read_file
from shepherd.models.pull.hub import config_url
from shepherd.models.pull.network import Network, reaching, refuse
from shepherd.models.pull.plan import Plan
from shepherd.models.pull.pull import Show, plan_of
from shepherd.models.pull.source import HubSource, Source
from shepherd.models.pulled import ModelFile

FIRST_BYTES, MOST_BYTES = 4 << 20, 64 << 20
"""Of a file: what is asked for first, and at most; the largest vocabularies take 20 MB."""
SHARD_BYTES = 1 << 20
"""Of one of several files, of which most have a list of tensors alone."""
MOST_CONFIG_BYTES = 1 << 20
DEADLINE_S = 120.0
"""For all of it."""
IDLE_S = 30.0


async def read_remote(
    source: Source, folder: Path, *, env: Mapping[str, str], memory_bytes: int | None, network: Network, show: Show
) -> gguf.Header:
    """The header of a model at its source. `folder`: an empty one, which lives as long as the header.

    Raises: `ShepherdError`, in one sentence, as `plan_of`; `BadReply` for what is no model.
    """
    plan = await plan_of(source, env=env, memory_bytes=memory_bytes, show=show, network=network)
    host = plan.host
    if plan.is_packed:
        raise InvalidRequest(
            f"{plan.name} is packed in a wheel, so its head cannot be read at {host}; get it first: shepherd pull "
            f"{plan.name}",
            field="model",
        )
    files = [file for file in plan.files if file.role == "model"]
    async with network.client() as client:
        try:
            async with _in_time(host, plan.name):
                for file in files:
                    await _fetch(client, plan, file, folder / file.name)
            return gguf.read_header(folder / files[0].name)
        except ConfigError as error:
            why = error.message.rpartition(": ")[2]
            raise BadReply(f"what {host} has as {plan.name} is no readable GGUF file ({why})", backend=host) from error


async def read_config(source: HubSource, folder: Path, *, env: Mapping[str, str], network: Network) -> Fields:
    """The `config.json` of a repository. Raises: `ShepherdError`, in one sentence."""
    url, headers = config_url(source.repo, env=env, network=network)
    file, host = folder / "config.json", url.partition("://")[2].partition("/")[0]
    async with network.client() as client, _in_time(host, source.repo):
        await _receive(client, url, file, 0, MOST_CONFIG_BYTES, headers=headers)
    found = read_json(file)
    assert found is not None
    return found


@asynccontextmanager
async def _in_time(host: str, name: str) -> AsyncIterator[None]:
    """Raises: `BadReply` when the block takes longer than `DEADLINE_S`."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield
    except TimeoutError as error:
        raise BadReply(f"{host} has not sent the head of {name} in {DEADLINE_S:g} s", backend=host) from error


async def _fetch(client: httpx2.AsyncClient, plan: Plan, file: ModelFile, path: Path) -> None:
    """The head of one file, in parts that double, until all of it is there."""
    n_bytes, most = 0, min(FIRST_BYTES if gguf.SHARD.search(file.name) is None else SHARD_BYTES, file.size_bytes)
    while True:
        n_bytes = await _receive(client, plan.urls[file.name], path, n_bytes, most, headers=plan.headers)
        with path.open("r+b") as written:
            written.truncate(file.size_bytes)
        try:
            if read_file(path).head_bytes <= n_bytes:
                return
        except ConfigError:
            if n_bytes >= min(MOST_BYTES, file.size_bytes):
                raise
        most = min(2 * n_bytes, MOST_BYTES, file.size_bytes)
        if most <= n_bytes:
            raise ConfigError(f"its head is larger than {MOST_BYTES >> 20} MiB", file=str(path))


async def _receive(
    client: httpx2.AsyncClient, url: str, path: Path, start: int, stop: int, *, headers: Mapping[str, str]
) -> int:
    """Write the bytes from `start` to `stop`, or to the end; how many are there then. Raises: `ShepherdError`."""
    asked = {**headers, "Accept-Encoding": "identity", "Range": f"bytes={start}-{stop - 1}"}
    with reaching(url):
        async with client.stream("GET", url, headers=asked, timeout=IDLE_S, follow_redirects=True) as answer:
            host = answer.url.host
            refuse(answer, what=path.name, page="")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise BadReply(f"{host} compresses {path.name}, which it was asked not to do", backend=host)
            skip = 0 if answer.status_code == 206 else start  # ranges mean nothing to this server
            with path.open("r+b" if start else "wb") as file:
                file.seek(start)
                async for piece in answer.aiter_raw():
                    wanted = piece[skip:] if skip else piece
                    skip = max(0, skip - len(piece))
                    file.write(wanted[: stop - file.tell()])
                    if file.tell() >= stop:
                        break
                n_bytes = file.tell()
    if n_bytes <= start:
        raise BadReply(f"{host} sends nothing of {path.name}", backend=host)
    return n_bytes
