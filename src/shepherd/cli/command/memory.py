"""`shepherd memory`: searches and shows messages, and changes facts and the profile.

Every command opens the memory, does one thing and prints the result: in colours on a terminal, as plain text in a pipe,
as one JSON document with `--json`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from shepherd.cli import configure, known_providers, render
from shepherd.cli.text import clean, one_line
from shepherd.config import Config
from shepherd.core import BackendError, InvalidRequest
from shepherd.core.dataclasses import dataclass
from shepherd.memory import MemoryStore
from shepherd.memory.records import (
    Conversation,
    Embedder,
    Fact,
    FactKind,
    Hit,
    State,
    StoredMessage,
    Trust,
    to_datetime,
)
from shepherd.memory.search.excerpt import shorten, term_spans
from shepherd.memory.search.query import Filters, terms_of
from shepherd.memory.search.reranking import Reranking
from shepherd.memory.search.tokenizer import span_tokenizer as locating
from shepherd.memory.transfer import as_json as encode
from shepherd.memory.users import LOCAL, UserStores, configured_stores

if TYPE_CHECKING:
    from shepherd.app.cloud_embedder import CloudEmbedder

SHOWN_CHARS = 600
"""Characters of a message in a list of results; `show` prints all of it."""
NAME_CHARS = 8
"""Characters of a conversation's name: enough to find it again."""
STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "yellow", "system": "dim"}


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """What every command gets: the configuration, the user, the form of the output."""

    options: Mapping[str, Any]
    """The shared options of the command line."""
    config: Config
    user: str | None
    """None = the owner."""
    as_json: bool

    @classmethod
    def of(cls, options: Mapping[str, Any], *, user: str | None, as_json: bool) -> MemoryAccess:
        """Raises: `ConfigError`."""
        # A model on the command line is one for `embed`, not for a conversation.
        return cls(options, configure.load_config({**options, "model": None}), user, as_json)

    @contextmanager
    def store(self, embedder: Embedder | None = None, reranking: Reranking | None = None) -> Iterator[MemoryStore]:
        """The memory of the user, open during the block. Raises: `ConfigError`, `MemoryFailure`."""
        with self.stores(embedder, reranking) as stores:
            yield self.memory(stores)

    def stores(self, embedder: Embedder | None = None, reranking: Reranking | None = None) -> UserStores:
        return configured_stores(self.config.memory, os.environ, embedder, reranking)

    def memory(self, stores: UserStores) -> MemoryStore:
        store = stores.find_store(LOCAL if self.user is None else self.user)
        if store is None:
            raise InvalidRequest("--user needs a name; leave it out for your own memory", field="user")
        return store

    def show_result(self, document: Any, people: str | Callable[[], None]) -> None:
        """Print the result: the JSON document with `--json`, else a line for people or what `people` prints."""
        if self.as_json:
            render.show_json(document)
        elif isinstance(people, str):
            render.show(people)
        else:
            people()


@contextmanager
def embedding(
    model: str | None, config: Config | None = None, *, patient: bool = False, needed: bool = True
) -> Iterator[Embedder | None]:
    """The embedding model of this name or file, loaded during the block; None for None. `config` has the providers, one
    of which may serve the model; `patient`: its limits of time are longer. If the model is not `needed` and its
    provider makes no vectors now, the result is None, with a warning."""
    if model is None:
        yield None
        return
    name, _, rest = model.partition("/")
    if config is not None and rest and not Path(model).exists() and name in {each.name for each in config.providers}:
        try:
            found = _elsewhere(config, name, rest, patient=patient)
        except BackendError as error:
            if needed:
                raise
            render.show_warning(f"the memory is searched by words only: {error.message}")
            yield None
        else:
            with closing(found):
                yield found
        return
    from shepherd.app.alone import open_embedder

    with open_embedder(model) as embedder:
        yield embedder


