"""Answers with and without drafts: ours both ways, and llama-server with each kind of n-gram drafts, in turn.

    uv run python -m bench.engine.speculation --model SmolLM2-135M-Instruct.Q4_1.gguf [--rounds 3] [--minutes 9]
                                              [--streams 1,4,8] [--types ngram-mod,ngram-simple] [--quick]
                                              [--texts json,prose] [--draft SMALL.gguf] [--more-layers 90]

    one stream: each kind of text, on all sides.   several: edits, and all kinds at once, on the sides of `MANY`

    edit      a file of this repository is written again with two lines changed
    tools     calls of a loop, whose arguments repeat
    session   the answers of an agent's recorded session (../shared/conformance), one turn after the other
    json      a list of objects by a schema
    prose     a question of a chat, answered at temperature 0.8
    code      a program from nothing, at temperature 0.8

All servers run, and one is asked at a time, request by request. Ours is one server: a request says whether it wants
drafts. A small model copies badly, so in `edit`, `tools` and `session` a grammar leaves no other text than the expected
one: what is measured is the cost of writing it. Every measurement has texts of its own, for llama-server keeps what it
has seen of other requests. The prompt of each request is computed before; a rate is all that is written by its time.
It counts characters where the text is forced: the same text is of other tokens at llama-server, whose grammars
choose them otherwise. With `--draft` ours has a side with this draft model, too, and llama-server one (`draft-simple`).
A small model has no smaller one beside it that pays: `--more-layers` gives it layers that add nothing, so that it is
as slow as a larger one, and says what it said. No measurement begins after the minutes: a busy machine gets through
fewer rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.rig import machine
from bench.rig.sides import MODELS, Server, Setup, model_path, running
from bench.rig.verdict import WIDTH, Verdict
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from rich.console import Console

TYPES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""llama-server's kinds that need no second model."""
OURS, WITHOUT, THEIRS = "shepherd", "without drafts", "llama-server"
WITH_MODEL = f"{OURS} draft model"
MANY = (OURS, WITHOUT, WITH_MODEL, THEIRS, f"{THEIRS} ngram-mod")
"""The sides with several streams, which take long."""
MOST_OF_MANY = 96
"""Tokens of each answer there."""
N_CTX = 8192
LINES = 28
"""Of a file that is edited: about 300 tokens."""
SESSIONS = machine.SHARED / "conformance" / "providers" / "sessions"
SESSION_CHARS = 4_000
"""Of a recorded session: longer ones would measure the prompt."""
TOGETHER = 3
"""Sessions of one measurement."""


@dataclass(frozen=True, slots=True)
class Step:
    """One answer; `forced`: the only text that it may have."""

    prompt: str
    forced: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    def request(self, n_predict: int) -> dict[str, Any]:
        grammar = {"grammar": f"root ::= {json.dumps(self.forced)}"} if self.forced else {}
        return {"prompt": self.prompt, "n_predict": n_predict, "temperature": 0, **grammar, **self.body}


Work = Sequence[Step]
"""Steps one after the other."""


# ---- what is written


