"""Answers that are kept: chains of them, their bounds, their file."""

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from shepherd.core import ConfigError, Finished, InvalidRequest, Message, Started, TextDelta
from shepherd.server.response_store import ResponseStore
from shepherd.wire.base import Json
from shepherd.wire.openai.responses import codec as responses
from shepherd.wire.openai.responses.codec import N_STORED, UnknownResponse


def answer(kept: ResponseStore, id: str, said: str, **fields: Any) -> Json:
    """Answer a body with `said`, and keep that; what the model was given is in `input` of what comes back."""
    body = kept.resolve({"input": "?", **fields})
    encoder = responses.encoder(responses.decode_request(body).options, id=id, created=1, model="m")
    for event in (Started("m"), TextDelta(said), Finished("end")):
        encoder.encode(event)
    kept.store(encoder)
    return body


def texts(items: list[Json]) -> list[str]:
    return [part["text"] for item in items for part in item["content"]]


def test_a_body_continues_with_all_earlier_items() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", input="a")
    answer(kept, "resp_2", "two", input=[{"role": "user", "content": "b"}], previous_response_id="resp_1")
    body = kept.resolve({"input": "c", "previous_response_id": "resp_2", "model": "m"})
    assert texts(body["input"]) == ["a", "one", "b", "two", "c"]
    assert (body[N_STORED], body["model"], body["previous_response_id"]) == (4, "m", "resp_2")
    assert [message.role for message in responses.decode_request(body).request.messages] == [
        "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip


def test_two_bodies_may_go_on_with_the_same_answer() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", input="a")
    answer(kept, "resp_2", "two", input="b", previous_response_id="resp_1")
    answer(kept, "resp_3", "three", input="c", previous_response_id="resp_1")
    assert texts(kept.resolve({"previous_response_id": "resp_2"})["input"]) == ["a", "one", "b", "two"]
    assert texts(kept.resolve({"previous_response_id": "resp_3"})["input"]) == ["a", "one", "c", "three"]


def test_instructions_are_not_carried_over() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", instructions="Be brief.")
    body = kept.resolve({"input": "a", "previous_response_id": "resp_1"})
    assert all(message.role != "system" for message in responses.decode_request(body).request.messages)


def test_a_body_that_refers_to_nothing_is_what_it_was_and_cannot_pretend() -> None:
    kept = ResponseStore()
    for said in ("a", [{"role": "user", "content": "a"}], 3):
        assert kept.resolve({"input": said, "model": "m", N_STORED: 7}) == {"input": said, "model": "m", N_STORED: 0}
    # What is of the wrong type is for the codec to refuse.
    for wrong in ({"previous_response_id": 3}, {"input": 3, "previous_response_id": None}):
        with pytest.raises(InvalidRequest, match="must be"):
            responses.decode_request(kept.resolve(wrong))


def test_an_item_that_is_only_named_is_put_in() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", input=[{"role": "user", "content": "a", "id": "mine"}])
    references = [{"type": "item_reference", "id": "msg_1_0"}, {"id": "mine"}, {"type": "item_reference", "id": "no"}]
    body = kept.resolve({"input": references})
    assert texts(body["input"][:2]) == ["one", "a"]
    assert body["input"][2] == references[2]
    with pytest.raises(InvalidRequest, match='refers to item "no"'):
        responses.decode_request(body)


@pytest.mark.parametrize("id", ["resp_9", "x" * 500])
def test_what_is_not_kept_is_refused_by_name(id: str) -> None:
    with pytest.raises(UnknownResponse, match="send the whole conversation") as caught:
        ResponseStore().resolve({"input": "a", "previous_response_id": id})
    assert id[:20] in caught.value.message
    assert len(caught.value.message) < 300


def test_an_answer_can_be_read_again_and_forgotten() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", input="a", metadata={"k": "v"})
    found = kept.find("resp_1")
    assert found is not None
    assert (found["id"], found["metadata"], texts(found["output"])) == ("resp_1", {"k": "v"}, ["one"])
    assert kept.n_bytes > 0
    assert kept.forget("resp_1")
    assert not kept.forget("resp_1")
    assert (kept.find("resp_1"), kept.find_input("resp_1"), kept.n_bytes) == (None, None, 0)


def test_the_input_is_all_that_the_model_was_given_and_every_item_has_a_name() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", input="a")
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "seen"}
    answer(kept, "resp_2", "two", input=[{"role": "assistant", "content": "x"}, call, result],
           previous_response_id="resp_1")  # fmt: skip
    found = kept.find_input("resp_2")
    assert found is not None
    assert [(item["id"], item["type"]) for item in found] == [
        ("msg_1_i0", "message"),
        ("msg_1_0", "message"),
        ("msg_2_i0", "message"),
        ("fc_2_i1", "function_call"),
        ("fco_2_i2", "function_call_output"),
    ]
    assert found[2]["content"] == [{"type": "output_text", "text": "x"}]


