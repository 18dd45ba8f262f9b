"""OpenAI's own client compacts conversations of the embedded model: the next request computes only its new tokens."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.responses import CompactedResponse
from tests.in_time import becomes_true
from tests.official import openai_at
from tests.own_server import serving

from shepherd.server.http.auth import Key

pytestmark = pytest.mark.model

ANN, BOB = "sk-ann", "sk-bob"
BRIEF = "Be brief."
NEW_TOKENS = 25
"""More than a short question has with its markup, and far fewer than an old one."""


@contextmanager
def running(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = "", *, window: str = "", **options: Any
) -> Iterator[str]:
    """A server whose conversations are on the disk: what is compacted beside the memory, the cells in their folder."""
    monkeypatch.setenv("RAG_DB_PATH", os.fspath(folder / "data" / "memory.db"))
    tiers = f'[kv]\ndisk = true\nfolder = "{folder / "kv"}"\n'
    caches = '[caches.main]\nmodel = "lamb"\n'
    caches += f'n_ctx = 1024\nwindow = "{window}"\n' if window else 'n_ctx = 2048\noverflow = "evict"\n'
    with serving(folder, tiers + caches + text, **options) as url:
        yield url


def sent(output: Any) -> list[Any]:
    """The items of an answer, as a client sends them back. Its types have no word for a user's message in a window."""
    return [item.to_dict(warnings=False) for item in output]


def asked(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(client: openai.OpenAI, items: list[Any], **fields: Any) -> Any:
    return client.responses.create(
        model="lamb", input=items, instructions=BRIEF, max_output_tokens=12, **{"store": False, **fields}
    )


def chat(client: openai.OpenAI, n: int = 5) -> list[Any]:
    """The items of a conversation with questions of a hundred tokens."""
    items: list[Any] = []
    for number in range(n):
        items.append(asked(f"Question {number}: " + f"tell me about sheep number {number}. " * 10))
        items += sent(ask(client, items).output)
    return items


def computed(answer: Any) -> int:
    return int(answer.usage.input_tokens - answer.usage.input_tokens_details.cached_tokens)


def compact(client: openai.OpenAI, items: list[Any], **fields: Any) -> CompactedResponse:
    return client.responses.compact(model="lamb", input=items, instructions=BRIEF, **fields)


def test_a_compacted_conversation_computes_only_what_is_new_also_behind_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, monkeypatch) as url, openai_at(url) as client:
        items = chat(client)
        whole = ask(client, [*items, asked("And?")]).usage.input_tokens
        window = compact(client, items)
        assert (window.usage.output_tokens, window.usage.total_tokens) == (0, window.usage.input_tokens)
        assert window.usage.input_tokens_details.cached_tokens == window.usage.input_tokens
        kinds = [item.type for item in window.output]
        assert kinds == ["message"] * 5 + ["compaction"]
        assert [item["content"][0]["text"] for item in sent(window.output)[:-1]] == [
            item["content"] for item in items if item.get("role") == "user" and isinstance(item["content"], str)
        ]
        items = [*sent(window.output), asked("And now?")]
        answer = ask(client, items)
        assert answer.usage.input_tokens < whole / 2
        assert computed(answer) < NEW_TOKENS
        items += [*sent(answer.output), asked("And then?")]
    with running(tmp_path, monkeypatch) as url, openai_at(url) as client:
        answer = ask(client, items)
        assert answer.usage.input_tokens < whole / 2
        assert computed(answer) < NEW_TOKENS
        again = compact(client, items + sent(answer.output))  # of a conversation that was compacted
        assert [item.type for item in again.output].count("compaction") == 1
        assert computed(ask(client, [*sent(again.output), asked("Go on.")])) < NEW_TOKENS


