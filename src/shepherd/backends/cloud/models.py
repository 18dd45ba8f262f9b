"""What a model accepts: as its provider reports, else from one dated table; the name alone proves nothing.

    provider's list ─ listed ─▶ Facts ┐
    TABLE ─ known ────────▶ Facts ────┴─ over ─▶ endpoint ─▶ `wire.client.Endpoint` ─▶ codec

A model that is in neither has no facts: nothing is sent about its thinking, and its window is not checked.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal

from shepherd.backends.cloud.provider import Provider
from shepherd.core import ReasoningLevel, Request
from shepherd.core.dataclasses import dataclass, fields, replace
from shepherd.core.status import ModelCard
from shepherd.wire.base import Json
from shepherd.wire.client import Effort, Endpoint
from shepherd.wire.values import object_at, whole_number

AS_OF = "2026-11-21"
"""When the table was written."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model; None and empty = not known."""

    n_ctx: int | None = None
    max_output: int | None = None
    thinks_by: Literal["", "effort", "budget", "adaptive", "level", "switch"] | None = None
    efforts: tuple[Effort, ...] = ()
    thinks: bool | None = None
    """Where a request leaves it open."""
    refuses: frozenset[str] = frozenset()
    refuses_thinking: frozenset[str] = frozenset()
    """Fields that it refuses while it thinks."""
    sees_images: bool | None = None
    reads_documents: bool | None = None
    hears: bool | None = None
    calls_tools: bool | None = None
    embeds: bool | None = None
    created: int = 0
    title: str = ""

    def over(self, other: Facts) -> Facts:
        """These facts where they are known, the other ones elsewhere."""
        if self == UNKNOWN:  # mostly, and every request asks
            return other
        known = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        if self.thinks_by == "switch" and other.thinks_by == "effort":  # Ollama reports only that a model thinks
            del known["thinks_by"]
        return replace(other, **known)

    @property
    def capabilities(self) -> tuple[str, ...]:
        if self.embeds:
            return ("embedding",)
        return (
            "completion",
            *(("tools",) if self.calls_tools is not False else ()),
            *(("thinking",) if self.thinks_by else ()),
            *(("vision",) if self.sees_images else ()),
            *(("audio",) if self.hears else ()),
        )


UNKNOWN = Facts()

# -- the table -------------------------------------------------------------------------------------------------------

_SAMPLING = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"}
)
_TO_HIGH: tuple[Effort, ...] = ("low", "medium", "high")
_OFF_TO_HIGH: tuple[Effort, ...] = ("none", *_TO_HIGH)
_OFF_TO_XHIGH: tuple[Effort, ...] = (*_OFF_TO_HIGH, "xhigh")


def _gpt(n_ctx: int | None, efforts: tuple[Effort, ...], *, thinks: bool = True) -> Facts:
    always = frozenset({"stop"}) | (_SAMPLING if "none" not in efforts else frozenset())
    facts = Facts(n_ctx, 128_000, "effort", efforts, thinks, always, _SAMPLING, hears=False)
    return replace(facts, sees_images=True, reads_documents=True)


def _no_thinking(n_ctx: int, max_output: int, *, sees: bool = True, hears: bool = False) -> Facts:
    return Facts(n_ctx, max_output, "", sees_images=sees, reads_documents=sees, hears=hears)


def _claude(n_ctx: int | None, max_output: int | None, *, refuses: frozenset[str] = frozenset()) -> Facts:
    efforts: tuple[Effort, ...] = (*_TO_HIGH, "xhigh", "max") if refuses else (*_TO_HIGH, "max")
    facts = Facts(n_ctx, max_output, "adaptive", efforts, False, refuses, hears=False)
    return replace(facts, sees_images=True, reads_documents=True)


def _gemini(thinks_by: Literal["budget", "level"], efforts: tuple[Effort, ...]) -> Facts:
    return Facts(1_048_576, 65_536, thinks_by, efforts, True, sees_images=True, reads_documents=True, hears=True)


