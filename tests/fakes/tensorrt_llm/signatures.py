"""The signatures of the real package's public calls, as far as the FAKE has them. A test (`test_fake.py`)
compares them with the facts in `tests/data/tensorrt_api.json`, in every clone.

Parameters stand in the order of the real ones; `*` begins those that are keywords only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .settings import VERSION

IS_OLD = VERSION.startswith("1.2")

LLM_INIT = (
    "self, model, tokenizer=None, tokenizer_mode='auto', skip_tokenizer_init=False, trust_remote_code=False, "
    "tensor_parallel_size=1, dtype='auto', revision=None, tokenizer_revision=None, **kwargs"
)
GENERATE = {
    True: "self, inputs, sampling_params=None, lora_request=None, prompt_adapter_request=None, streaming=False, "
    "kv_cache_retention_config=None, disaggregated_params=None, _postproc_params=None, scheduling_params=None, "
    "cache_salt=None",
    False: "self, inputs, sampling_params=None, lora_request=None, prompt_adapter_request=None, streaming=False, "
    "kv_cache_retention_config=None, disaggregated_params=None, trace_headers=None, _postproc_params=None, "
    "scheduling_params=None, conversation_params=None, cache_salt=None, priority=0.5",
}
"""By whether the version is 1.2: the places of later parameters differ, so they are passed by keyword."""
KV_CACHE = {
    True: "self, *, enable_block_reuse=True, max_tokens=None, max_attention_window=None, sink_token_length=None, "
    "free_gpu_memory_fraction=0.9, host_cache_size=None, onboard_blocks=True, cross_kv_cache_fraction=None, "
    "secondary_offload_min_priority=None, event_buffer_max_size=0, attention_dp_events_gather_period_ms=5, "
    "enable_partial_reuse=True, copy_on_partial_reuse=True, use_uvm=False, max_gpu_total_bytes=0, dtype='auto', "
    "mamba_ssm_cache_dtype='auto', tokens_per_block=32",
    False: "self, *, enable_block_reuse=True, max_tokens=None, max_attention_window=None, sink_token_length=None, "
    "free_gpu_memory_fraction=0.9, host_cache_size=None, cross_kv_cache_fraction=None, "
    "secondary_offload_min_priority=None, event_buffer_max_size=0, attention_dp_events_gather_period_ms=5, "
    "enable_partial_reuse=True, copy_on_partial_reuse=True, use_uvm=False, max_gpu_total_bytes=0, dtype='auto', "
    "mamba_ssm_cache_dtype='auto', tokens_per_block=32, disk_cache_size=None, disk_cache_path=None, "
    "kv_events_config=None, iteration_stats_interval=1, mamba_ssm_stochastic_rounding=False, "
    "mamba_ssm_philox_rounds=10, mamba_state_cache_interval=None, mamba_state_config='MambaStateConfig()', "
    "use_kv_cache_manager_v2='auto'",
}
SAMPLING = (
    "self, *, n=1, best_of=None, use_beam_search=False, beam_search_diversity_rate=None, early_stopping=None, "
    "max_tokens=32, min_tokens=None, end_id=None, pad_id=None, seed=None, temperature=None, top_k=None, top_p=None, "
    "top_p_decay=None, top_p_min=None, top_p_reset_ids=None, min_p=None, repetition_penalty=None, "
    "presence_penalty=None, frequency_penalty=None, length_penalty=None, no_repeat_ngram_size=None, stop=None, "
    "stop_token_ids=None, include_stop_str_in_output=False, bad=None, bad_token_ids=None, logits_processor=None, "
    "apply_batched_logits_processor=False, guided_decoding=None, embedding_bias=None, lookahead_config=None, "
    "ignore_eos=False, detokenize=True, add_special_tokens=True, truncate_prompt_tokens=None, "
    "skip_special_tokens=True, spaces_between_special_tokens=True, logprobs=None, prompt_logprobs=None, "
    "return_context_logits=False, return_generation_logits=False, exclude_input_from_output=True, "
    "return_encoder_output=False, additional_model_outputs=None, return_perf_metrics=False, beam_width_array=None"
)
SIGNATURES: dict[str, str] = {
    "LLM.__init__": LLM_INIT,
    "BaseLLM.generate_async": GENERATE[IS_OLD],
    "BaseLLM.get_kv_cache_events": "self, timeout=2",
    "BaseLLM.get_stats": "self, timeout=2",
    "BaseLLM.shutdown": "self",
    "GenerationResult.result": "self, timeout=None",
    "GenerationResult.aresult": "self",
    "GenerationResult.abort": "self",
    "GenerationResult.aborted": "self",
    "SamplingParams.__init__": SAMPLING,
    "GuidedDecodingParams.__init__": "self, *, json=None, regex=None, grammar=None, json_object=False, "
    "structural_tag=None",
    "KvCacheConfig.__init__": KV_CACHE[IS_OLD],
    "MpiCommSession.__init__": "self, comm=None, n_workers=1",
    "MpiCommSession.submit": "self, task, *args, **kwargs",
    "MpiCommSession.shutdown": "self, wait=True",
    "MpiPoolSession.__init__": "self, n_workers",
    "MpiPoolSession.submit": "self, task, *args, **kwargs",
    "MpiPoolSession.shutdown": "self, wait=True",
}
BOTH = frozenset(
    """pipeline_parallel_size context_parallel_size gpus_per_node moe_cluster_parallel_size moe_tensor_parallel_size
    moe_expert_parallel_size enable_attention_dp enable_lm_head_tp_in_adp cp_config load_format
    fail_fast_on_attention_window_too_large enable_lora lora_config kv_cache_config enable_chunked_prefill
    guided_decoding_backend batched_logits_processor iter_stats_max_iterations request_stats_max_iterations
    peft_cache_config scheduler_config cache_transceiver_config sparse_attention_config speculative_config
    max_batch_size max_input_len max_seq_len max_beam_width max_num_tokens gather_generation_logits
    num_postprocess_workers postprocess_tokenizer_dir reasoning_parser decoding_config return_perf_metrics
    orchestrator_type backend build_config _mpi_session""".split()  # noqa: SIM905 - names, to be read
)
"""Keywords of both classes."""
TORCH_ONLY = frozenset(
    """garbage_collection_gen0_threshold cuda_graph_config attention_dp_config disable_overlap_scheduler moe_config
    attn_backend sampler_type enable_iter_perf_stats enable_iter_req_stats print_iter_log perf_metrics_max_requests
    batch_wait_timeout_ms batch_wait_timeout_iters batch_wait_max_tokens_ratio torch_compile_config enable_autotuner
    enable_layerwise_nvtx_marker enable_min_latency stream_interval force_dynamic_quantization allreduce_strategy
    checkpoint_loader checkpoint_format kv_connector_config mm_encoder_only ray_worker_extension_cls""".split()  # noqa: SIM905 - names, to be read
)
ENGINE_ONLY = frozenset(
    """enable_tqdm workspace enable_build_cache extended_runtime_perf_knob_config calib_config quant_config
    embedding_parallel_mode fast_build enable_prompt_adapter max_prompt_adapter_token batching_type
    normalize_log_probs""".split()  # noqa: SIM905 - names, to be read
)


@functools.cache
def signature(name: str) -> inspect.Signature:
    """The signature of a call, by the name in `SIGNATURES`."""
    return parsed(SIGNATURES[name])


def parsed(text: str) -> inspect.Signature:
    return inspect.signature(eval(f"lambda {text}: None"))


def bound(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated method gets its arguments by keyword, after they are bound to the real signature."""
    real = signature(name)

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                found = real.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
            found.apply_defaults()
            given = dict(found.arguments)
            return method(given.pop("self"), **given)

        return call

    return decorate
