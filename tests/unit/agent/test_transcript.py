"""Conversations as files for people and for programs."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shepherd.agent import transcript
from shepherd.core import Audio, BadCall, Image, InvalidRequest, Message, Reasoning, Text, ToolCall, ToolResult

CONVERSATION = (
    Message.user("Hello <b>you</b>\nand ```"),
    Message(
        "assistant",
        (
            Reasoning("hm\n\nyes"),
            Text("Look: ![x](http://spy.example/x.png) [y](javascript:x) <script>alert(1)</script>\n\n```py\na\n```"),
            ToolCall("1", "read_file", '{"path": "a.txt"}'),
            BadCall("<tool_call>{", "it is cut off"),
        ),
    ),
    Message("tool", (ToolResult("1", (Text("content with ``` fences\n````\n"), Image("image/png", b"\x89P"))),)),
    Message("user", (Image(url="http://e.example/cat.png"), Audio("audio/wav", b"RIFF"), Text("And this?"))),
)


def test_markdown_keeps_everything_and_no_fence_ends_too_early() -> None:
    text = transcript.to_markdown(CONVERSATION, "Be kind.", "lamb")
    assert text.startswith("# Conversation with lamb\n\n## System\n\nBe kind.\n\n## User\n\nHello <b>you</b>\n")
    assert "> hm\n>\n> yes" in text
    assert '```json\n{"call": "read_file", "arguments": {"path": "a.txt"}}\n```' in text
    assert "`````\ncontent with ``` fences\n````\n`````" in text
    assert "[image/png, 2 bytes]" in text
    assert "[audio/wav, 4 bytes]" in text
    assert "```\n<tool_call>{\n```" in text


def test_json_is_complete_and_bytes_are_base64() -> None:
    told = json.loads(transcript.to_json(CONVERSATION, None, "lamb"))
    assert (told["model"], told["system"]) == ("lamb", None)
    assert [part["type"] for part in told["messages"][1]["parts"]] == ["Reasoning", "Text", "ToolCall", "BadCall"]
    (result,) = told["messages"][2]["parts"]
    assert base64.b64decode(result["parts"][1]["data"]) == b"\x89P"
    assert base64.b64decode(told["messages"][3]["parts"][1]["data"]) == b"RIFF"


def test_json_lines_are_one_message_each() -> None:
    rows = [json.loads(line) for line in transcript.to_json_lines(CONVERSATION, "Be kind.", "lamb").splitlines()]
    assert [row["role"] for row in rows] == ["system", "user", "assistant", "tool", "user"]
    assert rows[1:] == json.loads(transcript.to_json(CONVERSATION, None, "lamb"))["messages"]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in {"href", "src"}]


def test_a_page_runs_nothing_and_fetches_nothing() -> None:
    text = transcript.to_html(CONVERSATION, "<script>", "<lamb>")
    page = Page()
    page.feed(text)
    assert not {"script", "img", "link", "iframe", "b"} & set(page.tags)
    assert page.tags.count("h2") == 5
    assert page.addresses == ["http://spy.example/x.png", "http://e.example/cat.png"], (
        "links, which somebody must follow"
    )
    assert "<title>Conversation with &lt;lamb&gt;</title>" in text


def test_forms_are_chosen_by_name_or_by_word(tmp_path: Path) -> None:
    for name, form, start in (
        ("a.MD", "", "#"),
        ("b", "", "#"),
        ("c.json", "", "{"),
        ("d.md", "jsonl", "{"),
        ("e.html", "", "<"),
    ):
        path = transcript.save(str(tmp_path / name), CONVERSATION, system=None, model="m", form=form)
        assert path.read_text().startswith(start)
        assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(InvalidRequest, match="'pdf' is not a format"):
        transcript.save(str(tmp_path / "f.pdf"), CONVERSATION, system=None, model="m")
    with pytest.raises(FileExistsError):
        transcript.save(str(tmp_path / "a.MD"), CONVERSATION, system=None, model="m")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        transcript.save("a\0b", CONVERSATION, system=None, model="m")
