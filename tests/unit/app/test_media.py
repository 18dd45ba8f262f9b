"""The images of a request before a local model: refused in each protocol's form, fetched from allowed hosts only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests import recordings
from tests.pictures import WRONG, data_url, picture

from shepherd.app.media import MediaDoor, Sense, fetching_once, for_provider
from shepherd.backends.local.media import AudioLimits, ImageLimits, MediaLimits, media_of
from shepherd.core import Audio, Image, InvalidRequest, Message, Request, Text, ToolResult, Unsupported
from shepherd.wire.anthropic import codec as anthropic
from shepherd.wire.ollama import chat as ollama
from shepherd.wire.openai import chat
from shepherd.wire.openai.responses import codec as responses

LIMITS = MediaLimits(ImageLimits())
RIGHT = picture()


def sees(_: Sense) -> str:
    return ""


def admitted(*parts: Any, hosts: tuple[str, ...] = (), limits: MediaLimits = LIMITS) -> Any:
    return MediaDoor(limits, hosts).admit(Request("m", (Message("user", parts),)), sees)


# -- protocols --------------------------------------------------------------------------------------------------------

Body = Callable[[str], dict[str, Any]]


def chat_body(url: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"model": "m", "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": parts}]}


BODIES: dict[str, tuple[Any, Body, str]] = {
    "chat": (chat, chat_body, "messages[1].content[1].image_url.url"),
    "responses": (
        responses,
        lambda url: {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
        "input[0].content[0].image_url",
    ),
    "anthropic": (
        anthropic,
        lambda url: {
            "model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {
                "type": "base64", "media_type": "image/png", "data": url.partition(",")[2],
            }}]}],
        },
        "messages[0].content[0].source.data",
    ),
    "ollama": (
        ollama,
        lambda url: {"model": "m", "messages": [{"role": "user", "content": "?", "images": [url.partition(",")[2]]}]},
        "messages[0].images[0]",
    ),
}  # fmt: skip


def message_of(body: dict[str, Any]) -> str:
    error = body["error"]
    return str(error if isinstance(error, str) else error["message"])


@pytest.mark.parametrize("protocol", BODIES)
@pytest.mark.parametrize("what", sorted(WRONG))
async def test_a_wrong_image_is_one_sentence_in_every_protocol(protocol: str, what: str) -> None:
    codec, body, path = BODIES[protocol]
    made, status, says = WRONG[what]
    with pytest.raises(InvalidRequest) as refused:
        await MediaDoor(LIMITS, ()).admit(codec.decode_request(body(data_url(made()))).request, sees)
    assert refused.value.field == path
    answer = codec.encode_error(refused.value)
    assert answer[0] == status
    message = message_of(answer[1])
    assert message.startswith(f"{path} ")
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize("protocol", BODIES)
async def test_a_right_image_passes_as_what_it_is(protocol: str) -> None:
    codec, body, _ = BODIES[protocol]
    data = picture("JPEG")
    admitted = await MediaDoor(LIMITS, ()).admit(codec.decode_request(body(data_url(data))).request, sees)
    assert [image.data for image in media_of(admitted.messages[-1])] == [data]


@pytest.mark.parametrize("protocol", BODIES)
async def test_a_model_that_reads_only_text_refuses_the_newest_image(protocol: str) -> None:
    codec, body, path = BODIES[protocol]
    request = codec.decode_request(body(data_url(RIGHT))).request
    with pytest.raises(Unsupported) as refused:
        await MediaDoor(LIMITS, ()).admit(request, lambda _: "model 'm' reads only text; leave the image out")
    status, answer = codec.encode_error(refused.value)
    assert status == 400
    assert message_of(answer) == f"{path} is an image, and model 'm' reads only text; leave the image out"


HISTORY = (Message("user", (Image("image/png", b"<html>"),)), Message.assistant("Hm."))
RESULT = (*HISTORY, Message("tool", (ToolResult("1", (Image("image/png", RIGHT),)),)))


@pytest.mark.parametrize("messages", [(*HISTORY, Message.user("And?")), RESULT, (*RESULT, Message.assistant("x"))])
@pytest.mark.parametrize("why", ["", "it is blind"])
async def test_no_image_of_the_history_ends_a_conversation(messages: tuple[Message, ...], why: str) -> None:
    request = Request("m", messages)
    assert await MediaDoor(LIMITS, ()).admit(request, lambda _: why) == request


async def test_a_hundred_images_are_refused_by_their_number() -> None:
    with pytest.raises(InvalidRequest) as refused:
        await admitted(*(Image("image/png", RIGHT, path=f"images[{at}]") for at in range(100)))
    assert refused.value.message == (
        "images[20] is image 21 of 100 in its message, and the limit is 20 (images.max_count); send fewer at once"
    )
    assert await admitted(*(Image("image/png", RIGHT),) * 20)


async def test_the_limits_are_those_of_the_configuration() -> None:
    for limits, says in (
        (ImageLimits(max_pixels=47), "8 x 6 pixels, and the limit is 47"),
        (ImageLimits(max_bytes=50), "and the limit is 50 (images.max_bytes)"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await admitted(Image("image/png", RIGHT), limits=MediaLimits(limits))
        assert says in refused.value.message
        assert refused.value.message.startswith("the image has ")
        assert refused.value.field == "messages"
    just = ImageLimits(max_pixels=48, max_bytes=len(RIGHT))
    assert await admitted(Image("image/png", RIGHT), limits=MediaLimits(just))


@pytest.mark.parametrize(
    ("data", "kind", "what"),
    [
        (picture("JPEG"), "image/jpeg", ""),
        (picture("GIF", n_frames=3), "image/gif", ""),
        (picture()[:-20], "image/png", ""),
        (b"\0\0\0\x18ftypheic\0\0\0", "image/heic", ""),
        (b"<html>", "image/heic", "is an HTML page; send an image in its place"),
        (b"", "image/heic", "is empty; send an image in its place"),
    ],
)
def test_a_provider_gets_the_real_type_and_keeps_its_own_limits(data: bytes, kind: str, what: str) -> None:
    messages: tuple[Message, ...] = (Message("user", (Image("image/heic", data, path="a"), Text("?"))),)
    if what:
        with pytest.raises(InvalidRequest) as refused:
            for_provider(messages)
        assert refused.value.message == f"a {what}"
        messages = (*messages, Message.assistant("x"), Message.user("y"))
    assert next(media_of(for_provider(messages)[0])).media_type == kind


# -- addresses --------------------------------------------------------------------------------------------------------


class Site:
    """A server of images on this machine."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.paths: list[str] = []


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.paths.append(self.path)
            path, _, rest = self.path.partition("?")
            bodies = {"/a.png": RIGHT, "/lie.png": picture("JPEG"), "/page": b"<html>No"}
            bodies["/big"] = bytes(ImageLimits().max_bytes + 1)
            status = 302 if path == "/to" else 200 if path in bodies or path == "/cut" else 404
            body = bodies.get(path, RIGHT)
            self.send_response(status)
            self.send_header("content-type", "image/png")
            self.send_header("content-length", str(len(body) + (path == "/cut")))
            if status == 302:
                self.send_header("location", rest)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Site(server.server_port)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def linked(url: str) -> Image:
    return Image(url=url, path="x.url")


