"""`shepherd top`: shows the caches, conversations and providers of a running server, once a second.

A speed is the difference of two samples' counts. While the server is away, the last sample stays.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import httpx2
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shepherd.cli import configure, render
from shepherd.cli.command.server_client import connect, find_address, refusal, transport_error
from shepherd.cli.signals import handling
from shepherd.cli.terminal import mode
from shepherd.cli.text import (
    bar,
    clean,
    cut,
    format_age,
    format_count,
    format_rate,
    format_size,
    one_line,
    spending_text,
)
from shepherd.core import BadReply, EngineDown, InvalidRequest, ShepherdError
from shepherd.core.dataclasses import dataclass, field
from shepherd.core.status import ProviderSpending
from shepherd.engine.stats import CacheStats, SequenceStats
from shepherd.server.endpoints.caches import decode_caches, decode_outcomes, decode_server, decode_spending

POLL_S = 1.0
TIMEOUT_S = 5.0
PATH = "/v1/caches"


def run(options: Mapping[str, Any], *, url: str | None, once: bool, as_json: bool) -> int:
    config = configure.load_config(options, looks=True)
    address = find_address(config, url, options.get("api_keys") or (), is_running=True)
    with connect(address, TIMEOUT_S) as client:
        watch = Watch(client)
        on_terminal = render.is_terminal(sys.stdout)
        try:
            if as_json:
                _print_samples(watch, once=once)
            elif once or not on_terminal:
                render.console().print(board(watch.sample()))
            else:
                _redraw(watch, render.console())
        except KeyboardInterrupt:
            return 0
    return 0


# -- the server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    """Of a monotonic clock."""
    body: Mapping[str, Any]
    """The JSON that the server sent."""
    caches: Mapping[str, tuple[str, CacheStats]]
    """The name of the model and the counts, by cache."""
    server: Mapping[str, int]
    """Counts of the server itself; empty for an old server."""
    providers: Mapping[str, ProviderSpending] = field(default_factory=dict)
    outcomes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Requests of each provider, and the seconds that it still rests."""


# -- what is made of two samples --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CacheSpeed:
    """Tokens per second of one cache between two samples; None when unknown."""

    prefill: float | None = None
    decode: float | None = None


def speed(name: str, now: Sample, before: Sample | None) -> CacheSpeed:
    """The speed of the cache called `name` since `before`. Unknown after a restart, which resets all counts."""
    if before is None or name not in before.caches or now.at_s <= before.at_s:
        return CacheSpeed()
    new, old = now.caches[name][1], before.caches[name][1]
    seconds = now.at_s - before.at_s
    prefilled, generated = new.prefilled_tokens - old.prefilled_tokens, new.generated_tokens - old.generated_tokens
    if prefilled < 0 or generated < 0 or new.jobs < old.jobs:
        return CacheSpeed()
    return CacheSpeed(prefilled / seconds, generated / seconds)


def requests_per_s(now: Sample, before: Sample | None) -> float | None:
    """Requests that ended per second since `before`; None when unknown."""
    if before is None or now.at_s <= before.at_s or "requests" not in now.server or "requests" not in before.server:
        return None
    ended = now.server["requests"] - before.server["requests"]
    return ended / (now.at_s - before.at_s) if ended >= 0 else None


def hit_ratio(cache: CacheStats) -> float | None:
    """The share of all prompt tokens that was in the cache; None before the first."""
    prompt = cache.cached_tokens + cache.prefilled_tokens
    return cache.cached_tokens / prompt if prompt else None


def in_order(sequences: tuple[SequenceStats, ...]) -> list[SequenceStats]:
    """Active sequences first, then idle ones, the last used first."""
    return sorted(sequences, key=lambda each: (each.state == "idle", each.idle_s, each.seq))


