"""Servers on loopback that speak the protocols of a hub of Hugging Face, of a registry of Ollama, and of a plain
download, and that fail on demand.

    GET  /api/models/O/R?blobs=true      the files with sizes and SHA-256       GET /api/models?search=…
    HEAD|GET /O/R/resolve/COMMIT/PATH    a redirect to /cdn/SHA256
    GET  /v2/NS/NAME/manifests/TAG       GET /v2/NS/NAME/blobs/sha256:…         GET /files/NAME
    GET  /simple/NAME/                   what a package index lists             GET /wheels/FILE

A failure belongs to a kind of path, and is used up: `hub.fail("cdn", Cut(100), Status(429, ...))` cuts the first answer
after 100 bytes and refuses the second.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0ff"


@dataclass(frozen=True)
class Status:
    """An answer with this status."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Cut:
    """The connection ends after so many bytes of the body."""

    n_bytes: int


@dataclass(frozen=True)
class Stall:
    """Nothing comes after so many bytes of the body, until the server stops."""

    n_bytes: int


@dataclass(frozen=True)
class Lie:
    """Other bytes than those of the file, with their own length."""

    body: bytes
    content_type: str = "application/octet-stream"


@dataclass(frozen=True)
class NoRanges:
    """The whole file, whatever range was asked for."""


@dataclass(frozen=True)
class Slow:
    """`n_bytes` at a time, with pauses between them."""

    n_bytes: int
    pause_s: float


@dataclass(frozen=True)
class Endless:
    """Bytes without an end, until the client leaves."""

    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Failure = Status | Endless | Cut | Stall | Lie | NoRanges | Slow


