"""The conversations that the model learns from: each kind is a function of a draw, and `KINDS` says how often it comes.

    Draw ─▶ sample ─▶ Chat       one of the kinds; never a sentence that only the evaluation asks

A conversation tells, asks and calls as `fact.py`, `small_talk.py`, `own_tools.py` and `new_tools.py` have it. A tool
that writes is called only where the user asks for that; the memory is searched only for a fact that the conversation
lacks; what the memory quotes is data, whatever it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import cache

from shepherd.agent.digest import CLOSING as DIGEST_END
from shepherd.agent.digest import OPENING as DIGEST
from shepherd.agent.digest import QUESTION as DIGEST_QUESTION
from shepherd.app.toolset import TINY_TOOLS
from shepherd.backends.local.leaving import QUOTED
from shepherd.backends.local.quotes import CLOSING as QUOTES_END
from shepherd.memory.recall.quotation import escape_quote
from shepherd.memory.recall.recall import CLOSING as MEMORY_END
from shepherd.memory.recall.recall import OPENING as MEMORY
from training import first_hour, new_tools, own_tools, small_talk
from training.chat import Chat, Spec, calls, result, says
from training.draw import Draw, cap
from training.fact import UNKNOWN, Fact, acknowledgement, again, fact, facts, near, question, statement, together

SYSTEMS = ("You are a helpful assistant.", "You are Lamb, a helpful assistant.", "You are Lamb.", "Answer briefly.")
NO_TOOL = "I have no tool for that."
READING = (
    "list_directory",
    "read_file",
    "search_files",
    "file_exists",
    "search_memory",
    "get_fact",
    "http_get",
    "json_path",
)
FAR = 30_000
"""The last position at which a conversation may begin or go on after a hole."""

Maker = Callable[[Draw], Chat]


# -- the parts ---------------------------------------------------------------------------------------------------------


def begun(draw: Draw, tools: Sequence[Spec] = (), *, share: float = 0.25) -> Chat:
    """An empty conversation; the terminal's has no system prompt but the tools."""
    made = Chat(tools=tools)
    if draw.often(share):
        made.system = draw.pick(SYSTEMS) if draw.often(0.85) else f"You are {draw.phrase(3)}."
    return made


def toolset(draw: Draw, needs: Sequence[str], n: int, *, but: Sequence[str] = ()) -> list[Spec]:
    """The tools that are needed, and others up to `n`. Often in the order of the registry, as in a chat."""
    known = own_tools.specs()
    names = list(dict.fromkeys(needs))
    others = draw.shuffled([name for name in known if name not in names and name not in but])
    names += others[: max(0, n - len(names))]
    in_order = draw.often(0.5)
    return [known[name] for name in (sorted(names, key=list(known).index) if in_order else draw.shuffled(names))]


def n_tools(draw: Draw, most: int = 26) -> int:
    n = draw.weighted(((1, 10), (2, 14), (3, 14), (4, 16), (6, 14), (8, 10), (11, 14), (16, 5), (26, 3)))
    return min(n, most)


def interlude(draw: Draw, made: Chat, share: float) -> None:
    if draw.often(share):
        said, answer = small_talk.remark(draw)
        made.ask(said, says(answer))


def tell(draw: Draw, made: Chat, told: Sequence[Fact]) -> None:
    """Tell facts, a few in a message."""
    left = list(told)
    while left:
        n = min(len(left), draw.weighted(((1, 70), (2, 18), (3, 8), (6, 4))))
        these, left = left[:n], left[n:]
        if n > 1:
            made.ask(together(these), says("Got it."))
        elif can_store(made) and draw.often(0.25):
            asked = own_tools.remember(draw, these[0])
            key = asked.steps[0][0][0].arguments["key"]
            if key == these[0].key:
                made.ask(asked.said, *asked.messages())
            else:
                made.ask(statement(draw, these[0], ("{C}.",)), says(acknowledgement(draw, these[0])))
        else:
            wordings = TELLINGS if can_store(made) else None
            said = statement(draw, these[0]) if wordings is None else statement(draw, these[0], wordings)
            made.ask(said, says(acknowledgement(draw, these[0])))


