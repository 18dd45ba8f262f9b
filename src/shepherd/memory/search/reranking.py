"""A second look at the best messages of a search: a model reads each together with the question, and moves them.

    ranking ─▶ the best 20 ─ one by one, best first, in a thread ─▶ ordered by place and score, in front of the rest
                                     │ time is up
                                     ▼
                        those that have scores are ordered, the others follow as they were

A search never waits longer than `BUDGET_S`. A model that fails, or scores nothing in that time, is left alone for a
while; the search then answers as it does without one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import sqrt
from statistics import fmean, pstdev

from shepherd.core import ShepherdError

logger = logging.getLogger(__name__)

MOST = 20
"""Messages that are looked at."""
TEXT_CHARS = 2_000
"""Read of each, from its beginning."""
BUDGET_S = 0.5
"""Time for one search."""
REST_S = 30.0
"""Pause after a failure of the model: a search must not wait for it every time."""

WEIGHT = 0.42
"""Of the scores, when the places of the search weigh 1 - `WEIGHT`; see `blended`."""

Score = Callable[[str, Sequence[str]], Sequence[float]]
"""From a question and some texts to their scores, greater = more relevant. Raises: `ShepherdError`."""


class Reranking:
    """A model as the memory asks it. Any thread; one search at a time, the others wait within their own time."""

    def __init__(
        self, score: Score, name: str, *, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.n_failures = 0
        """How often it failed, or had no score in time, since the start."""
        self._score, self._budget_s, self._clock = score, budget_s, clock
        self._rests_until = -REST_S
        self._worker = ThreadPoolExecutor(1, "shepherd-reranker")

    def order(self, question: str, texts: Sequence[str]) -> list[int]:
        """The indexes of `texts` (in the order of the search), best first; unchanged without scores. Never raises."""
        started_s, scores = self._clock(), list[float]()
        unchanged = list(range(len(texts)))
        if started_s < self._rests_until or len(texts) < 2:
            return unchanged

        def work() -> None:
            for text in texts[:MOST]:
                if self._clock() - started_s > self._budget_s:
                    return
                scores.extend(self._score(question, [text[:TEXT_CHARS]]))

        try:
            self._worker.submit(work).result(self._budget_s)
        except TimeoutError:
            if not scores:
                self._leave(f"it has no score after {self._budget_s:g} s")
        except (ShepherdError, RuntimeError) as error:  # RuntimeError: closed
            self._leave(str(error))
            return unchanged
        known = tuple(scores)  # the thread may add one more
        return blended(known) + unchanged[len(known) :]

    def _leave(self, why: str) -> None:
        self.n_failures += 1
        self._rests_until = self._clock() + REST_S
        logger.warning("the memory is searched without its reranker %s for %g s: %s", self.name, REST_S, why)

    def close(self) -> None:
        """Wait for the score that is being computed; after it, the order stays as it comes."""
        self._worker.shutdown(cancel_futures=True)


def blended(scores: Sequence[float]) -> list[int]:
    """The places of a search's results, best first, by their places and the scores of a model.

        points of the result at place n (1 = best) = WEIGHT * z / sqrt(N - 1) + (1 - WEIGHT) / n

    z is the score as a distance from the mean of all N, in standard deviations (Montague and Aslam, Relevance score
    normalization for metasearch, CIKM 2001), and sqrt(N - 1) the most that it can be: so a score counts as far as it
    stands out, on any scale. The other term is the reciprocal rank (Cormack and others, SIGIR 2009), steep,
    because the first place of our search is right three times in four. The scores alone make a search worse where the
    model is weak. `WEIGHT` was chosen with `bench/memory/retrieval.py` (there R@1 is 0.70 without a model, with
    vectors): a model that knows the answers has 0.99 (alone 1.00), one that counts shared words 0.70 (alone 0.37).
    """
    places = list(range(len(scores)))
    spread = pstdev(scores) if scores else 0.0
    if spread == 0:
        return places
    middle, most = fmean(scores), sqrt(len(scores) - 1)

    def points(at: int) -> float:
        return WEIGHT * (scores[at] - middle) / spread / most + (1 - WEIGHT) / (at + 1)

    return sorted(places, key=points, reverse=True)
