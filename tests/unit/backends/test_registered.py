"""A back end of another package: found by its name, asked like a provider, checked, and never trusted too much."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.in_process import client_of
from tests.own_app import app_of, loaded

from shepherd.app.app import App
from shepherd.backends import registered
from shepherd.backends.registered import BackendSettings
from shepherd.core import (
    BackendError,
    BadReply,
    BudgetExceeded,
    ConfigError,
    Event,
    Finished,
    Message,
    NotAllowed,
    Request,
    ShepherdError,
    Started,
    TextDelta,
    Usage,
)

PARROT = '''
from shepherd.core import Finished, Started, TextDelta, Usage

class Parrot:
    """Repeats the question, word by word."""

    title = "The parrot"
    is_local = True

    def __init__(self, settings):
        self.settings = settings

    async def stream(self, request):
        words = request.messages[-1].text.split()
        yield Started(request.model, usage=Usage(input=len(words)))
        for word in words:
            yield TextDelta(f"{word} ")
        yield Finished("end", Usage(input=len(words), output=len(words)))

    def count(self, request):
        return sum(len(message.text.split()) for message in request.messages)
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a package of one module with an entry point on the path, as an installer does."""
    monkeypatch.setattr(registered, "_registered", {})

    def install(name: str, source: str) -> None:
        facts = tmp_path / "site" / f"{name}_package-1.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1\n")
        (facts / "entry_points.txt").write_text(f"[shepherd.backends]\n{name} = {name}_module:{name.title()}\n")
        (facts.parent / f"{name}_module.py").write_text(source)
        monkeypatch.syspath_prepend(facts.parent)
        monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)

    return install


@asynccontextmanager
async def running(folder: Path, text: str) -> AsyncIterator[App]:
    async with loaded(app_of(folder, text)) as app:
        yield app


async def said(app: App, model: str = "polly", text: str = "Hello there!") -> str:
    request = Request(model, (Message.user(text),))
    async with aclosing(app.stream(request)) as events:
        return "".join([event.text async for event in events if isinstance(event, TextDelta)])


async def test_a_package_is_a_provider_of_every_surface(tmp_path: Path, install: Callable[[str, str], None]) -> None:
    install("parrot", PARROT)
    async with running(tmp_path, '[providers.polly]\ntype = "parrot"\nmodel = "ara"\nn_ctx = 900\n') as app:
        assert await said(app) == "Hello there! "
        request = Request("polly", (Message.user("one two three"),))
        assert await app.dispatcher.count(request, endpoint="") == 3, "its own count"
        (card,) = app.catalogue.providers.cards()
        assert (card.id, card.n_ctx, card.description) == ("polly", 900, "The parrot ara")
        client = client_of(app)
        body = {"model": "polly", "messages": [{"role": "user", "content": "a b"}]}
        reply = (await client.post("/v1/chat/completions", json=body)).json()
        assert reply["choices"][0]["message"]["content"] == "a b "
        assert reply["usage"]["total_tokens"] == 4
        vectors = await client.post("/v1/embeddings", json={"model": "polly", "input": "a"})
        assert vectors.status_code == 400
        assert "The parrot has no embeddings" in vectors.text


def test_what_is_installed_is_named_and_not_imported(tmp_path: Path, install: Callable[[str, str], None]) -> None:
    install("parrot", "raise RuntimeError('imported')")
    assert registered.names() == ("parrot",)
    app_of(tmp_path, "")
    with pytest.raises(ConfigError, match=r"openai.*, or a back end of an installed package"):
        app_of(tmp_path, '[providers.polly]\ntype = "cockatoo"\n')
    with pytest.raises(ConfigError, match=r"has no type; expected one of openai.*, parrot"):
        app_of(tmp_path, '[providers.polly]\nmodel = "m"\n')
    wrong = r"back end 'parrot' of the package parrot-package cannot be loaded \(RuntimeError: imported\); repair or"
    with pytest.raises(ConfigError, match=wrong):
        app_of(tmp_path, '[providers.polly]\ntype = "parrot"\n')


def test_a_name_is_checked_and_a_maker_is_called() -> None:
    with pytest.raises(ValueError, match="'My Backend' cannot name a back end; use small letters"):
        registered.register("My Backend", Scripted)


def test_an_entry_point_that_makes_nothing_is_refused(tmp_path: Path, install: Callable[[str, str], None]) -> None:
    install("parrot", "Parrot = 7")
    with pytest.raises(ConfigError, match="'parrot' is parrot_module:Parrot, which is not a class or a function"):
        app_of(tmp_path, '[providers.polly]\ntype = "parrot"\n')


