"""What real clients' sessions cost, request by request: tokens that are new in it, and tokens that were computed.

    uv run python bench/sessions.py                 # all recorded clients; a plain and a hybrid model
    uv run python bench/sessions.py --only codex

The recordings are those of ../shared/conformance/clients (CONFORMANCE_DIR overrides): Claude Code, Codex and opencode
over several turns. They are played in order over HTTP to a model of random weights with a vocabulary of 152k tokens and
a context of 40k, once with a template that only adds, once with one that forgets thoughts as Qwen's does. How `new` is
counted, without our own rendering, is in tests/recorded_sessions.py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import machine

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.recorded_sessions import (
    FORGETFUL,
    TEMPLATE,
    conversations,
    measured,
    playing,
    said,
    table,
    write_model,
)

RECORDINGS = Path(__file__).parent.parent.parent / "shared" / "conformance"
MODELS = (("plain", "adds only", TEMPLATE), ("plain", "forgets thoughts", FORGETFUL), ("hybrid", "adds only", TEMPLATE))


async def main() -> None:
    """Play, print the tables and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="clients whose name holds this")
    parser.add_argument("--quick", action="store_true", help="one model; the figures are not kept")
    given = parser.parse_args()
    folder = Path(os.environ.get("CONFORMANCE_DIR", RECORDINGS)) / "clients"
    found = {name: recordings for name, recordings in conversations(folder).items() if given.only in name}
    texts = [said(recording.body) for recordings in found.values() for recording in recordings]
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for kind, manner, template in MODELS[: 1 if given.quick else None]:
            model = Path(place) / f"{kind}-{len(template)}.gguf"
            if not model.exists():
                write_model(model, texts, template, kind=kind)
            async with playing(model, Path(place)) as (app, player):
                played = {name: await measured(app, player, recordings) for name, recordings in found.items()}
            print(f"\n{kind} model, template that {manner}\n{table(played)}")
            result[f"{kind}, {manner}"] = {name: [asdict(one) for one in requests] for name, requests in played.items()}
    print(machine.save("sessions", result, quick=given.quick))


if __name__ == "__main__":
    asyncio.run(main())