def sample_json(now: Sample, before: Sample | None) -> dict[str, Any]:
    caches = {}
    for name, entry in now.body["caches"].items():
        found = speed(name, now, before)
        caches[name] = {
            **entry,
            "prefill_per_s": found.prefill,
            "decode_per_s": found.decode,
            "hit_ratio": hit_ratio(now.caches[name][1]),
        }
    if not now.server:
        return {**now.body, "caches": caches}
    return {**now.body, "caches": caches, "server": {**now.server, "requests_per_s": requests_per_s(now, before)}}


# -- pictures ---------------------------------------------------------------------------------------------------------


def board(now: Sample, before: Sample | None = None) -> Group:
    parts: list[Text | Table] = []
    for name, (model, cache) in now.caches.items():
        parts += [Text()] * bool(parts)
        parts += _heading(name, model, cache, speed(name, now, before))
        parts.append(_table(cache.sequences) if cache.sequences else Text("  no conversation", style="dim"))
    if now.outcomes:
        parts += [Text()] * bool(parts)
        parts += [_provider_line(name, row) for name, row in now.outcomes.items()]
    parts = parts or [Text("This server has no cache.")]
    for name, spending in now.providers.items():
        parts.append(Text(f"{clean(name)}: {spending_text(spending)}"))
    return Group(*parts, *([Text(), _summary(now, before)] if now.server else []))


def _provider_line(name: str, row: Mapping[str, float]) -> Text:
    rests_s = row.get("rests_s", 0.0)
    facts = [f"{row[each]:.0f} {each}" for each in ("open", "answered", "failed", "replaced") if each in row]
    state = "taken out" if row.get("is_out") else f"rests for {format_age(rests_s)}" if rests_s else "ready"
    return Text.assemble(
        (clean(name), "bold"), "  ", (state, "green" if state == "ready" else "yellow"), "  ", " · ".join(facts)
    )


def _summary(now: Sample, before: Sample | None) -> Text:
    n_models = len({model for model, _ in now.caches.values()})
    facts = [
        f"{now.server.get('active', 0)} active",
        f"{format_rate(requests_per_s(now, before))} requests/s",
        f"{now.server.get('requests', 0)} answered",
        f"{now.server.get('refused', 0)} refused",
        *([f"{now.server['recalled_tokens']} tokens recalled"] if "recalled_tokens" in now.server else []),
        f"{format_count(n_models, 'model')} loaded",
    ]
    return Text("Server  " + " · ".join(facts))


def _heading(name: str, model: str, cache: CacheStats, found: CacheSpeed) -> list[Text]:
    part = cache.used / cache.n_ctx if cache.n_ctx else 0.0
    colour = "red" if part > 0.9 else "yellow" if part > 0.7 else "green"
    title = Text.assemble(
        (clean(name), "bold"),
        (f"  {clean(model)}  " if model else "  ", "dim"),
        (bar(cache.used, cache.n_ctx, 24), colour),
        f" {cache.used}/{cache.n_ctx} cells ({part:.0%})",
    )
    hits = hit_ratio(cache)
    work = [
        f"prefill {format_rate(found.prefill)} tokens/s",
        f"decode {format_rate(found.decode)} tokens/s",
        f"{cache.live} live",
        f"{cache.waiting} waiting",
        *([f"drafts {cache.accepted_tokens / cache.drafted_tokens:.0%} accepted"] if cache.drafted_tokens else []),
    ]
    room = [
        f"hits {'-' if hits is None else f'{hits:.1%}'}",
        f"{cache.evictions} evictions ({cache.evicted_tokens} tokens)",
        f"RAM {format_size(cache.ram_bytes)}",
        f"disk {format_size(cache.disk_bytes)}",
    ]
    return [title, *(Text("  " + " · ".join(facts)) for facts in (work, room))]


_COLUMNS = ("SEQ", "STATE", "SESSION", "TOKENS", "EVICTED", "CACHED", "NEW", "GENERATED", "TOKENS/S", "IDLE")


