"""What a chat template prints around its answers: calls, thoughts and texts whose words are sentinels.

...probeuser<end><assistant>   <think>probethought</think>probeanswer<call>...</call>   <end>
             head              an answer, as the model writes it                        end
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from shepherd.core import EngineError, InvalidRequest, Message, Reasoning, Text, ToolCall, ToolSpec
from shepherd.core.dataclasses import dataclass, replace
from shepherd.dialects.parse.markup import Thought
from shepherd.dialects.parse.tags import THOUGHTS, mentions
from shepherd.dialects.render.frame import TAG, shared_end, shared_start
from shepherd.dialects.render.template import Template

USER, TEXT, THOUGHT, TOOL, OTHER = "probeuser", "probeanswer", "probethought", "probe_tool", "other_tool"
KEY, VALUE, NUMBER_KEY, NUMBER = "probekey", "probevalue", "probenumber", 734
IDS = ("probe0001", "probe0002")
GIVEN = {KEY: VALUE, NUMBER_KEY: NUMBER}
TOOLS = (
    ToolSpec(
        TOOL,
        "probes",
        {
            "type": "object",
            "properties": {KEY: {"type": "string"}, NUMBER_KEY: {"type": "integer"}},
            "required": [KEY, NUMBER_KEY],
        },
    ),
    ToolSpec(
        OTHER, "probes", {"type": "object", "properties": {"deep": {"type": "object"}, "on": {"type": "boolean"}}}
    ),
)
HARD: tuple[dict[str, object], ...] = (
    {KEY: 'it\'s "so"\n  <b>{[1, 2]}</b>\n\nand C:\\dir, 東京', NUMBER_KEY: -5},
    {KEY: "", NUMBER_KEY: 12345678901234567890},
    {"deep": {"a": [1, {"b": None}], "c": "x, y"}, "on": False},
    {"on": True},
)


def call(number: int, name: str, arguments: Mapping[str, object]) -> ToolCall:
    return ToolCall(IDS[number], name, json.dumps(arguments, ensure_ascii=False))


def answer(*parts: Text | Reasoning | ToolCall) -> Message:
    return Message("assistant", parts)


ONE = call(0, TOOL, GIVEN)
CASES: dict[str, Message] = {
    "answer": answer(Text(TEXT)),
    "call": answer(ONE),
    "spoken": answer(Text(TEXT), ONE),
    "twice": answer(ONE, call(1, TOOL, GIVEN)),
    "thought": answer(Reasoning(THOUGHT), Text(TEXT)),
    "thought call": answer(Reasoning(THOUGHT), ONE),
    "empty": answer(call(0, OTHER, {})),
    "two": answer(ONE, call(1, OTHER, {"on": True})),
    **{f"hard {n}": answer(call(0, TOOL if KEY in given else OTHER, given)) for n, given in enumerate(HARD)},
}
Printed = Mapping[str, str]
"""What the template prints behind the user's text for each of `CASES`, and, as `head`, for an answer that is due."""


def observed(source: str) -> dict[str, str]:
    """What a template prints, as `Printed`; nothing if it has no place for calls. Raises: `ConfigError`."""
    template = Template(source, bos_token="<bos>", eos_token="<eos>")  # noqa: S106
    made: dict[str, str] = {}
    if not template.caps.calls:
        return made
    for name, message in {"head": None, **CASES}.items():
        messages = [Message.user(USER), *([message] if message else [])]
        try:
            pieces = template.render(messages, tools=TOOLS, add_generation_prompt=message is None)
        except (InvalidRequest, EngineError):
            continue
        made[name] = "".join(piece.text for piece in pieces).rpartition(USER)[2].rstrip()
    return made


