"""What `shepherd optimize` finds, against llama.cpp's defaults, a full grid of llama-bench, and llama-server.

    uv run python -m bench.optimize.optimize [--model 0.5B] [--budget 5m] [--rounds 6] [--quick]

The start is what llama-bench takes unasked. Four questions, all asked in one run:
- Which settings does `shepherd optimize` find from there, after how long?
- Which does a full grid of llama-bench find over the same settings, and after how long does it know the answer?
- How do the three behave in llama-bench itself, one right after the other, so that no figure is our own?
- How do Shepherd and llama-server serve a chat with the settings that were found?

Scores are those of the goal `chat`: seconds for a prompt of 400 tokens, 60 tokens in an empty context, 240 in a filled
one.
A busy machine (the load shows it) makes all of it slower; the ratios are of neighbours in time.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from bench.rig import machine
from bench.rig.llama_tools import tool
from bench.rig.sides import MODELS, Server, Setup, in_turn, model_path, running

from shepherd.measure.statistics import spread
from shepherd.measure.trial import Run

Settings = dict[str, Any]
DEFAULTS: Settings = {"n_threads": os.cpu_count() or 1, "n_batch": 2048, "n_ubatch": 512, "flash_attn": True}
"""Those of llama-bench on a CPU: `auto` flash attention is on wherever the model allows it."""
N_PROMPT, N_GENERATED, DEPTH = 128, 16, 128
SLOWEST_S = 90.0
"""A test of llama-bench that takes longer counts as too slow."""
ON_OFF = {True: "on", False: "off"}


def flags(settings: Settings, program: str) -> list[str]:
    """Settings as options of llama-bench or llama-server."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        match name:
            case "n_threads" | "n_batch" | "n_ubatch" | "cache_type_k" | "cache_type_v":
                found[{"n_threads": "-t", "n_batch": "-b", "n_ubatch": "-ub"}.get(name, f"-ct{name[-1]}")] = value
            case "flash_attn":
                found["-fa"] = ON_OFF[value]
            case "n_threads_batch" if program == "llama-server":
                found["-tb"] = value
            case "repack" if program == "llama-bench":
                found["--repack"] = int(value)
            case "mmap" | "mlock":
                mmap, mlock = settings.get("mmap", True), settings.get("mlock", False)
                found["-lm"] = "+".join([*["mmap"] * mmap, *["mlock"] * mlock]) or "none"
    return [str(part) for pair in found.items() for part in pair]


def llama_bench(path: Path, settings: Settings, timeout_s: float = 600.0) -> Run:
    """One run of llama-bench with one repetition of each test, as ours measures it."""
    began_s = time.monotonic()
    speeds: list[float] = []
    for tests in (("-p", N_PROMPT, "-n", N_GENERATED), ("-p", 0, "-n", N_GENERATED, "-d", DEPTH)):
        command = [str(tool("llama-bench")), "-m", str(path), "-o", "json", "-r", "1", *map(str, tests)]
        try:
            ended = subprocess.run(
                [*command, *flags(settings, "llama-bench")],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=True,
            )
            speeds += [float(each["avg_ts"]) for each in json.loads(ended.stdout)]
        except (subprocess.SubprocessError, ValueError) as error:
            return Run(problem=f"{type(error).__name__}", took_s=time.monotonic() - began_s)
    prompt, empty, deep = speeds
    return Run(prompt, empty, deep, took_s=time.monotonic() - began_s)


def grid(quick: bool) -> list[Settings]:
    """Every valid combination of the settings that both know."""
    made: list[Settings] = []
    for n_threads, flash, n_ubatch, kind in itertools.product(
        sorted({1, os.cpu_count() or 1}), (False, True), (128, 512), ("f16", "q8_0")
    ):
        if flash or kind == "f16":  # quantised values need flash attention
            made.append({"n_threads": n_threads, "n_batch": 2048, "n_ubatch": n_ubatch, "flash_attn": flash,
                         "cache_type_k": kind, "cache_type_v": kind})  # fmt: skip
    return made[:2] if quick else made


def optimised(path: Path, budget: str) -> dict[str, Any]:
    """The report of `shepherd optimize` from llama.cpp's defaults, with the time that it took."""
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as folder:
        config, report = Path(folder) / "shepherd.toml", Path(folder) / "report.json"
        lines = [f"{name} = {json.dumps(value)}" for name, value in {"path": str(path), **DEFAULTS}.items()]
        config.write_text("\n".join(['model = "bench"', "[models.bench]", *lines, "[caches.main]", "n_ctx = 4096", ""]))
        began_s = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "shepherd", "optimize", "--config", config, "--budget", budget, "--json", report],
            check=True, stdout=subprocess.PIPE, cwd=folder, env={**os.environ, "XDG_CACHE_HOME": folder},
        )  # fmt: skip
        return {**json.loads(report.read_text()), "wall_s": round(time.monotonic() - began_s, 1)}


