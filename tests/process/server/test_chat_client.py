"""The tests of `tests/unit/server/test_chat_client.py` that start programs."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any, Literal

import openai
import pydantic
import pytest
from tests.unit.server.test_chat_client import (
    HELLO,
    client,  # noqa: F401 - fixtures
)


@pytest.mark.model
@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_spell_the_answer_and_are_probabilities(client: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": "lamb", "messages": HELLO, "temperature": 0, "logprobs": True, "top_logprobs": 20}
    plain = client.chat.completions.create(**asked)
    if stream:
        with client.chat.completions.stream(**asked) as streaming:
            answer: Any = streaming.get_final_completion()
    else:
        answer = plain
    choice = answer.choices[0]
    tokens = choice.logprobs.content
    assert plain.usage is not None
    assert bytes(byte for token in tokens for byte in token.bytes).decode() == choice.message.content
    assert len(tokens) == plain.usage.completion_tokens - 1, "the end token is no text"
    for token in tokens:
        assert token.top_logprobs[0].token == token.token, "greedy takes the likeliest"
        assert len(token.top_logprobs) == 20
        logprobs = [top.logprob for top in token.top_logprobs]
        assert logprobs == sorted(logprobs, reverse=True)
        assert sum(map(math.exp, logprobs)) <= 1.0001


@pytest.mark.model
def test_logprobs_are_those_of_the_model_with_any_sampler(client: openai.OpenAI) -> None:
    def first(**fields: Any) -> dict[str, float]:
        answer = client.chat.completions.create(
            model="lamb", messages=HELLO, max_tokens=1, logprobs=True, top_logprobs=3, **fields
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        return {top.token: round(top.logprob, 4) for top in logprobs.content[0].top_logprobs}

    plain = first(temperature=0)
    assert first(temperature=2, seed=1) == plain
    assert first(logit_bias={"300": 100}) == plain
    assert first(response_format={"type": "json_object"}) == plain


@pytest.mark.model
def test_three_choices_are_three_answers_of_one_prompt(client: openai.OpenAI) -> None:
    # So hot that what three in a batch compute otherwise than one alone (0.02 in a log probability) chooses no token.
    asked: Any = {"model": "lamb", "messages": HELLO, "seed": 3, "temperature": 100, "top_p": 1, "max_tokens": 12,
                  "extra_body": {"top_k": 0, "min_p": 0}}  # fmt: skip
    answer = client.chat.completions.create(**asked, n=3)
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3
    assert client.chat.completions.create(**asked).choices[0].message.content == texts[0], "a seed is a seed"
    single = client.chat.completions.create(**asked)
    assert answer.usage is not None
    assert single.usage is not None
    assert answer.usage.prompt_tokens == single.usage.prompt_tokens


class Place(pydantic.BaseModel):
    city: Literal["Paris", "Rome"]
    is_large: bool


@pytest.mark.model
def test_an_answer_is_parsed_into_a_class(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "A city?"}]
    answer = client.chat.completions.parse(
        model="lamb", messages=asked, response_format=Place, temperature=0, max_tokens=200
    )
    assert isinstance(answer.choices[0].message.parsed, Place)


@pytest.mark.model
def test_a_bias_forbids_a_word(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model="lamb", messages=HELLO, temperature=0, logprobs=True, max_tokens=1)
    word = plain.choices[0].message.content
    found: Any = client.post("/tokenize", body={"content": word}, cast_to=object)
    (token,) = found["tokens"]
    other = client.chat.completions.create(
        model="lamb", messages=HELLO, temperature=0, logit_bias={str(token): -100}, max_tokens=1
    )
    assert other.choices[0].message.content != word


CURL = """curl -sS -X POST ADDRESS/v1/chat/completions \\
  -H "Content-Type: application/json" \\
  -d '{
    "model": "gpt-4",
    "messages": [
      {"role": "user", "content": "What can you do?"}
    ]
  }'"""


CURL_WITH_TOOLS = CURL.replace(
    "\n    ]\n",
    """
    ],
    "tools": [
      {
        "type": "function",
        "function": {
          "name": "list_directory",
          "description": "List files",
          "parameters": {
            "type": "object",
            "properties": {
              "path": {"type": "string"}
            }
          }
        }
      }
    ]
""",
)


@pytest.mark.model
@pytest.mark.parametrize("command", [CURL, CURL_WITH_TOOLS], ids=["plain", "with tools"])
def test_6_curl_gets_a_completion(server: str, command: str) -> None:
    done = subprocess.run(
        command.replace("ADDRESS", server), shell=True, capture_output=True, text=True, check=True, timeout=60
    )
    answer = json.loads(done.stdout)
    choice, usage = answer["choices"][0], answer["usage"]
    assert (answer["object"], answer["model"]) == ("chat.completion", "gpt-4")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    calls = choice["message"].get("tool_calls", [])
    assert choice["finish_reason"] in ({"tool_calls"} if calls else {"stop", "length"})
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
