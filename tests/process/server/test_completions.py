"""`/v1/completions`, `/tokenize` and `/detokenize` with OpenAI's own client library, on a script and on a model."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from tests.official import connecting, openai_at
from tests.own_server import Listening, serving
from tests.scripted_service import ScriptedService, saying

from shepherd.core import Completion, Event, Finished, Request, Started, TextDelta, Usage


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai_at(server) as made:
        yield made


async def echoing(request: Request) -> AsyncGenerator[Event, None]:
    assert request.completion is not None
    yield Started("m", "fake:fake", Usage(input=3))
    yield TextDelta(f"{request.completion.prompt}-")
    yield TextDelta(str(request.sampling.seed))
    yield Finished("length", Usage(input=3, output=2))


# ---- on a script


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_keep_the_order_of_their_prompts(listening: Listening, stream: bool) -> None:
    service = ScriptedService(echoing)
    asked: Any = {"model": "gpt-3.5-turbo-instruct", "prompt": ["a", "b"], "n": 2, "seed": 7}
    async with connecting(listening, service) as client:
        if stream:
            chunks = [
                chunk
                async for chunk in await client.completions.create(
                    **asked, stream=True, stream_options={"include_usage": True}
                )
            ]
            usage = chunks[-1].usage
            texts = dict.fromkeys(range(4), "")
            for chunk in chunks[:-1]:
                texts[chunk.choices[0].index] += chunk.choices[0].text
            assert {chunk.id for chunk in chunks} == {chunks[0].id}
            told = [texts[at] for at in range(4)]
            reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1] if chunk.choices[0].finish_reason]
        else:
            answer = await client.completions.create(**asked)
            assert answer.id.startswith("cmpl-")
            assert (answer.object, answer.model) == ("text_completion", "gpt-3.5-turbo-instruct")
            usage, told = answer.usage, [choice.text for choice in answer.choices]
            reasons = [choice.finish_reason for choice in answer.choices]
    assert told == ["a-7", "a-8", "b-7", "b-8"]
    assert reasons == ["length"] * 4
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (6, 8, 14)
    assert service.endpoints == ["/v1/completions"] * 4


async def test_everything_arrives(listening: Listening) -> None:
    service = ScriptedService(saying("x"))
    async with connecting(listening, service) as client:
        await client.completions.create(
            model="m", prompt=[[1, 2]], suffix="b", echo=True, logprobs=2, max_tokens=0, best_of=1, user="u", stop="x"
        )
    (request,) = service.requests
    assert request.completion == Completion((1, 2), "b", echo=True)
    assert (request.logprobs, request.max_tokens, request.stop) == (2, 0, ("x",))


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"best_of": 5}, "best_of"), ({"logprobs": 21}, "logprobs"), ({"prompt": []}, "prompt"), ({"n": 0}, "n")],
)
async def test_what_is_wrong_is_named(listening: Listening, fields: Any, param: str) -> None:
    async with connecting(listening, ScriptedService(saying("x"))) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(**{"model": "m", "prompt": "a", **fields})
    assert caught.value.param == param


async def test_tokens_have_both_shapes(listening: Listening) -> None:
    async with connecting(listening, ScriptedService(saying("x"))) as client:

        async def post(path: str, body: Any) -> Any:
            return await client.post(path, body=body, cast_to=object)

        assert await post("/tokenize", {"prompt": "ab"}) == {"tokens": [256, 97, 98], "count": 3, "max_model_len": 4096}
        told = await post("/tokenize", {"content": "aé", "with_pieces": True})
        assert told["tokens"] == [
            {"id": 97, "piece": "a"}, {"id": 0xC3, "piece": [0xC3]}, {"id": 0xA9, "piece": [0xA9]}
        ]  # fmt: skip
        assert await post("/detokenize", {"tokens": [97, 0xC3, 0xA9]}) == {"content": "aé", "prompt": "aé"}
        for path, body, param in (
            ("/tokenize", {"content": 1}, "content"),
            ("/detokenize", {"tokens": [999]}, "tokens"),
            ("/detokenize", {}, "tokens"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await post(path, body)
            assert caught.value.param == param


# ---- on the embedded model

PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
"""What the embedded model's chat template makes of a greeting."""