@dataclass(frozen=True, slots=True)
class Answers:
    """The printed answers without the head and the end of their turn, as a model writes them."""

    texts: Mapping[str, str]
    thoughts: tuple[Thought, ...]
    around: tuple[str, str]
    """Before and behind a visible answer."""

    skips: tuple[str, ...]

    @classmethod
    def of(cls, printed: Printed) -> Answers | None:
        plain, one = printed["answer"], printed["call"]
        spans = call_spans(one)
        if plain.count(TEXT) != 1 or not spans:
            return None
        known = tuple(one for one in THOUGHTS if any(mentions(text, one) for text in printed.values()))
        new = thought_in(printed)
        thoughts = known if new is None or new.opener in {one.opener for one in known} else (new, *known)
        heads = [before_thoughts(head, thoughts) for head in (printed["head"], shared_start(plain, one))]
        end = shared_end(plain.partition(TEXT)[2], one[spans[-1][1] :])
        after = after_calls(printed) if not end else ""
        texts: dict[str, str] = {}
        for name, text in printed.items():
            if name == "head":
                continue
            starts = heads[:1] if text.startswith(heads[0]) else heads
            text = text[max(len(shared_start(head, text)) for head in starts) :].removesuffix(end)
            marker = "" if end else (TAG.findall(after) or [after])[-1] if CASES[name].calls else TEXT
            text = text[: text.rfind(marker) + len(marker)] if marker and marker in text else text
            is_thought = THOUGHT in text
            first, again, later = text.partition(heads[0].strip() or "\0")
            if again and not any(sign in later for sign in (TEXT, THOUGHT, TOOL, OTHER)):
                text, again = first.rstrip().removesuffix(end), ""
            two_turns = bool(again) and (bool(end) or name == "spoken")
            if not two_turns and (new or not is_thought):
                texts[name] = text
        if not {"answer", "call"} <= texts.keys():
            return None
        before, _, behind = texts["answer"].partition(TEXT)
        shown = before_thoughts(behind_thoughts(before, thoughts), thoughts).strip()
        around = (shown if TAG.search(shown) else "", behind.strip() if TAG.search(behind) else "")
        skips = dict.fromkeys(filter(None, around))
        rest = texts.get("thought", "").partition(THOUGHT)[2].partition(TEXT)[0].strip()
        if new and (joint := rest.removesuffix(around[0]).removeprefix(new.closers[0]).strip()):
            # The next part of the answer has a head of its own.
            thoughts = (replace(new, closers=(new.closers[0] + joint, *new.closers)), *thoughts[1:])
            spoken, found, _ = texts.get("spoken", "").partition(TEXT)
            is_marked = found and TAG.search(spoken)
            skips |= dict.fromkeys((new.closers[0] + joint, joint, *([spoken.strip()] if is_marked else [])))
        return cls(texts, thoughts, around, tuple(skips))


def after_calls(printed: Printed) -> str:
    """What stands behind the last value of an answer's calls, if answers with calls end in another way than others."""
    one = printed["call"]
    after = one[call_spans(one)[-1][1] :]
    twice = printed.get("twice", "")
    spans = call_spans(twice)
    if len(spans) == 2:
        own = shared_start(after, twice[spans[0][1] : spans[1][0]])
        last = next(reversed(TAG.findall(after[len(own) :])), "")
        if TAG.search(own) and last and last.replace("/", "", 1) not in one[: len(one) - len(after)]:
            return after[: after.rindex(last)]
    return after


def before_thoughts(head: str, thoughts: Sequence[Thought]) -> str:
    """The head of an answer without the thought that it opens, whether it also closes it or not."""
    return head[: min((at for one in thoughts if (at := head.find(one.opener)) >= 0), default=len(head))]


def behind_thoughts(text: str, thoughts: Sequence[Thought]) -> str:
    for closer in (closer for thought in thoughts for closer in thought.closers):
        text = text.rpartition(closer)[2]
    return text


def thought_in(printed: Printed) -> Thought | None:
    """The tags around the printed thought; `None` if none is printed between tags."""
    for name in ("thought", "thought call"):
        before, found, behind = printed.get(name, "").partition(THOUGHT)
        head = printed["head"] if before.startswith(printed["head"]) else printed["answer"].partition(TEXT)[0]
        opener = before[len(shared_start(head, before)) :].strip() or "".join(TAG.findall(before)[-1:])
        closer = TAG.match(behind.lstrip())
        if found and closer and opener and before.rstrip().endswith(opener) and TAG.search(opener):
            return Thought(opener, (closer[0],))
    return None


def call_spans(text: str) -> list[tuple[int, int]]:
    """Where the calls of the sentinels stand: from their names to the end of their last values."""
    spans: list[tuple[int, int]] = []
    at = 0
    while (start := text.find(TOOL, at)) >= 0:
        for part in (KEY, VALUE, NUMBER_KEY, str(NUMBER)):
            at = text.find(part, max(at, start)) + len(part)
            if at < len(part):
                return spans
        spans.append((start, at))
    return spans
