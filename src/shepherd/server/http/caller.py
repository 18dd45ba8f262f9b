"""The caller of a request, by its headers: the machine, the user, the conversation, and whether it is a side task.

Clients name their conversations in headers of their own; names in the body are the codec's to read.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

from starlette.types import Scope

from shepherd.core import InvalidRequest, NotAllowed, Request
from shepherd.core.request import parts_of_owner
from shepherd.server.observe.record import CALLER, Caller
from shepherd.wire.base import Decoded, shown

USER = b"x-shepherd-user"
"""The header that names the user whose memory is used; it overrides the body."""

SESSIONS = (
    (b"x-claude-code-session-id", b"x-claude-code-agent-id"),
    (b"x-session-id",),
    (b"x-session-affinity",),
    (b"session-id", b"thread-id"),
    (b"x-openwebui-chat-id",),
)
"""Headers that name a conversation: the first row whose first header is present, all headers of that row together.
Claude Code's agents share their session's id; opencode sends the second and the third; Codex sends the fourth, whose
threads share a session, too. A header that changes within a conversation, such as Codex's window, is not listed."""

FORWARDED = {
    "anthropic": (b"anthropic-beta",),
    "openai.chat": (b"openai-beta",),
    "openai.responses": (b"openai-beta",),
}
"""Headers by protocol that a provider of the same protocol gets. All others stay here: keys, cookies, addresses."""

AGENTS = re.compile(r"claude-cli/|opencode/|codex", re.ASCII | re.IGNORECASE)
"""The beginnings of `user-agent` of programs that offer tools with every request of a conversation."""

TASK = re.compile(
    r"\s*### Task:\n.*^### (Guidelines|Output|Instructions|Chat History|Context)\b", re.DOTALL | re.MULTILINE
)
"""Open WebUI's requests for titles, tags, follow-ups and queries: one message with these sections."""


def names_in(host: str) -> list[str]:
    """The names and addresses in a host of the configuration, which has several with commas between them; at least
    one, which is empty for all addresses of the machine."""
    names = [name.strip().strip("[]").lower() for name in host.split(",")]
    return [name for name in names if name] or [""]


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach `host`, every address of it."""
    return all(
        name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback) for name in names_in(host)
    )


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def address_of(scope: Scope) -> str:
    """The address of the client; a client without one is in a process of this machine."""
    return scope["client"][0] if scope.get("client") else "localhost"


def caller_of(scope: Scope) -> Caller:
    """The sender of a request, as `AuthMiddleware` has found it."""
    caller: Caller = scope[CALLER]
    return caller


def other_user(place: str, named: str, user: str | None) -> str:
    """The message for a request that names another user than its key's."""
    return f"{place} names {shown(named)}, and this API key acts as user {shown(user)} only; leave it out"