def full_grid(path: Path, *, quick: bool) -> dict[str, Any]:
    """All of the grid; its best counts at the end only, since it could be the last one."""
    began_s = time.monotonic()
    rows: list[dict[str, Any]] = []
    for settings in grid(quick):
        run = llama_bench(path, settings, SLOWEST_S)
        rows.append(
            {
                "settings": settings,
                "score": run.score("chat"),
                "problem": run.problem,
                "at_s": time.monotonic() - began_s,
            }
        )
        sys.stderr.write(f"grid: {rows[-1]}\n")
    measured = [row for row in rows if row["score"]]
    best = max(measured, key=lambda row: float(row["score"]))
    return {"took_s": round(time.monotonic() - began_s, 1), "best": best["settings"], "rows": rows}


def compared(path: Path, sides: Mapping[str, Settings], rounds: int) -> dict[str, Any]:
    """llama-bench with each, in changing order; ratios to the defaults of the same round."""
    scores: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(rounds):
        found: dict[str, float | None] = {}
        for name in list(sides) if round_ % 2 == 0 else list(sides)[::-1]:
            found[name] = llama_bench(path, sides[name]).score("chat")
        sys.stderr.write(f"round {round_}: {found}\n")
        if all(found.values()):
            for name, score in found.items():
                scores[name].append(score or 0.0)
    return {
        "scores": scores,
        "ratios": {
            f"{name} / {base}": ratio(scores[name], scores[base])
            for name, base in (("optimize", "defaults"), ("grid", "defaults"), ("optimize", "grid"))
            if len(scores[name]) > 1
        },
    }


def ratio(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """The median ratio of neighbours, with 95 % confidence."""
    low, median, high, _ = spread([a / b for a, b in zip(ours, theirs, strict=True)])
    return {"ratio": round(median, 3), "low": round(low, 3), "high": round(high, 3)}


def chat(server: Server, round_: int) -> dict[str, float]:
    """Seconds until the first and the last token of a new conversation, and the server's processor time for it."""
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    text = " ".join(f"w{(round_ * 997 + 31 * n) % 5000}" for n in range(60))
    body = {"model": "bench", "messages": [{"role": "user", "content": text}], "stream": True, "temperature": 0,
            "max_tokens": 32, "ignore_eos": True}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=900)
    began_s = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response, at = connection.getresponse(), []
    while line := response.readline():
        if line.startswith(b"data: {") and json.loads(line[6:]).get("choices", [{}])[0].get("delta", {}).get("content"):
            at.append(time.perf_counter() - began_s)
    connection.close()
    after = process.cpu_times()
    return {"first_s": at[0], "all_s": at[-1], "n": len(at),
            "cpu_s": after.user + after.system - before.user - before.system}  # fmt: skip


def served(path: Path, settings: Settings, rounds: int) -> dict[str, Any]:
    """Both servers with the settings that were found, a conversation each in changing order."""
    keys = {name: value for name, value in settings.items() if name not in {"n_threads", "flash_attn"}}
    setup = Setup(
        path, 2048, settings["n_threads"], flash_attn=settings["flash_attn"], ours=keys,
        llama=tuple(flags(keys, "llama-server")),
    )  # fmt: skip
    rows: dict[str, list[dict[str, float]]] = {"shepherd": [], "llama-server": []}
    with running("shepherd", setup) as ours, running("llama-server", setup) as theirs:
        servers = {"shepherd": ours, "llama-server": theirs}
        for round_ in range(-1, rounds):
            for side in in_turn(round_):
                done = chat(servers[side], round_ + 1)
                if round_ >= 0:  # the first one warms up
                    rows[side].append(done)
    pairs = {
        name: [[row[name] for row in rows[side]] for side in ("llama-server", "shepherd")]
        for name in ("first_s", "all_s", "cpu_s")
    }
    return {"rows": rows, "ratios": {f"speed by {name}": ratio(*pair) for name, pair in pairs.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="0.5B", help=f"{', '.join(MODELS)}, or a path")
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="two combinations, two rounds; the result is not kept")
    options = parser.parse_args()
    path, rounds = model_path(options.model), 2 if options.quick else options.rounds
    result: dict[str, Any] = {"model": options.model, "defaults": DEFAULTS, "load": {}}

    def loaded(part: str) -> None:
        result["load"][part] = round(os.getloadavg()[0], 2)
        sys.stderr.write(f"{part}: {json.dumps(result.get(part))[:600]}\n")

    result["optimize"] = optimised(path, "30s" if options.quick else options.budget)
    loaded("optimize")
    result["grid"] = full_grid(path, quick=options.quick)
    loaded("grid")
    found = DEFAULTS | result["optimize"]["settings"]
    result["llama_bench"] = compared(
        path, {"defaults": DEFAULTS, "optimize": found, "grid": result["grid"]["best"]}, rounds
    )
    loaded("llama_bench")
    result["servers"] = served(path, found, rounds)
    loaded("servers")
    print(machine.save(f"optimize-{options.model}", result, quick=options.quick))


if __name__ == "__main__":
    main()
