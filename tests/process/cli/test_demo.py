"""`shepherd demo` from its start to its end, with the embedded model, and what is left of it: nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.process.cli.test_terminal import Start, start  # noqa: F401 - a fixture
from tests.unit.cli.conftest import Home

from shepherd.cli.chat import demo

pytestmark = pytest.mark.model


@pytest.fixture
def home(home: Home) -> Home:
    """With a configuration that would fail, and a folder for temporary files."""
    (home.folder / "shepherd.toml").write_text("no configuration\n")
    (home.folder / "tmp").mkdir()
    home.env |= {"TMPDIR": str(home.folder / "tmp")}
    return home


def left(home: Home) -> list[Path]:
    return [path for path in home.folder.rglob("*") if path.name not in ("shepherd.toml", "tmp")]


def test_the_fact_leaves_the_window_and_comes_back_and_nothing_else_is_left(home: Home) -> None:
    done = home.run_apart("demo")
    told = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    asked = re.findall("^> (.*)$", told, re.MULTILINE)
    n_small_talk = len(asked) - len(demo.FIRST) - len(demo.LAST)
    assert asked == [*demo.FIRST, *demo.UNTIL_IT_LEFT[:n_small_talk], *demo.LAST]
    held = [int(n.replace(",", "")) for n in re.findall(r"\] ([\d,]+) of 1,024 tokens in the window", told)]
    assert len(held) == len(asked)
    assert max(held) <= 1024
    before, _, after = told.partition(f"\n> {demo.LAST[0]}\n")
    assert f"“{demo.FACT}”" in "".join(re.findall(r"\d+ turns? left the window in [\d.]+ ms and stayed in .*", before))
    assert after.startswith(f"Came back from the memory: “{demo.FACT}”\n")
    assert re.search(rf"^3 +\d+ +evicted +{demo.FACT}$", after, re.MULTILINE)
    assert re.search(r"\d+ turns and \d+ tool calls?\. ", after)
    assert left(home) == []


def test_ctrl_c_ends_it_and_the_terminal_is_as_before(home: Home, start: Start) -> None:
    person = start("demo", width=demo.LEAST_WIDTH)
    person.waits_for("> My na")  # it is typed like by a person
    person.types("x\x03")
    assert person.waits_for_the_end() == 130
    assert "stopped; its folder and its memory are removed" in " ".join(person.seen.split())
    assert person.echoes_and_lines()
    assert left(home) == []


def test_a_terminal_that_is_too_narrow_is_one_sentence(home: Home, start: Start) -> None:
    person = start("demo", width=demo.LEAST_WIDTH - 1)
    assert person.waits_for_the_end() == 1
    told = "this terminal has 39 columns, and the demo needs 40; make it wider, or write the demo into a file"
    assert told in " ".join(person.seen.split())


def test_a_provider_has_no_window_to_show(home: Home) -> None:
    home.env["OPENAI_API_KEY"] = "k"
    done = home.run("demo", "-m", "openai/gpt-4o")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "shepherd: the demo shows the window of a model on this machine, and openai is a prov"
    )
