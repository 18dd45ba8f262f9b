"""The memory of one user: a file, the thread that writes it, and connections that read it.

The functions of `archive/`, `search/` and `transfer/` do the work on a connection. Most methods of `MemoryStore` are
such a function, run on a reading connection or on the writer's thread; its docstring is the method's.
"""

from __future__ import annotations

import inspect
import logging
import os
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from functools import partial, update_wrapper
from pathlib import Path
from queue import LifoQueue
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

import apsw

from shepherd.core import InvalidRequest, MemoryFailure
from shepherd.core.lru import LruCache
from shepherd.memory.archive import check as checks
from shepherd.memory.archive import facts as fact_table
from shepherd.memory.archive import forget as forgetting
from shepherd.memory.archive import history as histories
from shepherd.memory.archive import notes, queries
from shepherd.memory.archive.forget import Removed
from shepherd.memory.archive.names import NamedHistory
from shepherd.memory.archive.upkeep import Pruned, Upkeep
from shepherd.memory.database import failure
from shepherd.memory.location import default_path
from shepherd.memory.records import Embedder, Entry, Fact, Hit, RankedMessage, State, Stats, StoredMessage
from shepherd.memory.schema import open_file
from shepherd.memory.search import ranking, search
from shepherd.memory.search.query import NO_FILTERS, Filters
from shepherd.memory.search.reranking import Reranking
from shepherd.memory.writer import Writer

if TYPE_CHECKING:
    from shepherd.memory.search.vectors import VectorIndex

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
Job = Callable[Concatenate[apsw.Connection, P], T]
Method = Callable[Concatenate["MemoryStore", P], T]

READERS = 4
"""Connections that read at the same time; further threads wait."""
MIN_SIZE_BYTES = 2**18
"""An empty memory needs half of that."""


def _reads(job: Job[P, T]) -> Method[P, T]:
    """The method that runs `job` on a snapshot of the file."""
    return _method(job, writes=False)


def _writes(job: Job[P, T]) -> Method[P, T]:
    """The method that returns the result of `job` when its changes are on disk."""
    return _method(job, writes=True)


def _method(job: Job[P, T], *, writes: bool) -> Method[P, T]:
    def method(store: MemoryStore, /, *args: P.args, **options: P.kwargs) -> T:
        run = store.write if writes else store.read
        return run(lambda connection: job(connection, *args, **options))

    update_wrapper(method, job)
    del method.__wrapped__  # type: ignore[attr-defined]  # `help` would show the connection
    taken = inspect.signature(job)
    _, *others = taken.parameters.values()
    method.__signature__ = taken.replace(  # type: ignore[attr-defined]
        parameters=[inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *others]
    )
    return method


