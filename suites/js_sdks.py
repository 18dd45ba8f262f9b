"""OpenAI's and Anthropic's own JavaScript SDKs, against our server with the embedded model: `js_sdks_checks.mjs`."""

from __future__ import annotations

from suites.npm import checked, modules
from suites.report import Report

PACKAGES = ("openai@7.57.0", "@anthropic-ai/sdk@1.12.0", "zod@4.6.7")


def run() -> Report:
    """Our checks of their helpers, and of their classes of errors."""
    rows = checked(modules("js-sdks", *PACKAGES), "js_sdks_checks.mjs")
    return Report("js_sdks", "ours", ", ".join(PACKAGES[:-1]), rows)
