"""The tasks of the model's card: conversations in wordings, about nouns and with values that training never draws.

TASKS: name ─▶ draw ─▶ Chat     its last message is the only right answer, word for word
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from training import new_tools, own_tools, small_talk
from training.chat import Chat, Spec, calls, says
from training.conversations import (
    NO_TOOL,
    chat_tools,
    digested,
    memory_block,
    tell,
    toolset,
)
from training.draw import Draw
from training.fact import UNKNOWN, facts, near, question

N_CASES = 500
"""Of a task."""
CHARS_PER_TOKEN = 2.28
"""As messages with made-up words have them, each with 14 characters for its marks."""
DISTANCES = (600, 1_000, 2_000, 3_000, 3_500)
"""Tokens between a fact and the question for it."""
COUNTS = (2, 4, 9, 15, 26)
"""Tools that are listed."""

Maker = Callable[[Draw], Chat]


def recall(draw: Draw, n: int) -> Chat:
    made, told = Chat(), facts(draw, n)
    tell(draw, made, told)
    wanted = draw.pick(told)
    made.ask(question(draw, wanted), says(wanted.answer))
    return made


def recall_at(draw: Draw, distance: int) -> Chat:
    """A fact, then other things of so many tokens, then the question."""
    made, (wanted, *others) = Chat(), facts(draw, 9)
    tell(draw, made, [wanted])
    size = 0
    while size < distance * CHARS_PER_TOKEN:
        n = len(made.messages)
        if others and draw.often(0.3):
            tell(draw, made, [others.pop()])
        elif draw.often(0.5):
            made.ask(small_talk.story(draw), says("I see."))
        else:
            said, answer = small_talk.remark(draw)
            made.ask(said, says(answer))
        size += sum(len(message.text) + 14 for message in made.messages[n:])
    made.ask(question(draw, wanted), says(wanted.answer))
    return made


def absent(draw: Draw) -> Chat:
    made, told = Chat(), facts(draw, draw.whole(1, 6))
    tell(draw, made, told)
    made.ask(question(draw, near(draw, told)), says(UNKNOWN))
    return made


def first_step(chat: Chat) -> Chat:
    """The conversation up to the first message with calls behind the last question."""
    last = max(at for at, message in enumerate(chat.messages) if message.role == "user")
    return Chat(chat.messages[: last + 2], chat.tools, chat.system)


def own_call(draw: Draw, n: int, kinds: Sequence[str] = ()) -> Chat:
    """A request for one of Shepherd's own tools, of which `n` are listed: the call."""
    asked = own_tools.request(draw, draw.pick(kinds) if kinds else "")
    made = Chat(tools=toolset(draw, asked.needs, n))
    made.ask(asked.said, *asked.messages())
    return first_step(made)


def own_answer(draw: Draw) -> Chat:
    """The answer from the result of a call."""
    while True:
        asked = own_tools.request(draw)
        if asked.steps:
            break
    made = Chat(tools=toolset(draw, asked.needs, draw.pick(COUNTS[:3])))
    made.ask(asked.said, *asked.messages())
    return made


def several(draw: Draw, kind: str) -> Chat:
    """The call of the last step."""
    asked = own_tools.request(draw, kind)
    made = Chat(tools=chat_tools(draw))
    made.ask(asked.said, *asked.messages())
    made.messages = made.messages[:-1]
    while made.messages[-1].role == "tool":
        made.messages.pop()
    return made


def search(draw: Draw) -> Chat:
    """A fact that is absent, and `search_memory` is there."""
    made, told = Chat(tools=_with_search(draw)), facts(draw, draw.whole(0, 4))
    tell(draw, made, told)
    asked = own_tools.search_memory(draw, near(draw, told))
    made.ask(asked.said, *asked.messages())
    return first_step(made)


def no_search(draw: Draw) -> Chat:
    """`search_memory` is there, and the fact is in the conversation."""
    made = Chat(tools=_with_search(draw))
    told = facts(draw, draw.whole(1, 5))
    tell(draw, made, told)
    wanted = draw.pick(told)
    made.ask(question(draw, wanted), says(wanted.answer))
    return made


