"""Models for TensorRT-LLM: whether they can run here, and how the engine of one is started.

    Checkpoint ── check ─▶ installed? fitting? ── open_engine ─▶ Launch ─▶ ChildEngine, and the vocabulary beside it

The library is never imported in this process: it initialises MPI. It may be in another environment, since it demands
other versions of packages that Shepherd uses; its processes get Shepherd's own code, which needs no package there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shepherd.config import CacheConfig, Config, ModelConfig
from shepherd.core import ConfigError
from shepherd.models import gguf
from shepherd.models.checkpoint import Checkpoint

if TYPE_CHECKING:
    from shepherd.engine.worker.model_process import ChildEngine

logger = logging.getLogger(__name__)

PACKAGE = "tensorrt_llm"
NO_ENGINES = (1, 3)
"""The first versions of the library that run no prebuilt engines."""
INSTEAD = (
    "install it from NVIDIA's package index, with CUDA 13 and Open MPI, in an environment of its own, and name its "
    "Python in [tensorrt] ('shepherd help tensorrt'), or run a GGUF file of the model with llama.cpp, or start "
    "trtllm-serve and name it as a provider"
)
PROBE = f"""
import importlib.metadata, importlib.util, json, sys
version = None
if importlib.util.find_spec({PACKAGE!r}):
    try:
        version = importlib.metadata.version({PACKAGE!r})
    except importlib.metadata.PackageNotFoundError:
        version = ""
print(json.dumps({{"python": sys.version_info[:2], "version": version}}))
"""
"""Run by another interpreter: what `installed` finds in this one."""
PROBE_S = 60.0
LEAST_PYTHON = (3, 11)
FACTORY = "shepherd.engine.trtllm.engine:serve_model"
LOW_WATER = 0.5
"""Share of the context that an eviction leaves, by default: nearly all of that is computed again."""
GPU_MEMORY = 0.9
"""The library's own default."""
N_EVENTS = 16_384
"""Reports about the cache that the library keeps until they are fetched."""
IGNORED = (
    "gpu_layers", "n_threads", "n_threads_batch", "n_batch", "n_ubatch", "flash_attn", "cache_type_k", "cache_type_v",
    "repack", "mmap", "mlock", "override_tensor", "rpc_servers",
)  # fmt: skip
"""Keys of a model that only llama.cpp has."""


def installed(python: str | None) -> str | None:
    """The version of the library, such as `1.2.1`, empty where that is not known; None where there is no library.

    It is not imported. `python`: the interpreter that would; None = this one. Raises: `ConfigError` if it does not run.
    """
    if python is None:
        try:
            return _version() if importlib.util.find_spec(PACKAGE) is not None else None
        except ValueError:  # a module without a specification was put into `sys.modules`
            return None
    try:
        done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_S, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        numbers, version = tuple(found["python"]), found["version"]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it ends with an error, or does not answer"
        raise ConfigError(
            f"{python} is no Python that runs ({why}); name the one of the environment with TensorRT-LLM, such as "
            "~/trtllm/bin/python",
            key="tensorrt.python",
        ) from error
    if numbers < LEAST_PYTHON:
        raise ConfigError(
            f"{python} is Python {numbers[0]}.{numbers[1]}, and Shepherd needs 3.11 there; make the environment of "
            "TensorRT-LLM with a newer one",
            key="tensorrt.python",
        )
    return version if version is None else str(version)


def _version() -> str:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check(model: ModelConfig, found: Checkpoint, python: str | None) -> None:
    """Warn of settings without effect. Raises: `ConfigError` for a model that cannot run here, in one sentence."""
    version = installed(python)
    if version is None:
        where = f" for {python}" if python else ""
        raise ConfigError(
            f"this model is for TensorRT-LLM, which is not installed{where}: {INSTEAD}", file=str(found.path)
        )
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if found.kind == "engine" and numbers >= NO_ENGINES:
        raise ConfigError(
            f"TensorRT-LLM {version} runs no prebuilt engines, which ended with the 1.3 series; give the folder of the "
            "Hugging Face checkpoint, or install version 1.2.1",
            file=str(found.path),
        )
    if found.version and version and found.version != version:
        raise ConfigError(
            f"this engine was built by TensorRT-LLM {found.version}, and {version} is installed, which cannot run it; "
            "build it again, or install the version that built it",
            file=str(found.path),
        )
    if model.pooling is not None:
        raise ConfigError(
            "TensorRT-LLM makes no vectors; remove it, or name a GGUF file", key=f"models.{model.name}.pooling"
        )
    ignored = [name for name in IGNORED if getattr(model, name) not in {None, ()}]
    if ignored:
        logger.warning("models.%s: %s ignored by tensorrt", model.name, _are(ignored))