class MemoryStore:
    """The memory of one user in one file. Any thread; when a method returns, its changes are on disk.

    `path`: None = `default_path`. `user` is written into a new file, and must be the same for an old one. `embedder`
    adds search by meaning; one thread at a time calls it, and `embed` computes the vectors of old messages. `reranking`
    orders what a search finds; the caller closes it.
    `on_archived` gets the number of new messages of each history, on the writer's thread.

    Raises: `ConfigError` for a file that is no memory, has a newer version, or belongs to another user. Every method
    raises `MemoryFailure` when the file or its disk fails, and after `close`.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        user: str = "",
        max_size_bytes: int = 10 * 2**30,
        mmap_size: int = 0,
        embedder: Embedder | None = None,
        reranking: Reranking | None = None,
        on_archived: Callable[[int], None] = lambda n_messages: None,
    ) -> None:
        self.path = default_path(os.environ) if path is None else Path(path)
        self.max_size_bytes = _check_size("max_size_bytes", max_size_bytes)
        self.embedder, self._reranking = embedder, reranking
        self._on_archived = on_archived
        self._vectors: VectorIndex | None = None
        if embedder is not None:
            from shepherd.memory.search.vectors import VectorIndex  # noqa: PLC0415 - loads NumPy

            self._vectors = VectorIndex(embedder)
        self._recent = LruCache[NamedHistory](histories.RECENT)
        connection = open_file(self.path, user=user)
        self._upkeep = Upkeep(self.path, max_size_bytes)
        self._upkeep.attach(connection)
        self._writer = Writer(connection, name=str(self.path), rest=self._upkeep, settle=self._upkeep.settle)
        open_reader = partial(open_file, self.path, user=user, mmap_size=mmap_size, readonly=True)
        self._readers = Readers(open_reader, str(self.path))
        self._end = weakref.finalize(self, _shut, self._readers, self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_about_the_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write all waiting jobs, and merge the log into the file. At the end of the program this happens by itself."""
        self._end()

    # ---- access to the file

    def read(self, job: Callable[[apsw.Connection], T]) -> T:
        """The result of `job` on a snapshot of the file."""
        return self._readers.run(job)

    def submit(self, job: Callable[[apsw.Connection], T]) -> Future[T]:
        """Run `job` on the writer's thread, in a transaction (see `Writer.submit`)."""
        return self._writer.submit(job)

    def write(self, job: Callable[[apsw.Connection], T]) -> T:
        """The result of `job`, when its changes are on disk. Never call it within a job."""
        return self._writer.submit(job).result()

    # ---- messages

    def archive(self, history: Sequence[Entry], *, session: str | None = None, model: str = "") -> list[int]:
        """Store the new messages of a conversation; the ids of all its messages, in order (see `histories.archive`)."""
        return self.submit_archive(history, session=session, model=model).result()

    def submit_archive(
        self, history: Sequence[Entry], *, session: str | None = None, model: str = ""
    ) -> Future[list[int]]:
        """`archive` without waiting."""
        entries, n_new = tuple(history), 0
        recent, on_archived = self._recent, self._on_archived  # not `self`: the writer may keep its last job for long

        def job(connection: apsw.Connection) -> list[int]:
            nonlocal n_new
            first = histories.next_id(connection)
            ids = histories.archive(connection, entries, session=session, model=model, recent=recent)
            n_new = histories.next_id(connection) - first
            return ids

        def count(done: Future[list[int]]) -> None:
            if not done.cancelled() and done.exception() is None:
                on_archived(n_new)

        future = self._writer.submit(job)
        future.add_done_callback(count)
        return future

    def mark(self, ids: Collection[int], state: State) -> None:
        """Record that these messages have left their context, or are in one again."""
        self.submit_mark(ids, state).result()

    def submit_mark(self, ids: Collection[int], state: State) -> Future[None]:
        """`mark` without waiting."""
        if state is State.PRUNED:
            raise InvalidRequest("state: messages are pruned by `prune`; mark them live or evicted", field="state")
        return self._writer.submit(partial(histories.mark, ids=tuple(ids), state=state))

    states = _reads(queries.states)
    stored = _reads(queries.stored)
    conversations = _reads(queries.conversations)
    conversation = _reads(queries.conversation)
    conversation_with = _reads(queries.conversation_with)
    sessions = _reads(queries.sessions)
    newest_message = _reads(queries.newest_message)
    newest_turn = _reads(queries.newest_turn)
    newest_conversation = _reads(queries.newest_conversation)
    set_aside = _writes(histories.set_aside)
    take_back = _writes(histories.take_back)
    set_title = _writes(histories.set_title)
    pin = _writes(histories.pin)

    def messages(
        self, uuid: str, *, after_seq: int = -1, limit: int | None = None, shared: bool = False
    ) -> list[StoredMessage]:
        """The messages in order; none for an unknown conversation. `shared`: also those of what it branched off."""
        found = self.conversation(uuid)
        if found is None:
            return []
        job = partial(queries.messages, conversation=found.id, after_seq=after_seq, limit=limit, shared=shared)
        return self.read(job)

    # ---- search

    def search(
        self, query: str, max_results: int = 5, *, filters: Filters | None = None, without: Collection[int] = ()
    ) -> list[Hit]:
        """The exchanges that answer a question, best first (see `search.search`)."""
        return self._searched(
            partial(search.search, query=query, max_results=max_results, filters=filters, without=without)
        )

    def rank(
        self, query: str, *, limit: int, filters: Filters = NO_FILTERS, without: Collection[int] = ()
    ) -> list[RankedMessage]:
        """The messages that answer a question, best first (see `ranking.rank`)."""
        return self._searched(partial(ranking.rank, query=query, limit=limit, filters=filters, without=without))

    def _searched(self, job: Callable[..., T]) -> T:
        def work(connection: apsw.Connection) -> T:
            near = self._vectors.searcher(connection) if self._vectors is not None else None  # empty until asked
            return job(connection, vectors=near, reranking=self._reranking)

        return self.read(work)

    def embed(
        self, *, on_progress: Callable[[int, int], None] | None = None, stop: Callable[[], bool] | None = None
    ) -> int:
        """Compute the missing vectors (see `vectors.backfill`)."""
        if self.embedder is None:
            raise InvalidRequest("embedder: the memory was opened without one", field="embedder")
        from shepherd.memory.search import vectors  # noqa: PLC0415 - loads NumPy

        return vectors.backfill(self.read, self.write, self.embedder, on_progress=on_progress, stop=stop)

    # ---- notes and facts

    remember = _writes(notes.remember)
    clear_memory = _writes(notes.clear)
    set_fact = _writes(fact_table.set_fact)
    get_fact = _reads(fact_table.get_fact)
    clear_fact = _writes(fact_table.clear_fact)
    history = _reads(fact_table.history)
    facts = _reads(fact_table.facts)
    profile = _reads(fact_table.profile)
    propose = _writes(fact_table.propose)
    adopt = _writes(fact_table.adopt)
    confirm = _writes(fact_table.confirm)
    reject = _writes(fact_table.reject)

    def candidates(self) -> list[Fact]:
        """Proposals for the profile that the user has not confirmed yet, oldest first."""
        return self.facts(status="candidate")

    # ---- deletion and upkeep

    find = _reads(forgetting.find)
    check = _writes(checks.check)
    repair = _writes(checks.repair)

    def forget(
        self,
        ids: Collection[int] | None = None,
        *,
        messages: Collection[int] = (),
        conversation: str | None = None,
        matching: str | None = None,
        before_ms: int | None = None,
    ) -> Removed:
        """Delete messages, those with these ids or those that `find` finds, so that no byte of them is left.

        Rewrites the file, which takes about a second for 100 MB. Caches of models are not cleared here.
        """
        find = partial(
            forgetting.find, messages=messages, conversation=conversation, matching=matching, before_ms=before_ms
        )

        def job(connection: apsw.Connection) -> Removed:
            return forgetting.remove(connection, find(connection) if ids is None else ids, matching=matching)

        removed = self.write(job)
        if not self._writer.submit(forgetting.scrub, is_bare=True).result():
            self._upkeep.must_empty_log = True
            logger.warning(
                "another reader holds an old state of %s; the forgotten text leaves its log later", self.path
            )
        return removed

    def prune(self, to_bytes: int | None = None) -> Pruned:
        """Delete old text until the file is below a size; None = its limit. Other threads may write meanwhile."""
        limit = self.max_size_bytes if to_bytes is None else _check_size("to_bytes", to_bytes)
        n_messages = freed = 0
        step = partial(self._upkeep.step, limit_bytes=limit)
        while (done := self._writer.submit(step, is_bare=True).result()).n_messages:
            n_messages, freed = n_messages + done.n_messages, freed + done.freed_bytes
        return Pruned(n_messages, freed)

    def stats(self) -> Stats:
        return self.read(partial(queries.stats, path=self.path, limit_bytes=self.max_size_bytes))


