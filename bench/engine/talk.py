"""Endless made-up conversations in the embedded model's own language, as tokens, for measuring quality.

The sentences come from the generator that the model was trained with (`training/conversations.py`), drawn from other
seeds, so that all names, codes and values are new: facts given and asked for, small talk, stories, lists, and calls of
tools. Each question is about a fact a little before it, so that it is in every window worth measuring.
"""

from __future__ import annotations

import importlib.util
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.rig.machine import ROOT

from shepherd.engine.llamacpp.weights import Weights

GENERATOR = ROOT / "training" / "conversations.py"
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

    def turn(self, messages: list[tuple[str, str]]) -> Turn:
        tokens = array("i")
        answers = []
        for role, text in messages:
            if role == "assistant":
                start = len(tokens) + len(self.header(role))
                answers.append((start, start + len(self.body(text))))
            tokens += self.message(role, text)
        return Turn(tokens, tuple(answers))


class Talk:
    """One conversation: a system prompt, and turns without end. The same seed gives the same one.

    Only one at a time draws sentences: the generator has one source of chance.
    """

    def __init__(self, writer: Writer, seed: int) -> None:
        self._gen = generator()
        self._gen.R.seed(seed)
        self._writer = writer
        self._tools = self._gen.R.sample(TOOLS, 2) if self._gen.R.random() < TOOLED else []
        self.system = writer.message("system", self._system())
        self._told: list[tuple[int, Any]] = []
        """When, counted in tokens, and the fact."""
        self._used: set[str] = set()
        self._n_tokens = 0

    def secrets(self, n: int) -> list[str]:
        """Different random strings of the same number of tokens; with Lamb's vocabulary, one per character."""
        rnd = self._gen.R
        found: dict[str, int] = {}
        while len(found) < n:
            secret = "".join((*rnd.choices(LETTERS, k=2), "-", *rnd.choices(DIGITS, k=3)))
            size = len(self._writer.plain(secret))
            if size == next(iter(found.values()), size):
                found[secret] = size
        return list(found)

    def thing(self) -> str:
        """Something that has a secret code."""
        name: str = self._gen.ch(THINGS)
        return name

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
        prompt: str = self._gen.ch(self._gen.SYS)
        if not self._tools:
            return prompt
        listed: str = self._gen.tool_system([self._gen.tool_known(name) for name in self._tools], prompt)[1]
        return listed

    def _messages(self) -> Iterator[list[tuple[str, str]]]:
        """Turns of every kind, in the shares of the model's long training texts."""
        gen = self._gen
        kinds = (self._tell, self._ask, self._ask_absent, self._listen, self._chat, self._use_tool)
        while True:
            yield gen.R.choices(kinds, (28, 28, 4, 12, 18, 10 if self._tools else 0))[0]()

    def fact(self) -> Any:
        """A fact that this conversation has not heard of."""
        gen = self._gen
        while True:
            fact = gen.fact()
            names = {gen.sig(fact), fact.key, fact.v}
            if not names & self._used:
                self._used |= names
                return fact

    def _tell(self) -> list[tuple[str, str]]:
        gen = self._gen
        facts = [self.fact() for _ in range(gen.R.choices((1, 2, 3), (70, 20, 10))[0])]
        self._told += [(self._n_tokens, fact) for fact in facts]
        if len(facts) == 1:
            return [("user", gen.stmt(facts[0])), ("assistant", gen.ack(facts[0]))]
        said = " ".join(f"{gen.cap(fact.clause)}." for fact in facts)
        return [("user", said), ("assistant", gen.ch(["Okay, I will remember that.", "Got it."]))]

    def _ask(self) -> list[tuple[str, str]]:
        gen = self._gen
        recent = [fact for at, fact in self._told if at >= self._n_tokens - RECENT]
        if not recent:
            return self._tell()
        fact = gen.ch(recent)
        return [("user", gen.question(fact)), ("assistant", gen.cap(fact.ans))]

    def _ask_absent(self) -> list[tuple[str, str]]:
        return [("user", self._gen.question(self.fact())), ("assistant", self._gen.DK)]

    def _listen(self) -> list[tuple[str, str]]:
        gen = self._gen
        return [("user", gen.ch([gen.story, gen.lst])()), ("assistant", gen.ch(["I see.", "Interesting.", "Okay."]))]

    def _chat(self) -> list[tuple[str, str]]:
        said, answered = self._gen.distract()
        return [("user", said), ("assistant", answered)]

    def _use_tool(self) -> list[tuple[str, str]]:
        gen = self._gen
        name = gen.ch(self._tools)
        said, arguments, result, answer = gen.known_req(name)
        return [("user", said), gen.call(name, arguments), gen.resp(result), ("assistant", answer)]


def generator() -> Any:
    """The training generator as a module of its own: it keeps its source of chance in a global."""
    spec = importlib.util.spec_from_file_location("lamb_generator", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
