"""`shepherd provider replicas`, `drain` and `resume`: the servers of each provider of a running server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx2

from shepherd.cli import configure, render
from shepherd.cli.command.replies import error_message
from shepherd.cli.command.server_client import Address, connect, find_address, json_object, refusal, transport_error
from shepherd.cli.text import clean, format_count
from shepherd.core import BadReply, InvalidRequest

TIMEOUT_S = 5.0
PATH = "/v1/replicas"


def show_all(options: Mapping[str, Any], *, url: str | None, as_json: bool) -> None:
    address = _address(options, url)
    groups = _asked(address, "GET", PATH).get("groups")
    if as_json:
        render.show_json(groups)
        return
    rows = [
        (group, name, *_facts(each, address))
        for group, some in _object(groups, address).items()
        for name, each in _object(some, address).items()
    ]
    none = "No provider of this server has replicas. base_urls of [providers.NAME] names several addresses."
    render.show_table(("PROVIDER", "REPLICA", "STATE", "OPEN", "MODELS", "REASON"), rows, none)


def _change(verb: str, options: Mapping[str, Any], *, name: str, url: str | None, as_json: bool) -> None:
    """Take a replica out, where running answers end and no new request goes, or put it back."""
    address = _address(options, url)
    body = _asked(address, "POST", f"{PATH}/{quote(name, safe='')}/{verb}")
    state, n_open, *_ = _facts(body, address)
    running = f"; {format_count(int(n_open), 'answer')} still running there" if n_open.isdigit() and int(n_open) else ""
    render.show_done(body, f"{name} is {state}{running if verb == 'drain' else ''}.", as_json=as_json)


drain, resume = partial(_change, "drain"), partial(_change, "resume")


def _address(options: Mapping[str, Any], url: str | None) -> Address:
    config = configure.load_config(options, looks=True)
    return find_address(config, url, options.get("api_keys") or (), is_running=True)


def _asked(address: Address, method: str, path: str) -> Mapping[str, Any]:
    with connect(address, TIMEOUT_S) as client:
        try:
            answer = client.request(method, path)
        except httpx2.TransportError as error:
            raise transport_error(error, address.url, TIMEOUT_S) from error
    if answer.status_code in (400, 404) and (words := error_message(json_object(answer))):
        raise InvalidRequest(clean(words), field="name", status=answer.status_code)
    if answer.status_code != 200:
        raise refusal(answer, address.url)
    return json_object(answer)


def _facts(status: Any, address: Address) -> tuple[str, str, str, str]:
    found = _object(status, address)
    models = found.get("models")
    names = [each for each in models if isinstance(each, str)] if isinstance(models, list) else []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        clean(str(found.get("state", "")))[:20],
        str(found.get("open", ""))[:20],
        clean(", ".join(names[:3]))[:80] + more,
        clean(str(found.get("detail", "")))[:200],
    )


def _object(value: Any, address: Address) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadReply(f"{address.url} answers {PATH} without a list of replicas", backend=address.url)
    return value