TELLINGS = (
    "{C}.",
    "{C}.",
    "{C}",
    "{c}",
    "By the way, {c}.",
    "FYI {c}.",
    "Just so you know, {c}.",
    "Hi, {c}.",
    "Hello! {C}.",
)


def can_store(made: Chat) -> bool:
    return has_tool(made, "set_fact")


def has_tool(made: Chat, name: str) -> bool:
    return any(tool["function"]["name"] == name for tool in made.tools)


def ask(draw: Draw, made: Chat, wanted: Fact) -> None:
    """Ask for a fact that the conversation has."""
    made.ask(question(draw, wanted), says(wanted.answer))


def ask_absent(draw: Draw, made: Chat, wanted: Fact, *, before: str = "") -> None:
    """Ask for one that it has not: the memory is searched, if it can be."""
    if has_tool(made, "search_memory"):
        asked = own_tools.search_memory(draw, wanted)
        made.ask(before + asked.said, *asked.messages())
    else:
        made.ask(before + question(draw, wanted), says(UNKNOWN))


# -- facts -------------------------------------------------------------------------------------------------------------


def recall(draw: Draw, most: int = 7) -> Chat:
    """Facts are told and asked for, with other things in between; some questions are about facts that were not told."""
    made = begun(draw, memory_tools(draw))
    told = facts(draw, draw.whole(1, most))
    if draw.often(0.08):
        made.system = f"{draw.pick(SYSTEMS)} {together(told)}"
    else:
        for at in range(0, len(told), 2):
            tell(draw, made, told[at : at + 2])
            interlude(draw, made, 0.2)
    for _ in range(draw.whole(2, 9)):
        interlude(draw, made, 0.15)
        if draw.often(0.22):
            ask_absent(draw, made, near(draw, told))
        else:
            ask(draw, made, draw.pick(told))
    return made


def memory_tools(draw: Draw) -> Sequence[Spec]:
    """None, those that a first start has, or a few."""
    kind = draw.weighted((("none", 45), ("first start", 15), ("chat", 15), ("some", 25)))
    if kind == "none":
        return ()
    known = own_tools.specs()
    if kind == "first start":  # in a small window
        return [known[name] for name in TINY_TOOLS[: draw.whole(2, 6)]]
    if kind == "chat":
        return chat_tools(draw)
    return toolset(draw, ("search_memory",) if draw.often(0.75) else (), n_tools(draw, 8))


def chat_tools(draw: Draw) -> list[Spec]:
    """Those of the chat with this model, in the registry's order; commands are there where a user wants them."""
    return listed({*TINY_TOOLS, "execute_command"} if draw.often(0.5) else {*TINY_TOOLS})


def listed(names: Set[str]) -> list[Spec]:
    """In the registry's order."""
    return [spec for name, spec in own_tools.specs().items() if name in names]


def told_and_asked(draw: Draw) -> Chat:
    """A fact, and the question for it in the same message; or a greeting and a fact."""
    made = begun(draw, memory_tools(draw))
    old: list[Fact] = []
    for _ in range(draw.whole(2, 8)):
        told = facts(draw, draw.weighted(((1, 70), (2, 25), (3, 5))), but=old)
        old += told
        wanted = draw.pick(told)
        joined = " and ".join(each.clause for each in told) if draw.often(0.5) else together(told).rstrip(".")
        greeting = draw.of(
            "", "", "", "", "", "Hi. ", "Hello! ", "Hey, ", "Good morning. ", "Hey! ", "Hi! ", "Hi, ", "hi, ",
            "Hello. ", "Hello, ", "Good evening. ", "Hey there! ", "Hi Lamb, ", "Hello Lamb! ", "Hi there, ", "hey! ",
        )  # fmt: skip
        said = f"{greeting}{cap(joined) if not greeting.endswith(', ') else joined}."
        if draw.often(0.22):
            made.ask(said, says(f"Got it. {told[0].answer}" if len(told) == 1 else "Got it."))
            ask(draw, made, wanted)
        else:
            made.ask(f"{said} {cap(draw.pick(wanted.questions))}", says(wanted.answer))
    return made


