"""The page at `/docs`: the OpenAPI document as HTML that a browser reads without scripts and without another host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from starlette.requests import Request as HTTPRequest
from starlette.responses import HTMLResponse, Response

from shepherd.server.endpoints.handler import PlainEndpoint, json_response, state_of
from shepherd.server.endpoints.openapi import document
from shepherd.wire.base import Json


async def show_docs(request: HTTPRequest) -> Response:
    """The endpoints of this server, with their fields."""
    policy = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse("".join(_page(document(state_of(request).documented))), headers=policy)


async def show_document(request: HTTPRequest) -> Response:
    return json_response(document(state_of(request).documented))


def _page(document: Json) -> Iterator[str]:
    info = document["info"]
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>{_STYLE}'
    yield f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}"
    yield ' The same for programs: <a href="openapi.json">openapi.json</a>.</p>'
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"<details><summary><code>{method.upper()} {escape(path)}</code> "
            yield f"{escape(operation.get('description') or operation['summary'])}</summary>"
            yield from _operation(operation)
            yield "</details>"


def _operation(operation: Json) -> Iterator[str]:
    fields = [(each["name"], each["in"], each["required"], each["schema"]) for each in operation.get("parameters", ())]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    required = body.get("required", ())
    fields += [(name, "body", name in required, schema) for name, schema in body.get("properties", {}).items()]
    if fields:
        yield "<table><tr><th>field<th>in<th>type<th>meaning"
    for name, where, is_required, schema in fields:
        mark = " (required)" if is_required else ""
        yield f"<tr><td><code>{escape(name)}</code>{mark}<td>{where}<td>{escape(_type(schema))}"
        yield f"<td>{escape(schema.get('description', ''))}"
    if fields:
        yield "</table>"
    if body:
        yield "<details><summary>JSON Schema of the body</summary>"
        yield f"<pre>{escape(json.dumps(body, indent=2, ensure_ascii=False))}</pre></details>"
    yield "<ul>"
    for status, answer in operation["responses"].items():
        yield f"<li>{status}: {escape(answer['description'])}"
    yield "</ul>"


def _type(schema: Json) -> str:
    """The type in a few words; the JSON Schema has the rest."""
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    bounds = f" {schema['minimum']:g} to {schema['maximum']:g}" if {"minimum", "maximum"} <= schema.keys() else ""
    return f"{schema.get('type', 'any')}{bounds}"


_STYLE = """<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
:root { color-scheme: light dark }
details { margin: .4rem 0 } details > :not(summary) { margin-left: 1.2rem }
td, th { text-align: left; vertical-align: top; padding: .1rem .8rem .1rem 0 } pre { overflow: auto }
</style>"""

DOCS_ENDPOINTS = (
    PlainEndpoint(("GET", "HEAD"), ("/docs",), show_docs, documented=False),
    PlainEndpoint(("GET", "HEAD"), ("/openapi.json",), show_document, documented=False),
)
