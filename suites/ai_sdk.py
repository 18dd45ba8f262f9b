"""The AI SDK (npm `ai`) and its providers, against our server with the embedded model: `ai_sdk_checks.mjs`."""

from __future__ import annotations

from suites.npm import checked, modules
from suites.report import Report

PACKAGES = (
    "ai@7.0.173",
    "@ai-sdk/openai@4.0.118",
    "@ai-sdk/openai-compatible@3.0.92",
    "@ai-sdk/anthropic@4.0.105",
    "@ai-sdk/open-responses@2.0.36",
    "@ai-sdk/mistral@4.0.87",
    "@ai-sdk/deepseek@3.0.56",
    "@ai-sdk/groq@4.0.84",
    "@openrouter/ai-sdk-provider@3.1.0",
    "ai-sdk-ollama@4.3.0",
    "ollama-ai-provider-v2@4.0.1",
    "zod@4.6.7",
)


def run() -> Report:
    """Our checks over each provider."""
    rows = checked(modules("ai-sdk", *PACKAGES), "ai_sdk_checks.mjs")
    return Report("ai_sdk", "ours", ", ".join(PACKAGES[:-1]), rows)
