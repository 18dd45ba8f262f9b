"""The tables of the pages about providers, made of what the code has: the providers, thinking, windows, what is proved.

python tests/providers_page.py       # writes them between `<!-- made: NAME -->` and `<!-- end -->`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from shepherd.backends.cloud import models
from shepherd.backends.cloud.provider import ALIASES, KINDS, Provider, ProviderKind, provider_of
from shepherd.core import Message, ReasoningLevel, Request, Text

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "providers.md", DOCS / "provider-reference.md")
SECTION = re.compile(r"(<!-- made: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
LEVELS: tuple[ReasoningLevel, ...] = get_args(ReasoningLevel)
SPEAKS = {
    "openai.chat": "chat completions",
    "openai.responses": "Responses",
    "anthropic": "Anthropic",
    "gemini": "Gemini",
    "ollama": "Ollama",
}


def providers() -> list[list[str]]:
    also: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        also.setdefault(name, []).append(alias)
    rows = [["`type`", "provider", "speaks", "key", "address"]]
    for kind in KINDS.values():
        names = ", ".join(f"`{each}`" for each in (kind.name, *also.get(kind.name, ())))
        keys = " or ".join(f"`{each}`" for each in kind.keys)
        if not kind.needs_key:
            keys = f"{keys}, if it wants one" if keys else "`api_key`, if it wants one"
        address = kind.base_url.partition("://")[2].partition("/")[0] if kind.needs_key else kind.base_url
        variables = "".join(f", `{each}`" for each in kind.urls)
        speaks = ", else ".join(SPEAKS[each] for each in kind.protocols)
        rows.append([names, kind.title, speaks, keys, f"{address or 'yours: `base_url`'}{variables}"])
    return rows


def reasoning() -> list[list[str]]:
    """What each level becomes; neighbours that agree share a row."""
    rows = [["provider", "models", *(f"`{level}`" for level in LEVELS)]]
    for name, known in models.TABLE.items():
        kind = KINDS["openai_compat" if name == "*" else name]
        provider = _provider(kind)
        for glob, facts in known:
            if not facts.thinks_by:
                continue
            sent = [_sent(provider, _example(glob), facts, level) for level in LEVELS]
            title = "every other" if name == "*" else kind.title
            if rows[-1][0] == title and rows[-1][2:] == sent:
                rows[-1][1] += f", `{glob}`"
            else:
                rows.append([title, "all" if glob == "*" else f"`{glob}`", *sent])
    return rows


def windows() -> list[list[str]]:
    rows = [["provider", "models", "window", "longest answer"]]
    for name, known in models.TABLE.items():
        for glob, facts in known:
            if facts.n_ctx is None:
                continue
            numbers = [
                f"{n:,}" if n else "not known" for n in (facts.n_ctx, None if facts.embeds else facts.max_output)
            ]
            title = "every other" if name == "*" else KINDS[name].title
            if rows[-1][0] == title and rows[-1][2:] == numbers:
                rows[-1][1] += f", `{glob}`"
            else:
                rows.append([title, f"`{glob}`", *numbers])
    return rows


def matrix() -> list[list[str]]:
    """What `tests/unit/server/test_providers.py` proves, a row for what a client does."""
    from tests.unit.server import test_providers as proved

    surfaces = len(proved.SURFACES)
    rows = [[f"all {surfaces} surfaces", *(TITLES[wire.name] for wire in proved.WIRES)]]
    for case in (*proved.CASES, proved.CUT, proved.OVERFLOW):
        notes = {wire: note for (wire, name), note in proved.IMPOSSIBLE.items() if name == case.name}
        marks = [f"no ({notes[wire.name]})" if wire.name in notes else "yes" for wire in proved.WIRES]
        rows.append([f"{case.name} (1)" if case.without else case.name, *marks])
    return rows


TITLES = {
    "openai": "OpenAI, Responses",
    "openai-chat": "OpenAI, chat completions",
    "anthropic": "Anthropic",
    "gemini": "Gemini",
    "grok": "xAI",
    "ollama": "Ollama",
    "compatible": "others with OpenAI's protocol",
}


def _provider(kind: ProviderKind) -> Provider:
    return provider_of(kind, key="key", base_url=None if kind.base_url else "http://127.0.0.1:1")


def _example(glob: str) -> str:
    """A name that the glob takes."""
    return re.sub(r"\[(.)[^]]*\]", r"\1", glob).replace("*", "")


def _sent(provider: Provider, model: str, facts: models.Facts, level: ReasoningLevel) -> str:
    codec = provider.codec()
    silent = Request(model=model, messages=(Message("user", (Text("hi"),)),))
    asked = replace(silent, reasoning=level)
    before, after = (
        codec.encode_request(each, models.endpoint(provider, model, facts, each)) for each in (silent, asked)
    )
    words = [_word(path, value) for path, value in _new(after, before)]
    return ", ".join(filter(None, words)) or "nothing is sent"


def _new(after: Mapping[str, Any], before: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict):
            found += _new(value, old if isinstance(old, dict) else {}, f"{path}{key}.")
        elif value != old:
            found.append((path + key, value))
    return found


def _word(path: str, value: Any) -> str:
    name = path.rpartition(".")[2]
    match name:
        case "type":
            return {"adaptive": "adaptive", "enabled": "on", "disabled": "off"}.get(str(value), str(value))
        case "enable_thinking":
            return "on" if value else "off"
        case "budget_tokens" | "thinkingBudget":
            return f"{value:,} tokens"
        case "effort" | "reasoning_effort" | "thinkingLevel":
            return f"`{value}`"
        case _:
            return ""


def table(rows: list[list[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "".join(f"| {' | '.join(cell.strip() for cell in line)} |\n" for line in lines)


def made(page: Path) -> str:
    """The page as it has to be."""
    tables = {"providers": providers, "reasoning": reasoning, "windows": windows, "matrix": matrix}
    text = page.read_text("utf-8")
    return SECTION.sub(lambda match: f"{match[1]}{table(tables[match[2]]())}{match[4]}", text)


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(made(each), "utf-8")
