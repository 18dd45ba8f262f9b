"""The Containerfile holds together: what it copies is there, and what it runs are commands of ours."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch

import click
from tests.places import ROOT

from shepherd.cli.main import cli
from shepherd.config.schema import ENVIRONMENT

LINES = [
    line
    for line in re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text("utf-8")).splitlines()
    if line and not line.startswith("#")
]


def rest_of(word: str) -> list[str]:
    """What stands behind this instruction, each time."""
    return [line.partition(" ")[2].strip() for line in LINES if line.split(" ", 1)[0] == word]


def test_each_variant_has_a_stage_that_builds_and_one_that_runs() -> None:
    stages = [line.split(" AS ")[-1] for line in rest_of("FROM")]
    assert {"build-cpu", "build-cuda", "run-cpu", "run-cuda"} <= set(stages)
    assert stages[-1] == "run-${VARIANT}"


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    kept = [line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")]
    copied = [words[:-1] for line in rest_of("COPY") if not (words := shlex.split(line))[0].startswith("--from")]
    names = {name for words in copied for name in words}
    assert {"src", "pyproject.toml"} <= names
    for name in names:
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, pattern) for pattern in kept), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"]} <= names  # the build of the package reads them


def test_the_commands_are_ours_and_the_variables_are_read() -> None:
    for line in (*rest_of("ENTRYPOINT"), *(each.partition(" CMD ")[2] for each in rest_of("HEALTHCHECK"))):
        command: click.Command = cli
        words = json.loads(line)
        assert words[0] == "shepherd"
        for word in words[1:]:
            assert isinstance(command, click.Group)
            command = command.commands[word]
    assert json.loads(rest_of("CMD")[-1]) == ["serve"]
    set_here = [word.partition("=")[0] for line in rest_of("ENV") for word in shlex.split(line)]
    assert [name for name in set_here if name.startswith("SHEPHERD_") and name not in ENVIRONMENT] == []
    assert "SHEPHERD_HOST" in set_here


def test_it_runs_as_a_user_that_owns_its_data_only_and_stops_in_order() -> None:
    assert rest_of("USER") == ["10001:10001"]
    assert rest_of("VOLUME") == ["/data"]
    assert rest_of("STOPSIGNAL") == ["SIGTERM"]
    last = LINES[max(n for n, line in enumerate(LINES) if line.startswith("FROM")) :]
    assert last.index("USER 10001:10001") > max(n for n, line in enumerate(last) if line.startswith(("RUN", "COPY")))
