"""The logins at MCP servers over HTTP, each in a private file of its own.

    <state folder>/mcp/<digest of address, client and grant>.json        mode 0600

The address of the server is part of the key, so a server of the same name at another address finds nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from shepherd.core.dataclasses import asdict, dataclass, field, fields
from shepherd.process.files import keep_json, read_within, try_lock
from shepherd.tools.mcp.values import ServerOptions

LOCKED_S = 90.0
"""A renewal that takes longer than its requests may is one that hangs: the next one no longer waits for it."""
LOOK_S = 0.02

LoginState = Literal["none", "logged in", "expired"]


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """The content of a file. The mappings are the SDK's models as JSON; empty = not known."""

    url: str
    tokens: Mapping[str, Any] = field(default_factory=dict)
    expires_at: float | None = None
    """Of the access token, in seconds since 1970."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """How the authorization server has registered Shepherd."""
    port: int = 0
    """Of the redirect address that is registered."""
    authorization: Mapping[str, Any] = field(default_factory=dict)
    """Of the authorization server: without them, a refresh token would go to a guessed address."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    status: int = 0
    challenge: str = ""
    """Status and `WWW-Authenticate` of the last answer that only a person can satisfy."""

    @property
    def state(self) -> LoginState:
        if not self.tokens:
            return "none"
        is_old = self.expires_at is not None and self.expires_at < time.time()
        return "expired" if is_old and not self.tokens.get("refresh_token") else "logged in"


@dataclass(frozen=True, slots=True)
class LoginFile:
    path: Path
    url: str

    @classmethod
    def of(cls, options: ServerOptions, folder: Path | None = None) -> LoginFile:
        """`options`: with variables expanded, of a server with a `url`; `folder`: by default the user's."""
        assert options.url is not None
        key = json.dumps([options.url, options.client_id, options.grant])
        return cls((folder or default_folder()) / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json", options.url)

    def read(self) -> Login:
        """Empty if there is none, or none that can be read."""
        try:
            found = json.loads(read_within(self.path))
            login = Login(**{each.name: found[each.name] for each in fields(Login)})
        except (OSError, ValueError, KeyError, TypeError):
            return Login(self.url)
        return login if login.url == self.url else Login(self.url)

    def write(self, login: Login) -> None:
        """Raises: `OSError`."""
        keep_json(self.path, asdict(login), indent=None)

    @asynccontextmanager
    async def locked(self, wait_s: float = LOCKED_S) -> AsyncIterator[None]:
        """During the block no other process renews this login. A lock ends with its process.

        `wait_s`: how long at most for another's lock. Without a folder that can be written, nothing is locked."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Beside the file, which each writer replaces.
            descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            yield
            return
        try:
            until_s = time.monotonic() + wait_s
            while not try_lock(descriptor) and time.monotonic() < until_s:  # noqa: ASYNC110 - only the system knows
                await asyncio.sleep(LOOK_S)
            yield
        finally:
            os.close(descriptor)  # and with it the lock

    def remove(self) -> bool:
        """Whether there were tokens. Raises: `OSError`."""
        had_tokens = bool(self.read().tokens)
        for path in (self.path, self.path.with_suffix(".lock")):
            path.unlink(missing_ok=True)
        return had_tokens


def default_folder() -> Path:
    import platformdirs  # noqa: PLC0415 - only programs with servers over HTTP need it

    return Path(platformdirs.user_state_dir("shepherd")) / "mcp"