async def test_an_address_of_an_allowed_host_is_fetched_once_for_a_request(site: Site) -> None:
    image = linked(f"{site.url}/a.png")
    earlier = Message("tool", (ToolResult("1", (image,)),))
    request = Request(
        "m",
        (
            Message("user", (image,)),
            Message.assistant("x"),
            earlier,
            Message.user("y"),
            Message("user", (image, image)),
        ),
    )
    made = await MediaDoor(LIMITS, ("127.0.0.1",)).admit(request, sees)
    assert site.paths == ["/a.png"]
    images = [each for message in made.messages for each in media_of(message)]
    assert images == [Image("image/png", RIGHT, url=image.url)] * 4


async def test_all_choices_of_a_body_see_what_was_fetched_once(site: Site) -> None:
    """The later ones begin when the first has its prompt, in tasks of their own."""
    messages = (Message("user", (linked(f"{site.url}/none"),)), Message.assistant("x"))
    request = Request("m", (*messages, Message("user", (linked(f"{site.url}/a.png"),))))
    door = MediaDoor(LIMITS, ("127.0.0.1",))
    for n in (1, 2):
        with fetching_once():
            first = await asyncio.create_task(door.admit(request, sees))
            others = await asyncio.gather(*(asyncio.create_task(door.admit(request, sees)) for _ in range(3)))
        assert others == [first] * 3
        assert sorted(site.paths) == sorted(["/a.png", "/none"] * n), "the next body fetches them again"


async def test_the_bytes_decide_what_a_fetched_file_is(site: Site) -> None:
    made = await admitted(linked(f"{site.url}/lie.png"), hosts=("127.0.0.1",))
    assert next(media_of(made.messages[0])).media_type == "image/jpeg"


NOT_OPEN = "may not be called; the operator can allow it with images.hosts = ["