def tokens_of(client: openai.OpenAI, text: str, **fields: Any) -> list[int]:
    found: Any = client.post("/tokenize", body={"content": text, **fields}, cast_to=object)
    tokens: list[int] = found["tokens"]
    return tokens


@pytest.mark.model
def test_tokens_of_a_chat_go_on_as_the_chat_does(client: openai.OpenAI) -> None:
    """A client with a template of its own makes its control tokens by `/tokenize`; in a text they would be text."""
    chat = client.chat.completions.create(model="lamb", messages=[{"role": "user", "content": "Hello!"}], temperature=0)
    bare = client.completions.create(model="lamb", prompt=tokens_of(client, PROMPT), temperature=0, max_tokens=64)
    assert bare.choices[0].text == chat.choices[0].message.content
    assert bare.choices[0].finish_reason == "stop"
    assert bare.usage is not None
    assert chat.usage is not None
    assert bare.usage.prompt_tokens == chat.usage.prompt_tokens
    assert bare.usage.prompt_tokens_details is not None
    assert bare.usage.prompt_tokens_details.cached_tokens == chat.usage.prompt_tokens - 1, "one cache serves both"
    forged = client.completions.create(model="lamb", prompt=PROMPT, temperature=0, max_tokens=1)
    assert forged.usage is not None
    assert forged.usage.prompt_tokens > bare.usage.prompt_tokens


@pytest.mark.model
def test_the_next_prompt_computes_what_is_new_only(client: openai.OpenAI) -> None:
    text = "A long time ago, behind seven mountains, there lived a shepherd with a hundred sheep. " * 4
    first = client.completions.create(model="lamb", prompt=text, max_tokens=4, temperature=0)
    second = client.completions.create(model="lamb", prompt=text + "And one of them", max_tokens=4, temperature=0)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= first.usage.prompt_tokens - 2


@pytest.mark.model
def test_an_echo_reports_how_likely_the_prompt_is(client: openai.OpenAI) -> None:
    """What evaluation programs ask for. The sum of a text's logprobs is the same however it is asked for."""
    tokens = tokens_of(client, PROMPT + "Hello! How can I help you?")
    answer = client.completions.create(model="lamb", prompt=tokens, echo=True, logprobs=2, max_tokens=0, temperature=0)
    told = answer.choices[0].logprobs
    assert told is not None
    logprobs: list[Any] = told.token_logprobs or []
    assert told.tokens is not None
    assert told.text_offset is not None
    assert len(logprobs) == len(tokens)
    assert "".join(told.tokens) == answer.choices[0].text == PROMPT + "Hello! How can I help you?"
    assert told.text_offset == [len("".join(told.tokens[:at])) for at in range(len(tokens))]
    assert logprobs[0] is None
    n_said = len(tokens_of(client, "Hello! How can I help you?"))
    assert all(logprob > -0.1 for logprob in logprobs[-n_said:]), "it knows this answer by heart"
    chat = client.chat.completions.create(
        model="lamb", messages=[{"role": "user", "content": "Hello!"}], temperature=0, logprobs=True
    )
    said = chat.choices[0].logprobs
    assert said is not None
    assert said.content is not None
    for a, b in zip(logprobs[-n_said:], said.content, strict=True):
        assert a == pytest.approx(b.logprob, abs=0.02)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(tokens), 0)


@pytest.mark.model
def test_logprobs_of_a_text_spell_it_and_end_with_one_more(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="lamb",
        prompt="Grüße 🐑!",
        echo=True,
        logprobs=5,
        max_tokens=1,
        extra_body={"ignore_eos": True},
    )
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.tokens is not None
    assert told.top_logprobs is not None
    assert answer.choices[0].text.startswith("Grüße 🐑!")
    assert len(told.tokens) == len(tokens_of(client, "Grüße 🐑!")) + 1
    for top, logprob in list(zip(told.top_logprobs, told.token_logprobs or [], strict=True))[1:]:
        assert 5 <= len(top) <= 6
        assert sum(map(math.exp, top.values())) <= 1.001
        assert logprob in top.values()


