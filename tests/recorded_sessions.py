"""Plays what real clients sent against our own server, and counts what had to be computed.

    files ─ Recording ─▶ HTTP ─▶ usage ─┬─ Played(prompt, cached, prefilled)
    what the client said, as text ──────┴─ new: what is behind the longest common beginning with its last request

`new` is counted from the JSON of the requests alone, without our decoding, rendering or caching: both sides must agree
or one of them is wrong. The model knows nothing, but its vocabulary is as large as a real one's and made of the words
of the recordings, so that prompts have as many tokens as they would have for a real model. For `test_sessions` and
`bench/server/sessions.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import httpx2
import numpy as np
from tests.unit.engine.tiny_gguf import EPSILON, N_EMBD, RECIPES, values

from shepherd import config
from shepherd.app.app import App
from shepherd.cli.command.replay import connect, listening, play
from shepherd.dialects.render.frame import n_same
from shepherd.server.observe.recordings import Recording, read

N_VOCAB = 151_936
N_CTX = 40_960
N_WORDS = 20_000
ANSWER_TOKENS = 2
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
TEMPLATE = """
{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}{% if tools %}# Tools
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>{% endif %}<|im_end|>
{% endif %}
{%- for m in messages %}{% if m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}
<tool_response>
{{ m.content }}
</tool_response>{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% endif %}
{%- elif m.role != 'system' %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""In the manner of Qwen's: one system message at the front, the tools behind it, results in a user's turn."""
FORGETFUL = (
    TEMPLATE.replace(
        "{%- if messages[0]",
        "{%- set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{%- if messages[0]",
        1,
    )
    .replace(
        "<|im_start|>{{ m.role }}\n{{ m.content }}",
        "<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>\n"
        "{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }}",
    )
    .replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
)
"""The same with thoughts, which it shows behind the last question only."""


# -- the model ---------------------------------------------------------------------------------------------------------


def write_model(
    path: Path, texts: Iterable[str], template: str = TEMPLATE, *, kind: str = "plain", n_vocab: int = N_VOCAB
) -> None:
    """Write a model of two layers with random weights and a vocabulary of the size and kind of a real one.

    `kind` is one of `RECIPES`; `texts` are what it shall read in few tokens.
    """
    recipe = RECIPES[kind]
    if kind == "plain":
        recipe = replace(recipe, n_layer=2, n_head=1)
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, recipe.architecture)
    n_head_kv = recipe.n_head_kv if isinstance(recipe.n_head_kv, int) else list(recipe.n_head_kv)
    usual: dict[str, int | float | str | list[int]] = {
        "vocab_size": n_vocab,
        "block_count": recipe.n_layer,
        "context_length": N_CTX,
        "embedding_length": N_EMBD,
        "feed_forward_length": 96,
        "attention.head_count": recipe.n_head,
        "attention.head_count_kv": n_head_kv,
        "attention.key_length": recipe.head,
        "attention.value_length": recipe.head,
        "attention.layer_norm_rms_epsilon": EPSILON,
        "rope.dimension_count": recipe.head,
        "rope.freq_base": 1_000_000.0,
    }
    adders: dict[type, Callable[[str, Any], None]] = {
        int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array,
    }  # fmt: skip
    for key, value in (usual | dict(recipe.keys)).items():
        adders[type(value)](f"{recipe.architecture}.{key}", value)
    tokens, merges = vocabulary(texts, n_vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.NORMAL] * (len(tokens) - len(SPECIALS)) + [gguf.TokenType.CONTROL] * len(SPECIALS)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    shapes = recipe.tensors(recipe) | {"token_embd.weight": (n_vocab, N_EMBD)}
    shapes.pop("output.weight", None)  # the embeddings serve twice: half the file
    for name, shape in shapes.items():
        writer.add_tensor(
            name, values(random, name, shape).astype(np.float16 if name == "token_embd.weight" else np.float32)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary(texts: Iterable[str], n_vocab: int) -> tuple[list[str], list[str]]:
    """The tokens and the merges of a byte-level BPE in which every usual word of the texts is one token."""
    spelled = byte_spelling()
    counts = Counter(word for text in texts for word in re.findall(r" ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s+", text))
    ranks: dict[tuple[str, str], int] = {}
    made = dict.fromkeys(spelled)
    for word, _ in counts.most_common(min(N_WORDS, n_vocab // 4)):
        symbols = merged([spelled[byte] for byte in word.encode()], ranks)
        while len(symbols) > 1:
            ranks.setdefault((symbols[0], symbols[1]), len(ranks))
            symbols = [symbols[0] + symbols[1], *symbols[2:]]
            made[symbols[0]] = None
    n_fillers = n_vocab - len(made) - len(SPECIALS)
    tokens = [*made, *(f"{spelled[ord(' ')]}w{n}" for n in range(n_fillers)), *SPECIALS]
    assert len(set(tokens)) == n_vocab
    return tokens, [" ".join(pair) for pair in ranks]


def merged(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """The symbols of a word after all merges there are so far."""
    while len(symbols) > 1:
        rank, at = min((ranks.get(pair, len(ranks)), at) for at, pair in enumerate(pairwise(symbols)))
        if rank == len(ranks):
            break
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]
    return symbols


def byte_spelling() -> list[str]:
    """The 256 characters that byte-level BPE writes bytes as: printable bytes as they are, the rest from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


# -- what clients say --------------------------------------------------------------------------------------------------


def conversations(folder: Path) -> dict[str, list[Recording]]:
    """The recorded requests of each client by conversation: the names of client and model, side tasks apart."""
    found: dict[str, list[Recording]] = {}
    for client in sorted(each for each in folder.iterdir() if each.is_dir()):
        for recording in read(client):
            kind = "" if recording.body.get("tools") else " (side task)"
            found.setdefault(f"{client.name} {recording.body['model']}{kind}", []).append(recording)
    return found


CLAUDE, SESSION = "claude-code claude-opus-4-8", "x-claude-code-session-id"


def in_one_session(recordings: Iterable[Recording], session: str) -> list[Recording]:
    """The same in a session of this name."""
    return [
        replace(
            recording,
            headers={name: session if name.lower() == SESSION else value for name, value in recording.headers.items()},
        )
        for recording in recordings
    ]


def changing(sessions: Mapping[str, Sequence[Recording]]) -> dict[str, list[Recording]]:
    """Sessions of Claude Code, made from the recorded one, in which a request changes something at the front."""
    recorded = sessions[CLAUDE]
    assert recorded[2].body["system"] != recorded[3].body["system"], "its model has another name from here on"
    committed = []
    for n, recording in enumerate(recorded[3:7]):
        body = json.loads(json.dumps(recording.body))
        files = "\n".join(f" M src/file_{at}.py" for at in range(n))
        body["system"][-1]["text"] += f"\n\ngitStatus: at the start of the conversation.\nStatus:\n{files or '(clean)'}"
        committed.append(replace(recording, body=body))
    silent = [recorded[4], replace(recorded[5], body=recorded[5].body | {"tool_choice": {"type": "none"}}), recorded[6]]
    made = {"a line of the system": recorded[1:6], "the state of git": committed, "no call once": silent}
    return {name: in_one_session(recordings, name) for name, recordings in made.items()}


def said(body: Mapping[str, Any]) -> str:
    """All that a client says in a request, in order, as text; what is not for the model, or changes with each request,
    is left out: ids, marks for caches, Claude Code's billing."""
    first = body.get("instructions") or body.get("system") or ""
    turns = list(body.get("messages") or body.get("input") or ())
    leading = []
    while turns and turns[0].get("role") in {"system", "developer"}:
        leading.append(turns.pop(0))
    # What a server of a vendor would do itself is nothing to us.
    tools = [
        tool for tool in body.get("tools") or () if tool.get("type", "custom") in {"custom", "function", "namespace"}
    ]
    told = (json.dumps({name: value for name, value in tool.items() if name != "cache_control"}) for tool in tools)
    return "\n".join(text for part in (first, *leading, *told, *turns) for text in texts(part))


IGNORED = {"id", "call_id", "tool_call_id", "tool_use_id", "cache_control", "status", "annotations"}


def texts(value: Any) -> Iterable[str]:
    """The texts in a piece of JSON, with their names; content may be a text or a list of parts and says the same."""
    match value:
        case str() if value.startswith("x-anthropic-"):
            pass
        case str():
            yield value
        case dict():
            for name, inner in value.items():
                if name in IGNORED or (name == "type" and inner in ["text", "input_text", "output_text", "message"]):
                    continue
                if name not in {"content", "text"}:
                    yield name
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)
        case _:
            yield json.dumps(value)


