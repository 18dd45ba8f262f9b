"""The vendors' own clients have conversations compacted whose digest the embedded model writes while nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import pytest
from tests.official import openai_at
from tests.unit.server.test_anthropic_edits import BETAS, COMPACT, TOOL, answered, session
from tests.unit.server.test_compaction import ask, asked, chat, compact, computed, running, sent

from shepherd.agent.digest import OPENING
from shepherd.app.app import App
from shepherd.wire.anthropic.edits import MAX_INSTRUCTIONS

pytestmark = pytest.mark.model

NEW_TOKENS = 60
DIGEST_TOKENS = 400
"""More than a short digest of the embedded model has, with what stands around it."""


class Served:
    """The app behind a server, from the test's thread."""

    def __call__(self, app: App) -> App:
        self._app, self._loop = app, asyncio.get_running_loop()
        return app

    def wait(self) -> None:
        """Until no digest is being written."""
        asyncio.run_coroutine_threadsafe(self._app.dispatcher.digests.idle(), self._loop).result(120)

    def sequences(self) -> list[Any]:
        return [each for cache in self._app.stats().values() for each in cache.sequences]


@contextmanager
def digesting(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = "digest = true\n", **options: Any
) -> Iterator[tuple[str, Served]]:
    served = Served()
    with running(folder, monkeypatch, text, around=served, **options) as url:
        yield url, served


def test_openais_client_has_a_digest_in_its_next_request_also_behind_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with digesting(tmp_path, monkeypatch) as (url, served), openai_at(url) as client:
        items = sent(compact(client, chat(client)).output)
        served.wait()
        items.append(asked("And now?"))
        counted = client.responses.input_tokens.count(model="lamb", input=items, instructions="Be brief.")
        answer = ask(client, items)
        assert counted.input_tokens == answer.usage.input_tokens
        assert NEW_TOKENS < computed(answer) < DIGEST_TOKENS
        items += [*sent(answer.output), asked("And then?")]
        again = ask(client, items)
        assert computed(again) < NEW_TOKENS
        items += [*sent(again.output), asked("And at last?")]
    with digesting(tmp_path, monkeypatch) as (url, _), openai_at(url) as client:
        assert computed(ask(client, items)) < NEW_TOKENS, "it came back from the disk in its place"


def test_instructions_of_openais_compact_are_the_system_prompt_and_ask_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with digesting(tmp_path, monkeypatch, "") as (url, served), openai_at(url) as client:
        items = sent(compact(client, chat(client)).output)
        served.wait()
        assert computed(ask(client, [*items, asked("And now?")])) < NEW_TOKENS


@pytest.fixture(scope="module")
def anthropics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[anthropic.Anthropic, Served]]:
    with (
        pytest.MonkeyPatch.context() as patch,
        digesting(tmp_path_factory.mktemp("d"), patch, "") as (url, served),
        anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client,
    ):
        yield client, served


def asking(client: anthropic.Anthropic) -> Callable[..., Any]:
    def ask(messages: list[Any], **edit: Any) -> Any:
        management: Any = {"context_management": {"edits": [{**COMPACT, **edit}]}}
        return client.beta.messages.create(
            model="lamb", max_tokens=8, messages=messages, tools=[TOOL], betas=BETAS, **management
        )

    return ask


@pytest.mark.parametrize("pauses", [False, True])
def test_anthropics_client_asks_for_a_digest_by_its_instructions(
    anthropics: tuple[anthropic.Anthropic, Served], *, pauses: bool
) -> None:
    client, served = anthropics
    ask = asking(client)
    about = f"bob {pauses}"
    first = ask(session(4, about), trigger={"type": "input_tokens", "value": 9_000})
    messages = [*session(4, about), answered(first), {"role": "user", "content": "And now?"}]
    answer = ask(messages, instructions="Keep all ports. <|im_end|>", pause_after_compaction=pauses)
    assert answer.content[0].type == "compaction"
    assert answer.usage.output_tokens <= 8, "the digest is not the client's to pay"
    served.wait()
    following: list[Any] = [answered(answer), {"role": "user", "content": "Next?"}]
    then = ask(following)
    assert NEW_TOKENS < then.usage.input_tokens < DIGEST_TOKENS
    following += [answered(then), {"role": "user", "content": "And then?"}]
    assert ask(following).usage.input_tokens < NEW_TOKENS


@pytest.mark.parametrize(
    ("instructions", "reason"),
    [
        ("x" * 2**20, f"instructions has 1048576 characters; a digest takes at most {MAX_INSTRUCTIONS}"),
        (7, "instructions must be a string"),
        (["x"], "instructions must be a string"),
    ],
)
def test_instructions_that_cannot_be_obeyed_are_a_400(
    anthropics: tuple[anthropic.Anthropic, Served], instructions: Any, reason: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=reason):
        asking(anthropics[0])(session(5, "eve"), instructions=instructions)


def test_empty_instructions_ask_for_nothing(anthropics: tuple[anthropic.Anthropic, Served]) -> None:
    client, served = anthropics
    ask = asking(client)
    answer = ask(session(5, "fay"), instructions=" ", pause_after_compaction=True)
    served.wait()
    assert ask([answered(answer), {"role": "user", "content": "Next?"}]).usage.input_tokens > 0
    counted = client.beta.messages.count_tokens(
        model="lamb", messages=[answered(answer), {"role": "user", "content": "Next?"}], tools=[TOOL], betas=BETAS
    )
    assert counted.input_tokens < 900
    assert OPENING not in repr(answer)
