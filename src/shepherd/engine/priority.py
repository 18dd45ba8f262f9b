"""Which task comes first on one cache: conversations before background tasks, then the older task. Pure.

A background task (`Job.background`: a title, a summary) uses what conversations leave over. One place is kept free of
background tasks; they give way to a conversation that arrives, and are preempted first when cells run out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shepherd.engine.kv.ledger import Ledger, shared_prefix
from shepherd.engine.task import Task


def has_place(task: Task, running: Sequence[Task], n_places: int) -> bool:
    return len(running) < (max(1, n_places - 1) if task.job.background else n_places)


def background_victim(task: Task, running: Sequence[Task]) -> Task | None:
    """The running background task that is preempted so that `task`, a conversation, can start."""
    if task.job.background:
        return None
    sides = [other for other in running if other.job.background and other.phase != "closing"]
    return sides[-1] if sides else None


def preemption_victim(running: Sequence[Task]) -> Task:
    """The task to preempt when cells run out: the youngest background task, else the youngest. One must run."""
    return max(reversed(running), key=is_background)


def prefill_first(prompts: Mapping[int, Task]) -> Mapping[int, Task]:
    """The prompts that the next decode may compute: those of background tasks only if no conversation has one."""
    first = {seq: task for seq, task in prompts.items() if not task.job.background}
    return first or prompts


def is_background(task: Task) -> bool:
    return task.job.background


def promised_cells(running: Iterable[Task]) -> int:
    """Cells that running jobs still need for their prompts and reserves."""
    return sum(task.n_todo + max(0, min(task.job.reserve, task.job.max_tokens) - task.n_generated) for task in running)


def awaited_prefix(task: Task, other: Task, ledger: Ledger) -> int:
    """Leading tokens of `task` that the prompt of a running task has and will soon have computed."""
    if other.phase != "prefill" or any(other.cells.gaps()):
        return 0
    shared = shared_prefix(task.tokens, task.job.owner, other.tokens, other.job.owner)
    if ledger.memory.share:
        return shared
    is_own = task.job.owner.can_share(other.job.owner)
    return max((at for at in other.marks if is_own and len(other.cells) < at <= shared), default=0)