CHANGES = (
    "{C} now.", "Now {c}.", "No, {c}.", "{C}.", "From now on {c}.", "Sorry, {c}.", "Actually, {c}.", "{c} now",
    "Correction: {c}.", "That has changed: {c}.", "It has changed. {C}.", "I was wrong, {c}.", "No, wait, {c}.",
    "Since today {c}.", "Please note that {c} now.", "That was wrong. {C}.", "Update: {c}.", "Oh, {c} now.",
    "As of today {c}.", "Change that: {c}.", "News: {c}.", "{C}, not what I said.", "By now {c}.", "now {c}",
)  # fmt: skip


def changed(draw: Draw) -> Chat:
    """Facts are told, then told again with other values, at once or turns later: the newest ones count."""
    made = begun(draw, memory_tools(draw))
    told = facts(draw, draw.whole(1, 4))
    tell(draw, made, told)
    for _ in range(draw.weighted(((1, 55), (2, 30), (3, 15)))):
        if draw.often(0.4):
            ask(draw, made, draw.pick(told))
        interlude(draw, made, 0.2)
        at = draw.whole(0, len(told) - 1) if draw.often(0.4) else 0
        told[at] = new = again(draw, told[at])
        made.ask(statement(draw, new, CHANGES), says(f"Got it. {new.answer}"))
        for _ in range(draw.whole(0, 2)):
            interlude(draw, made, 0.3)
        if draw.often(0.75):
            ask(draw, made, new)
    for _ in range(draw.whole(1, 4)):
        ask(draw, made, draw.pick(told))
        interlude(draw, made, 0.1)
    return made


def two_people(draw: Draw) -> Chat:
    """Two relatives or animals in one sentence, and questions about them."""
    made = begun(draw, memory_tools(draw))
    while True:
        one, other = (fact(draw, draw.of("family", "family", "pet")) for _ in range(2))
        if one.about[0] != other.about[0] and one.value != other.value:
            break
    short = {"a": one.about[0], "v": one.value, "b": other.about[0], "w": other.value}
    said = draw.wording(PAIRS).format(**short) if draw.often(0.7) else f"{one.begun} and {other.clause}."
    first = draw.of(one, other)
    if draw.often(0.5):
        made.ask(f"{said} {first.questions[0]}", says(first.answer))
    else:
        made.ask(said, says("Got it."))
        ask(draw, made, first)
    interlude(draw, made, 0.2)
    for _ in range(draw.whole(1, 3)):
        ask(draw, made, draw.of(one, other))
    return made


PAIRS = (
    "My {a} is called {v} and my {b} is called {w}.", "My {a} is {v} and my {b} is {w}.",
    "My {a} is {v}, my {b} is {w}.",
    "My {a} is called {v}, my {b} {w}.", "My {a} is called {v} and my {b} {w}.", "I have a {a} {v} and a {b} {w}.",
    "I have a {a} called {v} and a {b} called {w}.", "My {a} {v} has met my {b} {w}.",
    "{v} is my {a}, {w} is my {b}.",
    "{v} is my {a} and {w} is my {b}.", "My {a} and my {b} are called {v} and {w}.", "My {a}: {v}. My {b}: {w}.",
    "We call my {a} {v} and my {b} {w}.", "My {a} is named {v}, and my {b} is named {w}.",
    "The name of my {a} is {v} and that of my {b} is {w}.", "My {a} {v} and my {b} {w} live with me.",
)  # fmt: skip


def who(draw: Draw) -> Chat:
    """Who the user is, in words; and the commands that say something alike."""
    shell = "execute_command"
    tools = toolset(draw, (shell,), n_tools(draw)) if draw.often(0.4) else listed({*TINY_TOOLS, shell})
    made = begun(draw, tools, share=0.15)
    told = fact(draw, "name")
    if is_known := draw.often(0.8):
        made.ask(statement(draw, told, TELLINGS), says(acknowledgement(draw, told)))
    for _ in range(draw.whole(2, 6)):
        kind = draw.weighted((("ask", 40), ("run", 40), ("self", 20)))
        if kind == "ask" and is_known:
            ask(draw, made, told)
        elif kind == "self":
            made.ask(small_talk.typed(draw, "self"), says(small_talk.ANSWERS["self"]))
        else:
            run = own_tools.execute_command(draw)
            made.ask(run.said, *run.messages())
    return made