@pytest.mark.parametrize(
    ("path", "hosts", "says"),
    [
        ("/a.png", (), f"127.0.0.1 {NOT_OPEN}'127.0.0.1']"),
        ("/a.png", ("x.example", "*.example"), f"127.0.0.1 {NOT_OPEN}'127.0.0.1']"),
        ("/a.png", ("*",), "127.0.0.1 is not an address of the public internet, and may not be"),
        ("/none", ("127.0.0.1",), "the answer of 127.0.0.1:{port} is 404"),
        ("/page", ("127.0.0.1",), "x.url is an HTML page; send a whole PNG"),
        ("/big", ("127.0.0.1",), "is cut: only the first 20,971,520 bytes of 20,971,521 were read"),
        ("/cut", ("127.0.0.1",), "is not complete: "),
        ("/to?http://localhost:{port}/a.png", ("127.0.0.1",), "127.0.0.1:{port} redirects: localhost may not be"),
        ("/to?file:///etc/passwd", ("127.0.0.1",), "must begin with http:// or https://"),
        ("/to?http://169.254.169.254/x", ("127.0.0.1", "169.254.169.254"), "169.254.169.254 is not an address of the"),
    ],
)  # fmt: skip
async def test_what_is_not_fetched_is_refused_by_its_reason(
    site: Site, path: str, hosts: tuple[str, ...], says: str
) -> None:
    url = site.url + path.format(port=site.port)
    with pytest.raises(InvalidRequest) as refused:
        await admitted(linked(url), hosts=hosts)
    assert says.format(port=site.port) in refused.value.message
    assert refused.value.message.startswith("x.url")
    assert refused.value.field == "x.url"
    # In the history it is a note.
    request = Request("m", (Message("user", (linked(url),)), Message.assistant("x"), Message.user("y")))
    (image,) = media_of((await MediaDoor(LIMITS, hosts).admit(request, sees)).messages[0])
    assert bool(image.left_out) == (path != "/page")


async def test_nothing_is_called_for_a_host_that_is_not_named(site: Site) -> None:
    with pytest.raises(InvalidRequest):
        await admitted(linked(f"{site.url}/a.png"), hosts=("localhost",))
    assert site.paths == []


async def test_a_redirect_within_the_allowed_hosts_is_followed(site: Site) -> None:
    url = f"{site.url}/to?http://localhost:{site.port}/a.png"
    made = await admitted(linked(url), hosts=("127.0.0.1", "localhost"))
    assert next(media_of(made.messages[0])).data == RIGHT


async def test_a_blind_model_fetches_nothing(site: Site) -> None:
    request = Request("m", (Message("user", (linked(f"{site.url}/a.png"),)), Message.assistant("x"), Message.user("y")))
    assert await MediaDoor(LIMITS, ("127.0.0.1",)).admit(request, lambda _: "it is blind") == request
    assert site.paths == []


BOTH = MediaLimits(ImageLimits(), AudioLimits())


@pytest.mark.parametrize("what", sorted(recordings.WRONG))
async def test_a_wrong_recording_is_refused_by_its_field(what: str) -> None:
    made, status, says = recordings.WRONG[what]
    part = Audio("audio/wav", made(), path="messages[0].content[1]")
    with pytest.raises(InvalidRequest) as refused:
        await admitted(part, limits=BOTH)
    assert (refused.value.status, refused.value.field) == (status, part.path)
    assert refused.value.message.startswith(f"{part.path} ")
    assert says in refused.value.message
    request = Request("m", (Message("user", (part,)), Message.assistant("x"), Message.user("y")))
    assert await MediaDoor(BOTH, ()).admit(request, sees) == request


async def test_the_limits_of_recordings_are_those_of_the_configuration() -> None:
    one = Audio("audio/wav", recordings.wav(seconds=2))
    assert await admitted(one, limits=MediaLimits(audio=AudioLimits(1, len(one.data), 2)))
    for limits, says in (
        (
            AudioLimits(max_seconds=1),
            "the recording lasts 2 s, and the limit is 1 s (audio.max_seconds); send a shorter",
        ),
        (AudioLimits(max_bytes=100), "has 64,044 bytes, and the limit is 100 (audio.max_bytes); send a smaller file"),
        (
            AudioLimits(max_count=1),
            "is recording 2 of 2 in its message, and the limit is 1 (audio.max_count); send fewer",
        ),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await admitted(one, one, limits=MediaLimits(audio=limits))
        assert says in refused.value.message


@pytest.mark.parametrize(
    ("lacks", "says"),
    [("vision", "a is an image, and it lacks vision"), ("audio", "b is a recording, and it lacks audio")],
)
async def test_a_model_is_asked_for_each_sense(lacks: str, says: str) -> None:
    parts = (Image("image/png", RIGHT, path="a"), Audio("audio/wav", recordings.wav(), path="b"))

    def lacking(sense: Sense) -> str:
        return f"it lacks {sense}" if sense == lacks else ""

    with pytest.raises(Unsupported) as refused:
        await MediaDoor(BOTH, ()).admit(Request("m", (Message("user", parts),)), lacking)
    assert refused.value.message == says


def test_a_provider_gets_the_real_type_of_a_recording() -> None:
    (message,) = for_provider([Message("user", (Audio("audio/x-lie", recordings.flac()),))])
    assert message.parts == (Audio("audio/flac", recordings.flac()),)
    with pytest.raises(InvalidRequest, match="the recording is an HTML page; send a recording in its place"):
        for_provider([Message("user", (Audio("audio/wav", b"<!doctype html>"),))])