def test_a_threshold_a_trigger_and_a_chain_of_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    management: Any = [{"type": "compaction", "compact_threshold": 400}]
    with running(tmp_path, monkeypatch) as url, openai_at(url) as client:
        items = [*chat(client), asked("And?")]
        with client.responses.stream(
            model="lamb", input=items, instructions=BRIEF, max_output_tokens=12, context_management=management
        ) as stream:
            events: list[Any] = list(stream)
        kinds = [event.type.removeprefix("response.") for event in events]
        assert kinds[:5] == ["created", "in_progress", *["output_item.added", "output_item.done"], "output_item.added"]
        first = events[-1].response
        assert [item.type for item in first.output] == ["compaction", "message"]
        assert first.usage.input_tokens <= 400

        # Everything in front of the item may go, or none of it.
        following = ask(client, [*sent(first.output), asked("Next?")], context_management=management)
        assert computed(following) < NEW_TOKENS
        assert [item.type for item in following.output] == ["message"]
        assert computed(ask(client, [*items, *sent(first.output), asked("Next?")])) < NEW_TOKENS

        chained = ask(client, [asked("Chained?")], previous_response_id=first.id, store=True)
        assert computed(chained) < NEW_TOKENS
        listed = client.responses.input_items.list(chained.id, order="asc", limit=100)
        assert [item.type for item in listed].count("compaction") == 1

        paused = ask(client, [{"type": "compaction_trigger"}], previous_response_id=chained.id, store=True)
        assert [item.type for item in paused.output] == ["compaction"]
        assert paused.status == "completed"
        unnamed = client.post(
            "/responses", body={"input": [asked("Hm."), {"type": "compaction_trigger"}]}, cast_to=dict[str, Any]
        )
        assert unnamed["model"] == paused.model == "lamb"
        after = ask(client, [asked("After?")], previous_response_id=paused.id)
        assert computed(after) < NEW_TOKENS

        count = client.responses.input_tokens.count(
            model="lamb", input=[*sent(paused.output), asked("After?")], instructions=BRIEF
        )
        assert count.input_tokens == after.usage.input_tokens