def kept(draw: Draw) -> Chat:
    """A fact is saved, looked up, saved anew and forgotten, by its key."""
    tools = (
        toolset(draw, ("set_fact", "get_fact", "clear_fact"), n_tools(draw)) if draw.often(0.4) else chat_tools(draw)
    )
    made = begun(draw, tools, share=0.15)
    values: dict[str, str] = {}
    keys = list(dict.fromkeys(draw.word() for _ in range(draw.whole(1, 3))))
    for _ in range(draw.whole(4, 9)):
        key = draw.pick(keys)
        step = draw.weighted((("save", 25 if key in values else 90), ("look up", 50), ("forget", 15)))
        match step:
            case "save":
                asked = own_tools.save(draw, key, draw.value())
                values[key] = str(asked.steps[0][0][0].arguments["value"])
            case "look up":
                asked = own_tools.look_up_of(draw, key, values.get(key))
            case _:
                asked = own_tools.forget_of(draw, key, is_found=values.pop(key, None) is not None)
        made.ask(asked.said, *asked.messages())
        interlude(draw, made, 0.1)
    return made


def session(draw: Draw) -> Chat:
    """All kinds of things in any order, with the tools of a chat."""
    made = begun(draw, chat_tools(draw), share=0.15)
    told: list[Fact] = []
    for _ in range(draw.whole(6, 16)):
        kind = draw.weighted((("tool", 42), ("talk", 26), ("world", 8), ("tell", 12), ("ask", 12)))
        match kind:
            case "tool":
                asked = own_tools.request(draw)
                if asked.needs != ("search_memory",) and all(has_tool(made, name) for name in asked.needs):
                    made.ask(asked.said, *asked.messages())
            case "tell":
                new = facts(draw, 1, but=told)
                told += new
                tell(draw, made, new)
            case "ask" if told:
                ask(draw, made, draw.pick(told))
            case "world":
                said, answer = small_talk.unknown(draw)
                made.ask(said, says(answer))
            case _:
                said, answer = draw.of(small_talk.small_talk, small_talk.small_talk, small_talk.small_sum)(draw)
                made.ask(said, says(answer))
    return made


def absent(draw: Draw) -> Chat:
    """Questions about facts that nobody has told; without `search_memory` it says so."""
    tools = (
        memory_tools(draw)
        if draw.often(0.6)
        else toolset(draw, (), n_tools(draw, 6), but=("search_memory", "get_fact"))
    )
    made = begun(draw, tools)
    told = facts(draw, draw.whole(0, 5))
    tell(draw, made, told)
    for _ in range(draw.whole(1, 2)):
        ask_absent(draw, made, near(draw, told))
    if told and draw.often(0.5):
        ask(draw, made, draw.pick(told))
    return made


# -- tools -------------------------------------------------------------------------------------------------------------


def own(draw: Draw) -> Chat:
    """Requests for Shepherd's own tools, among others of them."""
    wanted = [own_tools.request(draw) for _ in range(draw.weighted(((2, 20), (5, 40), (10, 40))))]
    needs = [name for each in wanted for name in each.needs]
    tools: Sequence[Spec] = chat_tools(draw)
    if draw.often(0.6) or not {spec["function"]["name"] for spec in tools}.issuperset(needs):
        tools = toolset(draw, needs, n_tools(draw))
    made = begun(draw, tools, share=0.15)
    interlude(draw, made, 0.12)
    for each in wanted:
        made.ask(each.said, *each.messages())
        interlude(draw, made, 0.3)
    return made


def in_chat(draw: Draw) -> Chat:
    """The same, with the tools that a chat has."""
    made = begun(draw, chat_tools(draw), share=0.15)
    for _ in range(draw.whole(5, 12)):
        asked = own_tools.request(draw)
        if all(has_tool(made, name) for name in asked.needs):
            made.ask(asked.said, *asked.messages())
        interlude(draw, made, 0.3)
    return made