_FIXED_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_UNFORCED = _FIXED_SAMPLING | {"tool_choice"}
"""It refuses every choice but `auto`."""
_OLD_CLAUDE = replace(_claude(200_000, 64_000), thinks_by="budget", efforts=_TO_HIGH)


def _grok(n_ctx: int | None, efforts: tuple[Effort, ...] = (), *, sees: bool = True) -> Facts:
    refuses = frozenset({"stop", "presence_penalty", "frequency_penalty"})
    return Facts(n_ctx, None, "effort" if efforts else "", efforts, True, refuses, sees_images=sees, hears=False)


TABLE: Mapping[str, tuple[tuple[str, Facts], ...]] = {
    "openai": (
        ("gpt-5-chat*", _no_thinking(128_000, 16_384)),
        ("gpt-5.[56]*", _gpt(1_050_000, _OFF_TO_XHIGH)),
        ("gpt-5.4-mini*", _gpt(400_000, _OFF_TO_XHIGH, thinks=False)),
        ("gpt-5.4-nano*", _gpt(400_000, _OFF_TO_XHIGH, thinks=False)),
        ("gpt-5.[34]*", _gpt(None, _OFF_TO_XHIGH, thinks=False)),
        ("gpt-5.2*", _gpt(400_000, _OFF_TO_XHIGH, thinks=False)),
        ("gpt-5.1*", _gpt(400_000, _OFF_TO_HIGH, thinks=False)),
        ("gpt-5-codex*", _gpt(400_000, _TO_HIGH)),
        ("gpt-5-pro*", _gpt(400_000, ("high",))),
        *((f"gpt-5{end}", _gpt(400_000, ("minimal", *_TO_HIGH))) for end in ("", "-[0-9]*", "-mini*", "-nano*")),
        *((glob, _no_thinking(128_000, 16_384, sees=False, hears=True)) for glob in ("gpt-audio*", "gpt-4o*-audio*")),
        ("gpt-4.1*", _no_thinking(1_047_576, 32_768)),
        *((glob, _no_thinking(128_000, 16_384)) for glob in ("gpt-4o*", "chatgpt-4o*", "gpt-4.5*")),
        ("gpt-4-turbo*", _no_thinking(128_000, 4_096)),
        ("gpt-4", _no_thinking(8_192, 8_192, sees=False)),
        ("gpt-3.5-turbo*", _no_thinking(16_385, 4_096, sees=False)),
        ("o1-mini*", replace(_gpt(128_000, ()), thinks_by="", max_output=65_536, sees_images=False)),
        ("o3-mini*", replace(_gpt(200_000, _TO_HIGH), max_output=100_000, sees_images=False)),
        *((glob, replace(_gpt(200_000, _TO_HIGH), max_output=100_000)) for glob in ("o1*", "o3*", "o4-mini*")),
        ("text-embedding-*", Facts(8_191, embeds=True)),
    ),
    "anthropic": (
        ("claude-fable-5*", _claude(1_000_000, 128_000, refuses=_UNFORCED)),
        ("claude-mythos-5*", _claude(1_000_000, 128_000, refuses=_UNFORCED)),
        ("claude-opus-5*", _claude(1_000_000, 128_000, refuses=_FIXED_SAMPLING)),
        ("claude-sonnet-5*", _claude(1_000_000, 128_000, refuses=_FIXED_SAMPLING)),
        ("claude-opus-4-[7-9]*", _claude(None, 128_000, refuses=_FIXED_SAMPLING)),
        ("claude-opus-4-6*", _claude(None, 128_000)),
        ("claude-sonnet-4-6*", _claude(None, 64_000)),
        ("claude-opus-4-5*", _OLD_CLAUDE),
        *((glob, replace(_OLD_CLAUDE, max_output=32_000)) for glob in ("claude-opus-4-*", "claude-opus-4")),
        *((glob, _OLD_CLAUDE) for glob in ("claude-sonnet-4*", "claude-haiku-4-5*", "claude-3-7-*")),
        ("claude-3-5-*", _no_thinking(200_000, 8_192)),
        ("claude-3-*", _no_thinking(200_000, 4_096)),
    ),
    "gemini": (
        ("gemini-embedding*", Facts(2_048, embeds=True)),
        ("gemini-[3-9]*-pro*", _gemini("level", _TO_HIGH)),
        ("gemini-[3-9]*", _gemini("level", ("minimal", *_TO_HIGH))),
        ("gemini-2.5-pro*", _gemini("budget", _TO_HIGH)),
        ("gemini-2.5-*-image*", _no_thinking(32_768, 32_768)),
        ("gemini-2.5-flash-lite*", replace(_gemini("budget", _OFF_TO_HIGH), thinks=False)),
        ("gemini-2.5-*", _gemini("budget", _OFF_TO_HIGH)),
        ("gemini-2.0-*", _no_thinking(1_048_576, 8_192, hears=True)),
    ),
    "grok": (
        ("grok-4.20*", _grok(None)),
        ("grok-4.3*", _grok(1_000_000, _OFF_TO_HIGH)),
        ("grok-4.[5-9]*", _grok(500_000, _TO_HIGH)),
        ("grok-4-fast*", _grok(2_000_000)),
        ("grok-4*", _grok(256_000)),
        ("grok-code-fast*", _grok(256_000, sees=False)),
        ("grok-3-mini*", _grok(131_072, ("low", "high"), sees=False)),
        ("grok-3*", Facts(131_072, thinks_by="", sees_images=False, hears=False)),
    ),
    **{kind: (("*", Facts(thinks_by="switch")),) for kind in ("vllm", "sglang", "llama-server")},
    "shepherd": (("*", Facts(thinks_by="effort", efforts=_OFF_TO_HIGH)),),
    "deepseek": (("deepseek-*", Facts(thinks_by="switch")),),
    "zai": (("glm-*", Facts(thinks_by="switch")),),
    "moonshot": (("kimi-*", Facts(thinks_by="switch")),),
    "*": (
        ("*gpt-oss*", Facts(131_072, None, "effort", _TO_HIGH, True, sees_images=False, hears=False)),
    ),
}  # fmt: skip
"""The first glob that a name matches, by the kind of provider; `*` = every kind. As of `AS_OF`."""


