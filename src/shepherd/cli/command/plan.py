"""`shepherd plan`: what a model needs for so many users, how fast it would be on which machines, and what to use.

MODEL ─ a file, config.json, a suggestion, or the head of a remote file ─▶ header ─ models/plan.py ─▶ ways, advice
standard error: a table and the reasons        standard output: the configuration, as TOML
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
import tomlkit

from shepherd.app.directory.entries import capacity_of, cells_of, makes_vectors
from shepherd.cli import configure, known_providers, render
from shepherd.cli.command.models import find_file
from shepherd.cli.text import format_rate, format_size
from shepherd.config import CacheConfig, Config, KvConfig, ModelConfig, model_name
from shepherd.core import InvalidRequest
from shepherd.models import catalog, gguf, machines, outline, plan
from shepherd.models.checkpoint import CONFIG, read_checkpoint, read_json
from shepherd.models.pulled import PREFIXES
from shepherd.models.suggestions import SUGGESTIONS

DEFAULT_CONTEXT = 8192
USUAL_FORMAT = "Q4_K_M"
"""Of a model whose checkpoint is read, on llama.cpp."""
PORT = 50052
"""Of a worker behind RPC."""
_LEAST_SHARE = 0.05
"""Of the weights; number formats with less are not measured."""


class _Model(NamedTuple):
    header: gguf.Header
    spec: str
    """For `path` in a configuration."""
    note: str = ""
    """What has to be done before it can run."""


def run(
    options: Mapping[str, Any],
    *,
    planned: str,
    users: int,
    context: int | None,
    machine: Sequence[str],
    network: str,
    quant: str | None,
    as_json: bool,
) -> int:
    config = configure.load_config({k: v for k, v in options.items() if k != "model"}, looks=True)
    link = machines.parse_network(network)
    named = [None if text.strip().lower() == machines.THIS else machines.parse(text) for text in machine]
    with tempfile.TemporaryDirectory(prefix="shepherd-plan-") as folder:
        found = _find(config, planned, Path(folder))
        if makes_vectors(found.header):
            what = f"{found.header.path.name} makes vectors or scores pairs; plan a model that chats"
            raise InvalidRequest(what, field="model")
        header = outline.in_format(found.header, quant) if quant else found.header
        if context is None:
            context = min(header.n_ctx_train or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
        plan.check(header, users, context)
        own = ModelConfig("model", cache_type_k=options.get("cache_type_k"), cache_type_v=options.get("cache_type_v"))
        cache = CacheConfig("main", n_ctx=users * context, sequences=min(users, plan.MOST_SEQUENCES))
        need = plan.Need(users, context, cells_of(header, own, cache, KvConfig(), flash_attention=False))
        boxes = [box or _this(config, header, options) for box in named or [None]]
        boxes.sort(key=lambda box: not box.is_measured)  # this one has the program that the others help
        ways = plan.ways(header, need, boxes, link)
        advice = plan.advise(ways, header, need)
        facts = _facts(header, need)
    text = ""
    if advice.way is not None:
        text = fragment(
            advice.way,
            found.spec,
            need,
            n_layer=header.n_layer,
            quant=quant,
            note=found.note,
            n_threads=options.get("threads"),
        )
    if advice.way is None:
        least = min(way.needed_bytes for way in ways)
        bigger = machines.enough(
            round(least * plan.GPU_SHARE / plan.UPSTREAM_SHARE), serves=users > plan.MOST_SEQUENCES
        )
        more = f"It would fit --machine {bigger}." if bigger else "No single machine of the table has room for it."
        advice = replace(advice, reasons=(*advice.reasons, more))
    if as_json:
        rows = [_row(way) for way in ways]
        use = None if advice.way is None else rows[ways.index(advice.way)]
        render.show_json({**facts, "ways": rows, "use": use, "reasons": advice.reasons, "config": text or None})
    else:
        _show(facts, ways, advice, need)
        render.write(text)
    return int(advice.way is None)


# -- the model ---------------------------------------------------------------------------------------------------------


def _find(config: Config, name: str, folder: Path) -> _Model:
    """The header that `name` means; `folder`: for the head of a remote file. Raises: `ShepherdError`."""
    suggested = next((each for each in SUGGESTIONS if name.lower() in (each.name.lower(), each.spec.lower())), None)
    path = Path(os.path.expanduser(name))
    if path.name == CONFIG and os.path.isfile(path):
        return _of_config(path, name)
    if os.path.isfile(path / CONFIG) and not any(each.suffix in (".safetensors", ".gguf") for each in path.iterdir()):
        return _of_config(path / CONFIG, name)
    try:
        file = find_file(config, suggested.spec if suggested else name)
    except catalog.NotPulled as error:
        if suggested is not None:
            return _Model(suggested.header(), suggested.spec, f"First: shepherd pull {suggested.spec}")
        return _remote(config, error.spec, folder)
    if file.is_dir():
        return _Model(outline.of_checkpoint(read_checkpoint(file)), str(file))
    spec = "embedded" if file == catalog.embedded() else name if name.startswith(PREFIXES) else str(file)
    return _Model(gguf.read_header(file), spec)


def _of_config(path: Path, name: str) -> _Model:
    config = read_json(path)
    assert config is not None
    return _Model(outline.header_of(config, name=path.parent.name or name), str(path.parent.resolve()))


def _remote(config: Config, spec: str, folder: Path) -> _Model:
    from shepherd.app.directory.pulling import network_of
    from shepherd.models.pull import head
    from shepherd.models.pull.source import HubSource, parse

    source, network = parse(spec), network_of(config, known_providers.store())
    render.show_note(f"{spec} is not on this machine; reading its head at its source.")
    try:
        header = asyncio.run(
            head.read_remote(
                source,
                folder,
                env=os.environ,
                memory_bytes=capacity_of(config),
                network=network,
                show=lambda event: None,
            )
        )
        return _Model(header, spec, f"First: shepherd pull {spec}")
    except InvalidRequest as error:
        if not isinstance(source, HubSource) or source.label or error.status != 404:
            raise
        fields = asyncio.run(head.read_config(source, folder, env=os.environ, network=network))
        return _Model(outline.header_of(fields, name=source.repo), spec)


# -- this machine ------------------------------------------------------------------------------------------------------


def _this(config: Config, header: gguf.Header, options: Mapping[str, Any]) -> plan.Machine:
    """This machine, measured. Raises: `EngineError`."""
    from shepherd.engine.llamacpp import library
    from shepherd.engine.llamacpp.runtime import usual_threads
    from shepherd.measure import speed

    has_gpu = bool(library.devices()) and options.get("gpu_layers") != 0
    n_threads = options.get("threads") or usual_threads(header.n_params)
    cache_folder = Path(platformdirs.user_cache_dir("shepherd"))
    rates = speed.measured_rates(
        formats(header),
        n_threads=n_threads,
        gpu_layers=None if has_gpu else 0,
        cache_folder=cache_folder,
        say=render.show_note,
    )
    if header.head_bytes and (measured := speed.stored(header, n_threads, cache_folder)) is not None:
        rates = speed.fitted(rates, measured)
    what = "GPU" if has_gpu else f"{n_threads} thread{'s' if n_threads > 1 else ''}"
    return plan.Machine(
        f"this machine ({what})", capacity_of(config), rates, is_gpu=has_gpu, can_serve=has_gpu, is_measured=True
    )


def formats(header: gguf.Header) -> list[str]:
    """The number formats that make up most of the weights."""
    sizes: dict[str, int] = {}
    for tensor in header.tensors.values():
        if tensor.kind and len(tensor.dims) > 1:
            sizes[tensor.kind] = sizes.get(tensor.kind, 0) + tensor.n_bytes
    return sorted(kind for kind, size in sizes.items() if size >= _LEAST_SHARE * header.size_bytes)


# -- what is shown -----------------------------------------------------------------------------------------------------


def _facts(header: gguf.Header, need: plan.Need) -> dict[str, Any]:
    work = plan.work_of(header, need.cells)
    active = sum(each.n_values for each in (*work.shared.values(), *work.last.values()))
    active += work.share * sum(each.n_values for each in work.experts.values())
    return {
        "model": header.name or header.path.stem,
        "quantisation": header.file_type,
        "parameters": header.n_params,
        "active_parameters": round(active),
        "weights_bytes": header.size_bytes,
        "token_bytes": sum(work.token_bytes),
        "state_bytes": work.state_bytes,
        "formats": {name: outline.in_format(header, name).size_bytes for name in plan.SMALLER},
        "trained_context": header.n_ctx_train,
        "users": need.users,
        "context": need.context,
    }


def _row(way: plan.Way) -> dict[str, Any]:
    return {
        "way": way.kind,
        "title": way.title,
        "machines": [{"name": box.name, "n": box.n, "source": box.source or "measured"} for box in way.machines],
        "memory_bytes": way.needed_bytes,
        "room_bytes": way.room_bytes,
        "problem": way.problem or None,
        "most_users": way.most_users,
        **(
            {
                key: round(value, 3)
                for key, value in asdict(way).items()
                if key in ("alone", "each", "prompt_s", "load_s")
            }
        ),
    }


def _show(facts: Mapping[str, Any], ways: Sequence[plan.Way], advice: plan.Advice, need: plan.Need) -> None:
    kind = f" in {facts['quantisation']}" if facts["quantisation"] else ""
    part = f", {_billions(facts['active_parameters'])} of them for a token" if _is_sparse(facts) else ""
    state = f", {format_size(facts['state_bytes'])} of state for each user" if facts["state_bytes"] else ""
    weights, token = format_size(facts["weights_bytes"]), format_size(facts["token_bytes"])
    say = _to_stderr
    say(
        f"{facts['model']}{kind}: {_billions(facts['parameters'])} parameters{part}, {weights} of weights, {token} of "
        f"cache for a token{state}"
    )
    say("Weights in " + ", ".join(f"{name} {format_size(size)}" for name, size in facts["formats"].items()))
    rows = [
        (
            way.title,
            format_size(way.needed_bytes),
            format_size(way.room_bytes),
            f"{way.most_users:,}",
            *(
                ("-", "-", "-")
                if way.problem
                else (format_rate(way.alone), format_rate(way.each), _seconds(way.prompt_s))
            ),
        )
        for way in ways
    ]
    speeds = ("TOKENS/S ALONE", f"EACH OF {need.users:,}", f"PROMPT OF {need.context:,}")
    columns = ("WAY", "MEMORY", "ROOM", "MOST USERS", *speeds)
    render.show_table(columns, rows, stream=sys.stderr)
    say(f"Use {advice.way.title}." if advice.way else "It fits nowhere here.")
    for reason in advice.reasons:
        say(reason)
    if any(not box.is_measured for way in ways for box in way.machines):
        say("Speeds of machines by name are estimates from their makers' figures; --machine this is measured.")


def _to_stderr(text: str) -> None:
    render.show(text, stream=sys.stderr)


def _is_sparse(facts: Mapping[str, Any]) -> bool:
    return bool(facts["active_parameters"] < 0.5 * facts["parameters"])


def _billions(n: float) -> str:
    return f"{n / 1e9:.1f} billion" if n >= 1e9 else f"{n / 1e6:.0f} million"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


# -- what is written ---------------------------------------------------------------------------------------------------


def fragment(
    way: plan.Way,
    spec: str,
    need: plan.Need,
    *,
    n_layer: int,
    quant: str | None = None,
    note: str = "",
    n_threads: int | None = None,
) -> str:
    """A `shepherd.toml` for a way to run a model of so many layers."""
    name = re.sub(r"[^\w.-]+", "-", model_name(spec)) or "model"
    notes = [note] if note else []
    if way.kind == "upstream":
        return _upstream(way.machines, spec, name, need)
    if quant or Path(spec).is_dir():
        wanted = quant or USUAL_FORMAT
        notes = [f"path: a GGUF file of this model in {wanted}"]
        spec = f"{name}-{wanted}.gguf"
    cells = need.cells
    here = way.machines[0]
    # With workers, all layers leave unless some are to stay with a processor here.
    away = 1 - here.n * here.memory_bytes / sum(box.n * box.memory_bytes for box in way.machines)
    n_layers = -1 if here.is_gpu else round(n_layer * away)
    types = {
        key: kind for key, kind in (("cache_type_k", cells.types[0]), ("cache_type_v", cells.types[1])) if kind != "f16"
    }
    threads = {"n_threads": n_threads} if n_threads and not here.is_gpu else {}
    model: dict[str, Any] = {"path": spec, "gpu_layers": n_layers, **threads, **types}
    if way.kind == "rpc":
        model["rpc_servers"] = [f"worker-{n}.local:{PORT}" for n in range(1, len(way.machines))]
        notes += [
            f"On worker-{n}, the {box.title}: shepherd rpc-worker --host ITS_ADDRESS --allow ADDRESS_OF_THIS_MACHINE"
            for n, box in enumerate(way.machines[1:], 1)
        ]
    tables = {
        "models": {name: model},
        "caches": {"main": {"model": name, "n_ctx": need.users * need.context, "sequences": need.users}},
    }
    return "".join(f"# {line}\n" for line in notes) + tomlkit.dumps(tables)


def _upstream(boxes: Sequence[plan.Machine], spec: str, served: str, need: plan.Need) -> str:
    """A provider for each box with a server of its own; several are replicas of one. Such servers read checkpoints."""
    take = f"{served} stands for a checkpoint of this model: its repository, or its folder there."
    if Path(spec).is_dir():
        served, take = spec, ""
    elif spec.startswith("hf:"):
        repo = spec.removeprefix("hf:").partition(":")[0]
        served = re.sub(r"(?i)-GGUF$", "", repo)
        take = f"If there is no {served}, take what {repo} was made from." if served != repo else ""
    facts = {"type": "vllm", "model": served, "n_ctx": need.context}
    names = ["upstream"] if len(boxes) == 1 else [f"upstream-{n}" for n in range(1, len(boxes) + 1)]
    users = -(-need.users // len(boxes))
    notes, providers = [], dict[str, Any]()
    for name, box in zip(names, boxes, strict=True):
        split = f" --tensor-parallel-size {box.n}" if box.n > 1 else ""
        most = f"--max-model-len {need.context} --max-num-seqs {users}"
        notes.append(f"On the machine of {name} ({box.title}): vllm serve {served} {most}{split}")
        host = "127.0.0.1" if len(boxes) == 1 else f"{name}.local"
        providers[name] = {**facts, "base_url": f"http://{host}:8000"}
    if len(boxes) > 1:
        providers["upstream"] = {**facts, "replicas": names}
    notes += [take] if take else []
    notes.append("Then base_url is its address. For weights of this size take a checkpoint in AWQ, GPTQ or FP8.")
    tables = {"providers": providers, "routes": [{"match": "*", "provider": "upstream"}]}
    return "".join(f"# {line}\n" for line in notes) + tomlkit.dumps(tables)
