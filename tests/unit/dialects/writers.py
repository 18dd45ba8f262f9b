"""Ways to write calls, by family, and the markers that stand around them."""

from __future__ import annotations

from tests.unit.dialects.laws import Calls, Write

SECTION, BEGIN, ARGUMENTS = "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"
END, SECTION_END = "<|tool_call_end|>", "<|tool_calls_section_end|>"
WIDE, WIDE_BEGIN, WIDE_SEP = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"
WIDE_CALL_END, WIDE_END = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"


def mistral(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{text}" for name, text in calls)


def mistral_id(calls: Calls) -> str:
    return "".join(f"[TOOL_CALLS]{name}[CALL_ID]Ab3dE5g{at:02}[ARGS]{text}" for at, (name, text) in enumerate(calls))


def mistral_list(calls: Calls) -> str:
    listed = (
        f'{{"name": "{name}", "arguments": {text}, "id": "Ab3dE5g{at:02}"}}' for at, (name, text) in enumerate(calls)
    )
    return f"[TOOL_CALLS][{', '.join(listed)}]"


def kimi(calls: Calls) -> str:
    written = (f"{BEGIN}functions.{name}:{at}{ARGUMENTS}{text}{END}" for at, (name, text) in enumerate(calls))
    return SECTION + "".join(written) + SECTION_END


def deepseek_r1(calls: Calls) -> str:
    written = (f"{WIDE_BEGIN}function{WIDE_SEP}{name}\n```json\n{text}\n```{WIDE_CALL_END}" for name, text in calls)
    return WIDE + "\n".join(written) + WIDE_END


def deepseek_v31(calls: Calls) -> str:
    return WIDE + "".join(f"{WIDE_BEGIN}{name}{WIDE_SEP}{text}{WIDE_CALL_END}" for name, text in calls) + WIDE_END


def objects(calls: Calls) -> list[str]:
    return [f'{{"name": "{name}", "arguments": {text}}}' for name, text in calls]


def listed(calls: Calls) -> str:
    return f"[{', '.join(objects(calls))}]"


def keyed(calls: Calls) -> list[str]:
    return [f'{{"{name}": {text}}}' for name, text in calls]


def actions(calls: Calls) -> str:
    shown = (f'    {{\n        "tool_name": "{name}",\n        "parameters": {text}\n    }}' for name, text in calls)
    return "Action:\n```json\n[\n" + ",\n".join(shown) + "\n]```"


def bare(calls: Calls) -> str:
    return "; ".join(f'{{"name": "{name}", "parameters": {text}}}' for name, text in calls)


def indented(calls: Calls) -> str:
    return "\n".join(f'{{\n  "name": "{name}",\n  "parameters": {text}\n}}' for name, text in calls)


def tagged(calls: Calls) -> str:
    return "<|python_tag|>" + bare(calls)


MISTRAL_MARKS = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]", "roll", "roll[ARGS]")
KIMI_MARKS = (SECTION, BEGIN, "functions.roll:0", ARGUMENTS, END, SECTION_END, "<think>", "</think>")
WIDE_MARKS = (WIDE, WIDE_BEGIN, "function", WIDE_SEP, "roll", WIDE_CALL_END, WIDE_END, "<think>", "</think>")
LLAMA_MARKS = ("<|python_tag|>", "<|eom_id|>")
NAMED: dict[str, tuple[Write, tuple[str, ...]]] = {
    "mistral": (mistral, MISTRAL_MARKS),
    "mistral-id": (mistral_id, MISTRAL_MARKS),
    "mistral-list": (mistral_list, MISTRAL_MARKS),
    "mistral-spaced-list": (lambda calls: mistral_list(calls).replace("][", "] [", 1), MISTRAL_MARKS),
    "kimi-k2": (kimi, KIMI_MARKS),
    "deepseek-r1": (deepseek_r1, WIDE_MARKS),
    "deepseek-v3.1": (deepseek_v31, WIDE_MARKS),
}
LISTED: dict[str, tuple[Write, tuple[str, ...]]] = {
    "apertus": (
        lambda calls: f"<|tools_prefix|>[{', '.join(keyed(calls))}]<|tools_suffix|>",
        ("<|tools_prefix|>", "<|tools_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>"),
    ),
    "apriel": (
        lambda calls: f"<tool_calls>{listed(calls)}</tool_calls>",
        ("<tool_calls>", "</tool_calls>", "Here are my reasoning steps:", "\n[BEGIN FINAL RESPONSE]", "<thinking>"),
    ),
    "hunyuan-a13b": (
        lambda calls: f"<tool_calls>{listed(calls)}</tool_calls>",
        ("<tool_calls>", "</tool_calls>", "<answer>", "</answer>", "<think>", "</think>"),
    ),
    "minimax-m1": (
        lambda calls: "<tool_calls>\n" + "\n".join(objects(calls)) + "\n</tool_calls>",
        ("<tool_calls>", "</tool_calls>", "<think>", "</think>"),
    ),
    "nemotron-v2": (
        lambda calls: f"<TOOLCALL>{listed(calls)}</TOOLCALL>",
        ("<TOOLCALL>", "</TOOLCALL>", "<think>", "</think>", "[{{"),
    ),
    "granite-3": (
        lambda calls: f"<|tool_call|>{listed(calls)}",
        ("<|tool_call|>", "<response>", "</response>", "<think>", "</think>"),
    ),
    "phi-4": (
        lambda calls: "".join(f"<|tool_call|>{call}<|/tool_call|>" for call in objects(calls)),
        ("<|tool_call|>", "<|/tool_call|>", "functools["),
    ),
    "hermes": (
        lambda calls: "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in objects(calls)),
        ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    ),
    "internlm": (
        lambda calls: "".join(f"<|action_start|><|plugin|>\n{call}<|action_end|>" for call in objects(calls)),
        ("<|action_start|><|plugin|>", "<|action_end|>"),
    ),
    "granite-20b": (lambda calls: "".join(f"<function_call> {call}" for call in objects(calls)), ("<function_call>",)),
    "command-r": (actions, ("Action:", "\n```json", "Action:\n```json")),
}
BARE: dict[str, Write] = {"bare": bare, "indented": indented, "tagged": tagged}
"""Llama 3's own."""
ALL: dict[str, tuple[str, Write, tuple[str, ...]]] = {
    **{name: (name, *rest) for name, rest in (NAMED | LISTED).items()},
    **{f"llama-3 {kind}": ("llama-3", write, LLAMA_MARKS) for kind, write in BARE.items()},
}
"""By what is written: the dialect, the way to write calls, and the markers around them."""
