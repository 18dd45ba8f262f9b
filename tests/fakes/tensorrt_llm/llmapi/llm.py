"""The two LLM classes of the FAKE."""

from __future__ import annotations

import atexit
import json
import time
import weakref
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from ..blocks import BlockCache
from ..executor import Executor, RequestOutput
from ..model import Model
from ..settings import read
from ..signatures import BOTH, ENGINE_ONLY, TORCH_ONLY, bound
from .params import KvCacheConfig, SamplingParams

MAX_NUM_TOKENS = 8192


class BaseLLM:
    """What both classes have."""

    KEYWORDS: frozenset[str]
    IS_ENGINE: bool

    @bound("LLM.__init__")
    def __init__(  # noqa: PLR0917 - the real one
        self, model: str | Path, tokenizer: Any, tokenizer_mode: str, skip_tokenizer_init: bool,
        trust_remote_code: bool, tensor_parallel_size: int, dtype: str, revision: str | None,
        tokenizer_revision: str | None, kwargs: dict[str, Any],
    ) -> None:  # fmt: skip
        self._executor: Executor | None = None
        self.mpi_session: Any = kwargs.get("_mpi_session")
        for key in kwargs:
            if key not in self.KEYWORDS:
                raise ValueError(f"{type(self).__name__} got invalid argument: {key}")
        directory = Path(model)
        config = json.loads((directory / "config.json").read_text())
        self._check_directory(directory, config)
        self.settings = settings = read(directory)
        time.sleep(settings.load_s)
        if settings.fail_load:
            raise RuntimeError(settings.fail_load)
        self.args = kwargs
        self.max_seq_len, block_size, n_ranks = self._sizes(config, kwargs, tensor_parallel_size)
        self._start_ranks(n_ranks)
        kv = kwargs.get("kv_cache_config") or KvCacheConfig()
        if not isinstance(kv, KvCacheConfig):
            raise ValueError(  # noqa: TRY004 - pydantic's error is one
                f"kv_cache_config must be a KvCacheConfig, got {type(kv).__name__}"
            )
        self.tokenizer = None if skip_tokenizer_init else self._load_tokenizer(Path(tokenizer or directory))
        self._end_id = self._find_end(directory, config)
        guided = kwargs.get("guided_decoding_backend")
        if guided not in (None, "xgrammar", *(() if self.IS_ENGINE else ("llguidance",))):
            raise ValueError(f"Unsupported guided decoding backend {guided}")
        n_host = (kv.host_cache_size or 0) // (block_size * 1024)  # the fake's token takes a kilobyte
        cache = BlockCache(
            n_blocks=settings.blocks, n_host=n_host, block_size=block_size, window=self.max_seq_len,
            n_events=kv.event_buffer_max_size, partial=kv.enable_partial_reuse, reuse=kv.enable_block_reuse,
        )  # fmt: skip
        assert self.tokenizer is not None or skip_tokenizer_init
        words = self.tokenizer
        ruled = Model(words, self._end_id, settings, is_engine=self.IS_ENGINE) if words is not None else None
        self._executor = Executor(
            ruled,  # type: ignore[arg-type]
            cache, settings, n_batch=kwargs.get("max_batch_size") or 2048, max_seq_len=self.max_seq_len, guided=guided,
        )  # fmt: skip
        atexit.register(_shut_down, weakref.ref(self))

    def _check_directory(self, directory: Path, config: dict[str, Any]) -> None:
        raise NotImplementedError

    def _sizes(self, config: dict[str, Any], kwargs: dict[str, Any], tp: int) -> tuple[int, int, int]:
        """The longest sequence, the tokens of a block, and the ranks."""
        raise NotImplementedError

    def _start_ranks(self, n_ranks: int) -> None:
        """Real workers of mpi4py where the model needs several ranks. Without a session it spawns its own."""
        if n_ranks == 1 and self.mpi_session is None:
            return
        from .mpi_session import MpiPoolSession, worker_main

        if self.mpi_session is None:
            self.mpi_session = MpiPoolSession(n_workers=n_ranks)
        if self.mpi_session.n_workers != n_ranks:
            raise ValueError(f"the model needs {n_ranks} ranks, the MPI session has {self.mpi_session.n_workers}")
        sums = [future.result() for future in self.mpi_session.submit(worker_main, n_ranks)]
        assert sums == [n_ranks] * n_ranks

    @staticmethod
    def _load_tokenizer(directory: Path) -> Tokenizer | None:
        file = directory / "tokenizer.json"
        return Tokenizer.from_file(str(file)) if file.exists() else None

    def _find_end(self, directory: Path, config: dict[str, Any]) -> int:
        file = directory / "tokenizer_config.json"
        named = json.loads(file.read_text()).get("eos_token") if file.exists() else None
        text = named.get("content") if isinstance(named, dict) else named
        found = self.tokenizer.token_to_id(text) if self.tokenizer is not None and text else None
        ids = config.get("eos_token_id", 0)
        return found if found is not None else (ids[0] if isinstance(ids, list) else ids)

    @bound("BaseLLM.generate_async")
    def generate_async(
        self, inputs: Any, sampling_params: Any, streaming: bool, cache_salt: str | None, **others: Any
    ) -> RequestOutput:
        if self._executor is None or self._executor.is_shutdown():
            raise RuntimeError("LLM is shutting down")
        for name, value in others.items():
            if value not in (None, 0.5):
                raise NotImplementedError(f"the fake has no {name}")
        params = sampling_params or SamplingParams()
        if not isinstance(params, SamplingParams):
            raise TypeError(f"The sampling_params must be type SamplingParams or None, but got {type(sampling_params)}")
        if params.end_id is None:
            if self.tokenizer is None:
                raise ValueError(
                    "tokenizer is required to reset end_id if it is None, or you can explicitly specify the end_id for "
                    "sampling_params"
                )
            params._setup(self.tokenizer, self._end_id)
        tokens = self._tokens(inputs)
        self._check_arguments(len(tokens), params)
        return self._executor.submit(tokens, params, streaming, cache_salt or "")

    def _tokens(self, inputs: Any) -> list[int]:
        if isinstance(inputs, dict) and "prompt_token_ids" in inputs:
            return list(inputs["prompt_token_ids"])
        if isinstance(inputs, list):
            return list(inputs)
        text = inputs.get("prompt") if isinstance(inputs, dict) else inputs
        if not isinstance(text, str) or self.tokenizer is None:
            raise TypeError(f"The inputs must be type str or list of int, but got {type(inputs)}")
        return list(self.tokenizer.encode(text).ids)

    def _check_arguments(self, n_prompt: int, params: SamplingParams) -> None:
        raise NotImplementedError

    @bound("BaseLLM.get_kv_cache_events")
    def get_kv_cache_events(self, timeout: float) -> list[dict[str, Any]]:
        if self._executor is None:
            raise RuntimeError("LLM is shutting down")
        return self._executor.get_kv_events(timeout)

    @bound("BaseLLM.get_stats")
    def get_stats(self, timeout: float) -> list[dict[str, Any]]:
        return []

    @bound("BaseLLM.shutdown")
    def shutdown(self) -> None:
        executor, self._executor = getattr(self, "_executor", None), None
        if executor is not None:
            executor.shutdown()
        session, self.mpi_session = getattr(self, "mpi_session", None), None
        if session is not None:
            session.shutdown()

    def __enter__(self) -> BaseLLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()

    def __del__(self) -> None:
        self.shutdown()


