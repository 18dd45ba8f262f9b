"""Keys of different users on one cache: none learns from a count of cached tokens what another one's prompt says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
from starlette.applications import Starlette
from tests.fake_engine import FakeRuntime, FakeVocabulary, say
from tests.in_process import client_of
from tests.scripted_service import ScriptedService

from shepherd.backends.local.backend import LocalBackend, LocalOptions
from shepherd.core.request import SharedPrefix
from shepherd.dialects import Template, detect
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.stats import CacheStats
from shepherd.server.app import create_app
from shepherd.server.http.auth import Key
from shepherd.wire.base import Json

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = "/v1/chat/completions"
ADA, BOB = "sk-ada", "sk-bob"
OTHER_OF_ADA = Key.of("sk-ada-2", name="ada-2", user="ada")
KEYS = (Key.of(ADA, name="ada", user="ada"), Key.of(BOB, name="bob", user="bob"))
SECRET = "428"
SAYS = "The code of the safe in the cellar is "

Ask = Callable[..., Any]


class LocalService(ScriptedService):
    """One cache of a made-up model behind the server's seam; a token is a byte."""

    app: Starlette

    def __init__(self, template: str, shared_prefix: SharedPrefix) -> None:
        vocabulary = FakeVocabulary()
        ends = frozenset({vocabulary.ids["<|im_end|>"]})
        self.runtime = FakeRuntime(say(vocabulary, "Yes"), ends, n_ctx=16384, n_seq=64, n_batch=512)
        self.engine = InProcessEngine(self.runtime, show=vocabulary.piece)
        backend = LocalBackend(
            self.engine,
            vocabulary,
            template=Template(template),
            dialect=detect(template),
            model="m",
            options=LocalOptions(shared_prefix=shared_prefix),
        )
        super().__init__(backend.stream)

    def stats(self) -> Mapping[str, CacheStats]:
        return {"main": self.engine.stats()}

    @property
    def prompts(self) -> bytes:
        """All text that the model has read, in order."""
        chunks = (chunk for batch in self.runtime.batches for chunk in batch if len(chunk.tokens) > 1)
        return bytes(min(token, 255) for chunk in chunks for token in chunk.tokens)


