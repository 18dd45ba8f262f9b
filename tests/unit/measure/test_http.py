"""Another server as a side: what it is asked, with which key, and what is read of its answers."""

from __future__ import annotations

import json

import pytest
from tests.providers_replay import Answer, replaying

from shepherd.core import Message, ShepherdError
from shepherd.measure import http
from shepherd.measure.dialogue import timed

HEADERS = {"content-type": "application/json"}
MODELS = Answer("/v1/models", b'{"data": [{"id": "there"}]}', 200, HEADERS, "GET")


def stream(n: int) -> Answer:
    pieces = [{"choices": [{"index": 0, "delta": {"content": f"{at} "}}], "model": "there"} for at in range(n)]
    usage = {"prompt_tokens": 30, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": 10}}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": usage}
    text = "".join(f"data: {json.dumps(each)}\n\n" for each in (*pieces, last))
    return Answer("/v1/chat/completions", f"{text}data: [DONE]\n\n".encode())


async def test_it_is_asked_for_a_stream_of_so_many_tokens_without_chance() -> None:
    async with (
        replaying(MODELS, stream(9)) as server,
        http.opened(server.url, model=None, key=None, env={"OPENAI_API_KEY": "sk-mine-alone"}) as side,
    ):
        answer = await timed(side, side.request(Message.user("Count."), max_tokens=9))
    assert (side.name, side.model) == (server.url.removeprefix("http://"), "there")
    body = server.requests[1].json
    wanted = {"model": "there", "max_tokens": 9, "temperature": 0, "ignore_eos": True, "stream": True}
    assert {name: body[name] for name in wanted} == wanted
    assert body["messages"] == [{"role": "user", "content": "Count."}]
    assert body["stream_options"] == {"include_usage": True}
    assert (answer.n_pieces, answer.text) == (9, "0 1 2 3 4 5 6 7 8 ")
    assert (answer.usage.prompt, answer.usage.cache_read, answer.usage.output) == (30, 10, 9)
    sent = [value for each in server.requests for value in each.headers.values()]
    assert not [value for value in sent if "sk-mine" in value], "a key of another address stays here"


async def test_the_key_of_the_command_line_is_sent() -> None:
    async with (
        replaying(MODELS) as server,
        http.opened(server.url, model=None, key="sk-theirs-1234", env={}),
    ):
        assert server.requests[0].headers["authorization"] == "Bearer sk-theirs-1234"


@pytest.mark.parametrize(
    ("url", "keys"),
    [
        ("https://api.openai.com", ("OPENAI_API_KEY",)),
        ("http://127.0.0.1:8080", ("LLAMA_API_KEY",)),
        ("http://127.0.0.1:8000", ("TRTLLM_API_KEY", "VLLM_API_KEY", "SHEPHERD_API_KEY")),
        ("http://127.0.0.1:9999", ()),
        ("https://api.openai.com.evil.example", ()),
    ],
)
def test_the_variables_of_a_key_are_those_of_providers_at_the_address(url: str, keys: tuple[str, ...]) -> None:
    assert http._kind_at(url).keys == keys


async def test_a_named_model_needs_no_list() -> None:
    refused = Answer("/v1/chat/completions", b'{"error": {"message": "no such key"}}', 401, HEADERS)
    async with (
        replaying(refused) as server,
        http.opened(server.url, model="m", key=None, env={}) as side,
    ):
        with pytest.raises(ShepherdError, match=r"refuses access; give its key with --api-key KEY$"):
            await timed(side, side.request(Message.user("Hi."), max_tokens=1))
    assert [each.path for each in server.requests] == ["/v1/chat/completions"]
