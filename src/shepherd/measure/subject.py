"""The model that is measured: its file, the settings that it has, and the facts that decide which others there are."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from shepherd.app.directory.entries import ModelRegistry, machine_of
from shepherd.config import Config
from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, replace
from shepherd.engine.llamacpp import library
from shepherd.engine.llamacpp.runtime import usual_threads
from shepherd.measure.space import Candidate, Facts, Goal
from shepherd.models.checkpoint import Checkpoint
from shepherd.models.gguf import Header
from shepherd.models.sizing import Cells, fit


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    header: Header
    start: Candidate
    """The settings that it has."""
    facts: Facts
    cache: str = ""
    """The name of its first cache, whose settings count."""

    @property
    def path(self) -> Path:
        return self.header.path


def subject_of(config: Config, named: str | None, goal: Goal = "chat") -> Subject:
    """The model of this name, or the first one that answers. Loads the native library.

    Raises: `ConfigError`.
    """
    machine = machine_of(config)
    registry = ModelRegistry(config, env=os.environ, machine=machine)
    chats = [entry for entry in registry.entries.values() if entry.plans and entry.header is not None]
    entry = next((each for each in chats if each.name == named), None) if named else next(iter(chats), None)
    if entry is None or entry.header is None:
        what = f"model {named!r} here that answers" if named else "model of this machine that answers"
        raise ConfigError(f"there is no {what}; 'shepherd models' shows the configured ones")
    if isinstance(entry.header, Checkpoint):
        raise ConfigError(
            f"{entry.name!r} is for TensorRT-LLM, which is not measured here; name a GGUF model with --model"
        )
    if entry.model.rpc_servers:
        raise ConfigError(
            f"{entry.name!r} is spread over workers, which is not measured here; leave rpc_servers out to "
            "measure this machine alone"
        )
    header, cells, cache, model = entry.header, entry.plans[0].cells, entry.plans[0].cache, entry.model
    has_gpu, cards = bool(library.devices()), library.gpu_memory()
    if has_gpu:  # a part of the model may be in the memory of the CPU
        machine = machine_of(replace(config, models=tuple(replace(each, gpu_layers=1) for each in config.models)))
    flash = model.flash_attn if model.flash_attn is not None or has_gpu else cells.flash_attention
    cores, processors = psutil.cpu_count(logical=False) or 1, os.cpu_count() or 1
    # What Shepherd chooses depends on how busy the machine is; the start must be the same in every run.
    start = Candidate(
        n_threads=model.n_threads or usual_threads(header.n_params),
        n_threads_batch=model.n_threads_batch,
        n_batch=model.n_batch or cells.n_ubatch,
        n_ubatch=cells.n_ubatch,
        flash_attn=flash,
        cache_type_k=None if cells.types[0] == "f16" else cells.types[0],
        cache_type_v=None if cells.types[1] == "f16" else cells.types[1],
        repack=None if model.repack else model.repack,
        gpu_layers=model.gpu_layers,
        override_tensor=model.override_tensor or None,
        mmap=model.mmap,
        mlock=model.mlock or None,
        sequences=cache.sequences,
    )

    def needed(candidate: Candidate) -> int:
        made: Cells = replace(
            cells,
            types=(candidate.cache_type_k or "f16", candidate.cache_type_v or "f16"),
            n_ubatch=candidate.n_ubatch or cells.n_ubatch,
            flash_attention=bool(candidate.flash_attn),
            n_seq=cells.n_seq + (candidate.sequences or cache.sequences) - cache.sequences,
            n_outputs=candidate.sequences or cache.sequences,
        )
        return fit(header, [made]).needed

    facts = Facts(
        n_cores=cores,
        n_processors=processors,
        n_ctx=cells.n_ctx,
        n_cells=cells.n_ctx,
        key_length=header.key_length or 1,
        value_length=header.value_length or 1,
        n_layer=header.n_layer,
        has_gpu=has_gpu,
        repacks=fit(header, [], repacked=library.repacked_types()).copies > 0,
        has_cache=fit(header, [cells]).cells > 0,
        has_experts=any(header.each("expert_count", 1)),
        fits_gpu=cards is None or fit(header, [cells]).needed < cards.free,
        lockable=_lockable(),
        n_weights=header.size_bytes,
        has_crowds=goal == "throughput" and not cache.repeatable,
        room=machine.budget_bytes,
        needed=needed,
    )
    return Subject(entry.name, header, start, facts, cache.name)


def _lockable() -> int | None:
    """Bytes that this process may lock in memory; None = not limited."""
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:  # not on Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if limit == resource.RLIM_INFINITY or os.geteuid() == 0 else limit
