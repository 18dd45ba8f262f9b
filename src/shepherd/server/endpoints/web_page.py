"""The page in the browser: `/` for a browser, and the files under `/web`.

The files are those of the folder `server/web`, as they are there: nothing is built. They hold no secret and need no
key; all that the page shows comes over the API, which asks for one. A path is looked up in the list of the folder's
files, so none leads out of it. Every file has an `ETag`: a browser asks each time, and gets 304 while it is unchanged.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.process.pools import in_pool
from shepherd.server.endpoints.handler import PlainEndpoint, state_of
from shepherd.server.http.caller import wants_html

FOLDER = Path(__file__).parents[1] / "web"

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    "": "text/plain; charset=utf-8",  # licences
}
_COMPRESSED = frozenset(TYPES) - {".woff2"}

_POLICY = (
    "default-src 'none'; script-src 'self' {map}; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "media-src 'self' blob:; font-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
"""No script, style or address of elsewhere, and none that an answer of a model could bring."""
_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-cache"}


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    compressed: bytes | None
    """None: it is compressed already."""
    tag: str
    policy: str | None = None


def wants_page(request: HTTPRequest) -> bool:
    """Whether `/` is the page for this request, and not the list of endpoints."""
    return state_of(request).page and wants_html(request.scope)


async def send_page(request: HTTPRequest) -> Response:
    return await _send(request, "index.html")


async def send_file(request: HTTPRequest) -> Response:
    """One file of the page."""
    return await _send(request, request.path_params["path"])


async def _send(request: HTTPRequest, name: str) -> Response:
    if not state_of(request).page or name not in _names():
        raise InvalidRequest(f"the page has no file {name[:80]!r}", status=404)
    path = FOLDER / name
    file = await in_pool("files", lambda: _read(path, path.stat().st_mtime_ns))
    is_compressed = file.compressed is not None and _takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{file.tag}{"-gzip" if is_compressed else ""}"'
    headers = {
        **_HEADERS,
        "etag": tag,
        "vary": "accept-encoding" if name != "index.html" else "accept, accept-encoding",
    }
    if file.policy is not None:
        headers["content-security-policy"] = file.policy
    if tag in re.split(r",\s*", request.headers.get("if-none-match", "").replace("W/", "")):
        return Response(status_code=304, headers=headers)
    if is_compressed:
        headers["content-encoding"] = "gzip"
    content = file.compressed if is_compressed else file.content
    headers["content-type"] = TYPES[path.suffix]
    return Response(content, headers=headers)


def _takes_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` names gzip, or `*`, with a weight above 0."""
    weights = {}
    for each in header.lower().split(","):
        name, _, weight = each.partition(";")
        number = re.fullmatch(r"\s*q=(0(\.[0-9]{0,3})?|1(\.0{0,3})?)\s*", weight)
        weights[name.strip()] = float(number[1]) if number else 1.0
    return weights.get("gzip", weights.get("*", 0.0)) > 0


@cache
def _names() -> frozenset[str]:
    """The files of the folder, by their paths under `/web`."""
    found = (path for path in FOLDER.rglob("*") if path.is_file() and path.suffix in TYPES)
    return frozenset(path.relative_to(FOLDER).as_posix() for path in found)


@lru_cache(maxsize=256)
def _read(path: Path, changed_ns: int) -> File:
    content = path.read_bytes()
    policy = None
    if path.suffix == ".html":
        content = content.replace(b"{version}", version("shepherd").encode())
        import_map = re.search(rb'<script type="importmap">(.*?)</script>', content, re.DOTALL)
        assert import_map is not None
        digest = base64.b64encode(hashlib.sha256(import_map[1]).digest()).decode()
        policy = _POLICY.format(map=f"'sha256-{digest}'")
    compressed = gzip.compress(content, 9, mtime=0) if path.suffix in _COMPRESSED else None
    return File(content, compressed, hashlib.sha256(content).hexdigest()[:20], policy)


WEB_ENDPOINTS = (PlainEndpoint(("GET", "HEAD"), ("/web/{path:path}",), send_file, documented=False),)
