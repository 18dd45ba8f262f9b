"""Whatever changes within a conversation, each prompt begins with the one before it and its answer (K7, K8)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.cases import amount
from tests.unit.backends.local.serving import Make, reply
from tests.unit.backends.local.test_kept_system import ADD, DIRTY, OPUS, SYSTEM
from tests.unit.backends.local.test_leaving import read
from tests.unit.backends.local.test_quotes import CODE, FILLER, OPTIONS

from shepherd.core import Message, Request, ToolChoice
from shepherd.core.edits import Edit, Place

QUESTIONS = ("What is RELEASE_NAME?", "Thanks.", "RELEASE_NAME again?", "And what was in f0.py?")

ALL_IN_ONE = (18, 19, 20)
"""Seeds of conversations with all kinds of changes."""


@pytest.mark.parametrize("seed", range(18, 18 + amount(3, 40)))
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
