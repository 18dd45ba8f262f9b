"""Whatever changes within a conversation, each prompt begins with the one before it and its answer (K7, K8)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.cases import amount
from tests.fake_engine import FakeVocabulary
from tests.unit.backends.local.serving import Make, reply
from tests.unit.backends.local.test_kept_system import ADD, DIRTY, OPUS, SYSTEM
from tests.unit.backends.local.test_leaving import read
from tests.unit.backends.local.test_quotes import CODE, FILLER, OPTIONS

from shepherd.core import Message, Request, Text, ToolCall, ToolChoice, ToolResult
from shepherd.core.edits import Edit, Place

QUESTIONS = ("What is RELEASE_NAME?", "Thanks.", "RELEASE_NAME again?", "And what was in f0.py?")

ALL_IN_ONE = (18, 19, 20)
"""Seeds of conversations with all kinds of changes."""


@pytest.mark.parametrize("seed", range(18, 18 + amount(2, 40)))
async def test_systems_quotes_choices_and_edits_in_one_conversation_compute_what_is_new(
    make: Make,
    seed: int,
) -> None:
    chance = random.Random(seed)
    backend, _ = make(*["Baa."] * 60, n_ctx=5120, options=OPTIONS)
    messages: list[Message] = [Message.user("Mend the parser.")]
    system, cleared, before = SYSTEM, frozenset[Place](), list[int]()
    seen = set[str]()
    for n in range(24):
        if messages[-1].role == "assistant":
            messages.append(Message.user(chance.choice(QUESTIONS)))
        else:
            messages += read(str(n), f"f{n}.py", (CODE if n < 3 else "") + "\n" + FILLER)
        if chance.random() < 0.3:
            system = chance.choice((SYSTEM, OPUS, DIRTY))
        choice: ToolChoice = "none" if chance.random() < 0.2 else "auto"
        asked = Request("m", (Message.system(system), *messages), tools=(ADD,), tool_choice=choice, session="s")
        asked = replace(asked, cleared=cleared)
        if chance.random() < 0.2:
            edit = chance.choice((Edit("results", trigger_tokens=3_000, keep=1), Edit("compact", trigger_tokens=3_000)))
            cleared = (await backend.edit(asked, (edit,))).cleared
            asked = replace(asked, cleared=cleared)
        answer = await reply(backend, asked)
        tokens = list((await backend.compile(asked)).encoded.tokens)
        what = f"request {n} of seed {seed}"
        assert tokens[: len(before)] == before, what
        assert answer.usage.input <= len(tokens) - len(before) + 2, what
        if is_answered := messages[-1].is_input or chance.random() < 0.5:
            messages.append(answer.message)
        before = [*tokens, *(b"Baa." if is_answered else b"")]
        seen |= {"quotes"} if answer.usage.recalled else set()
        seen |= {"another system"} if system != SYSTEM else set()
        seen |= {"edits"} if cleared else set()
        seen |= {"no call"} if choice == "none" else set()
    assert len(seen) == 4 or seed not in ALL_IN_ONE, seen


OWN_WAYS = ("a.py", "Done", "read")
"""Texts for which the vocabulary has a token, and which a model may spell in bytes as well."""


class Author:
    """A model that writes what it is given, token by token."""

    def __init__(self, vocabulary: FakeVocabulary) -> None:
        self._vocabulary = vocabulary
        self._header = [vocabulary.ids["<|im_start|>"], *vocabulary.tokenize("assistant\n")]
        self.answer: Sequence[int] = ()

    def __call__(self, tokens: Sequence[int]) -> int:
        n = len(self._header)
        at = next(at for at in range(len(tokens), 0, -1) if list(tokens[at - n : at]) == self._header)
        n_written = len(tokens) - at
        return self.answer[n_written] if n_written < len(self.answer) else self._vocabulary.ids["<|im_end|>"]

    def write(self, text: str, chance: random.Random) -> None:
        """Its next answer, in tokens of the vocabulary or in bytes, as chance has it."""
        made: list[int] = []
        while text:
            whole = next((each for each in OWN_WAYS if text.startswith(each)), "")
            if whole and chance.random() < 0.8:
                made.append(self._vocabulary.ids[whole])
            else:
                made += (whole or text[0]).encode()
            text = text[len(whole) or 1 :]
        self.answer = made


def call_as_written(path: str, chance: random.Random) -> str:
    """A call, with blanks where a model may write some."""
    texts = ("<tool_call>", '{"name":', '"read_file",', '"arguments":', '{"path":', f'"{path}"}}}}', "</tool_call>")
    return "".join(text + chance.choice(("", " ", "", "\n", "\n  ")) for text in texts[:-1]) + texts[-1]


def as_a_client_keeps_it(message: Message, n: int, *, names_calls: bool) -> Message:
    """An answer as clients send it back: arguments without blanks, calls with their ids or in their order."""
    parts = [
        replace(part, id=part.id if names_calls else f"call_{n}", raw=None,
                arguments=json.dumps(json.loads(part.arguments), separators=(",", ":")))
        if isinstance(part, ToolCall) else part
        for part in message.parts
    ]  # fmt: skip
    return Message("assistant", tuple(parts))


@pytest.mark.parametrize("seed", range(amount(2, 200)))
async def test_a_history_that_comes_back_unchanged_computes_what_is_new_however_the_model_wrote_it(
    make: Make, seed: int
) -> None:
    """The same call and the same answer again and again, in other tokens and with other blanks, while results leave."""
    chance = random.Random(seed)
    vocabulary = FakeVocabulary(user_defined=OWN_WAYS)
    author = Author(vocabulary)
    backend, _ = make(
        model=author, vocabulary=vocabulary, n_ctx=(n_ctx := chance.choice((2500, 5000))), options=OPTIONS
    )
    names_calls, before = chance.random() < 0.7, list[int]()
    messages = [Message.system("Be brief."), Message.user("Look at a.py.")]
    for n in range(24):
        may_call = messages[-1].role == "user" or chance.random() < 0.3
        author.write(call_as_written("a.py", chance) if may_call else "Done.", chance)
        asked = Request("m", tuple(messages), tools=(ADD,), session="s" if seed % 2 else "")
        answer = await reply(backend, asked)
        tokens = list((await backend.compile(asked)).encoded.tokens)
        assert tokens[: len(before)] == before, n
        assert answer.usage.input <= len(tokens) - len(before) + 2, n
        before = [*tokens, *author.answer]
        kept = as_a_client_keeps_it(answer.message, n, names_calls=names_calls)
        assert bool(kept.calls) == may_call, "a call as this model writes it is read"
        results = [Message("tool", (ToolResult(call.id, (Text(FILLER),), call.name),)) for call in kept.calls]
        messages += [kept, *(results or [Message.user("Look once more.")])]
    assert len(before) > n_ctx, "results have left"