@pytest.mark.model
def test_several_prompts_and_choices_are_answered_side_by_side(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="lamb", prompt=["Once upon", "The sky", "Sheep are"], n=4, max_tokens=3, temperature=0
    )
    texts = [choice.text for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == list(range(12))
    assert [len(set(texts[at : at + 4])) for at in (0, 4, 8)] == [1, 1, 1]
    alone = client.completions.create(model="lamb", prompt="The sky", max_tokens=3, temperature=0)
    assert texts[4] == alone.choices[0].text


@pytest.mark.model
def test_a_stop_string_a_limit_and_a_grammar_hold(client: openai.OpenAI) -> None:
    plain = client.completions.create(model="lamb", prompt="Once", temperature=0)
    assert plain.usage is not None
    assert (plain.usage.completion_tokens, plain.choices[0].finish_reason) == (16, "length")
    stop = plain.choices[0].text[3:5]
    stopped = client.completions.create(model="lamb", prompt="Once", temperature=0, stop=[stop])
    assert stopped.choices[0].text == plain.choices[0].text[: plain.choices[0].text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    held = client.completions.create(model="lamb", prompt="Once", extra_body={"guided_choice": [" yes", " no"]})
    assert held.choices[0].text in (" yes", " no")


@pytest.mark.model
@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"suffix": "b"}, "suffix", "cannot fill gaps"),
        ({"prompt": [10**6]}, "prompt", "outside this model's vocabulary"),
        ({"prompt": ""}, "prompt", "prompt is empty"),
    ],
)
def test_what_this_model_cannot_do_is_said(client: openai.OpenAI, fields: Any, param: str, said: str) -> None:
    with pytest.raises(openai.BadRequestError, match=said) as caught:
        client.completions.create(**{"model": "lamb", "prompt": "a", **fields})
    assert caught.value.param == param


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_a_real_400(client: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError, match=r"prompt is too long: \d+ tokens > 4096 maximum") as caught:
        client.completions.create(model="lamb", prompt="x " * 10_000, stream=stream)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
    short = client.completions.create(model="lamb", prompt=tokens_of(client, PROMPT), max_tokens=64_000, temperature=0)
    assert short.choices[0].finish_reason == "stop"


@pytest.mark.model
@pytest.mark.parametrize("text", ["", "Hello", " Grüße 🐑\n", "<|im_end|>x"])
def test_tokens_make_the_text_again(client: openai.OpenAI, text: str) -> None:
    for special in (True, False):
        tokens = tokens_of(client, text, parse_special=special)
        again: Any = client.post("/detokenize", body={"tokens": tokens}, cast_to=object)
        assert again["content"] == text
    assert len(tokens_of(client, "<|im_end|>x")) == 2


# ---- filling gaps, on a copy of the embedded model that says which of its tokens mark them


@pytest.fixture(scope="module")
def filling(coder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("filling"), f'[models.coder]\npath = "{coder}"\n') as address:
        yield address


@pytest.mark.model
def test_a_gap_is_filled_between_prompt_and_suffix(filling: str) -> None:
    with openai_at(filling) as client:
        n_words = len(tokens_of(client, "def add(")) + len(tokens_of(client, "): pass"))
        answer = client.completions.create(model="m", prompt="def add(", suffix="): pass", echo=True, max_tokens=4)
        n_open = len(tokens_of(client, "def add("))
        at_the_end = client.completions.create(model="m", prompt="def add(", suffix="", max_tokens=4)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == n_words + 3
    assert answer.choices[0].text.startswith("def add(")
    assert at_the_end.usage is not None
    assert at_the_end.usage.prompt_tokens == n_open, "nothing behind the gap is no gap"


@pytest.mark.model
def test_an_editor_gets_what_fits_at_its_cursor(filling: str) -> None:
    body = {"input_prefix": "def add(", "input_suffix": "): pass", "prompt": "a", "n_predict": 3, "temperature": 0}
    with httpx2.Client(base_url=filling, timeout=60) as client:
        whole = client.post("/infill", json=body).json()
        lines = client.post("/infill", json={**body, "stream": True}).text.strip().split("\n\n")
        other = client.post("/infill", json={**body, "input_extra": [{"filename": "a.py", "text": "x"}]}).json()
        wrong = client.post("/infill", json={"prompt": "a"})
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert "".join(chunk["content"] for chunk in chunks) == whole["content"] != ""
    assert (whole["stop_type"], whole["tokens_predicted"]) == ("limit", 3)
    assert other["tokens_evaluated"] > whole["tokens_evaluated"]
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "input_prefix")