def edits(n: int) -> Work:
    """The n-th file, in turn, and again with two lines changed."""
    files = sorted(path for path in (machine.ROOT / "src" / "shepherd").rglob("*.py") if path.stat().st_size > 3_000)
    path = files[(n * 37) % len(files)]
    lines = path.read_text().split("from __future__ import annotations\n")[-1].strip().splitlines()[:LINES]
    after = list(lines)
    after[len(after) // 4] += "  # checked"
    after.insert(len(after) // 2, "# Changed: see the issue.")
    before, text = "\n".join(lines), "\n".join(after)
    name = path.relative_to(machine.ROOT)
    return [Step(f"{name}:\n```python\n{before}\n```\n\n{name} after the edit:\n```python\n", f"{text}\n```\n")]


def tools(n: int) -> Work:
    folder = f"/home/ada/projects/shop-{n}/src/orders"
    said = f"You may call read_file, search and run. The project is in {folder}.\n\nuser: Why does the total differ?\n"
    steps = []
    for at, name in enumerate(("invoice", "invoice_lines", "discount", "rounding")):
        arguments = {"path": f"{folder}/{name}.py", "offset": 200 * at, "limit": 200, "encoding": "utf-8"}
        call = json.dumps({"name": "read_file", "arguments": arguments}) + "\n"
        steps.append(Step(f"{said}assistant: ", call))
        said += f"assistant: {call}tool: def {name}_total(order): return order.{name}.sum()\n"
    return steps[1:]


def sessions(n: int) -> Work:
    """The answers of some recorded sessions, which are short; none where there are no records."""
    found = [messages for path in sorted(SESSIONS.glob("*.json")) if (messages := _messages(path))]
    return [step for at in range(TOGETHER) for step in _steps(found[(n * TOGETHER + at) % len(found)])] if found else ()


def _messages(path: Path) -> list[Any]:
    """All messages of a session in chat completions, if it is short enough."""
    steps = json.loads(path.read_text()).get("steps") if path.name != "index.json" else None
    last = steps[-1] if steps and steps[-1]["endpoint"] == "openai.chat" else None
    messages = last["request"]["body"].get("messages", []) if last else []
    n_answers = sum(each["role"] == "assistant" for each in messages)
    return messages if n_answers > 1 and len(json.dumps(messages)) < SESSION_CHARS else []


def _steps(messages: Sequence[Any]) -> Work:
    said, steps = "", []
    for message in messages:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else json.dumps(content)
        for call in message.get("tool_calls") or ():
            text += f"<tool_call>\n{json.dumps(call['function'])}\n</tool_call>"
        head = f"{message['role']}: "
        if message["role"] == "assistant":
            steps.append(Step(said + head, text + "\n"))
        said += f"{head}{text}\n"
    return steps


def objects(n: int) -> Work:
    properties = {name: {"type": "string", "maxLength": 16} for name in ("name", "city", "country")}
    properties |= {name: {"type": "integer", "minimum": 0, "maximum": 999} for name in ("age", "orders")}
    row = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    schema = {"type": "array", "items": row, "minItems": 8, "maxItems": 8}
    return [Step(_asked(f"Make a list of 8 customers of shop {n} as JSON."), body={"json_schema": schema})]


def _asked(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def _free(n: int) -> dict[str, Any]:
    return {"temperature": 0.8, "seed": 1 + n, "ignore_eos": True}


def prose(n: int) -> Work:
    topics = ("the sea at night", "why bread rises", "a walk in an old town", "how bees find their way")
    return [Step(_asked(f"Tell me about {topics[n % len(topics)]}, in {n + 5} short paragraphs."), body=_free(n))]


def code(n: int) -> Work:
    tasks = ("sorts a list of dates", "reads a CSV file", "draws a tree", "plays tic-tac-toe", "parses a URL")
    return [Step(_asked(f"Write program {n} in Python: it {tasks[n % len(tasks)]}."), body=_free(n))]


def slowed(model: Path, n_more: int, folder: Path) -> Path:
    """The model with `n_more` copies of its last layer whose outputs are 0: each token is what it was."""
    reader = GGUFReader(model)
    fields = {field.name: field for field in reader.fields.values() if not field.name.startswith("GGUF.")}
    architecture = fields.pop("general.architecture").contents()
    n_layer = fields[f"{architecture}.block_count"].contents()
    writer = GGUFWriter(folder / f"{model.stem}-slowed.gguf", architecture)
    for name, each in fields.items():
        value = n_layer + n_more if name.endswith(".block_count") else each.contents()
        is_array = each.types[0] == GGUFValueType.ARRAY
        writer.add_key_value(name, value, each.types[0], each.types[-1] if is_array else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    last = f"blk.{n_layer - 1}."
    for at in range(n_layer, n_layer + n_more):
        for tensor in reader.tensors:
            if tensor.name.startswith(last):
                is_output = tensor.name.endswith(("attn_output.weight", "ffn_down.weight"))
                values = tensor.data * 0 if is_output else tensor.data
                writer.add_tensor(tensor.name.replace(last, f"blk.{at}."), values, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / f"{model.stem}-slowed.gguf"


WORKS: Mapping[str, tuple[Callable[[int], Work], int]] = {
    "edit": (edits, 256),
    "tools": (tools, 96),
    "session": (sessions, 96),
    "json": (objects, 160),
    "prose": (prose, 128),
    "code": (code, 128),
}
"""By name: its texts, and the tokens of an answer at most."""


# ---- how it is measured


@dataclass(slots=True)
class Counts:
    n: int = 0
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0
    text: str = ""

    def add(self, answer: Mapping[str, Any]) -> None:
        timings = answer["timings"]
        self.n += timings["predicted_n"]
        self.drafted += timings.get("draft_n", 0)
        self.accepted += timings.get("draft_n_accepted", 0)
        self.text += answer["content"]


@dataclass(frozen=True, slots=True)
class Side:
    """A server, and what a request to it has besides."""

    server: Server
    body: Mapping[str, Any] = field(default_factory=dict)

    def measure(self, works: Sequence[tuple[Work, int]]) -> Counts:
        """One stream for each work; their steps go together."""
        counts = Counts()
        with ThreadPoolExecutor(len(works)) as threads:
            for steps in itertools.zip_longest(*(work for work, _ in works)):
                asked = [
                    {**step.request(n_predict), **self.body}
                    for step, (_, n_predict) in zip(steps, works, strict=True)
                    if step is not None
                ]
                for body in asked:
                    self.server.post("/completion", body | {"n_predict": 1})
                began = time.perf_counter()
                answers = list(threads.map(lambda body: self.server.post("/completion", body), asked))
                counts.seconds += time.perf_counter() - began
                for answer in answers:
                    counts.add(answer)
        return counts


@dataclass(slots=True)
class Run:
    """All rounds; what has been counted stays when time is over."""

    sides: Mapping[str, Side]
    streams: Sequence[int]
    texts: Sequence[str]
    """Of `WORKS`."""
    quick: bool
    ends_s: float
    """By `time.monotonic`."""
    verdict: Verdict = field(default_factory=Verdict)
    drafts: dict[str, dict[str, Counts]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Counts)))
    n_same: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """Answers at temperature 0 that are equal with and without drafts, and all of them."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def round(self) -> None:
        for n_streams in self.streams:
            if n_streams == 1:
                for name in self.texts:
                    self._measure(name, [name])
            else:
                self._measure(f"{n_streams} edits", ["edit"] * n_streams)
                self._measure(f"{n_streams} of all kinds", [*itertools.islice(itertools.cycle(self.texts), n_streams)])

    def _measure(self, row: str, names: Sequence[str]) -> None:
        at, is_one = next(self._numbers), len(names) == 1
        works = []
        for stream, name in enumerate(names):
            make, n_predict = WORKS[name]
            if work := make(8 * at + stream):
                most = 24 if self.quick else n_predict
                works.append((work, most) if is_one else (work[-1:], min(most, MOST_OF_MANY)))
        if not works or time.monotonic() > self.ends_s:
            return
        order = [side for side in self.sides if is_one or side in MANY][:: 1 if at % 2 == 0 else -1]
        texts = {}
        is_forced = all(step.forced for work, _ in works for step in work)
        for side in order:
            found = self.sides[side].measure(works)
            texts[side] = found.text
            rate = (len(found.text) if is_forced else found.n) / found.seconds
            self.verdict.add(row, side, rate, unit="characters/s" if is_forced else "tokens/s", better="more")
            total = self.drafts[row][side]
            total.n, total.drafted = total.n + found.n, total.drafted + found.drafted
            total.accepted += found.accepted
        if is_one and row not in ("prose", "code"):
            self.n_same[row][0] += texts[OURS] == texts[WITHOUT]
            self.n_same[row][1] += 1

    def shares(self) -> dict[str, dict[str, dict[str, int]]]:
        return {
            row: {
                side: {"tokens": each.n, "drafted": each.drafted, "accepted": each.accepted}
                for side, each in sides.items()
            }
            for row, sides in self.drafts.items()
        }


@contextlib.contextmanager
def all_sides(setup: Setup, types: Sequence[str], draft: Path | None = None) -> Iterator[dict[str, Side]]:
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(running("shepherd", setup))
        sides = {OURS: Side(ours, {"speculative": True}), WITHOUT: Side(ours, {"speculative": False})}
        if draft is not None:
            server = stack.enter_context(running("shepherd", replace(setup, ours={"draft": str(draft.resolve())})))
            sides[WITH_MODEL] = Side(server, {"speculative": True})
        for kind in ("", *types, *(("draft-simple",) if draft is not None else ())):
            options = ["--spec-type", kind] if kind else []
            if kind == "draft-simple":
                options += ["--model-draft", str(draft)]
            changed = replace(setup, llama=tuple(options))
            sides[f"{THEIRS} {kind}".strip()] = Side(stack.enter_context(running("llama-server", changed)))
        yield sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help=f"{', '.join(MODELS)}, or a GGUF file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=9.0, help="no measurement begins after them")
    parser.add_argument("--streams", default="1,4,8")
    parser.add_argument("--texts", default=",".join(WORKS))
    parser.add_argument("--types", default=",".join(TYPES), help="of llama-server, beside none at all")
    parser.add_argument("--draft", type=Path, help="a GGUF file: a draft model")
    parser.add_argument("--more-layers", type=int, default=0, help="that add nothing: makes the model slower")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="short answers, one round: shows that it works, no more")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server stays behind
    streams = [int(n) for n in options.streams.split(",")]
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    began, n_rounds = time.monotonic(), 0
    setup = Setup(model_path(options.model), N_CTX, threads=options.threads, sequences=max(streams))
    name = options.model if options.model in MODELS else Path(options.model).stem
    types = [kind for kind in options.types.split(",") if kind]
    with tempfile.TemporaryDirectory(prefix="shepherd-bench-") as folder, contextlib.ExitStack() as stack:
        if options.more_layers:
            setup = replace(setup, model=slowed(setup.model, options.more_layers, Path(folder)))
            name += f"+{options.more_layers}"
        sides = stack.enter_context(all_sides(setup, types, options.draft))
        run = Run(sides, streams, options.texts.split(","), options.quick, began + 60 * options.minutes)
        while n_rounds < (1 if options.quick else options.rounds) and time.monotonic() < run.ends_s:
            run.round()
            n_rounds += 1
            console.print(f"round {n_rounds}: {time.monotonic() - began:.0f} s")
    name += f"-{options.draft.stem}" if options.draft is not None else ""
    run.verdict.show(console, f"drafts, {name} model, threads: {options.threads}, rounds: {n_rounds}")
    shares = run.shares()
    for row, found in shares.items():
        told = (f"{side} {each['accepted']}/{each['drafted']} of {each['tokens']}" for side, each in found.items())
        console.print(f"{row}: accepted of drafted: {'; '.join(told)}")
    console.print("equal with and without drafts at temperature 0:", dict(run.n_same))
    result = {
        "bench": "speculation", "model": name, "threads": options.threads, "rounds": n_rounds,
        "seconds": round(time.monotonic() - began), "results": run.verdict.results(), "drafts": shares,
        "equal_at_temperature_0": dict(run.n_same),
    }  # fmt: skip
    path = machine.save(f"speculation-{options.threads}t-{name}", result, quick=options.quick)
    console.print(f"{time.monotonic() - began:.0f} s; written to {path}")


if __name__ == "__main__":
    main()