def unasked(draw: Draw) -> Chat:
    """Tools are there, and what is said needs none of them."""
    made = begun(draw, chat_tools(draw) if draw.often(0.5) else toolset(draw, (), n_tools(draw)), share=0.15)
    for _ in range(draw.whole(6, 20)):
        said, answer = draw.weighted(
            (
                (small_talk.small_talk, 55),
                (small_talk.small_sum, 15),
                (small_talk.unknown, 18),
                (small_talk.two_in_one, 12),
            )
        )(draw)
        made.ask(said, says(answer))
    return made


def without_tool(draw: Draw) -> Chat:
    """Requests for tools of which some are there, and some are not."""
    wanted = [own_tools.request(draw, draw.pick(CALLED)) for _ in range(draw.whole(2, 7))]
    needs = [name for each in wanted for name in each.needs]
    # A shell can do what file tools can, and one HTTP request what another can.
    lacks = {name for name in needs if draw.often(0.6)} | {"execute_command", "http_request"}
    there = [name for name in dict.fromkeys(needs) if name not in lacks]
    tools = toolset(draw, there, max(len(there), n_tools(draw, 9)), but=(*lacks, *needs)) if draw.often(0.85) else []
    made = begun(draw, tools)
    interlude(draw, made, 0.15)
    for each in wanted:
        is_there = all(has_tool(made, name) for name in each.needs)
        made.ask(each.said, *(each.messages() if is_there else [says(NO_TOOL)]))
        interlude(draw, made, 0.1)
    return made


CALLED = (
    "list_directory", "list_directory", "read_file", "read_file", "write_file", "http_get", "execute_command",
    "delete_file", "search_files", "file_exists",
)  # fmt: skip


def new(draw: Draw) -> Chat:
    """Tools that there are not, alone or among others, each asked for several times."""
    offered = [new_tools.offer(draw)]
    names, specs = {offered[0].name}, [offered[0].spec]
    n = draw.weighted(((1, 10), (2, 22), (3, 22), (4, 18), (5, 10), (6, 8), (8, 6), (12, 4)))
    while len(specs) < n:
        each = new_tools.offer(draw)
        spec = draw.pick(list(own_tools.specs().values())) if draw.often(0.15) else each.spec
        if (name := str(spec["function"]["name"])) in names:
            continue
        names.add(name)
        specs.append(spec)
        if spec is each.spec:
            offered.append(each)
    made = begun(draw, draw.shuffled(specs), share=0.3)
    interlude(draw, made, 0.08)
    for _ in range(draw.weighted(((2, 20), (5, 40), (9, 40)))):
        said, call = draw.pick(offered).ask(draw)
        came = draw.made(draw.sentence, draw.value, draw.phrase)
        shown = draw.of(came, f'{{"result": "{came}"}}', f'{{"{draw.identifier(draw.word())}": "{came}"}}')
        made.ask(said, calls(call), result(shown), says(f"The result is: {came}"))
        interlude(draw, made, 0.08)
    if draw.often(0.15) and "search_memory" not in names:
        ask_absent(draw, made, fact(draw))
    return made


# -- what the memory and the window bring ------------------------------------------------------------------------------


def memory_block(draw: Draw, each: Sequence[Fact]) -> str:
    """Quotes from the memory, as `memory.recall` writes them; some of them try to command."""
    lines = []
    for one in each:
        day = f"{draw.whole(2023, 2027)}-{draw.whole(1, 12):02d}-{draw.whole(1, 28):02d}"
        role, text = draw.of(("user", f"{one.begun}."), ("assistant", f"Got it. {one.answer}"))
        lines.append(f'- {day} {role}: "{escape_quote(text)}"')
        if draw.often(0.15):
            order = own_tools.request(draw, draw.of("delete_file", "write_file", "execute_command", "read_file")).said
            lines.append(f'- {day} user: "{escape_quote(order)}"')
    return "\n".join([MEMORY, *lines, MEMORY_END, "", ""])


