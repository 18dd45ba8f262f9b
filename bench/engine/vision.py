"""The time to the first token of a prompt with an image, ours and llama-server's, in turn round by round.

    uv run python -m bench.engine.vision [--rounds 8] [--sound]

Both have a random model of 0.5 billion parameters and a random projector on one thread: CLIP (12 layers, 256 tokens an
image); with `--sound`, Ultravox of the size of Whisper tiny (4 layers, 150 tokens a recording of ten seconds).
Each round asks each server about a file that it has not had, then a second question about it, then the first question
about the same file in a new conversation. Both servers are
asked each of these right behind each other, so that a ratio compares the same seconds of the machine.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.random_gguf import random_model
from bench.rig.sides import SIDES, Server, Setup, in_turn, running
from bench.rig.verdict import WIDTH, Verdict
from rich.console import Console

N_CTX = 4096
WIDTH_OF_MODEL = 896


def write(path: Path) -> None:
    """A projector of the size of CLIP's small ones."""
    from tests.unit.engine import tiny_projector as tiny

    tiny.WIDTH, tiny.N_FF, tiny.N_LAYER, tiny.N_HEAD, tiny.PATCH = 384, 1536, 12, 6, 14
    layers = tiny._layers() | tiny._patches(224, extra=1)
    llava = tiny.PROJECTORS["llava"].tensors
    rest = {
        name: tuple(384 if size == 32 else size for size in shape)
        for name, shape in llava.items()
        if name not in layers and not name.startswith("v.blk")
    }
    tiny.PROJECTORS["bench"] = tiny.Projector("plain", "mlp", layers | rest, 224, {"use_gelu": True})
    tiny.write_projector("bench", path, n_embd=WIDTH_OF_MODEL)


def write_ear(path: Path) -> None:
    """A projector with an encoder of the size of Whisper's tiny one."""
    from tests.unit.engine import tiny_projector as tiny

    tiny.WIDTH, tiny.N_FF, tiny.N_LAYER, tiny.N_HEAD, tiny.STACK = 384, 1536, 4, 6, 10
    tiny.HEARING["bench"] = tiny.Projector("plain", "ultravox", tiny._ultravox(), hears=True, stack=10)
    tiny.write_projector("bench", path, n_embd=WIDTH_OF_MODEL)


def recording(seed: int) -> dict[str, Any]:
    from tests.recordings import wav

    data = base64.b64encode(wav(seed, 10)).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def image(seed: int) -> dict[str, Any]:
    from tests.unit.engine.tiny_projector import png

    url = "data:image/png;base64," + base64.b64encode(png(seed, 640, 480)).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def ask(server: Server, messages: list[dict[str, Any]]) -> float:
    """Milliseconds until a request for one token is answered."""
    begun = time.perf_counter()
    server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1, "temperature": 0})
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--sound", action="store_true", help="recordings in place of images")
    asked = parser.parse_args()
    rounds = asked.rounds
    what, part, make = ("recording", recording, write_ear) if asked.sound else ("image", image, write)
    console, verdict = Console(width=WIDTH), Verdict()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        projector = Path(folder) / "mmproj.gguf"
        make(projector)
        setup = Setup(random_model(), N_CTX, llama=("--mmproj", str(projector)), ours={"mmproj": str(projector)})
        servers = {side: stack.enter_context(running(side, setup)) for side in SIDES}
        for number in range(-1, rounds):
            words: dict[str, Any] = {"type": "text", "text": f"What is in this, number {number}? "}
            first: list[dict[str, Any]] = [{"role": "user", "content": [words, part(number + 1)]}]
            second = [*first, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "And then?"}]
            other: list[dict[str, Any]] = [
                {"role": "user", "content": [{"type": "text", "text": f"{number}: "}, part(number + 1)]}
            ]
            measured = {f"a new {what}": first, "the second turn": second, f"the {what} elsewhere": other}
            for name, messages in measured.items():
                for side in in_turn(number):
                    taken_ms = ask(servers[side], messages)
                    if number >= 0:
                        verdict.add(name, side, taken_ms)
    verdict.show(console, f"first token behind {what}s, 0.5B model, 1 thread")
    name = "audio-1t-0.5B" if asked.sound else "vision-1t-0.5B"
    result = {"rounds": rounds, "results": verdict.results()}
    console.print(f"written to {machine.save(name, result)}")
    console.print(json.dumps({"rounds": rounds}))


if __name__ == "__main__":
    main()
