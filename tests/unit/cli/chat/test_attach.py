"""Files in a message: what goes along, what stays text, what is refused."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pictures import picture
from tests.sounds import wave

from shepherd.agent import attachment
from shepherd.agent.attachment import Attached
from shepherd.app.app import App
from shepherd.cli.chat import attach
from shepherd.config.schema import AudioConfig, Config, ImagesConfig
from shepherd.core import Audio, Image, InvalidRequest, Text
from shepherd.core.encoding import readable
from shepherd.core.status import ActiveModel, ModelCard

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("alpha\n")
    (tmp_path / "b c.md").write_text("beta ``` gamma\n")
    (tmp_path / "cat.png").write_bytes(PNG)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "d.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    return tmp_path


class Lamb:
    def __init__(self, *capabilities: str) -> None:
        self.capabilities = capabilities

    @property
    def conversations(self) -> Lamb:
        return self

    @property
    def catalogue(self) -> Lamb:
        return self

    @property
    def config(self) -> Config:
        return Config(images=ImagesConfig(max_bytes=5_000), audio=AudioConfig(max_bytes=7_000))

    @property
    def active(self) -> ActiveModel:
        return ActiveModel("llama.cpp (CPU)", "lamb", Path("lamb.gguf"), 4096, True, "hermes", "main")

    def models(self) -> list[ModelCard]:
        return [
            ModelCard("other", 0, 0, capabilities=("vision",)),
            ModelCard("lamb", 0, 0, capabilities=self.capabilities),
        ]


def parts(text: str, folder: Path, *, n_ctx: int = 4096, sees: bool = False) -> tuple[Attached, ...]:
    assert folder == Path.cwd()
    return attach.parts(text, cast("App", Lamb(*["vision"] if sees else [])), n_ctx)


def test_a_file_stands_before_the_words_as_an_aside(folder: Path) -> None:
    file, words = parts("What is in @a.txt?", folder)
    assert file == Text("File a.txt:\n```txt\nalpha\n```\n\n", aside=True)
    assert words == Text("What is in @a.txt?")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@a.txt", ["a.txt"]),
        ("(see @a.txt) and (@sub/d.py)", ["a.txt", "sub/d.py"]),
        ("see @a.txt, @sub/d.py.", ["a.txt", "sub/d.py"]),
        ('@"b c.md" and @a.txt', ["b c.md", "a.txt"]),
        ("mail a@a.txt", []),
        ("@nobody said @ this @@a.txt", []),
        ("\\@a.txt", []),
        ("@...", []),
        ("@./a.txt!", ["./a.txt"]),
        ("line\n@a.txt\n", ["a.txt"]),
        ("@~no-such-user/x", []),
        ("@" + "x" * 5000, []),
        ("@a\0b", []),
    ],
)
def test_an_at_sign_that_names_no_file_is_text(folder: Path, text: str, names: list[str]) -> None:
    assert [name for name, _ in attach.mentions(text, folder)] == names


def test_a_name_that_is_missing_has_a_line_without_a_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    notes: list[tuple[str, Attached | None]] = []
    made = attach.parts("read @nothere.txt", cast("App", Lamb()), 4096, lambda *note: notes.append(note))
    assert made == (Text("read @nothere.txt"),)
    assert notes == [("@nothere.txt names no file here; it is sent as it is", None)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("read @nothere.txt, please", ["nothere.txt"]),
        ("(@sub/nothere.py)", ["sub/nothere.py"]),
        ('@"not here.md"!', ["not here.md"]),
        ("@a.txt @nothere.toml", ["nothere.toml"]),
        ("@nobody and @types/node", []),
        ('@app.get("/") and @pytest.fixture and @app.route', []),
        ("\\@nothere.txt", []),
        ("mail a@nothere.com", []),
        ("@v1.2 @...", []),
        ("@" + "x." * 50_000, []),
        ("@a\0b.txt", ["a\0b.txt"]),
    ],
)
def test_what_looks_like_a_file_and_is_none_is_named(folder: Path, text: str, names: list[str]) -> None:
    assert list(attach.missing(text, folder)) == names


def test_a_file_that_is_named_twice_goes_along_once(folder: Path) -> None:
    assert len(parts("@a.txt and @a.txt", folder)) == 2


def test_a_backslash_makes_the_sign_plain_and_is_not_sent(folder: Path) -> None:
    assert parts("\\@a.txt is a file, C:\\dir is not", folder) == (Text("@a.txt is a file, C:\\dir is not"),)


def test_no_fence_in_a_file_closes_the_one_around_it(folder: Path) -> None:
    (folder / "f.md").write_text("```\n````\n")
    (file, _) = parts("@f.md", folder)
    assert isinstance(file, Text)
    assert file.text == "File f.md:\n`````md\n```\n````\n`````\n\n"


def test_line_ends_of_a_file_become_ours(folder: Path) -> None:
    (file, _) = parts("@sub/d.py", folder)
    assert isinstance(file, Text)
    assert "x = 1\ny = 2\n" in file.text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be"])
def test_marks_and_zeros_at_the_beginning_show_the_encoding(folder: Path, encoding: str) -> None:
    (folder / "marked.txt").write_bytes("Grüße\r\n".encode(encoding))
    (file, _) = parts("@marked.txt", folder)
    assert isinstance(file, Text)
    assert file.text == "File marked.txt:\n```txt\nGrüße\n```\n\n"


def test_bytes_that_are_no_text_in_a_text_are_replaced(folder: Path) -> None:
    (folder / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (file, _) = parts("@latin.txt", folder)
    assert isinstance(file, Text)
    assert "Gr\ufffd\ufffde" in file.text


def test_an_image_goes_along_where_the_model_can_see(folder: Path) -> None:
    assert parts("@cat.png", folder, sees=True) == (Image("image/png", PNG), Text("@cat.png"))


PASTES = [
    ("{}/cat.png what is it?", "plain"),
    ("see {}/cat.png, please", "before a comma"),
    ("'{}/my cat.png' ?", "single quotes"),
    ('"{}/my cat.png"', "double quotes"),
    ("{}/my\\ cat.png", "backslash"),
    ("file://{}/my%20cat.png", "URL"),
    ("file://localhost{}/cat.png", "URL with a host"),
]


@pytest.mark.parametrize("text", [text for text, _ in PASTES], ids=[name for _, name in PASTES])
def test_the_pasted_path_of_an_image_attaches_it(folder: Path, text: str) -> None:
    (folder / "cat.png").write_bytes(picture())
    (folder / "my cat.png").write_bytes(picture())
    typed, notes = text.format(folder), list[str]()
    made = attach.parts(typed, cast("App", Lamb("vision")), 4096, lambda line, _: notes.append(line))
    assert made == (Image("image/png", picture()), Text(typed))
    (note,) = notes
    assert note.startswith("Attached: ")
    assert note.endswith(f"cat.png (image/png, 8 x 6, {len(picture())} B)")
    assert parts(typed, folder) == (Text(typed),)


WAVE = wave(800)


@pytest.mark.parametrize("name", ["voice.wav", "voice.mp3", "voice.flac"])
def test_a_recording_goes_along_by_name_or_pasted_path_where_the_model_hears(folder: Path, name: str) -> None:
    # The bytes say what it is, not the name.
    (folder / name).write_bytes(WAVE)
    hears = cast("App", Lamb("audio"))
    notes: list[tuple[str, Attached]] = []
    made = attach.parts(f"@{name} what?", hears, 4096, lambda *note: notes.append(note))
    assert made == (Audio("audio/wav", WAVE), Text(f"@{name} what?"))
    assert notes == [(f"Attached: {name} (audio/wav, 1.6 KiB)", made[0])]
    assert made[0].path == f"@{name}"
    assert attach.parts(f"{folder}/{name}", hears, 4096)[0] == Audio("audio/wav", WAVE)
    # Eyes are no ears: a pasted path is a text then, an `@` an error.
    assert attach.parts(f"{folder}/{name}", cast("App", Lamb("vision")), 4096) == (Text(f"{folder}/{name}"),)
    sentence = f"@{name} is a recording, and lamb cannot hear; leave it out, or change to a model for recordings"
    with pytest.raises(InvalidRequest, match=f"^{sentence}"):
        attach.parts(f"@{name}", cast("App", Lamb("vision")), 4096)
    (folder / "cat.png").write_bytes(picture())
    with pytest.raises(InvalidRequest, match=r"^@cat\.png is an image, and lamb reads only text"):
        attach.parts("@cat.png", hears, 4096)


def test_the_limit_of_an_image_is_the_configured_one(folder: Path) -> None:
    (folder / "cat.png").write_bytes(PNG + bytes(5_000 - len(PNG)))
    assert len(parts("@cat.png", folder, sees=True)) == 2
    (folder / "cat.png").write_bytes(PNG + bytes(5_001 - len(PNG)))
    sentence = "@cat.png has 5,001 bytes, and the limit is 5,000 here; send a smaller file, or raise images.max_bytes"
    with pytest.raises(InvalidRequest, match=f"^{sentence}$"):
        parts("@cat.png", folder, sees=True)
    (folder / "long.wav").write_bytes(WAVE)
    os.truncate(folder / "long.wav", 7_001)
    with pytest.raises(InvalidRequest, match=r"limit is 7,000 here; send a smaller file, or raise audio\.max_bytes$"):
        attach.parts("@long.wav", cast("App", Lamb("audio")), 4096)


@pytest.mark.parametrize(
    "text",
    [
        "{}/a.txt", "{}/none.png", "{}/text.png", "{}/pipe.png", "x{}/cat.png", "cat.png", "./cat.png", "{}/dir.png",
        "file://other.host{}/cat.png", "'{}/cat.png", "http://x.example{}/cat.png", "~nobody/cat.png", "/a\0.png",
    ],
)  # fmt: skip
def test_no_other_path_is_opened(folder: Path, text: str) -> None:
    (folder / "cat.png").write_bytes(picture())
    (folder / "text.png").write_text("no")
    (folder / "dir.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    typed = text.format(folder)
    assert parts(typed, folder, sees=True) == (Text(typed),)


REFUSALS = [
    ("@cat.png", "@cat.png is an image, and lamb reads only text"),
    ("@sub", "@sub is a folder"),
    ("@.", None),
    ("@./", "@./ is a folder"),
    ("@zeros", "@zeros is not a text file"),
    ("@elf", "@elf is not a text file"),
    ("@pipe", "@pipe is not a regular file"),
    ("@dangling", "@dangling cannot be read: No such file or directory"),
    ("@large.txt", "@large.txt has 30,000 bytes, and the limit is 24,576 here"),
    ("@/dev/zero", "@/dev/zero is not a regular file"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSALS)
def test_what_cannot_go_along_is_refused_in_a_sentence(folder: Path, text: str, sentence: str | None) -> None:
    (folder / "zeros").write_bytes(bytes(100))
    (folder / "elf").write_bytes(b"\x7fELF\x02\x01")
    (folder / "large.txt").write_text("x" * 30_000)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    if sentence is None:
        assert parts(text, folder) == (Text(text),)
        return
    with pytest.raises(InvalidRequest) as refused:
        parts(text, folder)
    assert sentence in refused.value.message


def test_a_larger_context_takes_larger_files(folder: Path) -> None:
    (folder / "large.txt").write_text("x" * 30_000)
    assert len(parts("@large.txt", folder, n_ctx=8192)) == 2
    (folder / "large.txt").write_bytes(b"x" * (attachment.MOST_BYTES + 1))
    with pytest.raises(InvalidRequest):
        parts("@large.txt", folder, n_ctx=10**6)


@given(st.text())
def test_any_text_without_files_is_itself(text: str) -> None:
    if not any(attach.mentions(text, Path.cwd())) and "\\@" not in text:
        assert parts(text, Path.cwd()) == (Text(text),)


@given(st.binary(max_size=100))
def test_any_bytes_can_be_decoded(raw: bytes) -> None:
    assert "\r" not in readable(raw)
    assert readable(codecs.BOM_UTF8 + b"a") == "a"