def test_an_agent_in_a_window_computes_no_more_when_it_is_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls with results of equal length: the request that compacts, and those behind it, are like all others."""
    fields: Any = {
        "context_management": [{"type": "compaction", "compact_threshold": 1_400}],
        "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}, "strict": False}],
    }
    new: list[int] = []
    compacted: list[int] = []
    with running(tmp_path, monkeypatch, window="8x") as url, openai_at(url) as client:
        items = [asked("Mend the tests.")]
        for number in range(15):
            answer = ask(client, items, **fields)
            new.append(computed(answer))
            output = sent(answer.output)
            if output[0]["type"] == "compaction":
                compacted.append(number)
                items = []
            call = {"call_id": f"c{number}", "name": "read", "arguments": f'{{"path": "src/{number + 10}.py"}}'}
            result = f"line of file {number + 10} " * 20
            items += [*output, {"type": "function_call", **call}]
            items.append({"type": "function_call_output", "call_id": f"c{number}", "output": result})
    assert len(compacted) >= 2
    assert max(new[2:]) - min(new[2:]) < NEW_TOKENS, new


def test_what_cannot_be_obeyed_is_a_400_that_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (Key.of(ANN, name="ann"), Key.of(BOB, name="bob"))
    with running(tmp_path, monkeypatch, api_keys=keys) as url, openai_at(url, ANN) as ann, openai_at(url, BOB) as bob:
        item = sent(compact(ann, [asked("Hello.")]).output)[-1]
        other = sent(compact(ann, [asked("Something else."), asked("And more.")]).output)[-1]
        word = item["encrypted_content"]
        forged = word[:40] + ("A" if word[40] != "A" else "B") + word[41:]
        new = asked("New?")

        def management(**fields: Any) -> Any:
            return {"context_management": [{"type": "compaction", **fields}]}

        for who, items, fields, param, reason in (
            (bob, [item, new], {}, "compaction", "made with another API key"),
            (ann, [item | {"encrypted_content": forged}, new], {}, "compaction", "was changed"),
            (ann, [item | {"encrypted_content": "shp1.AAAA"}, new], {}, "compaction", "damaged"),
            (ann, [item | {"encrypted_content": "gAAAAA"}, new], {}, "input[0]", "another provider"),
            (ann, [item, other, new], {}, "compaction", "two conversations"),
            (ann, [{"type": "compaction_trigger"}, new], {}, "input[0]", "the last item"),
            (ann, [new], management(compact_threshold=0), "context_management[0].compact_threshold", "at least 1"),
            (ann, [new], management(compact_threshold=10**6), "context_management", "the window has 2048"),
            (ann, [new], {"context_management": [{"type": "x"}]}, "context_management[0].type", '"compaction"'),
        ):
            with pytest.raises(openai.BadRequestError) as error:
                ask(who, items, **fields)
            body: Any = error.value.body
            assert reason in body["message"], body
            assert body["param"] == param
        assert computed(ask(ann, [item, item, new])) > 0
        with pytest.raises(openai.BadRequestError, match="input is missing"):
            ann.responses.compact(model="lamb")


def test_forgetting_a_conversation_makes_its_items_useless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    route = '[[routes]]\nmatch = "*"\ncache = "main"\nuser = "local"\narchive = true\n'
    with running(tmp_path, monkeypatch, route) as url, openai_at(url) as client:
        secret = [asked("The password is swordfish."), *sent(ask(client, [asked("The password is swordfish.")]).output)]
        item = sent(compact(client, secret).output)[-1]
        other = sent(compact(client, [asked("Sheep.")]).output)[-1]
        assert computed(ask(client, [item, asked("Go on.")])) < NEW_TOKENS
        gone = httpx2.post(f"{url}/v1/memory/forget", json={"matching": "swordfish"}).json()
        assert gone["messages"] >= 1, gone
        with pytest.raises(openai.BadRequestError, match="no longer stored"):
            ask(client, [item, asked("Go on.")])
        assert ask(client, [other, asked("Go on.")]).status
    files = [file for file in (tmp_path / "data").iterdir() if file.is_file()]
    assert not any(b"swordfish" in file.read_bytes() for file in files if file.name.startswith("compactions"))


def test_the_items_of_another_shepherd_pass_through_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    with running(far, monkeypatch) as behind:
        provider = f'[providers.far]\ntype = "openai"\nbase_url = "{behind}/v1"\nprotocol = "openai.responses"\n'
        with (
            running(near, monkeypatch, provider + 'api_key = "any"\nmodel = "lamb"\n') as url,
            openai_at(url) as client,
        ):
            there: Any = {"model": "far/lamb", "instructions": BRIEF}
            first = client.responses.create(**there, input="Hello, sheep.", max_output_tokens=12, store=False)
            items = [asked("Hello, sheep."), *sent(first.output)]
            window = client.responses.compact(**there, input=items)
            item = sent(window.output)[-1]
            assert item["type"] == "compaction"
            answer = client.responses.create(**there, input=[item, asked("Go on.")], max_output_tokens=12, store=False)
            assert computed(answer) < NEW_TOKENS
            with pytest.raises(openai.BadRequestError, match="another installation"):
                ask(client, [item, asked("Go on.")])  # a model of this machine


@pytest.mark.parametrize("window", ["", "8x"])
def test_a_client_that_sends_its_whole_history_without_its_item_gets_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str
) -> None:
    """What a compaction has cleared is no eviction: it has left for those that send the item."""
    with running(tmp_path, monkeypatch, window=window) as url, openai_at(url) as client:
        items = chat(client, 3)
        whole = ask(client, [*items, asked("And?")]).usage.input_tokens
        item = sent(compact(client, items).output)[-1]
        short = ask(client, [item, asked("And?")])
        assert short.usage.input_tokens < whole - 100 or window
        longer = ask(client, [*items, asked("And?")])
        assert longer.usage.input_tokens == whole

        def held() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = httpx2.get(f"{url}/v1/caches").json()["caches"]["main"]["sequences"]
            return [each for each in found if each["tokens"] >= whole]

        assert becomes_true(lambda: bool(held()))  # the figures are renewed behind the end of an answer
        assert [each["evicted"] for each in held()] == [0]
