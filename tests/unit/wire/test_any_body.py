"""Whatever a client sends becomes a request, or an error that a client can act on; in every protocol."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import amount

from shepherd.core import InvalidRequest
from shepherd.wire.base import Json

BODIES = {
    "openai.chat": "messages tools tool_choice functions function_call stop n seed temperature logit_bias max_tokens "
    "response_format stream stream_options chat_template_kwargs user guided_json guided_choice guided_regex grammar "
    "structured_outputs parallel_tool_calls thinking reasoning logprobs top_logprobs modalities input instructions",
    "openai.completions": "prompt n best_of logprobs suffix echo max_tokens stop stream model",
    "openai.responses.codec": "input tools tool_choice instructions text reasoning include metadata truncation "
    "max_output_tokens user store stream prompt_cache_key top_logprobs shepherd.n_kept context_management",
    "anthropic.codec": "messages system tools tool_choice thinking output_config metadata max_tokens stop_sequences",
    "ollama.chat": "messages model tools options format think keep_alive stream",
    "ollama.generate": "prompt model suffix raw images options format think keep_alive",
}
"""The fields of a body, by the module of its codec."""
INSIDE = {
    "keys": "type role content text tool_calls tool_call_id tool_use_id call_id id function name arguments parameters "
    "input output summary encrypted_content action tools namespace error image_url url images reasoning_content "
    "refusal json_schema schema strict json regex choice allowed_tools mode custom format definition effort enabled "
    "source data media_type input_schema file file_data filename file_id thinking signature is_error tool title",
    "types": "text image_url function refusal required json_object json_schema allowed_tools custom file input_audio "
    "tool_use tool_result thinking image enabled document search_result redacted_thinking server_tool_use "
    "web_search_tool_result mcp_tool_use compaction container_upload tool_reference tool_addition tool_removal message "
    "reasoning function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call "
    "shell_call_output mcp_call input_text output_text input_image input_file item_reference additional_tools odd",
    "words": "{} [1 high 5m base64 url data:image/png;base64,AAAA data:, data:image/png;base64,A",
}
KEYS, TYPES, WORDS = (each.split() for each in INSIDE.values())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from([*WORDS, *TYPES]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
        | st.builds(
            lambda kind, rest: {**rest, "type": kind},
            st.sampled_from(TYPES),
            st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        )
    ),
    max_leaves=16,
)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "developer", "function"])
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": VALUES}, optional={"tool_calls": VALUES, "tool_call_id": VALUES})
    | st.fixed_dictionaries({"type": st.sampled_from(TYPES)}, optional=dict.fromkeys(KEYS[1:], VALUES)),
    max_size=3,
)
USER = {"role": "user", "content": "Hi"}
SEARCH = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
KNOWN: list[tuple[str, Json]] = [
    ("openai.chat", {"messages": [{"role": []}]}),
    ("openai.chat", {"messages": [{"role": "user", "content": [{"type": {}}]}]}),
    ("openai.chat", {"messages": [USER], "tool_choice": {"type": "function", "function": {"name": []}}}),
    (
        "anthropic.codec",
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [SEARCH]}]}]},
    ),
]
"""Bodies that once were something else."""


def read(name: str, body: Json) -> None:
    codec = importlib.import_module(f"shepherd.wire.{name}")
    error: InvalidRequest | None = None
    try:
        decoded = codec.decode_request(body)
    except InvalidRequest as caught:
        error = caught
    if error is not None:
        assert error.status == 400
        assert error.field is not None or name not in ("openai.chat", "openai.completions")
        return
    assert decoded.requests
    if name == "anthropic.codec":
        assert all(len(each.results) == (each.role == "tool") for each in decoded.request.messages)


@pytest.mark.parametrize(("name", "body"), KNOWN)
def test_a_body_that_once_failed_is_a_request_or_an_invalid_request(name: str, body: Json) -> None:
    read(name, body)


@pytest.mark.parametrize("name", BODIES)
@given(st.data())
@settings(deadline=None, max_examples=amount(10, 1500))
def test_whatever_is_sent_is_a_request_or_an_invalid_request(name: str, data: st.DataObject) -> None:
    fields = dict.fromkeys(BODIES[name].split(), VALUES)
    talk = {key: MESSAGES for key in ("messages", "input") if key in fields}
    few = {key: value for key, value in fields.items() if key not in talk}
    read(name, data.draw(st.fixed_dictionaries(talk, optional=few) | st.fixed_dictionaries({}, optional=fields)))
