"""The drafts of one decode: which answers get one, from their texts or from the draft model, and its reading beside.

    answers ── wishes ──▶ Speculator.choose ─▶ of the text: SuffixDrafter.propose     ──▶ drafts ─▶ the decode
                                            ─▶ of the model: DraftModel.propose, read ──▶ their time is paid

Each answer takes from the source that promises the most tokens a second. So a text that repeats itself comes first, for
it costs nothing and holds more often; the draft model guesses where there is no match, or a weak one, if its time pays.
Engine thread only.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from shepherd.core.dataclasses import dataclass, field
from shepherd.engine import priority
from shepherd.engine.base import Runtime
from shepherd.engine.draft import Drafter, SuffixDrafter
from shepherd.engine.draft_model import DraftModel, Line
from shepherd.engine.kv.pool import Pool
from shepherd.engine.prefill import SMALLEST
from shepherd.engine.speculation import LOAN, START, Choice, Speculation, Speculator, Wish
from shepherd.engine.task import Task
from shepherd.engine.task_queue import TaskQueue

PIECE = 0.5
"""Part of a decode's time that it reads between two decodes: no more, so that no answer stands."""
INVESTED = 0.5
"""Part of an answer's account that the draft model may read for, to begin with."""

_BETWEEN = array("i", [-1])
"""Stands behind a text that a client expects: no text goes on beyond it."""


@dataclass(frozen=True, slots=True)
class Drafting:
    runtime: Runtime
    pool: Pool
    queue: TaskQueue
    speculates: bool = False
    """Whether jobs that do not say get drafts."""
    n_positions: int = 0
    """No draft reaches beyond so many positions; 0 = there is no limit."""
    model: DraftModel | None = None
    speculator: Speculator = field(default_factory=Speculator)

    def drafts(self, tasks: Sequence[Task]) -> list[array[int]]:
        """What is drafted behind the newest token of each of these answers, as far as it pays; there are no prompts in
        their decode. Drafts take cells that no running task needs next, and never make room."""
        drafts = [array("i") for _ in tasks]
        if not (self.speculates or any(task.job.speculate for task in tasks)):
            return drafts
        n_room = min(
            self.runtime.n_outputs - len(tasks),
            self.runtime.n_batch - len(tasks),
            self.pool.ledger.free - len(self.queue.running),
        )
        is_beside = not all(map(priority.is_background, self.queue.running))
        wishes = {
            at: Wish(speculation, self._most(task, speculation))
            for at, task in enumerate(tasks)
            if n_room > 0 and not (task.job.background and is_beside)
            if (speculation := self._speculation(task)) is not None
        }
        choices, is_cut = dict[int, Choice](), bool(wishes)
        while is_cut:
            found = self.speculator.choose([*wishes.values()], len(tasks), n_room)
            choices, is_cut = {at: choice for at, choice in zip(wishes, found, strict=True) if choice}, False
            drafts = [array("i") for _ in tasks]
            for at, (source, n, *_) in choices.items():
                if not isinstance(source, Line):
                    drafts[at] = self._possible(tasks[at], source.propose(n))
                    if len(drafts[at]) < n:  # it may not pay then
                        wishes[at].possible[source], is_cut = len(drafts[at]), True
        if by_model := {at: choice for at, choice in choices.items() if isinstance(choice.source, Line)}:
            for at, draft in self._guess(tasks, by_model).items():
                drafts[at] = self._possible(tasks[at], draft)
        return drafts

    def clear(self) -> None:
        if self.model is not None:
            self.model.clear(self._busy())

    def _busy(self) -> list[Line]:
        speculations = [task.speculation for task in self.queue.running if task.speculation]
        return [source for each in speculations for source in each.sources if isinstance(source, Line)]

    def _speculation(self, task: Task) -> Speculation | None:
        """The drafts of an answer; None if it gets none, or its conversation is not read yet."""
        most = task.job.speculate if task.job.speculate is not None else self.runtime.n_outputs * self.speculates
        # A sliding window may be cut within one decode: what that reuses of its cells was behind it before.
        can_cut = self.runtime.memory.rollback != "none"
        is_exact = bool(self.runtime.memory.piece)  # a repeatable answer is computed token by token
        if task.phase != "generate" or most <= 0 or not can_cut or is_exact or task.sampler is None:
            return None
        if task.speculation is None:
            text = SuffixDrafter(len(task.tokens) + sum(map(len, task.job.predicted)))
            for expected in task.job.predicted:
                text.extend(expected)
                text.extend(_BETWEEN)
            text.extend(task.tokens)
            sources: list[Drafter] = [text]
            if self.model and (line := self.model.line(task.tokens, task.job.owner.name, self._busy())) is not None:
                sources.append(line)
            task.speculation = Speculation(tuple(sources), most, START if len(sources) == 1 else LOAN)
        return task.speculation

    def _most(self, task: Task, speculation: Speculation) -> int:
        n_positions = self.n_positions - task.cells.end - 1 if self.n_positions else speculation.most
        return min(speculation.most, task.n_left - 1, n_positions)

    def _possible(self, task: Task, draft: array[int]) -> array[int]:
        """The beginning of a draft of which no token ends the answer, is an image, or is against its grammar."""
        assert task.sampler is not None
        n = next((at for at, token in enumerate(draft) if token < 0 or self.runtime.is_end(token)), len(draft))
        draft = draft[:n]
        return draft[: task.sampler.n_possible(draft)]

    # -- the draft model -----------------------------------------------------------------------------------------------

    def _guess(self, tasks: Sequence[Task], choices: Mapping[int, Choice]) -> Mapping[int, array[int]]:
        """What the draft model proposes for these answers; for those of which it has not read enough it reads on."""
        model, rate = self.model, self.speculator.rate(len(tasks))
        assert model is not None
        self.queue.flush()  # before a decode, as in `Scheduler.step`
        longest_s = max(choice.n for choice in choices.values()) * model.speed.decode_s
        self.queue.heartbeat.begin(f"drafting for {len(choices)} answers", longest_s)
        begun = model.clock()
        asked, behind = {}, {}
        for at, choice in choices.items():
            line = choice.source
            assert isinstance(line, Line)
            if line.is_behind:
                behind[at] = line
            else:
                asked[at] = (line, choice.n, choice.least)
        drafts = dict(zip(asked, model.propose([*asked.values()]), strict=True))
        for at, (line, n, _) in asked.items():
            if len(drafts[at]) < n:  # it promised more
                line.odds.observe(line.n_matched + len(drafts[at]), False)
        reading = [line for at, line in behind.items() if self._aim(line, tasks[at], rate)]
        if reading:
            model.read(reading, max(SMALLEST, int(PIECE * len(tasks) / rate / model.speed.token_s)))
        cost = (model.clock() - begun) * rate / len(choices)
        for at in choices:
            speculation = tasks[at].speculation
            assert speculation is not None
            speculation.account -= cost
        return drafts

    def _aim(self, line: Line, task: Task, rate: float) -> bool:
        """Let a line begin so near that its answer's account pays what it reads; False if that is too near."""
        assert self.model is not None
        assert task.speculation is not None
        n_paid = int(task.speculation.account / rate / self.model.speed.token_s)
        n_most = int(n_paid * INVESTED)
        if line.is_too_long or line.n_missing > (n_paid if line.n_read else n_most):
            if n_most < SMALLEST:
                return False
            line.aim(n_most)
        return True
