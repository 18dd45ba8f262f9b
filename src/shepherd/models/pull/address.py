"""A model at a plain address: one GGUF file, or all of its shards."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import httpx2

from shepherd.core import BadReply
from shepherd.models import gguf
from shepherd.models.gguf import stem
from shepherd.models.pull.network import reaching, refuse
from shepherd.models.pull.plan import Plan, local_name
from shepherd.models.pull.source import UrlSource
from shepherd.models.pull.transfer import MAGIC, content_length, wrong_start
from shepherd.models.pulled import ModelFile

MAX_SHARDS = 99


async def plan_url(client: httpx2.AsyncClient, source: UrlSource, *, idle_s: float) -> Plan:
    """The file and its shards. Raises: `NotAllowed`, `InvalidRequest`, `BackendError`."""
    host = urlsplit(source.url).netloc.rpartition("@")[2]
    shard = gguf.SHARD.search(source.file)
    n_files = int(shard[2]) if shard else 1
    if not 1 <= n_files <= MAX_SHARDS:
        raise BadReply(f"{source.file} is one of {n_files} parts; at most {MAX_SHARDS} can be pulled", backend=host)
    numbered = re.compile(r"-\d{5}(-of-\d{5}\.gguf)", re.IGNORECASE)
    found = [numbered.sub(rf"-{index:05}\1", source.url) for index in range(1, n_files + 1)] if shard else [source.url]
    urls = {local_name(UrlSource(url).file, host): url for url in found}
    files, marks = [], []
    for name, url in urls.items():
        size, mark = await _look(client, url, name, idle_s=idle_s)
        files.append(ModelFile(name, size))
        marks.append(mark)
    name = stem(PurePosixPath(files[0].name))
    return Plan(
        name=name,
        origin="url",
        address=_public(source.url),
        revision=" ".join(filter(None, marks)),
        place=f"url/{re.sub(r'[^A-Za-z0-9.-]', '+', host)}/{name}",
        files=tuple(files),
        urls=urls,
    )


def _public(url: str) -> str:
    """Without a password or a signature in it."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


async def _look(client: httpx2.AsyncClient, url: str, name: str, *, idle_s: float) -> tuple[int, str]:
    """The size of a file, and what changes when the file does."""
    asked = {"Accept-Encoding": "identity", "Range": f"bytes=0-{len(MAGIC) - 1}"}
    with reaching(url):
        async with client.stream("GET", url, headers=asked, timeout=idle_s, follow_redirects=True) as answer:
            host = answer.url.host
            refuse(answer, what=name, page="")
            start = b""
            async for chunk in answer.aiter_raw():
                start += chunk
                if len(start) >= len(MAGIC):
                    break
            if not start.startswith(MAGIC):
                raise wrong_start(host, name, start)
            whole = re.fullmatch(r"bytes 0-\d+/(\d+)", answer.headers.get("content-range", ""))
            size = int(whole[1]) if answer.status_code == 206 and whole else content_length(answer)
            if answer.status_code not in (200, 206) or size is None:
                raise BadReply(
                    f"{host} does not say how large {name} is, so a transfer that breaks off would not be noticed",
                    backend=host,
                )
            return size, answer.headers.get("etag") or answer.headers.get("last-modified") or ""
