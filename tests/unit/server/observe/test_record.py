"""The line that each request leaves in the log."""

import json
import logging
import re
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.in_process import client_of
from tests.scripted_service import Script, ScriptedService, playing

from shepherd.cli import logs
from shepherd.core import Event, Finished, Request, Started, TextDelta, Usage
from shepherd.server.app import create_app
from shepherd.server.endpoints.handler import backend_headers
from shepherd.server.http.auth import Key
from shepherd.server.observe.record import REQUEST_ID, Record, format_name
from shepherd.wire.base import Decoded

CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "prompt-text"}]}
ANSWER: tuple[Event, ...] = (
    Started("qwen", "local:qwen", Usage(3, 4), cache="main"),
    TextDelta("answer-text"),
    TextDelta("."),
    Finished("end", Usage(3, 4, 0, 9, drafted=6, accepted=5)),
)
LINE = re.compile(
    r"(?P<id>\S+) (?P<surface>\S+) model=(?P<model>\S+) backend=(?P<backend>\S+) cache=(?P<cache>\S+) "
    r"upstream=(?P<upstream>\S+) in=(?P<in>\d+) cached=(?P<cached>\d+) recalled=(?P<recalled>\d+) out=(?P<out>\d+) "
    r"drafted=(?P<drafted>\d+) accepted=(?P<accepted>\d+) evicted=(?P<evicted>\d+) first_ms=(?P<first_ms>[\d.]+|-) "
    r"tokens_per_s=(?P<tokens_per_s>[\d.]+|-) queue_ms=(?P<queue_ms>[\d.]+|-) received=(?P<received>\d+) "
    r"sent=(?P<sent>\d+) key=(?P<key>\S+) session=(?P<session>\S+) status=(?P<status>\d+) stop=(?P<stop>.+)"
)


async def line_of(caplog: pytest.LogCaptureFixture, script: Script, body: Any, **headers: str) -> dict[str, str]:
    """The fields of the one line, and the size of the answer."""
    caplog.set_level(logging.INFO, logger="shepherd.server")
    app = create_app(ScriptedService(script), api_keys=(Key.of("sk-ann", name="ann"),))
    async with client_of(app) as client:
        answer = await client.post(CHAT, json=body, headers={"x-api-key": "sk-ann", **headers})
    (line,) = [record.getMessage() for record in caplog.records if record.name == "shepherd.server"]
    match = LINE.fullmatch(line)
    assert match, line
    return {**match.groupdict(), "size": str(len(answer.content))}