@contextmanager
def reranking_by(model: str | None, config: Config | None = None) -> Iterator[Reranking | None]:
    """The reranker of this name or file, loaded during the block; None for None. `config`: with the models that may
    have the name."""
    if model is None:
        yield None
        return
    from shepherd.app.alone import open_reranker

    path = next((each.path for each in (config.models if config else ()) if each.name == model), model)
    with open_reranker(path) as loaded, closing(Reranking(loaded.relevance, model)) as reranking:
        yield reranking


def _elsewhere(config: Config, name: str, model: str, *, patient: bool) -> CloudEmbedder:
    """A provider's model. Raises: `BackendError`, `ConfigError`, `InvalidRequest` where messages must stay here."""
    from shepherd.app.cloud_embedder import DEADLINES, TIMEOUTS, CloudEmbedder
    from shepherd.app.providers import cloud_of, made_of, user_spending

    rows = {each.name: each for each in config.providers}
    row = rows[next(iter(rows[name].replicas), name)]
    provider = made_of(row, os.environ, known_providers.store())
    if not provider.is_local and any(rule.privacy == "local" for rule in config.routes):
        raise InvalidRequest(
            f'{name!r} is not on this machine, and would read what the memory keeps of routes with privacy = "local"; '
            "use a model of this machine",
            field="model",
        )
    limits = (None, None) if patient else (DEADLINES, TIMEOUTS)
    cloud = cloud_of(row, provider, config.network, user_spending(), deadlines=limits[0], timeouts=limits[1])
    return CloudEmbedder(cloud, model)


# -- search and show --------------------------------------------------------------------------------------------------


def search(
    access: MemoryAccess,
    *,
    words: Sequence[str],
    limit: int,
    conversation: str | None,
    roles: Sequence[Any],
    after: str | None,
    before: str | None,
    phrase: str | None,
    prefix: str | None,
) -> None:
    query = " ".join(words)
    embedder_wanted = embedding(access.config.memory.embedding_model, access.config, needed=False)
    with (
        embedder_wanted as embedder,
        reranking_by(access.config.memory.reranker, access.config) as reranking,
        access.store(embedder, reranking) as store,
    ):
        filters = Filters(
            conversation=conversation_called(store, conversation).uuid if conversation else None,
            roles=tuple(roles),
            after_ms=moment("--after", after),
            before_ms=moment("--before", before),
            phrase=phrase,
            prefix=prefix,
        )
        hits = store.search(query, limit, filters=filters)
        mark = _marker(store, f"{query} {phrase or ''} {prefix or ''}")
        access.show_result(
            {"query": query, "results": [encode.hit(hit) for hit in hits]}, lambda: _show_hits(hits, query, mark)
        )


def _show_hits(hits: Sequence[Hit], query: str, mark: Callable[[str], Text]) -> None:
    if not hits:
        render.show(f"No archived conversations found matching: {query}" if query else "No message is archived yet.")
        return
    console = render.console()
    console.print(f"Found {len(hits)} archived conversation(s):", style="bold")
    for number, hit in enumerate(hits, 1):
        where = [day(hit.timestamp), hit.title, hit.conversation[:NAME_CHARS], f"message {hit.message_id}"]
        head = Text(f"\nResult {number} [Relevance: {hit.score:.2f}]", style="bold")
        head.append(f" {' · '.join(one_line(part) for part in where if part)}", style="not bold dim")
        console.print(head, soft_wrap=True)
        texts = {"user": hit.user_message, "assistant": hit.assistant_response}
        for role, text in texts.items():
            if text:
                shown = mark(shorten(text.strip(), SHOWN_CHARS))
                console.print(Text.assemble((f"{role.capitalize()}: ", STYLES[role]), shown), soft_wrap=True)
        if hit.role not in {"user", "assistant"}:
            about = f"{hit.role.capitalize()}{' (untrusted)' if hit.untrusted else ''}: "
            console.print(Text.assemble((about, STYLES[hit.role]), mark(hit.snippet)), soft_wrap=True)