# -- playing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Played:
    """What one request cost, in tokens."""

    number: int
    prompt: int
    new: int
    """What the client had not said in its last request, with what the template has around it."""
    prefilled: int

    @property
    def excess(self) -> float:
        """The part of what is new that was computed beyond it."""
        return self.prefilled / self.new - 1


def table(played: Mapping[str, Sequence[Played]]) -> str:
    """For people."""
    lines = [f"{'':34}{'prompt':>8}{'new':>8}{'cached':>8}{'prefilled':>11}{'ratio':>8}"]
    for name, requests in played.items():
        for one in requests:
            cached = one.prompt - one.prefilled
            lines.append(
                f"{name[:28]:30}{one.number:>4}{one.prompt:>8}{one.new:>8}{cached:>8}{one.prefilled:>11}"
                f"{one.prefilled / max(1, one.new):>8.2f}"
            )
    return "\n".join(lines)


@asynccontextmanager
async def playing(
    model: Path, folder: Path, *, disk: bool = False, **cache: Any
) -> AsyncIterator[tuple[App, httpx2.AsyncClient]]:
    """A server of that model on a port of its own, and who plays recordings to it; `cache`: settings of its cache.
    `disk`: conversations outlive the server."""
    path = folder / "sessions.toml"
    settings = "\n".join(
        f"{name} = {json.dumps(value)}" for name, value in ({"n_ctx": N_CTX, "sequences": 4} | cache).items()
    )
    path.write_text(
        f"max_tokens = {ANSWER_TOKENS}\n[kv]\ndisk = {json.dumps(disk)}\n"
        f'[models.tiny]\npath = "{model}"\nn_threads = 1\n'
        f'[caches.main]\nmodel = "tiny"\n{settings}\n[[routes]]\nmatch = "*"\ncache = "main"\n'
    )
    loaded = config.load(flags={}, env={}, cwd=folder, user_dir=folder, file=path)
    app = App(loaded, cache_folder=folder)
    try:
        await app.load()
        async with listening(app) as (url, key), connect(url, key) as client:
            yield app, client
    finally:
        await app.aclose()


