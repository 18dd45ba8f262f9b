"""Every number that a client can send, at its extremes, over every surface: a real engine, in a process of its own.

    python extremes.py MODEL

Prints each request before it is sent, then one JSON object: the requests that neither succeeded nor were refused with
the name of the field, how many there were of each status on each path, and how much memory all of them took beyond the
first few. Run by `test_extremes.py`.
"""

import asyncio
import itertools
import json
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cases import few
from tests.in_process import client_of

import shepherd.config as configuration
from shepherd.app.app import App

NUMBERS = (
    "0", "-1", "1", "-2147483648", "2147483647", "1073741823", "4294967296", "9223372036854775807",
    "9223372036854775808", "18446744073709551616", "1" + 400 * "0", "1e308", "-1e308", "5e-324", "1e-40", "1e999",
    "0.5", "NaN", "Infinity", "true", '"5"', "[]", "{}",
)  # fmt: skip
"""As JSON, or what some clients take for it."""

SAMPLER = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "typ_p", "top_n_sigma", "repetition_penalty",
    "repeat_penalty", "frequency_penalty", "presence_penalty", "repeat_last_n", "dry_multiplier", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau",
    "mirostat_eta", "seed", "ignore_eos", "n_probs", "min_keep",
)  # fmt: skip
ON = {"temperature": 0.9, "dry_multiplier": 0.8, "xtc_probability": 0.5, "typical_p": 0.9, "top_n_sigma": 2.0}
"""What switches on the samplers that other numbers are for; and `repeat_penalty`, which has two names."""

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
SURFACES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "/v1/chat/completions": (
        {**CHAT, "max_tokens": 2, "logprobs": True},
        ("n", "top_logprobs", "max_tokens", "max_completion_tokens"),
    ),
    "/v1/completions": (
        {"prompt": "Hi", "max_tokens": 2, "echo": True, "logprobs": 1},
        ("n", "best_of", "logprobs", "max_tokens", "n_predict"),
    ),
    "/infill": ({"input_prefix": "Hi", "n_predict": 2}, ("n_predict", "max_tokens")),
    "/v1/responses": (
        {"input": "Hi", "max_output_tokens": 2, "store": False},
        ("top_logprobs", "max_output_tokens", "max_tokens"),
    ),
    "/v1/messages": ({**CHAT, "max_tokens": 2}, ("max_tokens",)),
    "/api/chat": ({**CHAT, "options": {"num_predict": 2}, "logprobs": True}, ("top_logprobs", "keep_alive")),
    "/api/generate": (
        {"prompt": "Hi", "options": {"num_predict": 2}, "logprobs": True},
        ("top_logprobs", "keep_alive"),
    ),
    "/v1/embeddings": ({"model": "coder", "input": "Hi"}, ("dimensions",)),
    "/api/embed": ({"model": "coder", "input": "Hi"}, ("dimensions", "keep_alive")),
}
STOPS = {"/v1/messages": "stop_sequences"}
OPTIONS = ("num_ctx", "num_predict", "num_batch", "num_thread")
"""Ollama's own, beside the sampler's."""
LARGE_STOPS = (["a" * 1_000_000], ["a" * 40_000], ["ab" * 50] * 10_000, ["a"] * 100_000)
BREAKERS = (["\n" * 1_000_000], ["a", "b"] * 5_000, ["\0"], [""])
LOGIT_BIASES = (
    *({"5": value} for value in (-100, 100, 101, -1e308)),
    *({key: 1} for key in ("-1", "2147483647", "9223372036854775808", "1e3", "", "05")),
    {str(token): 1 for token in range(100_000)},
    {"0" * n + "5": 100 for n in range(10)},
)


def bodies() -> Iterator[tuple[str, str, str]]:
    """Path, field and JSON of every request."""
    for path, (asked, numbers) in SURFACES.items():
        is_ollama = path.startswith("/api/")
        generates = not path.endswith(("embed", "embeddings"))
        for name, value in itertools.product(numbers, NUMBERS):
            yield path, name, with_raw(asked, name, value)
        if not generates:
            continue
        options = {**asked.get("options", {}), **ON} if is_ollama else {**asked, **ON}

        def body(options: dict[str, Any], asked: dict[str, Any] = asked, is_ollama: bool = is_ollama) -> dict[str, Any]:
            return {**asked, "options": options, "stream": False} if is_ollama else options

        for name, value in itertools.product((*SAMPLER, *(OPTIONS if is_ollama else ())), NUMBERS):
            said = dict(options) if name.startswith("rep") and "penalty" in name else {**options, "repeat_penalty": 1.1}
            if name.startswith("mirostat_"):
                said["mirostat"] = 2 if value.startswith("1") else 1
            said.pop({"typ_p": "typical_p"}.get(name, ""), None)
            if is_ollama:
                raw = with_raw(said, name, value)
                yield path, name, json.dumps(body({})).replace('"options": {}', f'"options": {raw}')
            else:
                yield path, name, with_raw(said, name, value)
        for name, values in (
            (STOPS.get(path, "stop"), LARGE_STOPS),
            ("dry_sequence_breakers", BREAKERS),
            ("logit_bias", LOGIT_BIASES),
        ):
            for sent in values:
                yield path, name, json.dumps(body({**options, name: sent}))


def chosen() -> list[tuple[str, str, str]]:
    """What this run sends: in a quick one the first value of each field, a share of the others, and all to embed."""
    return few(bodies(), 0.08, name=repr, family=lambda each: each if "embed" in each[0] else each[:2])


def with_raw(asked: dict[str, Any], name: str, value: str) -> str:
    """A body in which one value is written as it is."""
    return json.dumps({**asked, name: "\0"}).replace(json.dumps("\0"), value)


async def main() -> None:
    config = configuration.load(
        flags={"model": sys.argv[1], "context_size": 512, "threads": 1}, env={}, cwd=Path.cwd(), user_dir=Path.cwd(),
        read_files=False,
    )  # fmt: skip
    app = App(config, cache_folder=Path.cwd(), env={})
    await app.load()
    statuses: dict[str, Counter[int]] = {path: Counter() for path in SURFACES}
    wrong = []
    try:
        async with client_of(app) as client:
            for path, (asked, _) in SURFACES.items():
                await client.post(path, json=asked)
            _limit_memory()
            before = _peak_bytes()
            for path, name, body in chosen():
                print(json.dumps([path, name, body[:300]]), flush=True)  # the last one is what a crash is about
                answer = await client.post(path, content=body, headers={"content-type": "application/json"})
                statuses[path][answer.status_code] += 1
                is_named = name.removesuffix("_p") in answer.text or "not valid JSON" in answer.text
                if answer.status_code != 200 and not (answer.status_code == 400 and is_named):
                    wrong.append([path, name, body[:300], answer.status_code, answer.text[:300]])
                if "keep_alive" in body:
                    told = await client.get("/api/ps")
                    if told.status_code != 200:
                        wrong.append(["/api/ps", name, body[:300], told.status_code, told.text[:300]])
            alive = await client.post("/v1/chat/completions", json=SURFACES["/v1/chat/completions"][0])
            if alive.status_code != 200:
                wrong.append(["/v1/chat/completions", "", "", alive.status_code, alive.text[:300]])
    finally:
        await app.aclose()
    print(json.dumps({"wrong": wrong, "statuses": statuses, "grown_bytes": _peak_bytes() - before}), flush=True)


def _limit_memory() -> None:
    """Let the process have 2 GiB of addresses more than it has: four bytes for each of 2^30 tokens are refused."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31, resource.RLIM_INFINITY))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    asyncio.run(main())
