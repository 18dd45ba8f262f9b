"""The model families, one file a kind: their markup, and the marks by which their templates are recognised."""

from shepherd.dialects.families import (
    cohere,
    deepseek,
    deepseek_dsml,
    functionary,
    gemma,
    gigachat,
    glm,
    harmony,
    hermes,
    kimi,
    kimi_k3,
    lfm,
    lists,
    llama,
    minicpm,
    minimax,
    mistral,
    muse,
    qwen_xml,
    seed,
    solar,
)
from shepherd.dialects.families.plain import PLAIN
from shepherd.dialects.parse.tags import TagDialect

FAMILIES = (
    *(cohere, deepseek, deepseek_dsml, functionary, gemma, gigachat, glm, harmony, hermes, kimi, kimi_k3, lfm, lists),
    *(llama, minicpm, minimax, mistral, muse, qwen_xml, seed, solar),
)
DIALECTS: tuple[TagDialect, ...] = tuple(dialect for family in FAMILIES for dialect in family.DIALECTS)
"""At most one of them signs a template; `PLAIN` takes what none does."""

__all__ = ["DIALECTS", "PLAIN"]
