"""A session of an agent over a window of 16 contexts, on the embedded model: nothing is refused or computed twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.own_server import serving

pytestmark = pytest.mark.model

TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}]
CACHE = '[caches.main]\nmodel = "lamb"\nn_ctx = 1024\nwindow = "16x"\n'


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with serving(tmp_path_factory.mktemp("window"), CACHE) as url, httpx2.Client(base_url=url, timeout=60) as made:
        yield made


def exchange(n: int, text: str) -> list[dict[str, Any]]:
    function = {"name": "read_file", "arguments": json.dumps({"path": f"src/file{n}.py"})}
    call = {"id": f"call_{n}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{n}", "content": text},
    ]


def session(n: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend the parser."}]
    for number in range(n):
        lines = [f"line {line} of file {number}: value = {line * number}" for line in range(7)]
        if number == 2:
            lines.append("RELEASE_NAME = 'Bluebird'")
        messages += exchange(number, "\n".join(lines))
    return messages


def ask(client: httpx2.Client, messages: list[dict[str, Any]]) -> httpx2.Response:
    body = {"model": "lamb", "messages": messages, "tools": TOOLS, "max_tokens": 4, "temperature": 0}
    return client.post("/v1/chat/completions", json=body)


def computed(answer: httpx2.Response) -> int:
    usage = answer.json()["usage"]
    return int(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"])


def test_a_session_of_many_contexts_computes_its_new_tokens_only(client: httpx2.Client) -> None:
    card = client.get("/v1/models").json()["data"][0]
    assert (card["max_model_len"], card["meta"]["n_cells"]) == (16 * 1024, 1024)
    n_before = n_evicted = n_computed = 0
    for n in range(1, 25):
        answer = ask(client, session(n))
        assert answer.status_code == 200, answer.text
        n_prompt = answer.json()["usage"]["prompt_tokens"]
        n_computed += computed(answer)
        assert computed(answer) <= n_prompt - n_before + 8, "new tokens only"
        n_before, n_evicted = n_prompt, n_evicted + int(answer.headers.get("x-shepherd-evicted", 0))
    assert n_prompt > 3 * 1024
    assert n_evicted > 20
    assert n_computed <= 1.05 * n_prompt
    body = {"model": "lamb", "messages": session(24), "tools": TOOLS}
    counted = client.post(
        "/v1/messages/count_tokens", json={"model": "lamb", "messages": [{"role": "user", "content": "Hi"}]}
    )
    assert counted.json()["input_tokens"] < 60
    asked = [
        *session(24),
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "What is RELEASE_NAME?"},
    ]
    answer = ask(client, asked)
    assert int(answer.headers["x-shepherd-recalled"]) > 0
    assert answer.json()["usage"]["prompt_tokens_details"]["recalled_tokens"] > 0
    shown = client.post("/apply-template", json=body | {"messages": asked}).json()["prompt"]
    assert shown.rindex("RELEASE_NAME = 'Bluebird'") > shown.rindex("Done.")
    assert shown.endswith("What is RELEASE_NAME?<|im_end|>\n<|im_start|>assistant\n")


def test_a_request_beyond_the_window_is_refused_in_its_numbers(client: httpx2.Client) -> None:
    refused = ask(client, session(150))
    assert refused.status_code == 400
    assert "> 16384 maximum" in refused.json()["error"]["message"]


def test_what_must_stay_has_to_fit_into_the_context(client: httpx2.Client) -> None:
    refused = ask(client, [*session(1), *exchange(1, "word " * 3000)])
    assert refused.status_code == 400
    assert "> 1024 maximum" in refused.json()["error"]["message"]


def test_a_question_that_fits_without_quotes_only_is_answered_without(client: httpx2.Client) -> None:
    """Quotes stand with the newest turn, which never leaves: what we add must not refuse what the client sends."""
    told = [*session(24), {"role": "assistant", "content": "Done."}]
    quoted = {"role": "user", "content": "What is RELEASE_NAME?" + " so" * 600}
    answer = ask(client, [*told, quoted])
    assert int(answer.headers["x-shepherd-recalled"]) > 0
    # The quote of a question that fitted with it gives way, too, when the turn goes on.
    for went_on in ([quoted, *exchange(99, "so " * 180)], [{**quoted, "content": quoted["content"] + " so" * 240}]):
        alone, answer = ask(client, went_on), ask(client, [*told, *went_on])
        assert alone.status_code == 200, alone.text
        assert answer.status_code == 200, answer.text
        assert "x-shepherd-recalled" not in answer.headers
