"""Endless made-up conversations in the embedded model's own language, as tokens, for measuring quality.

The sentences come from the generator that the model was trained with (`training/`), drawn from other
seeds, so that all names, codes and values are new: facts given and asked for, small talk, stories, lists, and calls of
tools. Each question is about a fact a little before it, so that it is in every window worth measuring.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from training import own_tools, small_talk
from training.chat import END, START, Chat, Message, Piece, says, user
from training.conversations import SYSTEMS
from training.draw import Draw
from training.fact import UNKNOWN, Fact, acknowledgement, near, question, statement, together
from training.fact import fact as any_fact

from shepherd.engine.llamacpp.weights import Weights

TOOLS = ("list_directory", "read_file", "write_file", "execute_command", "http_get")
THINGS = ("locker", "garage", "office", "gate", "cabin", "server", "vault", "bicycle")
LETTERS, DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
RECENT = 200
"""Tokens back to the oldest fact that is asked for."""
TOOLED = 0.5
"""Share of the conversations whose system prompt lists tools."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message and all that follows up to the next one."""

    tokens: array[int]
    answers: tuple[tuple[int, int], ...]
    """Where the model speaks: `[start, stop)` of each assistant message with its end tag, without its header."""


class Writer:
    """Messages to tokens, as the model saw them in training. Safe from any thread."""

    def __init__(self, weights: Weights) -> None:
        self._tokenize = weights.tokenize
        ids = {special.text: special.id for special in weights.specials}
        self._start, self._end = ids["<|im_start|>"], ids["<|im_end|>"]

    def header(self, role: str) -> array[int]:
        """What stands before a message."""
        return array("i", [self._start, *self._tokenize(f"{role}\n")])

    def body(self, text: str) -> array[int]:
        """A message's text, with the end tag."""
        return array("i", [*self._tokenize(text), self._end])

    def plain(self, text: str) -> array[int]:
        return array("i", self._tokenize(text))

    def message(self, role: str, text: str) -> array[int]:
        return self.header(role) + self.body(text) + array("i", self._tokenize("\n"))

    def turn(self, messages: list[Message]) -> Turn:
        tokens = array("i")
        answers = []
        for piece in Chat(messages).pieces():
            new = array("i", self._marked(piece.text))
            if piece.is_answer:
                answers.append((len(tokens), len(tokens) + len(new)))
            tokens += new
        return Turn(tokens, tuple(answers))

    def _marked(self, text: str) -> Iterator[int]:
        """Tokens of a text in which the marks of messages are control tokens."""
        for part in re.split(f"({re.escape(START)}|{re.escape(END)})", text):
            yield from [self._start if part == START else self._end] if part in {START, END} else self._tokenize(part)


class Talk:
    """One conversation: a system prompt, and turns without end. The same seed gives the same one."""

    def __init__(self, writer: Writer, seed: int) -> None:
        self._draw = Draw(seed)
        self._writer = writer
        self._tools = self._draw.sample(TOOLS, 2) if self._draw.often(TOOLED) else []
        self.system = writer.message("system", self._system())
        self._told: list[tuple[int, Fact]] = []
        """When, counted in tokens, and the fact."""
        self._used: set[str] = set()
        self._n_tokens = 0

    def secrets(self, n: int) -> list[str]:
        """Different random strings of the same number of tokens; with Lamb's vocabulary, one per character."""
        rnd = self._draw.random
        found: dict[str, int] = {}
        while len(found) < n:
            secret = "".join((*rnd.choices(LETTERS, k=2), "-", *rnd.choices(DIGITS, k=3)))
            size = len(self._writer.plain(secret))
            if size == next(iter(found.values()), size):
                found[secret] = size
        return list(found)

    def thing(self) -> str:
        """Something that has a secret code."""
        return self._draw.pick(THINGS)

    def turns(self, n_tokens: int) -> list[Turn]:
        """The next turns, of at least so many tokens in all."""
        turns = []
        end = self._n_tokens + n_tokens
        while self._n_tokens < end:
            turn = self._writer.turn(next(self._messages()))
            turns.append(turn)
            self._n_tokens += len(turn.tokens)
        return turns

    def _system(self) -> str:
        specs = own_tools.specs()
        listed = Chat(tools=[specs[name] for name in self._tools], system=self._draw.pick(SYSTEMS))
        return spoken(next(listed.pieces()))

    def _messages(self) -> Iterator[list[Message]]:
        """Turns of every kind, in the shares of the model's long training texts."""
        kinds = (self._tell, self._ask, self._ask_absent, self._listen, self._chat, self._use_tool)
        shares = (28, 28, 4, 12, 18, 10 if self._tools else 0)
        while True:
            yield self._draw.weighted(list(zip(kinds, shares, strict=True)))()

    def fact(self) -> Fact:
        """A fact that this conversation has not heard of."""
        while True:
            fact = any_fact(self._draw)
            if not fact.names & self._used:
                self._used |= fact.names
                return fact

    def _tell(self) -> list[Message]:
        draw = self._draw
        facts = [self.fact() for _ in range(draw.weighted(((1, 70), (2, 20), (3, 10))))]
        self._told += [(self._n_tokens, fact) for fact in facts]
        if len(facts) == 1:
            return [user(statement(draw, facts[0])), says(acknowledgement(draw, facts[0]))]
        return [user(together(facts)), says("Got it.")]

    def _ask(self) -> list[Message]:
        recent = [fact for at, fact in self._told if at >= self._n_tokens - RECENT]
        if not recent:
            return self._tell()
        fact = self._draw.pick(recent)
        return [user(question(self._draw, fact)), says(fact.answer)]

    def _ask_absent(self) -> list[Message]:
        told = [fact for _, fact in self._told]
        return [user(question(self._draw, near(self._draw, told))), says(UNKNOWN)]

    def _listen(self) -> list[Message]:
        draw = self._draw
        return [user(draw.of(small_talk.story, small_talk.listing)(draw)), says("I see.")]

    def _chat(self) -> list[Message]:
        said, answered = small_talk.remark(self._draw)
        return [user(said), says(answered)]

    def _use_tool(self) -> list[Message]:
        asked = own_tools.request(self._draw, self._draw.pick(self._tools))
        return [user(asked.said), *asked.messages()]


def spoken(piece: Piece) -> str:
    """A message without its marks."""
    return piece.text.removeprefix(f"{START}system\n").partition(END)[0]
