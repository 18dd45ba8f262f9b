"""The one file that touches `tensorrt_llm`: loads a model, starts requests, reads their steps. No policy here.

    Library(options)        LLM(...): tensorrt_llm.LLM for checkpoints, tensorrt_llm._tensorrt_engine.LLM for engines
    start(tokens, ...) ─▶ Generation ─ for each LibraryStep: the new tokens, the cached ones, the end

For the versions 1.2.x, and 1.3 for checkpoints. Arguments go by keyword: their places differ. Everything was written
from the package's source and tested against a fake of it (`tests/fakes/tensorrt_llm`).

UNTESTED with the real package: loading on a GPU, `_mpi_session` for engines, `cache_salt` on both back ends, whether
an answer's token ids hold the end token (both are read), logprobs of a stream, guided decoding in its workers.

The library's traps that this file takes care of: a result is one object that changes with every step; with an event
loop in the thread that calls `start`, results could not be read in threads; its `timeout` arguments do not work.
"""

from __future__ import annotations

import importlib
import logging
import re
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Literal

from shepherd.core import EngineDown, EngineError
from shepherd.core.dataclasses import dataclass
from shepherd.engine.base import Scored
from shepherd.engine.trtllm.arguments import Arguments

logger = logging.getLogger(__name__)

End = Literal["", "stop", "length", "cancelled"]

Session = Callable[[Callable[[Any, int], Any]], Any]
"""Gets a function from the communicator of all ranks and their number to the library's session, and returns that."""


@dataclass(frozen=True, slots=True)
class LibraryOptions:
    """A model and how to load it."""

    directory: str
    is_engine: bool
    """A prebuilt engine; else a checkpoint of Hugging Face."""
    n_ctx: int
    """Longest sequence. An engine has its own, which this must be."""
    sequences: int = 8
    """Most requests side by side."""
    block_size: int = 32
    """Tokens of a block; an engine has its own, which this must be."""
    n_gpus: int = 1
    """GPUs that a checkpoint is split over. An engine knows its own number."""
    n_stages: int = 1
    """Stages of layers, one behind the other, that its GPUs are divided into (pipeline parallelism)."""
    gpu_share: float = 0.9
    """Of the free GPU memory, for the cache."""
    host_cache_bytes: int = 0
    """Host memory for blocks that leave the GPU."""
    has_grammars: bool = True
    """Whether answers can be held to a form."""
    n_events: int = 16384
    """Events of the cache that the library buffers; 0 = none are reported."""
    module: str = "tensorrt_llm"


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """What is new of a request."""

    tokens: tuple[int, ...]
    scores: tuple[Scored, ...]
    """One for each token, if they were asked for."""
    n_cached: int
    """Tokens of the prompt that were taken from the cache."""
    end: End
    """`stop`: an end token, which is the last one of `tokens` or none of them, or a stop string."""


class Library:
    """A loaded model. `start` and `abort` are for one thread that has no event loop, `fetch_events` for another one."""

    def __init__(self, options: LibraryOptions, session: Session | None = None) -> None:
        """Load the model; minutes. `session`: how the library reaches the ranks of an mpirun job.

        Raises: `EngineError`, with the library's own message.
        """
        self.options = options
        try:
            package = importlib.import_module(options.module)
            self.version = str(getattr(package, "__version__", ""))
            self._api = importlib.import_module(f"{options.module}.llmapi")
            kind = importlib.import_module(f"{options.module}._tensorrt_engine") if options.is_engine else package
            self._llm: Any = kind.LLM(**self._settings(session))
        except Exception as error:
            words = with_cure(first_line(error))
            raise EngineError(f"TensorRT-LLM cannot load {options.directory}: {words}") from error

    def _settings(self, session: Session | None) -> dict[str, Any]:
        options, api = self.options, self._api
        cache = {
            "enable_block_reuse": True,
            "free_gpu_memory_fraction": options.gpu_share,
            "event_buffer_max_size": options.n_events,
        }
        if options.host_cache_bytes:
            cache["host_cache_size"] = options.host_cache_bytes
        if not options.is_engine:
            cache["tokens_per_block"] = options.block_size
        settings: dict[str, Any] = {
            "model": options.directory,
            "tokenizer": options.directory,
            "kv_cache_config": api.KvCacheConfig(**cache),
        }
        if options.has_grammars:
            settings["guided_decoding_backend"] = "xgrammar" if options.is_engine else "llguidance"
        if not options.is_engine:
            # Without chunks no prompt may be longer than `max_num_tokens`. An engine has its own limits.
            settings |= {
                "max_batch_size": options.sequences, "max_seq_len": options.n_ctx, "enable_chunked_prefill": True,
                "tensor_parallel_size": options.n_gpus // options.n_stages,
                "pipeline_parallel_size": options.n_stages,
            }  # fmt: skip
        if session is not None:
            made = session(self._make_session)
            if made is not None:
                settings["_mpi_session"] = made
        return settings

    def _make_session(self, world: Any, n_ranks: int) -> Any:
        sessions = importlib.import_module(f"{self.options.module}.llmapi.mpi_session")
        return sessions.MpiCommSession(comm=world, n_workers=n_ranks)

    def start(self, tokens: array[int], arguments: Arguments, max_tokens: int) -> Generation:
        """Begin a request. Raises: `EngineError` if the library refuses it, `EngineDown` if it has ended."""
        guide = arguments.guide and self._api.GuidedDecodingParams(**arguments.guide)
        try:
            params = self._api.SamplingParams(max_tokens=max_tokens, guided_decoding=guide, **arguments.sampling)
            output = self._llm.generate_async(
                {"prompt_token_ids": tokens.tolist()}, sampling_params=params, streaming=True, cache_salt=arguments.salt
            )
        except Exception as error:
            if self.is_down:
                raise EngineDown(f"TensorRT-LLM has ended: {first_line(error)}") from error
            raise EngineError(f"TensorRT-LLM refuses the request: {first_line(error)}") from error
        return Generation(output, arguments.sampling.get("logprobs", 0))

    def fetch_events(self, timeout_s: float) -> list[Any]:
        """The newest events of the cache; waits for them up to about `timeout_s`. Raises what the library raises."""
        events: list[Any] = self._llm.get_kv_cache_events(timeout=timeout_s)
        return events

    @property
    def is_down(self) -> bool:
        executor = getattr(self._llm, "_executor", None)
        return executor is None or bool(executor.is_shutdown())

    def close(self) -> None:
        """Free the GPUs; waits for the workers, with no limit."""
        self._llm.shutdown()


