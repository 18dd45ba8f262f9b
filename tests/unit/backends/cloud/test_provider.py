"""The table of providers: addresses in one form, keys in headers only."""

from __future__ import annotations

import pytest

from shepherd.backends.cloud.provider import KINDS, Provider, find_kind, find_model, provider_of
from shepherd.config import schema
from shepherd.core import ConfigError
from shepherd.wire.openai import client as chat
from shepherd.wire.openai.responses import client as responses

KEY = "sk-secret-0123456789"


def made(kind: str, base_url: str | None = None, key: str | None = KEY, **env: str) -> Provider:
    found = find_kind(kind)
    assert found is not None
    return provider_of(found, base_url=base_url, key=key, env=env)


def test_every_type_of_the_configuration_is_in_the_table() -> None:
    assert set(schema.PROVIDER_TYPES) <= set(KINDS)


ADDRESSES = {
    ("openai", None): "https://api.openai.com/v1/responses",
    ("openai", "https://api.openai.com"): "https://api.openai.com/v1/responses",
    ("openai", "https://api.openai.com/v1/"): "https://api.openai.com/v1/responses",
    ("openai", "https://api.openai.com/v1/v1"): "https://api.openai.com/v1/responses",
    ("openai", "https://x.openai.azure.com/openai/v1?api-version=preview"): (
        "https://x.openai.azure.com/openai/v1/responses?api-version=preview"
    ),
    ("openai_compat", "http://localhost:8000"): "http://localhost:8000/v1/chat/completions",
    ("openai_compat", "localhost:8000/v1"): "http://localhost:8000/v1/chat/completions",
    ("openai_compat", "http://h/v1/chat/completions"): "http://h/v1/chat/completions",
    ("openai_compat", "https://r.co/novita/v3/openai"): "https://r.co/novita/v3/openai/chat/completions",
    ("openai_compat", "http://[::1]:9//v1//"): "http://[::1]:9/v1/chat/completions",
    ("openrouter", None): "https://openrouter.ai/api/v1/chat/completions",
    ("zai", None): "https://api.z.ai/api/paas/v4/chat/completions",
    ("anthropic", None): "https://api.anthropic.com/v1/messages",
    ("anthropic", "https://api.anthropic.com/v1"): "https://api.anthropic.com/v1/messages",
    ("gemini", None): "https://generativelanguage.googleapis.com/v1beta/models/m:streamGenerateContent?alt=sse",
    ("gemini", "http://h"): "http://h/v1beta/models/m:streamGenerateContent?alt=sse",
    ("ollama", None): "http://127.0.0.1:11434/api/chat",
    ("ollama", "myhost"): "http://myhost:11434/api/chat",
    ("ollama", "0.0.0.0"): "http://127.0.0.1:11434/api/chat",
    ("ollama", "http://h:1/v1"): "http://h:1/api/chat",
    ("ollama", "https://ollama.com/api"): "https://ollama.com/api/chat",
}


def test_addresses_in_one_form() -> None:
    found = {(kind, base): (it := made(kind, base)).url(it.paths.answer, "m") for kind, base in ADDRESSES}
    assert found == ADDRESSES


def test_the_names_of_models_stay_in_their_part_of_the_path() -> None:
    gemini = made("gemini")
    for model in ("models/gemini-2.5-pro", "gemini-2.5-pro"):
        assert "/v1beta/models/gemini-2.5-pro:stream" in gemini.url(gemini.paths.answer, model)
    assert "/v1beta/tunedModels/x:stream" in gemini.url(gemini.paths.answer, "tunedModels/x")
    assert gemini.url("/models/{model}:countTokens", "a?key=b#c").endswith("/models/a%3Fkey%3Db%23c:countTokens")


def test_addresses_that_cannot_be_used_are_refused_without_their_secret() -> None:
    for address in ("https://user:hunter22@h", "https://h/?key=hunter22", "ftp://hunter22", "http://hunter22:99999"):
        with pytest.raises(ConfigError) as error:
            made("openai_compat", address)
        assert "hunter22" not in str(error.value)


