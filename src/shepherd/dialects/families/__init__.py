"""The model families, one file a kind: what they write, and how to know them by their templates."""

from shepherd.dialects.families import (
    cohere,
    deepseek,
    deepseek_dsml,
    functionary,
    gemma,
    generic,
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

DIALECTS: tuple[TagDialect, ...] = (
    *cohere.DIALECTS,
    *deepseek.DIALECTS,
    *deepseek_dsml.DIALECTS,
    *functionary.DIALECTS,
    *gemma.DIALECTS,
    *generic.DIALECTS,
    *gigachat.DIALECTS,
    *glm.DIALECTS,
    *harmony.DIALECTS,
    *hermes.DIALECTS,
    *kimi.DIALECTS,
    *kimi_k3.DIALECTS,
    *lfm.DIALECTS,
    *lists.DIALECTS,
    *llama.DIALECTS,
    *minicpm.DIALECTS,
    *minimax.DIALECTS,
    *mistral.DIALECTS,
    *muse.DIALECTS,
    *qwen_xml.DIALECTS,
    *seed.DIALECTS,
    *solar.DIALECTS,
)
"""At most one of them signs a template; `PLAIN` takes what none does."""

__all__ = ["DIALECTS", "PLAIN"]