def _table(sequences: tuple[SequenceStats, ...]) -> Table:
    table = Table(box=None, pad_edge=True, header_style="dim")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in {"STATE", "SESSION"} else "right", no_wrap=True)
    for each in in_order(sequences):
        cells = (
            str(each.seq),
            "background" if each.background and each.state != "idle" else each.state,
            cut(one_line(each.session or "-"), 14),
            str(each.tokens),
            str(each.evicted),
            str(each.cached),
            str(each.new),
            str(each.generated),
            format_rate(each.tokens_per_s or None),
            format_age(each.idle_s) if each.state == "idle" else "",
        )
        # Names of sessions come from clients: no markup, no control characters.
        table.add_row(*map(Text, cells), style="dim" if each.state == "idle" else "")
    return table


# -- looking again and again ------------------------------------------------------------------------------------------


class Watch:
    """Polls a server again and again; the last sample stays while the server is away."""

    def __init__(self, client: httpx2.Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        base = client.base_url
        self.address = f"{base.scheme}://{base.netloc.decode()}{base.path.rstrip('/')}"
        """Without a password."""
        self._client = client
        self._clock = clock
        self.before: Sample | None = None
        self.now: Sample | None = None
        self.problem: ShepherdError | None = None
        """Why the last poll failed."""

    def sample(self) -> Sample:
        """The state of the server now. Raises: `Unreachable`, `TimedOut`, `NotAllowed`, `EngineDown` while it is
        loading, `BadReply`."""
        try:
            answer = self._client.get(PATH)
        except httpx2.TransportError as error:
            raise transport_error(error, self.address, TIMEOUT_S) from error
        if answer.status_code != 200:
            raise refusal(answer, self.address)
        try:
            body = answer.json()
            return Sample(
                self._clock(),
                body,
                decode_caches(body),
                decode_server(body),
                decode_spending(body),
                decode_outcomes(body),
            )
        except (ValueError, RecursionError, InvalidRequest) as error:
            raise BadReply(
                f"{self.address} answers {PATH} without a list of caches ({clean(str(error))[:80]}); "
                "is it a Shepherd server?",
                backend=self.address,
            ) from error

    def poll(self) -> None:
        """Poll once. Raises: `ShepherdError` when no poll has worked yet and the server is not just starting."""
        try:
            found = self.sample()
            # After a gap the difference of the counts means nothing.
            self.before = self.now if self.problem is None else None
            self.now = found
            self.problem = None
        except ShepherdError as error:
            self.before = None
            self.problem = error
            if self.now is None and not isinstance(error, EngineDown):
                raise

    def picture(self) -> Group:
        parts = [board(self.now, self.before)] if self.now else []
        if self.problem is None:
            note = Text(f"\n{self.address} · q quits", style="dim")
        else:
            note = Text(f"\n{self.problem.message}; trying again. q quits", style="yellow")
        return Group(*parts, note)


def _print_samples(watch: Watch, *, once: bool) -> None:
    while True:
        watch.poll()
        if watch.problem is not None and once:
            raise watch.problem
        if watch.problem is not None:
            line: dict[str, Any] = {"error": watch.problem.message}
        else:
            assert watch.now is not None
            line = sample_json(watch.now, watch.before)
        render.write(json.dumps({"time": round(time.time(), 3), **line}) + "\n")
        if once:
            return
        time.sleep(POLL_S)


def _redraw(watch: Watch, console: Console) -> None:
    """Redraw the board after every sample, until the user presses q or Ctrl-C."""
    is_left = False

    def leave(number: int, _frame: FrameType | None) -> None:
        nonlocal is_left
        is_left = True
        raise KeyboardInterrupt  # which is lost where it meets a finalizer: then the flag ends the loop

    watch.poll()
    with (
        handling(signal.SIGINT, leave),
        mode.reading(keys=True) as has_keys,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while not is_left:
            live.update(watch.picture(), refresh=True)
            if not has_keys:
                time.sleep(POLL_S)
            elif _pressed(POLL_S) in {"q", "Q"}:
                return
            watch.poll()


def _pressed(patience_s: float) -> str:
    """The key that the user presses within some seconds, or else an empty text."""
    if not select.select([sys.stdin], [], [], patience_s)[0]:
        return ""
    # No byte: the terminal is closed.
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") or "q"