class Generation:
    """One request. Iterated on one thread."""

    def __init__(self, output: Any, n_top: int) -> None:
        self._output = output
        self._n_top = n_top

    def abort(self) -> None:
        """Ask for the end; the steps go on to the last one. On the thread of `Library.start`."""
        try:
            self._output.abort()
        except Exception as error:
            logger.debug("a request could not be aborted: %s", error)

    def __iter__(self) -> Iterator[LibraryStep]:
        """The steps, up to the one with an end. Raises: `EngineError` if the request fails in the worker."""
        n_seen = 0
        try:
            for output in self._output:
                answer = output.outputs[0]
                tokens = tuple(answer.token_ids[n_seen:])
                scores = answer.logprobs[n_seen : n_seen + len(tokens)] if self._n_top else ()
                n_seen += len(tokens)
                yield LibraryStep(
                    tokens,
                    tuple(self._scored(token, each) for token, each in zip(tokens, scores, strict=False)),
                    int(output.cached_tokens or 0),
                    _end(answer.finish_reason),
                )
        except Exception as error:
            raise EngineError(f"TensorRT-LLM failed at the request: {first_line(error)}") from error

    def _scored(self, token: int, found: Any) -> Scored:
        likely = sorted(((id_, float(each.logprob)) for id_, each in found.items()), key=lambda pair: -pair[1])
        own = next((value for id_, value in likely if id_ == token), float("nan"))
        return Scored(token, own, tuple(likely[: self._n_top]))


def _end(reason: object) -> End:
    match reason:
        case None:
            return ""
        case "stop" | "length" | "cancelled":
            return reason
    raise EngineError(f"the request ended with {reason!r}")


CURES: tuple[tuple[str, str], ...] = (
    (
        r"driver version is insufficient|unsupported (?:toolchain|PTX)|lib(?:cudart|cublas|nvrtc|cudnn)\w*\.so",
        "the library is for another version of CUDA than this machine has: update the NVIDIA driver, or install the "
        "library's build for it",
    ),
    (
        r"no NVIDIA driver|no CUDA[- ]capable|no CUDA GPUs|NVML|libcuda\.so|CUDA driver initialization failed",
        "no NVIDIA GPU can be used here: check it with nvidia-smi, or run a GGUF file of the model with llama.cpp",
    ),
    (
        r"out of memory|OutOfMemory|cudaMalloc|insufficient memory|not enough memory",
        "the model does not fit the GPUs: choose a smaller n_ctx or gpu_memory, end what else runs on them, or use "
        "more GPUs",
    ),
    (
        r"(?i:serializ|version tag|engine plan|built (?:for|with) (?:a )?(?:different|another)|compute capability)",
        "the engine was built for another version of TensorRT or another GPU: build it again on this machine",
    ),
    (
        r"(?i:world[ _]size|tensor_parallel|tp_size|invalid device ordinal|number of GPUs)",
        "the model is split over another number of GPUs than there is: check gpus in [tensorrt], and nvidia-smi",
    ),
    (
        r"libmpi|mpi4py|MPI_ERR_SPAWN|Open ?MPI",
        "the library needs Open MPI: install it (apt install openmpi-bin), and do not mix it with another MPI",
    ),
)
"""Pattern of the library's words -> the cure: it names a cause deep inside of CUDA. The words were taken from the
documentation of CUDA, TensorRT and Open MPI; no error of the real library was seen here."""


def with_cure(words: str) -> str:
    """The library's words, and what to do where it is known."""
    found = next((cure for pattern, cure in CURES if re.search(pattern, words)), "")
    return f"{words.rstrip('. ')}; {found}" if found else words


def first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
