"""OpenAI's compaction on the wire: the fields and items of a body, the item of an answer, and what is refused."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.responses import CompactedResponse, ResponseOutputItemAddedEvent, ResponseOutputItemDoneEvent
from openai.types.responses.response_compaction_item import ResponseCompactionItem

from shepherd.core import (
    BadReply,
    Event,
    Finished,
    InvalidRequest,
    Message,
    Opaque,
    OpaqueBlock,
    Request,
    Started,
    Text,
    TextDelta,
    Usage,
    fold,
)
from shepherd.core.edits import COMPACTION, Edit
from shepherd.wire.base import Json
from shepherd.wire.client import Endpoint
from shepherd.wire.names import endpoint_names
from shepherd.wire.openai.responses import client, compact
from shepherd.wire.openai.responses import codec as responses

WORD = "shp1.abc"
OWN = {"type": "compaction", "id": "cmp_1", "encrypted_content": WORD}
FOREIGN = {"type": "compaction", "id": "cmp_2", "encrypted_content": "gAAAAAB-of-another"}
TRIGGER = {"type": "compaction_trigger"}
ASKED = {"type": "message", "role": "user", "content": "Hello"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
ENDPOINT = Endpoint("up:m", "m")


def decoded(*items: Json, **fields: Any) -> Request:
    return responses.decode_request({"model": "m", "input": list(items), **fields}).request


def opaque(protocol: str, item: Json) -> Opaque:
    return Opaque(protocol, json.dumps(item, separators=(",", ":")))


def refused(body: Json) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        responses.decode_request({"model": "m", "input": [ASKED], **body})
    return error.value


# -- the body ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "edits"),
    [
        (None, ()),
        ([], ()),
        ([{"type": "compaction"}], (Edit("compact"),)),
        ([{"type": "compaction", "compact_threshold": None}], (Edit("compact"),)),
        ([{"type": "compaction", "compact_threshold": 200_000}], (Edit("compact", 200_000),)),
        ([{"type": "compaction", "compact_threshold": 1.0}], (Edit("compact", 1),)),
    ],
)
def test_context_management_becomes_edits(given: Any, edits: tuple[Edit, ...]) -> None:
    assert decoded(ASKED, context_management=given).edits == edits


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"edits": []}, "context_management", "an array"),
        ("auto", "context_management", "an array"),
        ([7], "context_management[0]", "an object"),
        ([{}], "context_management[0].type", "missing"),
        ([{"type": 7}], "context_management[0].type", "a string"),
        ([{"type": "clear"}], "context_management[0].type", 'is "clear"; the only type is "compaction"'),
        *(
            ([{"type": "compaction", "compact_threshold": n}], "context_management[0].compact_threshold", "at least 1")
            for n in (0, -5, 1.5, "1000", True)
        ),
        ([{"type": "compaction"}] * 9, "context_management", "at most 8"),
    ],
)
def test_wrong_context_management_is_refused_by_its_field(given: Any, field: str, words: str) -> None:
    error = refused({"context_management": given})
    assert error.field == field
    assert words in error.message


def test_a_trigger_asks_for_an_item_and_no_answer() -> None:
    request = decoded(ASKED, TRIGGER, context_management=[{"type": "compaction", "compact_threshold": 9}])
    assert request.edits == (Edit("compact", trigger_tokens=0, pause=True),)
    assert request.messages == (Message.user("Hello"),)
    error = refused({"input": [ASKED, TRIGGER, ASKED, SAID]})
    assert error.field == "input[1]"
    assert "2 items are behind it" in error.message


def test_our_items_stand_where_they_were_and_others_are_the_providers() -> None:
    assert decoded(ASKED, OWN, SAID).messages == (
        Message.user("Hello"),
        Message("assistant", (opaque(COMPACTION, OWN), Text("Hi."))),
    )
    assert decoded(SAID, OWN, SAID).messages == (
        Message("assistant", (Text("Hi."), opaque(COMPACTION, OWN), Text("Hi."))),
    )
    for kind in ("compaction", "compaction_summary"):  # the second is Codex's older name
        request = decoded(ASKED, FOREIGN | {"type": kind}, ASKED)
        assert request.messages[1].parts[0] == opaque("openai.responses", FOREIGN | {"type": kind})
        assert request.native is not None
        assert request.native.demand is not None
        assert "input[1] is the compaction of another provider" in request.native.demand.message
    native = decoded(ASKED, OWN).native
    assert native is not None
    assert native.demand is None


def test_a_window_is_asked_of_a_named_model() -> None:
    with pytest.raises(InvalidRequest) as caught:
        compact.decode_request({"input": [ASKED]})
    assert (caught.value.field, caught.value.message) == ("model", "model is missing")


@pytest.mark.parametrize("content", [None, "", 7])
def test_an_item_without_content_is_refused(content: Any) -> None:
    assert refused({"input": [{"type": "compaction", "encrypted_content": content}]}).field == (
        "input[0].encrypted_content"
    )


def test_a_trigger_is_no_part_of_a_stored_conversation() -> None:
    options = responses.decode_request({"model": "m", "input": [ASKED, OWN, TRIGGER]}).options
    assert options.own_items == (ASKED, OWN)


# -- the answer --------------------------------------------------------------------------------------------------------

BLOCK = OpaqueBlock(
    Opaque(COMPACTION, json.dumps({"type": "compaction", "encrypted_content": WORD}), (Text("extract"),))
)
ITEM = {"id": "cmp_1_0", "type": "compaction", "encrypted_content": WORD}
ANSWER: tuple[Event, ...] = (
    Started("m"), BLOCK, TextDelta("Hi."), Finished("end", Usage(input=2, cache_read=5, output=1)),
)  # fmt: skip


def encoder() -> responses.Encoder:
    options = responses.decode_request({"model": "m", "input": [ASKED]}).options
    return responses.encoder(options, id="resp_1", created=7, model="m")


def records(events: Iterable[Event]) -> list[Json]:
    made = encoder()
    stream = b"".join(made.encode(event) for event in events).decode()
    return [json.loads(line.removeprefix("data: ")) for line in stream.splitlines() if line.startswith("data: ")]


def test_the_item_comes_in_front_of_the_answer_streamed_and_whole() -> None:
    sent = records(ANSWER)
    kinds = [each["type"].removeprefix("response.output_item.") for each in sent[2:5]]
    assert kinds == ["added", "done", "added"]
    added = ResponseOutputItemAddedEvent.model_validate(sent[2])
    done = ResponseOutputItemDoneEvent.model_validate(sent[3])
    assert added.item == done.item == ResponseCompactionItem.model_validate(ITEM)
    assert (added.output_index, sent[4]["output_index"]) == (0, 1)
    whole = encoder().encode_replies([fold(ANSWER)])
    assert whole["output"] == sent[-1]["response"]["output"]
    assert [item["type"] for item in whole["output"]] == ["compaction", "message"]


def test_an_answer_that_is_an_item_has_nothing_else() -> None:
    paused = (Started("m"), BLOCK, Finished("end", Usage(cache_read=5)))
    assert records(paused)[-1]["response"]["output"] == [ITEM]
    assert encoder().encode_replies([fold(paused)])["output"] == [ITEM]


# -- a window in place of a conversation -------------------------------------------------------------------------------


def compacted(given: Any, *events: Event) -> Json:
    decoded = compact.decode_request({"model": "m", "input": given, "stream": True, "store": True})
    assert not decoded.stream
    assert decoded.request.edits == (Edit("compact", trigger_tokens=0, pause=True),)
    made = compact.encoder(decoded.options, id="resp_1", created=7, model="m")
    body = made.encode_replies([fold(events)])
    assert made.stored is None
    return body


def test_a_window_is_the_users_messages_as_they_came_and_one_item() -> None:
    parts = [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": "https://x/y.png"}]
    items = [
        {"role": "developer", "content": "Be brief."}, ASKED, SAID, OWN,
        {"role": "user", "id": "msg_7", "content": parts},
    ]  # fmt: skip
    body = compacted(items, Started("m"), BLOCK, Finished("end", Usage(cache_read=5)))
    window = CompactedResponse.model_validate({**body, "output": body["output"][-1:]})
    assert (window.id, window.created_at, window.object) == ("resp_1", 7, "response.compaction")
    assert (window.usage.input_tokens, window.usage.output_tokens) == (5, 0)
    assert window.output == [ResponseCompactionItem.model_validate(ITEM)]
    first, second = body["output"][:-1]
    assert first == {
        "status": "completed", "type": "message", "role": "user", "id": "msg_1_u0",
        "content": [{"type": "input_text", "text": "Hello"}],
    }  # fmt: skip
    assert second == {"status": "completed", "type": "message", "role": "user", "id": "msg_7", "content": parts}
    again = decoded(*body["output"], ASKED)
    assert [message.role for message in again.messages] == ["user"] * 3
    assert compacted("Hello", Started("m"), BLOCK, Finished("end"))["output"][0] == first


def test_a_provider_that_answers_in_place_of_compacting_is_named() -> None:
    with pytest.raises(BadReply, match="no compaction"):
        compacted("Hello", Started("m"), TextDelta("Hi."), Finished("end"))


def test_the_rules_for_answers_hold_for_their_windows() -> None:
    assert "/v1/responses" in endpoint_names("/v1/responses/compact")
    assert "/v1/responses" in endpoint_names("/responses/compact")


# -- a provider of the protocol ----------------------------------------------------------------------------------------


def test_a_provider_gets_thresholds_triggers_and_its_own_items_as_they_came() -> None:
    management = [{"type": "compaction", "compact_threshold": 1_000}]
    body = client.encode_request(decoded(ASKED, FOREIGN, ASKED, context_management=management), ENDPOINT)
    assert body["context_management"] == management
    assert body["input"][1] == FOREIGN
    assert client.encode_request(decoded(ASKED, TRIGGER), ENDPOINT)["input"][-1] == TRIGGER
    asked = Request("m", (Message.user("Hello"),), edits=responses.COMPACT_NOW)  # of a client of another protocol
    assert client.encode_request(asked, ENDPOINT)["input"][-1] == TRIGGER


def test_the_item_of_a_provider_comes_out_as_it_came() -> None:
    decoder = client.decoder(decoded(ASKED), ENDPOINT)
    events = list(decoder.whole({"status": "completed", "model": "m", "output": [FOREIGN]}))
    assert OpaqueBlock(opaque("openai.responses", FOREIGN)) in events
    assert records(events)[-1]["response"]["output"] == [FOREIGN]