def _marker(store: MemoryStore, query: str) -> Callable[[str], Text]:
    """A function that highlights the words of the query in a text; without colours it only cleans the text."""
    if not render.colours_wanted():
        return lambda text: Text(clean(text))
    terms = terms_of(query)

    def mark(text: str) -> Text:
        shown = clean(text)
        marked = Text(shown)
        for place in store.read(lambda connection: term_spans(shown, terms, locating(connection))):
            marked.stylize("bold reverse", place.start, place.stop)
        return marked

    return mark


def show(access: MemoryAccess, *, name: str | None, limit: int) -> None:
    with access.store() as store:
        if name is None:
            _show_conversations(access, store, limit)
            return
        found = _message(store, name)
        if found is not None:
            its = store.conversation_with(found.conversation)
            messages = [each for each in store.messages(its.uuid, shared=True) if each.turn == found.turn]
        else:
            its = conversation_called(store, name)
            messages = store.messages(its.uuid, shared=True)
        document = {"conversation": encode.conversation(its), "messages": [encode.message(each) for each in messages]}
        access.show_result(document, lambda: _show_messages(its, messages))


def _show_conversations(access: MemoryAccess, store: MemoryStore, limit: int) -> None:
    found = store.conversations(limit=limit + 1 if limit else None)
    shown = found[:limit] if limit else found

    def people() -> None:
        rows = [
            (c.uuid[:NAME_CHARS], day(to_datetime(c.created_ms)), str(c.n_messages), one_line(c.title)) for c in shown
        ]
        render.show_table(("NAME", "BEGUN", "MESSAGES", "TITLE"), rows, "No message is archived yet.")
        if len(found) > len(shown):
            render.show(f"There are older conversations: shepherd memory show -n {4 * limit}, or -n 0 for all.")

    access.show_result({"conversations": [encode.conversation(each) for each in shown]}, people)


def _show_messages(conversation: Conversation, messages: Sequence[StoredMessage]) -> None:
    console = render.console()
    about = [day(to_datetime(conversation.created_ms)), conversation.model, conversation.source, conversation.uuid]
    console.print(Text(one_line(conversation.title) or "(no title)", style="bold"), soft_wrap=True)
    console.print(Text(" · ".join(one_line(part) for part in about if part), style="dim"), soft_wrap=True)
    for message in messages:
        notes = [f"message {message.id}", day(message.time)]
        notes += ["pinned"] * message.pinned + ["untrusted"] * (message.trust is Trust.UNTRUSTED)
        notes += ["shortened to save space"] * (message.state is State.PRUNED)
        console.print()
        console.print(Text.assemble((message.role, STYLES[message.role]), (f"  {' · '.join(notes)}", "dim")))
        if message.body:
            console.print(Text(message.body), soft_wrap=True)
        for call in message.calls:
            console.print(Text(f"[Tool Call: {call.name} {call.arguments}]", style="yellow"), soft_wrap=True)


def _message(store: MemoryStore, name: str) -> StoredMessage | None:
    """The message with the number `name`; None when `name` is no number of a message."""
    digits = name.removeprefix("#")
    if not digits.isdecimal() or len(digits) > 18 or (len(digits) >= NAME_CHARS and store.conversation(name)):
        return None
    found = store.stored([int(digits)])
    if not found and (name.startswith("#") or store.conversation(name) is None):
        raise InvalidRequest(f"no message and no conversation is called {digits}", field="name")
    return found[0] if found else None


def conversation_called(store: MemoryStore, name: str) -> Conversation:
    found = store.conversation(name)
    if found is None:
        raise InvalidRequest(
            f"no conversation is called {name!r:.80}; 'shepherd memory show' lists them", field="conversation"
        )
    return found


# -- facts and profile ------------------------------------------------------------------------------------------------


def list_facts(access: MemoryAccess) -> None:
    with access.store() as store:
        facts = store.facts(kind="fact")
    document = {"facts": [encode.fact(each) for each in facts]}
    access.show_result(document, lambda: _show_facts(facts, "No fact is stored yet."))