def known(provider: Provider, model: str) -> Facts:
    return _in_table(provider.kind.name, model)


@functools.lru_cache(maxsize=1_000)
def _in_table(kind: str, model: str) -> Facts:
    name = model.removeprefix("models/").casefold()
    rows = (*TABLE["*"], *TABLE.get(kind, ()))
    return next((facts for glob, facts in rows if fnmatchcase(name, glob)), UNKNOWN)


def endpoint(provider: Provider, model: str, facts: Facts, request: Request) -> Endpoint:
    """What the codec must know for one request."""
    level: ReasoningLevel | None = request.reasoning
    thinks = facts.thinks if level is None else level != "off"
    return Endpoint(
        model,
        f"{provider.name}:{model}",
        n_ctx=facts.n_ctx,
        max_output=facts.max_output,
        efforts=facts.efforts,
        thinks_by=facts.thinks_by,
        refuses=facts.refuses | (facts.refuses_thinking if thinks else frozenset()),
        sees_images=facts.sees_images is not False,
        reads_documents=facts.reads_documents is True,
        hears=facts.hears is not False,
        quirks=provider.quirks,
        options=provider.options,
    )


def card(model: str, facts: Facts) -> ModelCard:
    return ModelCard(
        model,
        facts.n_ctx or 0,
        facts.created,
        facts.title,
        "embedding" if facts.embeds else "chat",
        capabilities=facts.capabilities,
    )


# -- what providers report -------------------------------------------------------------------------------------------


def listed(body: Json) -> Iterator[tuple[str, Facts]]:
    """The models of a provider's list, in any of its forms; entries that cannot be read are left out."""
    entries: list[Any] = next((body[key] for key in ("data", "models") if isinstance(body.get(key), list)), [])
    for entry in entries:
        if isinstance(entry, dict):
            name = next((entry[key] for key in ("id", "name", "model") if isinstance(entry.get(key), str)), "")
            if name:
                yield name.removeprefix("models/"), _facts(entry)


