"""The model families, one file a kind: their markup, and the marks by which their templates are recognised."""

from shepherd.dialects.families import lists, mistral
from shepherd.dialects.families.cohere import COHERE, COHERE_2
from shepherd.dialects.families.deepseek import DEEPSEEK_R1, DEEPSEEK_V3
from shepherd.dialects.families.deepseek_dsml import DSML_V3, DSML_V4
from shepherd.dialects.families.functionary import FUNCTIONARY, FUNCTIONARY_25, FUNCTIONARY_31
from shepherd.dialects.families.gemma import FUNCTION_GEMMA, GEMMA, GEMMA4
from shepherd.dialects.families.gigachat import GIGACHAT, GIGACHAT_31
from shepherd.dialects.families.glm import GLM, HUNYUAN, LONGCAT
from shepherd.dialects.families.harmony import HARMONY
from shepherd.dialects.families.hermes import HERMES
from shepherd.dialects.families.kimi import KIMI
from shepherd.dialects.families.kimi_k3 import KIMI_K3
from shepherd.dialects.families.lfm import LFM, LFM_TAGGED
from shepherd.dialects.families.llama import LLAMA
from shepherd.dialects.families.minimax import MINIMAX_M2, MINIMAX_M3
from shepherd.dialects.families.muse import MUSE
from shepherd.dialects.families.plain import PLAIN
from shepherd.dialects.families.solar import SOLAR
from shepherd.dialects.families.tagged import MINICPM, QWEN_XML, SEED
from shepherd.dialects.parse.tags import TagDialect

DIALECTS: tuple[TagDialect, ...] = (
    *(COHERE, COHERE_2, DEEPSEEK_R1, DEEPSEEK_V3, DSML_V3, DSML_V4, FUNCTIONARY, FUNCTIONARY_25, FUNCTIONARY_31),
    *(GEMMA4, FUNCTION_GEMMA, GEMMA, GIGACHAT, GIGACHAT_31, GLM, HUNYUAN, LONGCAT, HARMONY, HERMES, KIMI, KIMI_K3),
    *(LFM, LFM_TAGGED, *lists.DIALECTS, LLAMA, MINICPM, MINIMAX_M2, MINIMAX_M3, *mistral.DIALECTS, MUSE, QWEN_XML),
    *(SEED, SOLAR),
)
"""At most one of them signs a template; `PLAIN` takes what none does."""

__all__ = ["DIALECTS", "PLAIN"]
