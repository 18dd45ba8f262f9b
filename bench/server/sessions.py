"""What real clients' sessions cost, request by request: tokens that are new in it, and tokens that were computed.

    uv run python -m bench.server.sessions              # all recorded clients; a plain and a hybrid model
    uv run python -m bench.server.sessions --only codex
    uv run python -m bench.server.sessions --branches   # edits, retries, sub-agents, new chats, a restart: branches.py
    uv run python -m bench.server.sessions --newcomers  # conversations that share a beginning, or nothing: newcomers.py

The recordings are those of ../shared/conformance/clients (CONFORMANCE_DIR overrides): Claude Code, Codex and opencode
over several turns, and sessions made of them in which a client changes something at the front (`changing`; there all
that stands behind the change counts as new). They are played in order over HTTP, each to an empty cache, to a model of
random weights with a vocabulary of 152k tokens and a context of 40k, once with a template that only adds, once with one
that forgets thoughts as Qwen's does. How `new` is counted, without our own rendering, is in tests/recorded_sessions.py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.server import branches, newcomers
from tests.recorded_sessions import (
    CLAUDE,
    FORGETFUL,
    TEMPLATE,
    changing,
    conversations,
    measured,
    playing,
    said,
    table,
    write_model,
)

RECORDINGS = machine.SHARED / "conformance"
MODELS = (("plain", "adds only", TEMPLATE), ("plain", "forgets thoughts", FORGETFUL), ("hybrid", "adds only", TEMPLATE))


def main() -> None:
    """Play, print the tables and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="clients whose name holds this; the model of --newcomers")
    parser.add_argument("--branches", action="store_true", help="branches of a made session, against llama-server")
    parser.add_argument("--newcomers", action="store_true", help="new conversations, request by request")
    parser.add_argument("--rounds", type=int, help="of --branches (3) and --newcomers (by model)")
    parser.add_argument("--before", type=Path, help="the src folder of an earlier commit, for these two")
    parser.add_argument("--threads", type=int, default=1, help="engine threads of --newcomers")
    parser.add_argument("--quick", action="store_true", help="one model; the figures are not kept")
    given = parser.parse_args()
    if given.branches:
        branches.main(given.rounds or 3, given.before, quick=given.quick)
        return
    if given.newcomers:
        newcomers.main(given.rounds, given.before, only=given.only, threads=given.threads, quick=given.quick)
        return
    asyncio.run(recorded(given.only, quick=given.quick))


async def recorded(only: str, *, quick: bool) -> None:
    """The sessions of real clients."""
    folder = Path(os.environ.get("CONFORMANCE_DIR", RECORDINGS)) / "clients"
    known = conversations(folder)
    made = {f"{CLAUDE.split()[0]}: {name}": recordings for name, recordings in changing(known).items()}
    found = {name: recordings for name, recordings in (known | made).items() if only in name}
    texts = [said(recording.body) for recordings in found.values() for recording in recordings]
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for kind, manner, template in MODELS[: 1 if quick else None]:
            model = Path(place) / f"{kind}-{len(template)}.gguf"
            if not model.exists():
                write_model(model, texts, template, kind=kind)
            async with playing(model, Path(place)) as (app, player):
                played = {}
                for name, recordings in found.items():
                    (await player.delete("/v1/caches/main")).raise_for_status()
                    played[name] = await measured(app, player, recordings)
            print(f"\n{kind} model, template that {manner}\n{table(played)}")
            result[f"{kind}, {manner}"] = {name: [asdict(one) for one in requests] for name, requests in played.items()}
    print(machine.save("sessions", result, quick=quick))


if __name__ == "__main__":
    main()