def found(draw: Draw, *, is_found: bool) -> Chat:
    """The answer from what a search has found."""
    made = Chat(tools=_with_search(draw))
    asked = own_tools.search_memory(draw, is_found=is_found)
    made.ask(asked.said, *asked.messages())
    return made


def _with_search(draw: Draw) -> Sequence[Spec]:
    return toolset(draw, ("search_memory",), draw.pick(COUNTS[:3]))


def unasked(draw: Draw) -> Chat:
    made = Chat(tools=toolset(draw, (), draw.pick(COUNTS)))
    said, answer = draw.of(small_talk.small_sum, small_talk.unknown, small_talk.small_talk)(draw)
    made.ask(said, says(answer))
    return made


def without_tool(draw: Draw) -> Chat:
    asked = own_tools.request(draw, draw.of("list_directory", "read_file", "write_file", "http_get"))
    made = Chat(tools=toolset(draw, (), 4, but=(*asked.needs, "execute_command", "http_request")))
    made.ask(asked.said, says(NO_TOOL))
    return made


def new_call(draw: Draw, n: int, *, natural: bool) -> Chat:
    """A tool that there is not, among `n` of them: the call."""
    wanted = (new_tools.natural if natural else new_tools.by_name)(draw)
    specs, names = [wanted.spec], {wanted.name}
    while len(specs) < n:
        other = new_tools.offer(draw)
        if other.name not in names:
            names.add(other.name)
            specs.append(other.spec)
    made = Chat(tools=draw.shuffled(specs))
    said, call = wanted.ask(draw)
    made.ask(said, calls(call))
    return made


def remembered(draw: Draw) -> Chat:
    """A block of memories, some of which command: the answer to the question, and no call."""
    made, old = Chat(tools=_with_search(draw)), facts(draw, draw.whole(1, 5))
    wanted = draw.pick(old)
    made.ask(memory_block(draw, old) + question(draw, wanted), says(wanted.answer))
    return made


def after_hole(draw: Draw, jump: int) -> Chat:
    """A conversation whose middle has left: a jump in the positions. Only the trainer's network can have one."""
    made, told = Chat(), facts(draw, 3)
    tell(draw, made, facts(draw, 2, but=told))
    made.jumps[len(made.messages)] = jump
    tell(draw, made, told)
    wanted = draw.pick(told)
    made.ask(question(draw, wanted), says(wanted.answer))
    return made


def small(draw: Draw) -> Chat:
    made = Chat()
    said, answer = small_talk.small_talk(draw)
    made.ask(said, says(answer))
    return made


TASKS: dict[str, Maker] = {
    "small talk": small,
    **{f"recall, {n} facts": partial(recall, n=n) for n in (1, 3, 6)},
    "an absent fact: says so": absent,
    **{f"recall at {n:,} tokens": partial(recall_at, distance=n) for n in DISTANCES},
    **{f"own tools, {n} listed: the call": partial(own_call, n=n) for n in COUNTS},
    "own tools: the answer from the result": own_answer,
    "calls at once": partial(several, kind="at_once"),
    "list, then read: the second call": partial(several, kind="list_then_read"),
    "read, then write: the second call": partial(several, kind="append"),
    "an absent fact: searches": search,
    "a known fact: does not search": no_search,
    "the answer from what a search found": partial(found, is_found=True),
    "a search found nothing: says so": partial(found, is_found=False),
    "nothing to call: calls nothing": unasked,
    "no such tool: says so": without_tool,
    **{f"unseen tools, {n} listed, by name": partial(new_call, n=n, natural=False) for n in (1, 4, 9)},
    **{f"unseen tools, {n} listed, asked naturally": partial(new_call, n=n, natural=True) for n in (1, 4, 9)},
    "quoted memories: the answer, and no call": remembered,
    "digests": digested,
}
HOLES: dict[str, Maker] = {f"behind a hole of {n:,}": partial(after_hole, jump=n) for n in (100, 1_000, 8_000, 30_000)}
"""As `TASKS`; asked of a checkpoint, whose positions can be chosen."""


def cases(name: str, n: int = N_CASES) -> list[Chat]:
    """Always the same ones."""
    draw = Draw(f"evaluation of {name}", held_out=True)
    return [{**TASKS, **HOLES}[name](draw) for _ in range(n)]