def test_every_quirk_is_one_that_a_codec_knows() -> None:
    known = {*chat.QUIRKS, *responses.QUIRKS}
    assert {kind.name: sorted(kind.quirks - known) for kind in KINDS.values() if kind.quirks - known} == {}


def test_keys_go_into_the_header_of_their_provider() -> None:
    assert made("openai").headers["Authorization"] == f"Bearer {KEY}"
    assert made("anthropic").headers == {"anthropic-version": "2023-06-01", "x-api-key": KEY}
    assert made("gemini").headers == {"x-goog-api-key": KEY}
    assert "Authorization" not in made("ollama", key=None).headers


def test_keys_of_the_environment() -> None:
    assert made("gemini", key=None, GEMINI_API_KEY="ga").key == "ga"
    assert made("gemini", key=None, GEMINI_API_KEY="ga", GOOGLE_API_KEY="gb").key == "gb"
    assert made("openai", key=None, OPENAI_API_KEY=' "quoted" \n').key == "quoted"
    assert made("anthropic", key=None, ANTHROPIC_AUTH_TOKEN="t").headers["Authorization"] == "Bearer t"
    own = made("anthropic", key="given-key", ANTHROPIC_AUTH_TOKEN="t")
    assert own.headers["x-api-key"] == "given-key"
    assert made("openai", OPENAI_ORG_ID="org-1").headers["OpenAI-Organization"] == "org-1"
    assert made("openai", OPENAI_CUSTOM_HEADERS="X-A: b\nX-C: d").headers["X-C"] == "d"
    assert made("openai", OPENAI_BASE_URL="http://127.0.0.1:9/").is_local
    with pytest.raises(ConfigError, match="set GOOGLE_API_KEY or GEMINI_API_KEY"):
        made("gemini", key=None)
    with pytest.raises(ConfigError) as error:
        made("openai", key="sk-with blank")
    assert "sk-with" not in str(error.value)


def test_two_variables_that_differ_are_told(caplog: pytest.LogCaptureFixture) -> None:
    made("gemini", key=None, GEMINI_API_KEY="same-key", GOOGLE_API_KEY="same-key")
    assert not caplog.records
    made("gemini", key=None, GEMINI_API_KEY="key-of-gemini", GOOGLE_API_KEY="key-of-google")
    assert caplog.messages == ["GOOGLE_API_KEY and GEMINI_API_KEY are set; GOOGLE_API_KEY is used"]


def test_headers_that_http_does_not_allow_are_refused() -> None:
    for name, value in (("X-A", "two\nlines"), ("X A", "b"), ("X-A", "\u00fc"), ("", "b")):
        with pytest.raises(ConfigError, match="headers"):
            provider_of(KINDS["openai"], key=KEY, headers={name: value})


def test_nothing_shows_a_key() -> None:
    provider = made("openai", OPENAI_ORG_ID="org-12345")
    assert KEY not in repr(provider)
    assert "org-12345" not in repr(provider)
    assert provider.hide(f"a {KEY} b org-12345") == "a *** b ***"


def test_models_by_their_names() -> None:
    names = {
        "claude-sonnet-4-5": ("anthropic", "claude-sonnet-4-5"),
        "gemini/gemini-3-flash": ("gemini", "gemini-3-flash"),
        "google/gemini-3-flash": ("gemini", "gemini-3-flash"),
        "openrouter/anthropic/claude-3": ("openrouter", "anthropic/claude-3"),
        "xai/grok-4": ("grok", "grok-4"),
        "gpt-5.6": ("openai", "gpt-5.6"),
        "o3-mini": ("openai", "o3-mini"),
        "grok-4.3": ("grok", "grok-4.3"),
    }
    found = {spec: (it[0].name, it[1]) if (it := find_model(spec)) else None for spec in names}
    assert found == names
    assert [find_model(spec) for spec in ("qwen3", "gpt-oss", "hf:owner/repo", "./a/b.gguf", "openai/")] == [None] * 5