class TorchLLM(BaseLLM):
    """`tensorrt_llm.LLM`: Hugging Face checkpoints."""

    KEYWORDS = BOTH | TORCH_ONLY
    IS_ENGINE = False

    def _check_directory(self, directory: Path, config: dict[str, Any]) -> None:
        if "model_type" not in config:  # an engine's directory among others: this class takes it for a checkpoint
            raise ValueError(f"Unrecognized model in {directory}. Should have a `model_type` key in its config.json.")

    def _sizes(self, config: dict[str, Any], kwargs: dict[str, Any], tp: int) -> tuple[int, int, int]:
        n_ranks = tp * kwargs.get("pipeline_parallel_size", 1) * kwargs.get("context_parallel_size", 1)
        kv = kwargs.get("kv_cache_config") or KvCacheConfig()
        return kwargs.get("max_seq_len") or config["max_position_embeddings"], kv.tokens_per_block, n_ranks

    def _check_arguments(self, n_prompt: int, params: SamplingParams) -> None:
        most = self.args.get("max_num_tokens", MAX_NUM_TOKENS)
        if not self.args.get("enable_chunked_prefill", False) and n_prompt > most:
            raise ValueError(
                f"The sum of prompt length ({n_prompt}), query length (0) should not exceed max_num_tokens ({most})"
            )


class TrtLLM(BaseLLM):
    """`tensorrt_llm._tensorrt_engine.LLM`: prebuilt engines."""

    KEYWORDS = BOTH | ENGINE_ONLY
    IS_ENGINE = True

    def _check_directory(self, directory: Path, config: dict[str, Any]) -> None:
        if "pretrained_config" not in config:
            raise RuntimeError(f"{directory} holds no engine, and the fake builds none")
        for rank in range(self._world(config)):
            if not (directory / f"rank{rank}.engine").exists():
                raise RuntimeError(f"could not open {directory}/rank{rank}.engine")

    @staticmethod
    def _world(config: dict[str, Any]) -> int:
        mapping = config["pretrained_config"].get("mapping", {})
        n: int = mapping.get("tp_size", 1) * mapping.get("pp_size", 1) * mapping.get("cp_size", 1)
        return n

    def _sizes(self, config: dict[str, Any], kwargs: dict[str, Any], tp: int) -> tuple[int, int, int]:
        mapping = config["pretrained_config"].get("mapping", {})
        for asked, built in ((tp, "tp_size"), (kwargs.get("pipeline_parallel_size", 1), "pp_size")):
            if asked not in (1, mapping.get(built, 1)):
                raise ValueError(f"{built} {asked} of the arguments differs from the engine's {mapping.get(built, 1)}")
        build = config["build_config"]
        block_size = build.get("plugin_config", {}).get("tokens_per_block", 32)
        return build["max_seq_len"], block_size, self._world(config)

    def _check_arguments(self, n_prompt: int, params: SamplingParams) -> None:
        n_max = params.max_tokens or 0
        if not self.args.get("enable_chunked_prefill", False) and n_prompt + n_max > self.max_seq_len:
            raise ValueError(
                f"The sum of prompt length ({n_prompt}) and query length (0) max_tokens ({n_max}) should not exceed "
                f"max_seq_len ({self.max_seq_len})"
            )
        if getattr(params, "logprobs", None) and not self.args.get("gather_generation_logits", False):
            raise ValueError(
                f"`sampling_params.logprobs={params.logprobs}` requires `gather_generation_logits=True` to be passed "  # type: ignore[attr-defined]
                "explicitly to the `LLM()` constructor."
            )


def _shut_down(reference: weakref.ref[BaseLLM]) -> None:
    llm = reference()
    if llm is not None:
        llm.shutdown()
