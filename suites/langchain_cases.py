"""LangChain's standard tests, on the three of its chat models that can speak to our server. Run by `langchain.py`."""

# LangChain is in the environment of the suite only.
# mypy: ignore-errors

from __future__ import annotations

import os
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

URL = os.environ["SHEPHERD_SUITE_URL"]
SAME: Any = {"model": "lamb", "temperature": 0}
OVERRIDE = "ewe"
"""A second model of the server: a call may name another than its client does."""


class TestOpenAI(ChatModelIntegrationTests):
    chat_model_class = ChatOpenAI
    # Without `stream_usage` it asks no server but OpenAI's for the usage of a stream.
    chat_model_params: Any = {  # noqa: RUF012
        **SAME, "base_url": f"{URL}/v1", "api_key": "none", "max_retries": 0, "stream_usage": True
    }  # fmt: skip
    supports_json_mode = True
    model_override_value = OVERRIDE


class TestOpenAIResponses(TestOpenAI):
    chat_model_params: Any = {**TestOpenAI.chat_model_params, "use_responses_api": True}  # noqa: RUF012


class TestAnthropic(ChatModelIntegrationTests):
    chat_model_class = ChatAnthropic
    chat_model_params: Any = {**SAME, "base_url": URL, "api_key": "none", "max_retries": 0}  # noqa: RUF012
    supports_anthropic_inputs = True
    model_override_value = OVERRIDE


class TestOllama(ChatModelIntegrationTests):
    chat_model_class = ChatOllama
    chat_model_params: Any = {**SAME, "base_url": URL}  # noqa: RUF012
    supports_json_mode = True
    has_tool_choice = False  # Ollama's requests have no field for it
    model_override_value = OVERRIDE
