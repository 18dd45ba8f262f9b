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


class TestOpenAI(ChatModelIntegrationTests):
    chat_model_class = ChatOpenAI
    chat_model_params: Any = {"model": "lamb", "base_url": f"{URL}/v1", "api_key": "none", "max_retries": 0}  # noqa: RUF012
    supports_json_mode = True


class TestOpenAIResponses(TestOpenAI):
    chat_model_params: Any = {**TestOpenAI.chat_model_params, "use_responses_api": True}  # noqa: RUF012


class TestAnthropic(ChatModelIntegrationTests):
    chat_model_class = ChatAnthropic
    chat_model_params: Any = {"model": "lamb", "base_url": URL, "api_key": "none", "max_retries": 0}  # noqa: RUF012


class TestOllama(ChatModelIntegrationTests):
    chat_model_class = ChatOllama
    chat_model_params: Any = {"model": "lamb", "base_url": URL}  # noqa: RUF012
    supports_json_mode = True