def test_a_chain_with_a_hole_says_where_the_hole_is() -> None:
    kept = ResponseStore()
    for number, previous in ((1, None), (2, "resp_1"), (3, "resp_2")):
        answer(kept, f"resp_{number}", "x", previous_response_id=previous)
    kept.forget("resp_1")
    with pytest.raises(UnknownResponse, match='names "resp_3", which continues "resp_2", which continues'):
        kept.resolve({"input": "a", "previous_response_id": "resp_3"})
    with pytest.raises(UnknownResponse, match='names "resp_2", which continues "resp_1"'):
        kept.resolve({"input": "a", "previous_response_id": "resp_2"})
    assert kept.find("resp_3") is not None


def test_the_chain_that_was_least_recently_continued_leaves_first() -> None:
    size = ResponseStore()
    answer(size, "resp_1", "one", input="a" * 1000)
    kept = ResponseStore(limit_bytes=size.n_bytes * 3 + 100)
    for number in (1, 2, 3):
        answer(kept, f"resp_{number}", "one", input="a" * 1000)
    kept.resolve({"input": "b", "previous_response_id": "resp_1"})
    answer(kept, "resp_4", "one", input="a" * 1000)
    assert [kept.find(f"resp_{number}") is not None for number in (1, 2, 3, 4)] == [True, False, True, True]
    assert kept.n_bytes <= size.n_bytes * 3 + 100


def test_an_answer_that_is_larger_than_everything_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    kept = ResponseStore(limit_bytes=5000)
    answer(kept, "resp_1", "one")
    answer(kept, "resp_2", "two", input="a" * 5000)
    assert (kept.find("resp_1") is not None, kept.find("resp_2")) == (True, None)
    assert "resp_2 is not stored" in caplog.text


def test_what_is_not_to_be_stored_is_not_kept() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", store=False)
    assert kept.n_bytes == 0


def test_a_file_outlives_the_server_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "answers.db"
    kept = ResponseStore(path)
    answer(kept, "resp_1", "one", input="a")
    n_bytes = kept.n_bytes
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    kept.close()
    again = ResponseStore(path)
    assert again.n_bytes == n_bytes
    assert texts(again.resolve({"input": "b", "previous_response_id": "resp_1"})["input"]) == ["a", "one", "b"]
    answer(again, "resp_2", "two", previous_response_id="resp_1")
    again.close()


def test_what_is_forgotten_is_not_in_the_file_any_more(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    kept = ResponseStore(path)
    answer(kept, "resp_1", "one", input="a-secret-of-mine")
    kept.forget("resp_1")
    kept.close()
    assert all(b"a-secret-of-mine" not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be looked at" * 20, b""])
def test_a_file_of_another_program_is_refused_and_an_empty_one_is_accepted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "answers.db"
    path.write_bytes(content)
    if content:
        with pytest.raises(ConfigError, match="responses_file"):
            ResponseStore(path)
        assert path.read_bytes() == content
    else:
        ResponseStore(path).close()


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE a(b)")
    connection.close()
    with pytest.raises(ConfigError, match="belongs to another program"):
        ResponseStore(path)
    with pytest.raises(ConfigError, match=r"cannot be opened: (?!\[Errno)"):
        ResponseStore(tmp_path)


def test_a_failing_disk_costs_the_copy_and_not_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    kept = ResponseStore()
    kept.close()
    encoder = responses.encoder(responses.decode_request({"input": "a"}).options, id="resp_1", created=1, model="m")
    for event in (Started("m"), TextDelta("x"), Finished("end")):
        encoder.encode(event)
    kept.store(encoder)
    assert "resp_1 could not be stored" in caplog.text


def test_several_threads_may_ask_at_once() -> None:
    kept = ResponseStore()
    answer(kept, "resp_0", "one", input="a")
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            previous = "resp_0"
            for number in range(20):
                id = f"resp_{worker}x{number}"
                body = answer(kept, id, "x", previous_response_id=previous)
                assert len(body["input"]) == 2 * (number + 1) + 1
                previous = id
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_stored_items_come_back_as_they_were_and_in_full() -> None:
    """The bytes of the JSON survive: nothing is lost on the way into the file and out of it."""
    kept = ResponseStore()
    odd = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": 'ü\u2028"\\ \ud83d\udc11 \x00'}],
            "extra": {"n": 2**70},
        }
    ]
    answer(kept, "resp_1", "é", input=odd)
    found = kept.find_input("resp_1")
    assert found is not None
    assert json.dumps(found[0]["content"]) == json.dumps(odd[0]["content"])
    assert found[0]["extra"] == {"n": 2**70}


def test_messages_of_a_chain_are_messages() -> None:
    kept = ResponseStore()
    answer(kept, "resp_1", "one", input="a")
    body = kept.resolve({"previous_response_id": "resp_1"})
    assert responses.decode_request(body).request.messages == (Message.user("a"), Message.assistant("one"))