@pytest.mark.parametrize("stream", [True, False])
async def test_the_line_has_the_cost_of_a_request_and_its_sender(
    caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    body = {**BODY, "stream": stream}
    headers = {"x-request-id": "id-1", "x-session-id": "a-session-with-a-long-name"}
    told = await line_of(caplog, playing(*ANSWER), body, **headers)
    assert told["sent"] == told.pop("size") != "0"
    for name in ("first_ms", "tokens_per_s", "queue_ms", "sent"):
        assert float(told.pop(name)) >= 0
    assert told == {
        "id": "id-1",
        "surface": "openai-chat",
        "model": "m",
        "backend": "local:qwen",
        "cache": "main",
        "upstream": "-",
        "in": "7",
        "cached": "4",
        "recalled": "0",
        "out": "9",
        "drafted": "6",
        "accepted": "5",
        "evicted": "0",
        "received": str(len(json.dumps(body, separators=(",", ":")))),
        "key": "ann",
        "session": "a-session-wi",
        "status": "200",
        "stop": "end",
    }
    assert "-text" not in caplog.text
    assert "sk-ann" not in caplog.text


async def test_nothing_that_a_client_writes_can_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    body = {**BODY, "model": "m\nreq_1 openai-chat\x1b[31m status=200\u2028", "user": "a b\r\n"}
    told = await line_of(caplog, playing(*ANSWER), body, **{"x-session-id": "s 1"})
    assert told["model"] == "m?req_1?openai-chat?[31m?status=200?"
    assert told["session"] == "s?1"


@given(st.text(max_size=100))
def test_what_is_shown_is_one_word(name: str) -> None:
    word = format_name(name)
    assert 0 < len(word) <= 80
    assert len(word.split()) == len(word.splitlines()) == 1
    assert word.isprintable()


def test_times_count_from_the_arrival() -> None:
    record = Record("id", "s", begun_s=10.0, started_s=10.5, first_s=12.0, ended_s=14.0)
    record.usages[0] = Usage(output=9)
    facts = record.facts()
    assert (facts["queue_ms"], facts["first_ms"], facts["tokens_per_s"]) == (500.0, 2000.0, 4.0)


def test_a_prompt_leaves_the_queue_before_it_is_computed() -> None:
    record = Record("id", "s", begun_s=10.0)
    record.see(Started("m", at_ns=10_500_000_000))
    assert record.facts()["queue_ms"] == 500.0


def test_what_is_not_known_is_none_for_programs_and_a_dash_for_people(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shepherd.server")
    record = Record.of({"type": "http", REQUEST_ID: "id"}, "s")
    record.take(Decoded((Request("m"), Request("m")), stream=False, options=None))
    assert record.n_choices == 2
    record.write()
    (written,) = caplog.records
    assert written.getMessage().endswith(
        "model=m backend=- cache=- upstream=- in=0 cached=0 recalled=0 out=0 drafted=0 accepted=0 evicted=0 first_ms=- "
        "tokens_per_s=- queue_ms=- received=0 sent=0 key=- session=- status=0 stop=-"
    )
    facts: Any = vars(written)["facts"]
    assert (facts["first_ms"], facts["queue_ms"], facts["tokens_per_s"]) == (None, None, None)


# ---- what becomes of it on standard error


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Any:
    """What a record of these words looks like, with these options of the command line."""
    root, ours = logging.getLogger(), logging.getLogger("shepherd")
    before = root.level, ours.level, root.handlers[:], logging.getLogger("shepherd.content").level

    def write(options: dict[str, Any], *words: Any, **more: Any) -> str:
        logs.set_up({"server": True, **options})
        logging.getLogger("shepherd.server").info(*words, **more)
        return capsys.readouterr().err

    yield write
    root.setLevel(before[0])
    ours.setLevel(before[1])
    root.handlers[:] = before[2]
    logging.getLogger("shepherd.content").setLevel(before[3])


def test_a_record_is_one_line_with_any_quoted_text(written: Any) -> None:
    assert written({}, "model %s", "m\n[INFO ] forged\x1b[2J\x85\u2028é") == (
        "[INFO ] model m\\n[INFO ] forged\\x1b[2J\\x85\\u2028é\n"
    )


def test_for_programs_a_record_is_one_json_object(written: Any) -> None:
    told = json.loads(written({"log_json": True}, "model %s", "m\nforged"))
    assert told.pop("time") > 1.7e9
    assert told == {"level": "info", "logger": "shepherd.server", "message": "model m\nforged"}
    request = json.loads(written({"log_json": True}, "id-1 ...", extra={"facts": {"id": "id-1", "out": 3}}))
    assert request.pop("time") > 1.7e9
    assert request == {"level": "info", "logger": "shepherd.server", "id": "id-1", "out": 3}


def test_a_traceback_stays_with_its_record(written: Any) -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        plain = written({}, "failed", exc_info=sys.exc_info())
        told = json.loads(written({"log_json": True}, "failed", exc_info=sys.exc_info()))
    assert plain.startswith("[INFO ] failed\nTraceback")
    assert plain.endswith("ValueError: a bug\n")
    assert told["exception"].endswith("ValueError: a bug")


@pytest.mark.parametrize(
    ("event", "model"),
    [
        (Started("grok-4.3", "xai:grok-4-fast"), "grok-4.3"),
        (Started("grok-4.3", "xai:grok-4.3"), None),
        (Started("what the client calls it", "local:lamb"), None),
    ],
)
def test_another_model_than_the_one_asked_for_is_named(event: Started, model: str | None) -> None:
    record = Record("id", "s")
    record.see(event)
    headers = dict(backend_headers(record))
    assert headers[b"x-shepherd-backend"].decode() == event.origin
    assert headers.get(b"x-shepherd-model", b"").decode() == (model or "")
