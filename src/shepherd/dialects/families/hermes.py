"""Hermes: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, thoughts in `<think>`.

Spoken by Hermes 2 and 3, Qwen 2.5 and 3, QwQ, MiMo, Granite 4, Reka, Bielik and many fine-tunes of them.
"""

from __future__ import annotations

from shepherd.dialects.families.generic import TAGGED, THINK, family

HERMES = family(
    "hermes",
    ("<tool_call>",),
    TAGGED[0],
    # The same tag around other insides: Qwen3-Coder, GLM and its kin, MiniMax; and Apriel's list of calls.
    foreign=("<function=", "<arg_key", "]<]minimax[>[", "<tool_calls>"),
    thoughts=THINK,
)