@asynccontextmanager
async def serving(
    *keys: Key | str, template: str = TEMPLATE, shared_prefix: SharedPrefix = "none"
) -> AsyncIterator[tuple[Ask, LocalService]]:
    """Asks a server as the holder of a key: the body of the answer."""
    service = LocalService(template, shared_prefix)
    service.app = create_app(service, api_keys=keys or None)

    async def ask(secret: str, path: str, body: Json) -> Any:
        async with client_of(service.app, secret) as client:
            answer = await client.post(path, json={"model": "m", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    try:
        yield ask, service
    finally:
        await asyncio.to_thread(service.engine.close)


def chat(text: str, **fields: Any) -> Json:
    return {"messages": [{"role": "user", "content": text}], **fields}


def n_cached(answer: Json) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


async def guessed(ask: Ask, **fields: Any) -> str:
    """What 30 requests of ada learn of the secret: at each place the one digit that has most cached, else `?`."""
    learned = ""
    await ask(ADA, CHAT, chat(f"{SAYS}x", **fields))  # from here on her own words are cached
    for _ in SECRET:
        counts = [
            n_cached(await ask(ADA, CHAT, chat(f"{SAYS}{learned}{digit}, is it?", **fields))) for digit in range(10)
        ]
        best = [digit for digit, n in enumerate(counts) if n == max(counts)]
        learned += str(best[0]) if len(best) == 1 else "?"
    return learned


async def test_cached_tokens_do_not_spell_the_secret_of_another_user() -> None:
    """Three digits in 31 requests, before there were owners."""
    async with serving(*KEYS) as (ask, _):
        await ask(BOB, CHAT, chat(f"{SAYS}{SECRET}, is it?"))
        assert await guessed(ask) == "???"


@pytest.mark.parametrize("keys", [(), (ADA, BOB), KEYS[:1]], ids=["no keys", "keys without users", "one key"])
async def test_keys_without_users_share_what_is_cached(keys: Sequence[Key | str]) -> None:
    """A client with its own keys is one person: nothing is slower for it. The same attack shows it."""
    async with serving(*keys) as (ask, _):
        await ask(ADA if len(keys) == 1 else BOB, CHAT, chat(f"{SAYS}{SECRET}, is it?"))
        assert await guessed(ask) == SECRET


BODIES: dict[str, Json] = {
    CHAT: chat("Who shears the sheep?"),
    "/v1/completions": {"prompt": "Who shears the sheep?"},
    "/v1/responses": {"input": "Who shears the sheep?"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Who shears the sheep?"}], "max_tokens": 9},
    "/api/chat": {"messages": [{"role": "user", "content": "Who shears the sheep?"}], "stream": False},
    "/api/generate": {"prompt": "Who shears the sheep?", "stream": False},
}


@pytest.mark.parametrize("path", BODIES)
async def test_every_protocol_has_the_owner_of_its_key(path: str) -> None:
    """The engine's own count: not every protocol reports one."""
    async with serving(*KEYS, OTHER_OF_ADA) as (ask, service):
        counts = []
        for secret in (BOB, ADA, "sk-ada-2", BOB):
            before = service.engine.stats().cached_tokens
            await ask(secret, path, BODIES[path])
            counts.append(service.engine.stats().cached_tokens - before > 0)
        assert counts == [False, False, True, True]


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
async def test_the_same_salt_shares_and_different_salts_never_do(path: str) -> None:
    body = BODIES[path]
    async with serving(*KEYS) as (ask, service):
        counts = []
        for secret, salt in (
            (BOB, None), (BOB, "a"), (BOB, "a"), (BOB, "b"), (BOB, None), (ADA, "a"), (ADA, None), (ADA, "a"),
        ):  # fmt: skip
            before = service.engine.stats().cached_tokens
            await ask(secret, path, {**body, "cache_salt": salt} if salt else body)
            counts.append(service.engine.stats().cached_tokens - before > 0)
        assert counts == [False, False, True, False, True, False, False, True]
        owners = {each.owner for each in service.engine.stats().sequences}
        assert {owner.partition(" ")[0] for owner in owners} == {"ada", "bob"}
        assert len(owners) == 5


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
async def test_a_salt_is_a_text_that_is_not_empty(path: str) -> None:
    async with serving() as (_, service), client_of(service.app) as client:
        for salt in ("", 1, ["a"]):
            answer = await client.post(path, json={"model": "m", **BODIES[path], "cache_salt": salt})
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "cache_salt"


async def test_a_key_sees_the_conversations_of_its_own_user_and_all_totals() -> None:
    async with serving(*KEYS, "sk-plain") as (ask, service):
        for secret, name in ((BOB, "bobs"), (ADA, "adas"), ("sk-plain", "plain")):
            await ask(secret, CHAT, chat("Hello", session_id=name, **({"cache_salt": "s"} if secret == ADA else {})))
        seen = {}
        for secret in (ADA, BOB, "sk-plain"):
            async with client_of(service.app, secret) as client:
                cache = (await client.get("/v1/caches")).json()["caches"]["main"]
                n_slots = sum(slot["cache"] != "" for slot in (await client.get("/slots")).json())
            seen[secret] = {each["session"] for each in cache["sequences"]}
            assert n_slots == len(cache["sequences"])
            assert (cache["jobs"], cache["used"]) == (3, service.engine.stats().used)
    assert seen == {ADA: {"adas"}, BOB: {"bobs"}, "sk-plain": {"adas", "bobs", "plain"}}


@pytest.mark.parametrize("option", get_args(SharedPrefix))
async def test_the_operator_says_what_users_share(option: SharedPrefix) -> None:
    """Of `system`: the whole system prompt, so that it cannot be guessed digit by digit either."""
    system = "You are a shepherd. The gate has the code 428."
    async with serving(*KEYS, shared_prefix=option) as (ask, _):

        async def cached(secret: str, system: str, text: str, **fields: Any) -> int:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
            return n_cached(await ask(secret, CHAT, {"messages": messages, **fields}))

        n_system = len("_system\n") + len(system) + len("_\n")
        await cached(BOB, system, f"{SAYS}{SECRET}, is it?")
        guesses = [await cached(ADA, f"You are a shepherd. The gate has the code {n}", "?") for n in (3, 4)]
        salted = await cached(ADA, system, "?", cache_salt="s")
        whole = await cached(ADA, system, "a")
        after = await cached(ADA, system, f"{SAYS}{SECRET}, is it?")
        own = await cached(BOB, system, f"{SAYS}{SECRET}, is it?")
    own_part = n_system + len("_user\n")
    if option == "all":
        assert guesses[1] == guesses[0] + 1
        assert (salted, after, own) == (0, own, own)
    else:
        # The second guess has the first one's beginning.
        assert guesses == [0, len("_system\nYou are a shepherd. The gate has the code ")]
        assert (salted, after) == (0, own_part)
        assert whole == (n_system if option == "system" else guesses[1] + 1)
    assert own > own_part


async def test_a_session_of_another_user_reaches_nothing_of_it() -> None:
    """Neither its sequence nor the order and the spelling of its tools: what a prompt is does not depend on others."""
    parameters = [{"type": "object", "properties": {}}, {"properties": {}, "type": "object"}]

    def tools(order: Iterable[str], spelling: int) -> list[Json]:
        return [{"type": "function", "function": {"name": name, "parameters": parameters[spelling]}} for name in order]

    template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + TEMPLATE
    prompts = []
    for others in (True, False):
        async with serving(*KEYS, template=template) as (ask, service):
            if others:
                await ask(BOB, CHAT, chat("Hello", tools=tools("ab", 0), session_id="same"))
            n = service.engine.stats().prefilled_tokens
            await ask(ADA, CHAT, chat("Hello", tools=tools("ba", 1), session_id="same"))
            assert service.engine.stats().cached_tokens == 0
            n = service.engine.stats().prefilled_tokens - n
            prompts.append((n, service.prompts[-n:]))
    assert prompts[0] == prompts[1]
