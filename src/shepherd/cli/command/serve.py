"""`shepherd serve`: listens at once, loads the models meanwhile, prints when it is ready, and shuts down in order."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shepherd.cli import configure, render, signals
from shepherd.cli.command import pull
from shepherd.cli.loading import progress_shown
from shepherd.cli.terminal.view import PipeView
from shepherd.process.notify import notify

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from shepherd.app.app import App
    from shepherd.config import Config, ServerConfig
    from shepherd.server.http.auth import Key
    from shepherd.server.observe.observer import ObserverFactory

PROTOCOLS = {"openai": "OpenAI", "anthropic": "Anthropic", "ollama": "Ollama", "llama": "llama.cpp"}
"""By the beginning of an endpoint's name."""
DEBUG_FOLDER = "logs"
"""In the working folder; `server.debug_dir` overrides it."""


def run(options: Mapping[str, Any]) -> None:
    serve(configure.load_config({**options, "server": True}))


def serve(config: Config, on_listening: Callable[[str], None] = lambda address: None) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. `on_listening` gets the address, before the models are loaded. Raises:
    `ShepherdError` when the port is not free or the model cannot be loaded."""
    from shepherd.server.http.listen import loop_factory

    pull.offer(config)
    with signals.held() as asked, asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, asked, on_listening))


async def _serve(config: Config, asked: Sequence[int], on_listening: Callable[[str], None]) -> None:
    """`asked`: the signals that came before the server took them, and, which changes nothing, after its end."""
    from shepherd.app.app import App
    from shepherd.server.http.auth import keys_for

    settings = config.server
    host, tls = settings.host, None
    if settings.tls_cert and settings.tls_key:
        from shepherd.server.http.tls import Certificate, find_faults

        tls = Certificate(settings.tls_cert, settings.tls_key).context
        for fault in find_faults(settings.tls_cert, settings.tls_key):
            render.show_warning(fault)
    keys, made = keys_for(host, _keys(settings))
    for warning in unknown_endpoints(config):
        render.show_warning(warning)
    async with AsyncExitStack() as stack:
        app = App(config, isolates=True)
        stack.push_async_callback(app.aclose)
        asgi = _application(config, app, keys, stack)
        async with running(asgi, host=host, port=settings.port, grace_s=settings.grace_s, tls=tls) as (server, port):
            if asked:
                return
            address = url(host, port or 0, is_tls=tls is not None)
            if port is not None:
                on_listening(address)
            if port is not None and await _load_while(server, app):
                for warning in loops(app, port):
                    render.show_warning(warning)
                notify(f"STATUS={app.conversations.active.model} at {address}")
                for line in _banner(app, address, made):
                    render.write(line + "\n")
            await server


@asynccontextmanager
async def running(asgi: Starlette, **settings: Any) -> AsyncIterator[tuple[asyncio.Task[None], int | None]]:
    """A server that runs during the block: its task, and its port; None when it ended before it listened."""
    from shepherd.server.app import serve

    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(asgi, on_ready=bound.set_result, **settings))
    starting: list[asyncio.Future[Any]] = [server, bound]
    try:
        await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
        yield server, bound.result() if bound.done() else None
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)


def _application(config: Config, app: App, keys: Any, stack: AsyncExitStack) -> Starlette:
    """The application with its observers; the stack closes what must be closed."""
    from shepherd.server.app import Limits, create_app
    from shepherd.server.http.admission import Admission
    from shepherd.server.response_store import ResponseStore

    settings = config.server
    file = Path(settings.responses_file) if settings.responses_file else None
    kept = ResponseStore(file, limit_bytes=settings.responses_bytes)
    stack.callback(kept.close)
    return create_app(
        app,
        api_keys=keys,
        host=settings.host,
        origins=settings.origins,
        allow_hosts=settings.allow_hosts,
        disabled=settings.disabled,
        admission=Admission(concurrent=settings.concurrent, per_client=settings.per_client),
        limits=Limits(max_body_bytes=settings.max_body_bytes),
        observe=list(_observers(settings, stack)),
        responses=kept,
        tools=partial(app.offer, everything=settings.use_tools),
        verbose=settings.debug,
        page=settings.page,
    )


def _observers(settings: ServerConfig, stack: AsyncExitStack) -> Iterator[ObserverFactory]:
    def closed(close: Callable[[], None]) -> None:
        stack.push_async_callback(asyncio.to_thread, close)

    if settings.debug:
        from shepherd.server.observe.debug_files import DebugFolder

        folder = Path(settings.debug_dir or DEBUG_FOLDER)
        render.show_warning(f"--debug writes every request and answer to {folder.absolute()}")
        folders = DebugFolder(folder, keep=settings.debug_keep, max_bytes=settings.debug_bytes)
        closed(folders.close)
        yield folders.observe
    if settings.record_dir:
        from shepherd.server.observe.recordings import Recorder

        recorder = Recorder(Path(settings.record_dir))
        render.show_warning(recorder.warning)
        closed(recorder.close)
        yield recorder.observe
    from shepherd.server.observe import telemetry

    if (tracing := telemetry.configured(os.environ)) is not None:
        closed(tracing.close)
        yield tracing.observe


def _keys(settings: ServerConfig) -> list[str | Key] | None:
    """All keys of the configuration; None = no key is configured."""
    from shepherd.server.http.auth import Key

    if settings.api_keys is None and settings.keys is None:
        return None
    found: list[str | Key] = list(settings.api_keys or ())
    for each in settings.keys or ():
        limits = {"requests_per_minute": each.requests_per_minute, "concurrent": each.concurrent}
        if each.key_hash:
            found.append(Key.of_digest(each.key_hash, name=each.name, user=each.user, **limits))
        else:
            assert each.key
            found.append(Key.of(each.key, name=each.name, user=each.user, **limits))
    return found


async def _load_while(server: asyncio.Task[None], app: App) -> bool:
    """Load the models; False when the server stopped meanwhile. Raises: as `App.load`."""
    with progress_shown(PipeView().screen) as show:
        loading = asyncio.create_task(app.load(show, lazy=True, person=app.person_at_chats))
        await asyncio.wait([server, loading], return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            # The native library cannot be stopped while it reads weights; nothing else needs an orderly end yet.
            sys.stdout.flush()
            os._exit(0)
        await loading
    return not server.done()


def _banner(app: App, address: str, made_key: str | None) -> list[str]:
    import shepherd
    from shepherd.cli.text import format_size

    cards = app.catalogue.models()
    width = max((len(card.id) for card in cards), default=0)
    models = [
        f"  {card.id:<{width}}  {card.kind}, {card.n_ctx} tokens, {format_size(card.memory_bytes)}"
        + ("" if card.loaded else ", loaded on demand")
        for card in cards
    ]
    active, offers = app.conversations.active, app.config.server.use_tools and app.tools.wants_tools
    return [
        *render.banner(
            active,
            shepherd.__version__,
            len(app.tools.box(n_ctx=active.n_ctx).specs) if offers else 0,
            memory=app.unusual_memory,
        ),
        *(["Models:", *models] if len(cards) > 1 else []),
        f"Endpoints at {address}:",
        *_endpoint_lines(),
        *([f"API key: {made_key}"] if made_key else []),
        *([f"Page for a browser: {address}/"] if app.config.server.page else []),
        f"Listening on: {address}",
    ]


def _endpoint_lines() -> Iterator[str]:
    """The paths for answers, a line for each protocol; `/docs` has all of them."""
    from shepherd.server.routes import GENERATE_ENDPOINTS

    by_protocol: dict[str, list[str]] = {}
    for row in GENERATE_ENDPOINTS:
        protocol, _, what = row.name.partition("-")
        if what != "responses-compact":
            by_protocol.setdefault(PROTOCOLS[protocol], []).append(row.paths[0])
    by_protocol["others"] = ["/v1/models", "/health", "/metrics", "/docs"]
    return (f"  {protocol:<10} {', '.join(paths)}" for protocol, paths in by_protocol.items())


def unknown_endpoints(config: Config) -> Iterator[str]:
    """A warning for every route whose endpoint does not exist."""
    from shepherd.server.routes import GENERATE_ENDPOINTS, QUERY_ENDPOINTS
    from shepherd.wire.names import endpoint_names, full_path

    paths = [row.paths for row in GENERATE_ENDPOINTS] + [row.paths for row in QUERY_ENDPOINTS]
    names = {name for aliases in paths for path in aliases for name in endpoint_names(path)}
    for index, rule in enumerate(config.routes):
        globs = (rule.endpoint, full_path(rule.endpoint)) if rule.endpoint else ()
        if globs and not any(fnmatchcase(name, glob) for name in names for glob in globs):
            yield (
                f"routes[{index}] can never be reached: no endpoint is called {rule.endpoint!r}; there are "
                f"{', '.join(sorted({path for path, *_ in paths}))}"
            )


def loops(app: App, port: int) -> Iterator[str]:
    """A warning for every provider whose address is this server's; agents read the same variables as we do."""
    providers = app.dispatcher.providers
    for name in providers.in_use:
        provider = providers.known(name)
        if provider.is_local and urlsplit(provider.root).port == port:
            yield (
                f"the provider {name!r} is this server itself ({provider.root}), so its requests return here "
                "without end; change its base_url, or the variable that sets it"
            )


def url(host: str, port: int, *, is_tls: bool = False) -> str:
    """The address that a client on this machine can use."""
    host = host.partition(",")[0]
    return f"http{'s' * is_tls}://{f'[{host}]' if ':' in host else host}:{port}"
