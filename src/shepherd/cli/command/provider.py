"""`shepherd provider list` and `test`, `shepherd models list --provider`: what is elsewhere, and whether it answers."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from shepherd.backends.cloud.provider import find_kind
from shepherd.cli import configure, known_providers, render, signals
from shepherd.config import NetworkConfig, ProviderConfig
from shepherd.config.kinds import NO_PROXY
from shepherd.core import ConfigError, InvalidRequest, Message, Request, ShepherdError, Started, Text

if TYPE_CHECKING:
    from shepherd.backends.cloud.backend import CloudBackend
    from shepherd.backends.cloud.packaged import PackagedBackend


def show_list(options: Mapping[str, Any], *, as_json: bool) -> None:
    config, store = configure.load_config(options, looks=True), known_providers.store()
    found = [facts(row, config.network, config.providers) for row in known_providers.known_rows(config, store)]
    if as_json:
        render.show_json(found)
        return
    rows = [
        (
            each["name"],
            each["type"],
            each["model"] or "",
            each["address"] or ", ".join(each["replicas"]),
            each["problem"] or each["key"] or "none",
            "local" if each["is_local"] else "away",
            _network_text(each["network"]),
        )
        for each in found
    ]
    none = "No provider is configured. 'shepherd keys set NAME' or 'shepherd provider add NAME' adds one."
    head = ("NAME", "TYPE", "MODEL", "ADDRESS", "KEY", "PROMPTS", "NETWORK")
    n_columns = len(head) if any(row[-1] for row in rows) else len(head) - 1
    render.show_table(head[:n_columns], [row[:n_columns] for row in rows], none)


def facts(row: ProviderConfig, shared: NetworkConfig, rows: Sequence[ProviderConfig] = ()) -> dict[str, Any]:
    """A provider for programs: where it is, where its key comes from, how it is reached, what is wrong; without a
    secret. `shared`: for all providers; `rows`: all of them, for what is known of a group."""
    from shepherd.app.providers import made_of
    from shepherd.backends.cloud.transport import without_user

    store = known_providers.store()
    kind = find_kind(row.type)
    assert kind is not None
    address, is_local, problem = row.base_url or kind.base_url, row.is_local, ""
    key, problem = known_providers.look_up(row, store)
    if not row.replicas:
        try:
            made = made_of(row, os.environ, store)
            address, is_local = made.root, made.is_local
        except ConfigError as error:
            address, problem = without_user(address), error.message
    else:
        is_local = all(each.is_local for each in rows if each.name in row.replicas)
    return {
        "name": row.name,
        "type": row.type,
        "title": kind.title,
        "model": row.model,
        "address": "" if row.replicas else address,
        "replicas": list(row.replicas),
        "key": key.source if key else "",
        "is_local": is_local,
        "network": {} if row.replicas else _network(row.network.over(shared), address, is_local=is_local),
        "problem": problem,
    }


def _network(network: NetworkConfig, address: str, *, is_local: bool) -> dict[str, Any]:
    from shepherd.app.providers import limits_of
    from shepherd.backends.cloud.transport import without_user

    deadlines, patience = limits_of(network)
    proxy, source = (network.proxy, "configuration") if network.proxy else _from_variable(address)
    if is_local:
        proxy, source = None, ""
    return {
        "proxy": without_user(proxy) if proxy else None,
        "proxy_from": source,
        "ca_file": network.ca_file,
        "connect_s": deadlines.connect,
        "idle_s": deadlines.idle,
        "read_s": deadlines.whole,
        "attempts": patience.attempts,
        "patience_s": patience.total_s,
    }


def _from_variable(address: str) -> tuple[str | None, str]:
    """The proxy that the environment names for an address."""
    parts, proxies = urlsplit(address), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None, ""
    return proxy if "://" in proxy else f"http://{proxy}", "environment"


def _network_text(network: Mapping[str, Any]) -> str:
    """The settings that differ from the defaults."""
    usual = _network(NetworkConfig(), "", is_local=True)
    parts = [f"{word} {network[word]}" for word in usual if network and network[word] != usual[word]]
    return ", ".join(part for part in parts if not part.startswith("proxy_from"))


# -- asking one -------------------------------------------------------------------------------------------------------


def test(options: Mapping[str, Any], *, names: Sequence[str], as_json: bool) -> int:
    config = configure.load_config(options, looks=True)
    rows = [known_providers.find_row(config, name) for name in names] or [
        row for row in known_providers.known_rows(config, known_providers.store()) if not row.replicas
    ]
    if not rows:
        raise InvalidRequest("no provider is configured; 'shepherd provider add NAME' adds one", field="name")
    by_name = {row.name: row for row in config.providers}
    rows = [each for row in rows for each in ([by_name[name] for name in row.replicas] or [row])]
    if model := options.get("model"):
        rows = [replace(row, model=model.removeprefix(f"{row.name}/")) for row in rows]
    reports = []
    is_watched = render.is_terminal(sys.stderr) and not as_json
    for row in rows:
        if is_watched:
            render.show_note(f"asking {row.name} ...")
        report = signals.run(_tried(row, config.network), stopped="the test was stopped")
        reports.append(report)
        if not as_json:
            _show(report)
    if as_json:
        render.show_json(reports)
    return int(any(report["problem"] for report in reports))


async def _tried(row: ProviderConfig, shared: NetworkConfig) -> dict[str, Any]:
    """The report on one request; where no model is named, on a request for the list of models."""
    report: dict[str, Any] = {"name": row.name, "model": row.model, "n_ctx": None, "seconds": None, "n_models": None}
    report["network"] = facts(row, shared)["network"]
    began = time.monotonic()
    try:
        backend = _backend(row, shared)
        try:
            if row.model:
                report["model"] = await _asked(backend, row.model)
                report["seconds"] = round(time.monotonic() - began, 3)
                report["n_ctx"] = await backend.n_ctx(row.model)
            else:
                report["n_models"] = len(await backend.models())
                report["seconds"] = round(time.monotonic() - began, 3)
        finally:
            await backend.aclose()
    except ShepherdError as error:
        return report | {"status": error.status, "problem": error.message.removeprefix(f"{row.name}: ")}
    return report | {"status": 200, "problem": ""}


async def _asked(backend: CloudBackend | PackagedBackend, model: str) -> str:
    """The name of the model that answers."""
    request = Request(model, (Message("user", (Text("Answer with the word ready."),)),), max_tokens=16)
    async with aclosing(backend.stream(request)) as events:
        async for event in events:
            if isinstance(event, Started):
                model = event.model
    return model


def _backend(row: ProviderConfig, shared: NetworkConfig) -> CloudBackend | PackagedBackend:
    """A back end that makes one attempt."""
    from shepherd.app.providers import cloud_of, made_of, user_spending

    provider = made_of(row, os.environ, known_providers.store())
    once = replace(row, network=replace(row.network, attempts=1))
    return cloud_of(once, provider, shared, user_spending())


def _show(report: Mapping[str, Any]) -> None:
    name = report["name"]
    if report["problem"]:
        render.show_marked("✗", "red", f"{name}: {report['problem']}")
        return
    parts = [f"answered in {report['seconds']:.2f} s"]
    if report["model"]:
        window = f"{report['n_ctx']:,} tokens of context" if report["n_ctx"] else "context not known"
        parts += [str(report["model"]), window]
    else:
        parts += [f"{report['n_models']} models", f"-m {name}/MODEL asks one"]
    if proxy := report["network"]["proxy"]:
        parts.append("without a proxy" if proxy == NO_PROXY else f"through {proxy}")
    render.show_marked("✓", "green", f"{name}: {', '.join(parts)}")


# -- models -----------------------------------------------------------------------------------------------------------


def show_models(options: Mapping[str, Any], *, name: str, as_json: bool) -> None:
    config = configure.load_config(options, looks=True)
    row = known_providers.find_row(config, name)
    models = known_providers.read_list(row)
    if models is None:
        models = signals.run(_listed(row, config.network))
        known_providers.keep_list(row, models)
    if as_json:
        render.show_json(models)
        return
    rows = [
        (each["name"], f"{each['n_ctx']}" if each["n_ctx"] else "?", ", ".join(each["capabilities"])) for each in models
    ]
    render.show_table(("NAME", "CONTEXT", "CAN"), rows, f"{row.name} lists no model.")


async def _listed(row: ProviderConfig, shared: NetworkConfig) -> list[dict[str, Any]]:
    backend = _backend(row, shared)
    try:
        cards = [asdict(card) for card in await backend.models()]
    finally:
        await backend.aclose()
    return [
        {"name": f"{row.name}/{card['id']}", "n_ctx": card["n_ctx"] or None, "capabilities": list(card["capabilities"])}
        for card in cards
    ]