class Hub:
    """A server; `with Hub() as hub:` starts and stops it."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        """By name: files by path."""
        self.gated: set[str] = set()
        self.tokens: set[str] = set()
        """Which open gated repositories."""
        self.lies: dict[str, tuple[int, str]] = {}
        """By path of a repository: size and SHA-256 that the listing claims."""
        self.manifests: dict[str, bytes] = {}
        """By `NS/NAME/TAG`."""
        self.blobs: dict[str, bytes] = {}
        """By SHA-256."""
        self.files: dict[str, bytes] = {}
        """At plain addresses."""
        self.packages: dict[str, tuple[str, bytes]] = {}
        """Of a package index, by name: kind of content and page."""
        self.wheels: dict[str, bytes] = {}
        """By file."""
        self.login = ""
        """`name:password` that the index asks for; empty: none."""
        self.seen: list[tuple[str, str, Message]] = []
        """Method, path and headers of every request."""
        self._failures: dict[str, list[Failure]] = {}
        self._stopped = threading.Event()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        self.cdn = f"{'https' if tls else 'http'}://localhost:{self.host.partition(':')[2]}"
        """Where the files are: another origin, as a network that delivers files is. No token may reach it."""
        self.n_endless = 0
        """Bytes that `Endless` has sent."""
        self.is_xet = False
        """Whether files lie in Xet: the listing names no checksum of theirs, the redirect does."""

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def put_repo(self, name: str, files: Mapping[str, bytes]) -> None:
        self.repos[name] = dict(files)
        self.blobs |= {hashlib.sha256(content).hexdigest(): content for content in files.values()}

    def put_ollama(self, name: str, layers: Mapping[str, bytes]) -> None:
        """`name`: NS/NAME/TAG; `layers`: contents by the last word of their kinds."""
        rows = []
        for kind, content in layers.items():
            digest = hashlib.sha256(content).hexdigest()
            self.blobs[digest] = content
            media = f"application/vnd.ollama.image.{kind}"
            rows.append({"mediaType": media, "digest": f"sha256:{digest}", "size": len(content)})
        self.manifests[name] = json.dumps({"schemaVersion": 2, "layers": rows}).encode()

    def put_package(self, name: str, wheels: Mapping[str, bytes], **facts: Any) -> None:
        """List wheels in JSON; `facts`: more of each file."""
        self.wheels |= wheels
        rows = [
            {
                "filename": file,
                "url": f"../../wheels/{quote(file)}",
                "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
                "size": len(content),
                **facts,
            }
            for file, content in wheels.items()
        ]
        page = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": rows})
        self.packages[name] = ("application/vnd.pypi.simple.v1+json", page.encode())

    def fail(self, kind: str, *failures: Failure) -> None:
        """The next answers to paths of a kind: `api`, `resolve`, `cdn`, `manifests`, `blobs`, `files`, `simple` or
        `wheels`."""
        self._failures.setdefault(kind, []).extend(failures)

    def n_sent(self, kind: str) -> int:
        """Requests for paths of a kind."""
        return sum(1 for method, path, _ in self.seen if method == "GET" and f"/{kind}/" in path)

    def ranges(self, kind: str) -> list[str]:
        return [
            headers.get("Range", "") for method, path, headers in self.seen if f"/{kind}/" in path and method == "GET"
        ]

    def next_failure(self, kind: str) -> Failure | None:
        waiting = self._failures.get(kind)
        return waiting.pop(0) if waiting else None

    def sleep(self, seconds: float | None) -> None:
        self._stopped.wait(seconds)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no error: clients are killed here."""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, parts = self.hub, urlsplit(self.path)
        path = unquote(parts.path)
        hub.seen.append((self.command, path, self.headers))
        try:
            if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", path):
                self._act("api", lambda: self._info(match[1]))
            elif path == "/api/models":
                self._act("api", lambda: self._search(parse_qs(parts.query)))
            elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                self._act("resolve", lambda: self._resolve(match[1], match[3]))
            elif match := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
                self._content("cdn", hub.blobs.get(match[1]))
            elif match := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path):
                self._content("manifests", hub.manifests.get(f"{match[1]}/{match[2]}"))
            elif match := re.fullmatch(r"/v2/.+/blobs/sha256:([0-9a-f]{64})", path):
                self._content("blobs", hub.blobs.get(match[1]))
            elif match := re.fullmatch(r"/files/(.+)", path):
                self._content("files", hub.files.get(match[1]), etag=True)
            elif match := re.fullmatch(r"/simple/([^/]+)/", path):
                self._act("simple", lambda: self._package(match[1]))
            elif match := re.fullmatch(r"/wheels/([^/]+)", path):
                self._content("wheels", hub.wheels.get(match[1]))
            else:
                self._send(Status(404))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _act(self, kind: str, otherwise: Any) -> None:
        failure = self.hub.next_failure(kind)
        if isinstance(failure, Status):
            self._send(failure)
        elif isinstance(failure, Endless):
            self._send_on(failure)
        elif isinstance(failure, Lie):
            self._send(Status(200, {"Content-Type": failure.content_type}, failure.body))
        elif isinstance(failure, Stall):
            self.hub.sleep(None)
        else:
            self._send(otherwise())

    def _package(self, name: str) -> Status:
        expected = f"Basic {base64.b64encode(self.hub.login.encode()).decode()}"
        if self.hub.login and self.headers.get("Authorization") != expected:
            return Status(401)
        if name not in self.hub.packages:
            return Status(404)
        kind, page = self.hub.packages[name]
        return Status(200, {"Content-Type": kind}, page)

    def _may(self, repo: str) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return repo not in self.hub.gated or token in self.hub.tokens

    def _info(self, repo: str) -> Status:
        files = self.hub.repos.get(repo)
        if files is None:
            return Status(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        siblings = []
        for path, content in files.items():
            size, sha = self.hub.lies.get(path, (len(content), hashlib.sha256(content).hexdigest()))
            sha = "" if self.hub.is_xet else sha
            lfs = {"size": size, "sha256": sha, "pointerSize": 130}
            siblings.append({"rfilename": path, "size": size, "blobId": "0" * 40, **({"lfs": lfs} if sha else {})})
        body = {
            "_id": "1", "id": repo, "modelId": repo, "sha": COMMIT, "private": False, "disabled": False, "tags": [],
            "gated": "auto" if repo in self.hub.gated else False, "downloads": 7, "likes": 1, "siblings": siblings,
        }  # fmt: skip
        return Status(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _search(self, query: Mapping[str, list[str]]) -> Status:
        assert query["filter"] == ["gguf"]
        words = query["search"][0].lower()
        rows = [
            {"_id": str(i), "id": name, "modelId": name, "private": False, "downloads": 9 - i, "likes": 0,
             "gated": name in self.hub.gated and "auto", "tags": ["gguf", "license:apache-2.0"]}
            for i, name in enumerate(self.hub.repos) if words in name.lower()
        ]  # fmt: skip
        return Status(200, {"Content-Type": "application/json"}, json.dumps(rows).encode())

    def _resolve(self, repo: str, path: str) -> Status:
        content = self.hub.repos.get(repo, {}).get(path)
        if content is None:
            return Status(404, {"X-Error-Code": "EntryNotFound"})
        if not self._may(repo):
            return Status(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted"})
        sha = hashlib.sha256(content).hexdigest()
        head = {"X-Repo-Commit": COMMIT, "X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(len(content))}
        if self.hub.is_xet:
            head |= {
                "X-Xet-Hash": sha[::-1],
                "Link": f'<{self.hub.url}/xet/reconstruction>; rel="xet-reconstruction-info"',
            }
        if "linked" in self.hub.lies:
            head["X-Linked-Etag"] = f'"{self.hub.lies["linked"][1]}"'
        return Status(302, {**head, "Location": f"{self.hub.cdn}/cdn/{sha}"})

    def _content(self, kind: str, content: bytes | None, *, etag: bool = False) -> None:
        failure = self.hub.next_failure(kind)
        if isinstance(failure, Status):
            self._send(failure)
            return
        if isinstance(failure, Endless):
            self._send_on(failure)
            return
        if isinstance(failure, Lie):
            self._send(Status(200, {"Content-Type": failure.content_type}, failure.body))
            return
        if content is None:
            self._send(Status(404))
            return
        asked = self.headers.get("Range", "")
        if last := re.fullmatch(r"bytes=-(\d+)", asked):
            asked = f"bytes={max(0, len(content) - int(last[1]))}-"
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        head: dict[str, str] = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:8]}"'} if etag else {}
        status, part = 200, memoryview(content)
        if match and not isinstance(failure, NoRanges):
            start, stop = int(match[1]), min(int(match[2] or len(content)) + 1, len(content))
            if start >= len(content):
                self._send(Status(416))
                return
            status, part = 206, part[start:stop]
            head["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
        self.send_response(status)
        for name, value in {**head, "Content-Length": str(len(part))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        match failure:
            case Cut(n_bytes):
                self.wfile.write(part[:n_bytes])
                self.close_connection = True
            case Stall(n_bytes):
                self.wfile.write(part[:n_bytes])
                self.wfile.flush()
                self.hub.sleep(None)
                self.close_connection = True
            case Slow(n_bytes, pause_s):
                for at in range(0, len(part), n_bytes):
                    self.wfile.write(part[at : at + n_bytes])
                    self.wfile.flush()
                    time.sleep(pause_s)
            case _:
                self.wfile.write(part)

    def _send(self, answer: Status) -> None:
        self.send_response(answer.code)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _send_on(self, answer: Endless) -> None:
        self.send_response(answer.code)
        for name, value in {**answer.headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        while True:  # ends with an error when the client has gone
            self.wfile.write(b" " * 2**20)
            self.hub.n_endless += 2**20