def next_page(body: Json) -> str:
    """The query of the list's next page; empty for the last one."""
    if isinstance(token := body.get("nextPageToken"), str) and token:
        return f"pageToken={token}"
    if body.get("has_more") is True and isinstance(last := body.get("last_id"), str) and last:
        return f"after_id={last}"
    return ""


def decode_show(body: Json) -> Facts:
    """What Ollama's `/api/show` reports of one model."""
    info = body.get("model_info")
    pairs = info.items() if isinstance(info, dict) else ()
    n_ctx = next((_count(value) for key, value in pairs if key.endswith(".context_length")), None)
    words = _words(body.get("capabilities"))
    if not words:
        return Facts(n_ctx)
    return Facts(
        n_ctx,
        thinks_by="switch" if "thinking" in words else "",
        sees_images="vision" in words,
        hears="audio" in words,
        calls_tools="tools" in words,
        embeds="embedding" in words and "completion" not in words,
    )


def _facts(entry: Json) -> Facts:
    meta, top, able = object_at(entry, "meta"), object_at(entry, "top_provider"), object_at(entry, "capabilities")
    windows = (
        entry.get("loaded_context_length"),  # LM Studio: of the loaded model, less than it could have
        *(entry.get(key) for key in ("max_model_len", "max_input_tokens", "inputTokenLimit", "context_length")),
        *(entry.get(key) for key in ("context_window", "max_context_length")),
        meta.get("n_ctx"),
    )
    outputs = (
        entry.get("outputTokenLimit"),
        entry.get("max_completion_tokens"),
        entry.get("max_tokens") if "max_input_tokens" in entry else None,
        top.get("max_completion_tokens"),
    )
    methods = _words(entry.get("supportedGenerationMethods"))
    embeds = bool(methods & {"embedContent", "batchEmbedContents", "embedText"}) and "generateContent" not in methods
    inputs = _words(object_at(entry, "architecture").get("input_modalities"))
    facts = Facts(
        next(filter(None, map(_count, windows)), None),
        next(filter(None, map(_count, outputs)), None),
        sees_images=_supported(able, "image_input", "vision", seen="image" in inputs if inputs else None),
        reads_documents=_supported(able, "pdf_input"),
        hears="audio" in inputs if inputs else None,
        embeds=embeds or None,
        created=_created(entry),
        title=next((entry[k] for k in ("display_name", "displayName", "name") if isinstance(entry.get(k), str)), ""),
    )
    if {"reasoning", "reasoning_effort"} & _words(entry.get("supported_parameters")):  # OpenRouter
        facts = replace(facts, thinks_by="effort", efforts=_TO_HIGH)
    return _thinking(facts, entry, able)


def _thinking(facts: Facts, entry: Json, able: Json) -> Facts:
    """Anthropic and Gemini report how a model thinks; Gemini only whether."""
    types = object_at(object_at(able, "thinking"), "types")
    if object_at(able, "thinking").get("supported") is False or entry.get("thinking") is False:
        return replace(facts, thinks_by="")
    if object_at(types, "adaptive").get("supported") is True:
        words: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
        effort = object_at(able, "effort")
        return replace(
            facts,
            thinks_by="adaptive",
            efforts=tuple(word for word in words if object_at(effort, word).get("supported") is True),
        )
    if object_at(types, "enabled").get("supported") is True:
        return replace(facts, thinks_by="budget", efforts=_TO_HIGH)
    return facts


def _supported(able: Json, *names: str, seen: bool | None = None) -> bool | None:
    for name in names:
        value = able.get(name)
        if isinstance(value, dict):
            value = value.get("supported")
        if isinstance(value, bool):
            return value
    return seen


def _created(entry: Json) -> int:
    if isinstance(seconds := entry.get("created"), int | float):
        return int(seconds)
    try:
        return int(datetime.fromisoformat(str(entry.get("created_at") or entry.get("modified_at"))).timestamp())
    except (ValueError, OverflowError):
        return 0


def _words(value: Any) -> frozenset[str]:
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()


def _count(value: Any) -> int | None:
    number = whole_number(value)
    return number if number is not None and number > 0 else None