def wants_html(scope: Scope) -> bool:
    """A person's browser asks, not a program."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def check_origin(scope: Scope, what: str, allowed: Collection[str] = ()) -> None:
    """That no page of another origin sends the request: another server of this machine, a browser extension. Programs
    send none of these headers. `what`: such as `the memory`. `allowed`: origins of pages that may; `*` = all.

    Raises: `NotAllowed`.
    """
    headers = dict(scope["headers"])
    site = headers.get(b"sec-fetch-site", b"").decode("latin-1")
    origin = headers.get(b"origin", b"").decode("latin-1")
    # A browser that says what the site is knows it better than the names do: a proxy may have changed them.
    is_own = site in ("same-origin", "none") if site else _is_own_origin(origin, headers.get(b"host", b""))
    if not is_own and not {origin.rstrip("/"), "*"} & {*allowed}:
        raise NotAllowed(
            f"web pages of {shown(origin or f'a {site} page')} may not use {what} of this server; only its own page "
            "may",
            status=403,
        )


def check_page(scope: Scope) -> None:
    """As `check_origin`, for the chats, whose requests change something.

    Raises: `NotAllowed`; `InvalidRequest` for a body that a form of another page could send.
    """
    check_origin(scope, "the chats")
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    has_body = kind or headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    if has_body and scope["method"] not in ("GET", "HEAD", "DELETE") and kind != "application/json":
        raise InvalidRequest(
            f"the body must be JSON, with the header content-type: application/json, not {shown(kind)}",
            field="content-type",
            status=415,
        )


def _is_own_origin(origin: str, host: bytes) -> bool:
    scheme, _, name = origin.partition("://")
    return not origin or (scheme in ("http", "https") and name.lower() == host.decode("latin-1").lower())


Deed = Literal["models", "caches", "adapters", "replicas", "stay"]
"""What a request does to what all users share."""
_DEEDS: dict[Deed, str] = {
    "models": "this changes the models of all users",
    "caches": "this empties caches that hold the conversations of all users",
    "adapters": "this changes the adapters in the answers of all users",
    "replicas": "this changes which servers answer all users",
    "stay": "this unloads a model of all users",
}


def check_deed(scope: Scope, deed: Deed, *, manages_models: bool) -> None:
    """The one rule for what changes something that all users share. `manages_models`: the operator lets clients do it.

    Raises: `NotAllowed` for a key of one user beside other keys, and for models that clients may not change.
    """
    caller = caller_of(scope)
    if caller.is_one_of_many:
        raise NotAllowed(
            f"{_DEEDS[deed]}, and this API key acts as user {shown(caller.user)} only; use a key without user "
            "(server.keys)",
            status=403,
        )
    if deed == "models" and not manages_models:
        raise NotAllowed(
            "this server lets no client pull, copy or delete models; its operator allows it with "
            "manage_models = true in [server]",
            status=403,
        )


def sees(caller: Caller, owner: str) -> bool:
    """Whether the caller may see that this owner (`Request.owner`) has a conversation."""
    return not caller.is_one_of_many or parts_of_owner(owner)[0] == caller.user


def named_user(scope: Scope) -> str | None:
    """The user of the key, else the one that the header names; None without either."""
    if (user := caller_of(scope).user) is not None:
        return user
    return dict(scope["headers"]).get(USER, b"").decode("utf-8", "replace").strip() or None


def named_session(scope: Scope) -> str | None:
    headers = dict(scope["headers"])
    for row in SESSIONS:
        if headers.get(row[0]):
            names = dict.fromkeys(value.decode("latin-1")[:200] for name in row if (value := headers.get(name)))
            return "/".join(names)
    return None


def forwarded_headers(scope: Scope, protocol: str) -> dict[str, str]:
    """Those of `FORWARDED` that a provider can be sent."""
    found: dict[str, str] = {}
    for wanted in FORWARDED.get(protocol, ()):
        value = ",".join(value.decode("latin-1").strip() for name, value in scope["headers"] if name == wanted)
        if re.fullmatch(r"[\x20-\x7e]{1,2000}", value):
            found[wanted.decode()] = value
    return found


def is_side_task(request: Request, program: str) -> bool:
    """Whether a request is for a title, a summary or the like, by its shape: it has no earlier answer, and it has no
    tools although this program's conversations have some, or it is one message with the sections of a task.

    `program` is the caller's `user-agent`.
    """
    if (
        request.tools
        or request.completion is not None
        or any(message.role not in {"system", "user"} for message in request.messages)
    ):
        return False
    questions = [message for message in request.messages if message.role == "user"]
    return bool(AGENTS.match(program)) or (len(questions) == 1 and TASK.match(questions[0].text) is not None)


def with_caller(decoded: Decoded[Any], scope: Scope, *, trace: bool) -> Decoded[Any]:
    """`decoded`, with the owner that the key is bound to, and the user, the session, the side task and the provider's
    options that the headers name."""
    named: dict[str, Any] = {"trace": True} if trace else {}
    if holder := caller_of(scope).owner:
        named["caller"] = holder
    if (bound := caller_of(scope).user) is not None:
        named["owner"] = bound + decoded.request.owner
    if user := named_user(scope):
        named["user"] = user
        if decoded.request.session is not None and decoded.request.session == decoded.request.user:
            # The body names a user and no conversation: it is the same for this one.
            named["session"] = user
    if session := named_session(scope):
        named["session"] = session
    program = dict(scope["headers"]).get(b"user-agent", b"").decode("latin-1")
    if decoded.request.background is None and is_side_task(decoded.request, program):
        named["background"] = True
    if (native := decoded.request.native) is not None and (headers := forwarded_headers(scope, native.protocol)):
        named["native"] = replace(native, headers=headers)
    if not named:
        return decoded
    requests = [replace(request, **named) for request in decoded.requests]
    if caller_of(scope).is_one_of_many:  # which is named, too; how long a model stays concerns all users
        requests = [replace(one, extra={k: v for k, v in one.extra.items() if k != "keep_alive"}) for one in requests]
    return replace(decoded, requests=tuple(requests))