class Readers:
    """A pool of reading connections, opened on demand."""

    def __init__(self, open_one: Callable[[], apsw.Connection], name: str) -> None:
        self._open, self._name = open_one, name
        self._free: LifoQueue[apsw.Connection | None] = LifoQueue()
        """`READERS` places; None = not opened yet."""
        for _ in range(READERS):
            self._free.put(None)
        self._closed = False

    def run(self, job: Callable[[apsw.Connection], T]) -> T:
        """Raises: `MemoryFailure`, also when closed."""
        connection = self._free.get()
        try:
            if self._closed:
                raise MemoryFailure(f"the memory {self._name} is closed")
            connection = connection or self._open()
            connection.execute("BEGIN")
            try:
                return job(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise failure(self._name, error) from error
        finally:
            self._free.put(connection)

    def close(self) -> None:
        """Wait for the running jobs, then close all connections. Twice is allowed."""
        taken = [self._free.get() for _ in range(READERS)]
        self._closed = True
        for connection in taken:
            if connection:
                connection.close()
            self._free.put(None)


def _check_size(field: str, size_bytes: int) -> int:
    if size_bytes < MIN_SIZE_BYTES:
        raise InvalidRequest(f"{field} is {size_bytes}; give at least {MIN_SIZE_BYTES}", field=field)
    return size_bytes


def _shut(readers: Readers, writer: Writer) -> None:
    readers.close()  # first: the last connection to close merges the log into the file, and a reading one cannot
    writer.close()
