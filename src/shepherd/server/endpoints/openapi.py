"""The OpenAPI document of the rows: `/openapi.json`, and what `/docs` shows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from inspect import getdoc
from typing import Any

from shepherd.server.endpoints.handler import Endpoint, PlainEndpoint
from shepherd.wire.base import Json

OK: Json = {"description": "Successful Response"}
_ERROR = {"application/json": {"schema": {
    "type": "object", "anyOf": [{"required": ["error"]}, {"required": ["message"]}],
    "properties": {"error": {"type": ["object", "string"]}, "message": {"type": "string"}},
}}}  # fmt: skip
"""`message` is Cohere's."""
_ERRORS: Json = {
    "4XX": {"description": "The request is wrong or not allowed, in the form of the path's protocol: 400, 401, 403, "
            "404, 405, 408, 413, 415, 429.", "content": _ERROR},
    "5XX": {"description": "The server cannot answer, in the form of the path's protocol: 500, 503, 504.",
            "content": _ERROR},
}  # fmt: skip
"""What every path may answer."""
_METHODS = ("GET", "PUT", "PATCH", "POST", "DELETE")
"""In the order of the document."""


def document(rows: Iterable[Endpoint | PlainEndpoint]) -> Json:
    """The whole document: of each row the first method of the first path."""
    paths: dict[str, Json] = {}
    by_path: dict[str, list[Endpoint | PlainEndpoint]] = {}
    for row in rows:
        by_path.setdefault(documented_path(row), []).append(row)
    for path, beside in by_path.items():
        beside.sort(key=lambda row: _METHODS.index(row.methods[0]))
        paths[path] = {row.methods[0].lower(): _operation(row, path) for row in beside}
    info = {
        "title": "Shepherd",
        "description": "Language models on your own machine.",
        "version": version("shepherd"),
    }
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def documented_path(row: Endpoint | PlainEndpoint) -> str:
    """The first path, without the kinds of its parameters."""
    return row.paths[0].replace(":path}", "}")


def _operation(row: Endpoint | PlainEndpoint, path: str) -> Json:
    if isinstance(row, Endpoint):
        name, ok, own = row.name, OK, dict[str, Any]()
    else:
        name, ok = row.handler.__name__, {**OK, "content": {"application/json": {"schema": {}}}}
        own = {"summary": _title(name), "description": getdoc(row.handler)}
        if names := re.findall(r"{(\w+)}", path):
            own["parameters"] = [
                {"name": each, "in": "path", "required": True, "schema": {"type": "string", "title": _title(each)}}
                for each in names
            ]
    return {
        **own,
        "operationId": re.sub(r"\W", "_", f"{name}{path}_{row.methods[0].lower()}"),
        **row.openapi,
        "responses": {"200": ok, **_ERRORS, **row.openapi.get("responses", {})},
    }


def operation_id(method: str, path: str) -> str:
    """For rows that have one path."""
    return re.sub(r"\W+", "_", f"{method} {path}".lower()).strip("_")


def _title(name: str) -> str:
    return name.replace("_", " ").title()