class Scripted:
    """Yields `events`, then raises `error`; both belong to the test that registers it."""

    events: tuple[Event, ...] = (Started("m"), TextDelta("a"), Finished("end", Usage(output=1)))
    error: Exception | None = None
    seen: list[Request]
    made: list[BackendSettings]
    closed: list[str]

    def __init__(self, settings: BackendSettings) -> None:
        self.settings = settings
        self.made.append(settings)

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        self.seen.append(request)
        for event in self.events:
            yield event
        if self.error is not None:
            raise self.error

    async def aclose(self) -> None:
        self.closed.append(self.settings.name)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    class Own(Scripted):
        seen, made, closed = [], [], []

    monkeypatch.setattr(registered, "_registered", {})
    registered.register("scripted", Own)
    return Own


POLLY = '[providers.polly]\ntype = "scripted"\nmodel = "m"\napi_key = "secret-key-of-polly"\n'


async def test_it_gets_what_the_configuration_says_and_is_closed(tmp_path: Path, scripted: type[Scripted]) -> None:
    text = POLLY + 'base_url = "http://127.0.0.1:9"\noptions = {depth = 3}\nsampling = {temperature = 0.25}\n'
    async with running(tmp_path, text) as app:
        assert await said(app) == "a"
        assert scripted.closed == []
    assert scripted.made == [
        BackendSettings("polly", "m", None, "http://127.0.0.1:9", "secret-key-of-polly", {"depth": 3})
    ]
    assert "secret" not in repr(scripted.made)
    (request,) = scripted.seen
    assert (request.model, request.sampling.temperature) == ("m", 0.25)
    assert scripted.closed == ["polly"]


BROKEN: dict[str, tuple[tuple[Event, ...], Exception | None, type[ShepherdError], str]] = {
    "an exception": ((Started("m"),), OSError("secret-key-of-polly!"), BackendError, "OSError: [*]{3}!$"),
    "an error of ours": ((), BackendError("no power", backend="polly"), BackendError, "no power"),
    "no start": ((TextDelta("a"),), None, BadReply, "polly: TextDelta cannot come in state 'new'"),
    "no end": ((Started("m"), TextDelta("a")), None, BadReply, "polly: the stream has not finished properly"),
    "nothing": ((), None, BadReply, "polly: the stream has not finished properly"),
    "an empty text": ((Started("m"), TextDelta("")), None, BadReply, "polly: a TextDelta is never empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
async def test_one_that_is_broken_is_an_error_of_its_request_only(
    case: str, tmp_path: Path, scripted: type[Scripted]
) -> None:
    events, error, kind, message = BROKEN[case]
    async with running(tmp_path, POLLY) as app:
        scripted.events, scripted.error = events, error
        with pytest.raises(kind, match=message) as caught:
            await said(app)
        assert "secret-key-of-polly" not in str(caught.value)
        scripted.events, scripted.error = Scripted.events, None
        assert await said(app) == "a"


async def test_one_that_cannot_be_made_says_why(tmp_path: Path, scripted: type[Scripted]) -> None:
    def refuse(self: Any, settings: BackendSettings) -> None:
        raise OSError("no such device")

    scripted.__init__ = refuse  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="polly: the back end 'scripted' cannot be made: OSError: no such device"):
        async with running(tmp_path, POLLY):
            pass


async def test_prompts_of_a_private_route_go_to_it_only_where_it_is_local(
    tmp_path: Path, scripted: type[Scripted]
) -> None:
    private = '[[routes]]\nmatch = "*"\nprovider = "polly"\nprivacy = "local"\n'
    with pytest.raises((ConfigError, NotAllowed), match="polly"):
        async with running(tmp_path, POLLY + private) as app:
            await said(app)
    assert scripted.seen == []
    scripted.is_local = True  # type: ignore[attr-defined]
    async with running(tmp_path, POLLY + private) as app:
        assert await said(app) == "a"


async def test_its_answers_count_against_its_budget(
    tmp_path: Path, scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    scripted.events = (Started("m"), Finished("end", Usage(input=70, output=40)))
    async with running(tmp_path, POLLY + "budget_tokens = 100\n") as app:
        assert await said(app) == ""
        with pytest.raises(BudgetExceeded, match=r"today's budget of the provider 'polly' is spent \(110 of 100"):
            await said(app)


async def test_an_answer_that_is_left_ends_the_work(tmp_path: Path, scripted: type[Scripted]) -> None:
    ended: list[str] = []

    async def endless(self: Any, request: Request) -> AsyncGenerator[Event, None]:
        yield Started("m")
        try:
            while True:
                yield TextDelta("a")
        finally:
            ended.append("ended")

    scripted.stream = endless  # type: ignore[method-assign]
    async with running(tmp_path, POLLY) as app:
        async with aclosing(app.stream(Request("polly", (Message.user("Hi"),)))) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        assert ended == ["ended"]