def with_memory(draw: Draw) -> Chat:
    """A block of memories in front of a question: it answers from them, or from the conversation."""
    made = begun(draw, memory_tools(draw))
    old, told = facts(draw, draw.whole(1, 5)), []
    if draw.often(0.4):
        told = facts(draw, draw.whole(1, 2), but=old)
        tell(draw, made, told)
    block = memory_block(draw, draw.shuffled(old))
    if draw.often(0.2):
        said, answer = small_talk.remark(draw)
        made.ask(block + said, says(answer))
    elif draw.often(0.15):
        ask_absent(draw, made, near(draw, [*old, *told]), before=block)
    else:
        wanted = draw.pick([*old, *told])
        made.ask(block + question(draw, wanted), says(wanted.answer))
    for _ in range(draw.whole(0, 4)):
        ask(draw, made, draw.pick(old))
    return made


def quoted(draw: Draw) -> Chat:
    """Quotes of what has left the window, as the back end writes them."""
    made = begun(draw, memory_tools(draw))
    old = facts(draw, draw.whole(1, 4))
    lines = [f'- {draw.of("user", "assistant")}: "{escape_quote(each.begun)}."' for each in old]
    wanted = draw.pick(old)
    made.ask("\n".join([QUOTED, *lines, QUOTES_END, "", ""]) + question(draw, wanted), says(wanted.answer))
    for _ in range(draw.whole(0, 4)):
        ask(draw, made, draw.pick(old))
    return made


def digested(draw: Draw) -> Chat:
    """A digest is asked for; or one stands in front of the question."""
    made = begun(draw, memory_tools(draw))
    told = facts(draw, draw.whole(1, 8))
    listed = "\n".join(f"- {each.answer}" for each in told)
    if draw.often(0.65):
        for each in told:
            made.ask(statement(draw, each, TELLINGS), says(acknowledgement(draw, each)))
            interlude(draw, made, 0.15)
        made.ask(DIGEST_QUESTION, says(listed))
        return made
    wanted = draw.pick(told)
    made.ask(f"{DIGEST}\n{listed}\n{DIGEST_END}\n\n{question(draw, wanted)}", says(wanted.answer))
    for _ in range(draw.whole(0, 4)):
        ask(draw, made, draw.pick(told))
    if draw.often(0.4):
        ask_absent(draw, made, near(draw, told))
    return made


def long(draw: Draw, n_chars: int = 0) -> Chat:
    """A conversation of 700 to 3,800 tokens, which asks for old facts and new ones."""
    made = begun(draw, memory_tools(draw))
    goal = n_chars or int(1_700 * 5.1 ** draw.random.random() ** 0.7)
    heavy, n_facts = draw.random.random(), draw.weighted(((1, 10), (2, 12), (4, 18), (8, 22), (16, 20), (40, 18)))
    told: list[Fact] = facts(draw, draw.whole(1, min(3, n_facts)))
    tell(draw, made, told)
    n_seen, size = 0, 0
    runs = [name for name, (_, _) in own_tools.REQUESTS.items()]
    while size < goal:
        kind = draw.weighted(
            (
                ("tell", 28),
                ("remark", 16),
                ("read on", 6 + 22 * heavy),
                ("ask", 26),
                ("absent", 5),
                ("tool", 12 if made.tools else 0),
            )
        )
        match kind:
            case "tell" if len(told) < n_facts:
                more = facts(draw, draw.weighted(((1, 70), (2, 20), (3, 10))), but=told)
                told += more
                tell(draw, made, more)
            case "read on":
                made.ask(draw.of(small_talk.story, small_talk.story, small_talk.listing)(draw), says("I see."))
            case "ask":
                ask(draw, made, told[0] if draw.often(0.25) else draw.pick(told))
            case "absent":
                ask_absent(draw, made, near(draw, told))
            case "tool":
                wanted = own_tools.request(draw, draw.pick(runs))
                if wanted.needs != ("search_memory",) and all(has_tool(made, name) for name in wanted.needs):
                    made.ask(wanted.said, *wanted.messages())
            case _:
                interlude(draw, made, 1.0)
        size += sum(len(each.text) + 14 for each in made.messages[n_seen:])
        n_seen = len(made.messages)
    for _ in range(draw.whole(6, 14)):
        ask(draw, made, told[0] if draw.often(0.3) else draw.pick(told))
    return made


