"""Made-up conversations whose size in tokens is exact, for every model that the benchmarks use.

Digits and single spaces are one token each in both vocabularies, and read back as the same tokens. Answers are made to
consist of one digit, so that what a server has generated is what it gets back in the next turn: a random model would
otherwise write words that are tokenised differently when they come back, which would be held against llama-server.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from bench.rig.traffic import ask

SEVEN = {"temperature": 0, "ignore_eos": True, "logit_bias": {str(ord("7")): 100}}
"""Sampling that writes sevens only: the ids of single bytes are their values in both vocabularies."""
DRAWN = {**SEVEN, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
"""The same outcome with the work of sampling as people use it, each setting given, so that both servers do the same."""
FREE = {**DRAWN, "temperature": 1.0, "logit_bias": {}}
"""The model's own words: blanks, and characters of several tokens."""
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "hand")


def spoken(rnd: random.Random, n_words: int) -> str:
    """Words, of about a token each."""
    return " ".join(rnd.choices(WORDS, k=n_words))


def text(rnd: random.Random, n_tokens: int) -> str:
    """Numbers of four digits; exactly `n_tokens` tokens."""
    return "".join(" " if n % 5 == 4 else rnd.choice("0123456789") for n in range(n_tokens - 1)) + "1"


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn cost."""

    ttft_s: float
    """To the first piece of the answer; includes requests that were refused."""
    wall_s: float
    n_prompt: int
    n_prefilled: int
    """As the server reports it."""
    n_new: int
    """Tokens that this conversation never had computed: the new message, the template around it, and the last token of
    the answer before, which was drawn but not decoded. In the first turn the whole prompt."""
    n_refused: int
    """Requests that the server refused because the history was too long."""


class Dialogue:
    """One conversation; its client sends the whole history every time."""

    def __init__(self, seed: int, system_tokens: int, *, user_tokens: int, answer_tokens: int) -> None:
        self._random = random.Random(seed)
        self._user_tokens, self._answer_tokens = user_tokens, answer_tokens
        self._system = {"role": "system", "content": text(self._random, system_tokens)}
        self._keep = system_tokens
        self._turns: list[dict[str, str]] = []
        self._n_computed = 0

    def ask(self, port: int, user_tokens: int = 0) -> Turn:
        """The next turn. Where the server refuses, the client drops the older half of its turns and asks again.

        user_tokens: of this message, in place of the usual number.
        """
        self._turns.append({"role": "user", "content": text(self._random, user_tokens or self._user_tokens)})
        replies = [ask(port, self._body())]
        while replies[-1].status == 400 and len(self._turns) > 2:
            del self._turns[: (len(self._turns) // 4 + 1) * 2]
            self._n_computed = 0
            replies.append(ask(port, self._body()))
        last = replies[-1]
        if last.status != 200 or last.error or not last.times:
            raise RuntimeError(f"status {last.status}: {last.error[:500]}")
        self._turns.append({"role": "assistant", "content": last.text})
        turn = Turn(
            ttft_s=last.times[0] - replies[0].started,
            wall_s=last.times[-1] - replies[0].started,
            n_prompt=last.n_prompt,
            n_prefilled=last.n_prefilled,
            n_new=last.n_prompt - self._n_computed,
            n_refused=len(replies) - 1,
        )
        self._n_computed = last.n_prompt + last.n_generated - 1
        return turn

    def _body(self) -> dict[str, Any]:
        messages = [self._system, *self._turns]
        return {"messages": messages, "max_tokens": self._answer_tokens, "n_keep": self._keep, **SEVEN}