def brief(recording: Recording) -> Recording:
    """The same, with a short answer: the configured `max_tokens` counts only where a request names none."""
    limits = recording.body.keys() & {"max_tokens", "max_completion_tokens", "max_output_tokens"}
    return replace(recording, body=recording.body | dict.fromkeys(limits, ANSWER_TOKENS))


async def measured(app: App, client: httpx2.AsyncClient, recordings: Sequence[Recording]) -> list[Played]:
    """What each request of a conversation cost, one after the other."""

    async def n_tokens(text: str) -> int:
        return len(await app.dispatcher.tokenize("tiny", text, special=False, bos=False, endpoint=""))

    made: list[Played] = []
    before = ""
    framing = 0
    for recording in recordings:
        before_it = app.stats()["main"]
        answer = await play(client, brief(recording))
        assert answer.status == 200, answer.reply.text
        assert answer.reply.prompt is not None
        told = said(recording.body)
        common = n_same(before, told)
        # What the template puts around messages is new around those that are, and around all behind a change.
        known = framing if common == len(before) else 0
        framing = answer.reply.prompt - await n_tokens(told)
        new = await n_tokens(told[common:]) + max(0, framing - known)
        before = told
        prefilled = app.stats()["main"].prefilled_tokens - before_it.prefilled_tokens
        assert prefilled == answer.prefilled, "what the client is told is what was done"
        made.append(Played(recording.n, answer.reply.prompt, new, prefilled))
    return made