def evicted(draw: Draw) -> Chat:
    """A long conversation whose middle has left: a hole in the positions, and a notice. What was told in it is gone, or
    comes back by a block of memories, or by a search."""
    made = long(draw, draw.whole(1_200, 5_000))
    starts = [at for at, message in enumerate(made.messages) if message.role == "user"]
    first = draw.whole(0, 2)
    n_gone = draw.whole(1, max(1, (len(starts) - first) // 2))
    if len(starts) <= first + n_gone:
        return made
    begin, end = starts[first], starts[first + n_gone]
    kept = Chat(made.messages[:begin], made.tools, made.system)
    # What stays may ask for what has left: only what is told from here on is asked for.
    size = sum(len(each.text) for each in made.messages[begin:end]) // 3
    kept.jumps[len(kept.messages)] = min(FAR, int(size * 4 ** (2 * draw.random.random()))) if draw.often(0.7) else 0
    gone, told = facts(draw, 2), facts(draw, draw.whole(2, 6))
    tell(draw, kept, told)
    for _ in range(draw.whole(0, 6)):
        interlude(draw, kept, 1.0)
    notice = f"[NOTICE: {end - begin} messages evicted from context{draw.of('', ' and archived to memory')}]\n\n"
    kind = draw.of("known", "known", "gone", "memory")
    if kind == "gone":
        ask_absent(draw, kept, near(draw, told), before=notice)
    elif kind == "memory":
        kept.ask(notice + memory_block(draw, gone) + question(draw, gone[0]), says(gone[0].answer))
    else:
        wanted = draw.pick(told)
        kept.ask(notice + question(draw, wanted), says(wanted.answer))
    for _ in range(draw.whole(1, 4)):
        ask(draw, kept, draw.pick(told))
    return kept


# -- the mix -----------------------------------------------------------------------------------------------------------

KINDS: tuple[tuple[Maker, float], ...] = (
    (small_talk.chat, 11), (small_talk.sums, 7), (unasked, 6), (recall, 17), (told_and_asked, 7), (changed, 3),
    (absent, 4), (own, 22), (without_tool, 2), (new, 24), (with_memory, 4), (quoted, 1), (digested, 3), (evicted, 3),
    (long, 2), (two_people, 2), (who, 2), (kept, 2), (session, 7),
)  # fmt: skip
"""How often each kind comes, by conversations; by tokens, `long` is a sixth."""
BEGINNING: tuple[tuple[Maker, float], ...] = (
    (small_talk.chat, 4), (recall, 40), (told_and_asked, 20), (own, 20), (new, 12),
)  # fmt: skip
"""The mix of the first tokens: copying is learned from it, and all else rests on copying."""
FINISHING: tuple[tuple[Maker, float], ...] = (
    (small_talk.chat, 16), (small_talk.sums, 9), (unasked, 9), (recall, 13), (told_and_asked, 7), (changed, 2),
    (absent, 4), (own, 12), (in_chat, 22), (without_tool, 4), (new, 24), (with_memory, 4), (quoted, 1), (digested, 5),
    (evicted, 2), (two_people, 2), (who, 2), (kept, 2), (session, 10),
)  # fmt: skip
"""The mix of the last tokens: what a chat with this model is made of."""


@cache
def forbidden() -> frozenset[str]:
    """The first hour's sentences that training never says."""
    return frozenset(first_hour.plain(sentence.text) for sentence in first_hour.load()[0] if sentence.is_held_out)


def sample(draw: Draw, kinds: Sequence[tuple[Maker, float]] = KINDS) -> Chat:
    """A conversation in which no user says one of the sentences that are held out."""
    while True:
        made = draw.weighted(kinds)(draw)
        said = (message.text.rpartition("\n\n")[2] for message in made.messages if message.role == "user")
        if forbidden().isdisjoint(map(first_hour.plain, said)):
            return made
