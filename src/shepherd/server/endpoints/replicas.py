"""`/v1/replicas`: the servers of each provider that has several; one can be taken out, and put back."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from shepherd.core.status import ReplicaStatus
from shepherd.server.endpoints.handler import PlainEndpoint, json_response, state_of
from shepherd.wire.base import Json


def encode_replicas(groups: Mapping[str, Mapping[str, ReplicaStatus]], *, brief: bool = False) -> Json:
    """By group, its replicas. `brief`: without what holds addresses, for clients without a key."""
    return {group: {name: _encode(each, brief=brief) for name, each in some.items()} for group, some in groups.items()}


def _encode(status: ReplicaStatus, *, brief: bool) -> Json:
    body: Json = {"state": status.state, "open": status.n_open}
    if status.rests_s:
        body["rests_s"] = round(status.rests_s, 1)
    if brief:
        return body
    return body | {"models": list(status.models), **({"detail": status.detail} if status.detail else {})}


async def replicas(request: HTTPRequest) -> Response:
    """Of each provider with several servers, the servers: whether they are asked, and how many requests are open."""
    return json_response({"groups": encode_replicas(state_of(request).service.health().groups)})


async def drain(request: HTTPRequest) -> Response:
    """Take a replica out: running answers end, new requests go to the others. It lasts until `resume` or a restart."""
    return _changed(request, is_out=True)


async def resume(request: HTTPRequest) -> Response:
    """Put a replica back."""
    return _changed(request, is_out=False)


def _changed(request: HTTPRequest, *, is_out: bool) -> Response:
    name = request.path_params["name"]
    status = state_of(request).service.dispatcher.take_out(name, is_out=is_out)
    return json_response({"name": name, **_encode(status, brief=False)})


REPLICA_ENDPOINTS = (
    PlainEndpoint(("GET", "HEAD"), ("/v1/replicas",), replicas),
    PlainEndpoint(("POST",), ("/v1/replicas/{name}/drain",), drain, deed="replicas"),
    PlainEndpoint(("POST",), ("/v1/replicas/{name}/resume",), resume, deed="replicas"),
)