def open_engine(
    model: ModelConfig,
    found: Checkpoint,
    config: Config,
    cache: CacheConfig,
    *,
    n_ctx: int,
    end_tokens: frozenset[int],
    folder: Path,
    is_wanted: Callable[[], bool],
) -> ChildEngine:
    """Start the processes of a model, and wait until it is loaded; takes minutes. `folder`: for what is kept between
    runs.

    Raises: `ConfigError` where they cannot be started, `EngineError` where they cannot load it, `Cancelled`.
    """
    from shepherd.engine.trtllm import launch  # noqa: PLC0415 - few models are for TensorRT-LLM
    from shepherd.engine.trtllm.engine import TensorRTOptions  # noqa: PLC0415 - as above
    from shepherd.engine.trtllm.library import LibraryOptions  # noqa: PLC0415 - as above
    from shepherd.engine.worker.model_process import ChildEngine, ModelProcess, Program  # noqa: PLC0415 - as above

    settings, is_engine = model.tensorrt.over(config.tensorrt), found.kind == "engine"
    n_gpus, n_stages = (1, 1) if is_engine else split(model, config)
    start = launch.plan(
        found.mapping if is_engine else (n_gpus // n_stages, n_stages, 1) if n_stages > 1 else None,
        settings.launch or "auto",
        python=settings.python or sys.executable,
        environ=os.environ if settings.python is None else _with_our_code(os.environ, folder),
    )
    for note in start.notes:
        logger.warning("model %r: %s", model.name, note)
    options = TensorRTOptions(
        LibraryOptions(
            str(found.path),
            is_engine,
            n_ctx,
            sequences=cache.sequences,
            block_size=found.block_size,
            n_gpus=n_gpus,
            n_stages=n_stages,
            gpu_share=settings.gpu_memory or GPU_MEMORY,
            n_events=N_EVENTS if settings.kv_events is not False else 0,
        ),
        cache.name,
        cache.queue,
        LOW_WATER if config.kv.low_water is None else config.kv.low_water,
        end_tokens,
        config.kv.stall_s,
    )
    logger.info("model %r: starting %s", model.name, " ".join(start.command))
    program = Program(
        start.command,
        FACTORY,
        (options,),
        start.environment,
        folders=launch.FOLDERS,
        tidy=launch.without_complaints,
    )
    return ChildEngine(ModelProcess(program, title=f"cache {cache.name!r}", is_wanted=is_wanted))


def split(model: ModelConfig, config: Config) -> tuple[int, int]:
    """The GPUs of a checkpoint, and the stages that they are divided into. Raises: `ConfigError`."""
    settings = model.tensorrt.over(config.tensorrt)
    n_stages = settings.stages or 1
    n_gpus = settings.gpus or n_stages
    if n_gpus % n_stages:
        raise ConfigError(
            f"stages = {n_stages} does not divide gpus = {n_gpus}: each stage has as many GPUs as the others; set gpus "
            f"to a multiple of {n_stages}",
            key="tensorrt.stages",
        )
    return n_gpus, n_stages


def _with_our_code(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment for an interpreter that has not Shepherd. A link shows it our package, and no package beside it.

    Raises: `ConfigError`.
    """
    code = str(Path(__file__).parents[1])
    place = folder / "tensorrt" / hashlib.sha256(os.fsencode(code)).hexdigest()[:16]
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (place / "shepherd").symlink_to(code, target_is_directory=True)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(place)) from error
    paths = (str(place), environ.get("PYTHONPATH", ""))
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def check_chosen(found: gguf.Header | Checkpoint | None) -> None:
    """Raises: `ConfigError` where `backend = "tensorrt"` is set for a model that llama.cpp runs."""
    if isinstance(found, gguf.Header):
        raise ConfigError(
            f"{found.path.name} is a GGUF file, which llama.cpp runs; name the folder of a TensorRT engine or of a "
            "Hugging Face checkpoint with --model DIR, leave --backend out, or start trtllm-serve and name it as a "
            "provider",
            key="backend",
        )


def _are(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"