def _show_facts(facts: Sequence[Fact], none: str) -> None:
    rows = [(one_line(fact.key), one_line(fact.value), day(fact.time), one_line(fact.status)) for fact in facts]
    render.show_table(("KEY", "VALUE", "SINCE", "STATUS"), rows, none)


def set_fact(access: MemoryAccess, *, key: str, words: Sequence[str]) -> None:
    with access.store() as store:
        fact = store.set_fact(key, " ".join(words))
    access.show_result({"success": True, **encode.fact(fact)}, f"{one_line(fact.key)} = {one_line(fact.value)}")


def get_fact(access: MemoryAccess, *, key: str) -> int:
    with access.store() as store:
        fact = store.get_fact(key)
    if fact is not None:
        access.show_result({"found": True, **encode.fact(fact)}, fact.value)
        return 0
    if access.as_json:
        render.show_json({"found": False, "key": key, "value": None})
    else:
        render.show_error(f"no fact is called {key!r:.80}; 'shepherd memory facts' lists them")
    return 1


def clear_fact(access: MemoryAccess, *, key: str) -> int:
    with access.store() as store:
        cleared = store.clear_fact(key)
    says = "Deleted, with its history." if cleared else f"No fact is called {key!r:.80}."
    access.show_result({"key": key, "cleared": cleared}, says)
    return int(not cleared)


def fact_history(access: MemoryAccess, *, key: str) -> None:
    with access.store() as store:
        facts = store.history(key)
    document = {"key": key, "history": [encode.fact(each) for each in facts]}
    access.show_result(document, lambda: _show_facts(facts, f"No fact is called {key!r:.80}."))


def list_profile(access: MemoryAccess) -> None:
    with access.store() as store:
        wishes, candidates = store.profile(), store.facts(status="candidate")

    def people() -> None:
        rows = [(str(fact.id), fact.kind, fact.status, one_line(fact.value)) for fact in (*wishes, *candidates)]
        render.show_table(("ID", "KIND", "STATUS", "TEXT"), rows, "The profile is empty.")
        if candidates:
            render.show("A candidate takes effect when you confirm it: shepherd memory profile confirm ID")

    document = {"profile": wishes, "candidates": candidates}
    access.show_result({name: [encode.fact(each) for each in facts] for name, facts in document.items()}, people)


def add_to_profile(access: MemoryAccess, *, words: Sequence[str], kind: FactKind) -> None:
    with access.store() as store:
        fact = store.adopt(" ".join(words), kind)
    access.show_result({"success": True, **encode.fact(fact)}, f"Added as {fact.id}: {one_line(fact.value)}")


def confirm(access: MemoryAccess, *, id: int) -> None:
    with access.store() as store:
        fact = store.confirm(id)
    access.show_result({"success": True, **encode.fact(fact)}, f"In the profile: {one_line(fact.value)}")


def reject(access: MemoryAccess, *, id: int) -> None:
    with access.store() as store:
        store.reject(id)
    access.show_result({"success": True, "id": id}, "Removed. Shepherd will not propose it again.")


# -- words and times --------------------------------------------------------------------------------------------------


_AGE = re.compile(r"(\d{1,5})\s*([hdwmy])", re.IGNORECASE)
_HOURS = {"h": 1, "d": 24, "w": 24 * 7, "m": 24 * 30, "y": 24 * 365}


def moment(option: str, text: str | None) -> int | None:
    """The Unix milliseconds of a date or a time, or of an age such as 7d. Raises: `UsageError`."""
    if text is None:
        return None
    try:
        if age := _AGE.fullmatch(text.strip()):
            found = datetime.now().astimezone() - timedelta(hours=int(age[1]) * _HOURS[age[2].lower()])
        else:
            found = datetime.fromisoformat(text.strip()).astimezone()
        return int(found.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(
            f"{option}: {text!r:.80} is not a time; write 2026-03-02, 2026-03-02T14:00 or an age such as 7d."
        ) from None


def day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
