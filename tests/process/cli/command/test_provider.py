"""The tests of `tests/unit/cli/command/test_provider.py` that start programs."""

from __future__ import annotations

import json
import re

from tests.unit.cli.command.test_provider import (
    SECRET,
    config_of,
    user,  # noqa: F401 - fixtures
)
from tests.unit.cli.conftest import Home


def test_a_key_comes_from_a_pipe_and_only_its_end_is_shown(user: Home) -> None:
    assert "There is no key" in user.run("keys", "list").stdout
    done = user.run("keys", "set", "claude", text=f"{SECRET}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "The key of anthropic is in" in done.stdout
    file = config_of(user).with_name("keys.json")
    assert file.stat().st_mode & 0o777 == 0o600
    listed = user.run("keys", "list").stdout
    assert re.search(r"anthropic +file of keys +\.\.\.4242", listed)
    user.env["ANTHROPIC_API_KEY"] = "sk-env-abcdefghijklmnop-9999"
    assert json.loads(user.run("keys", "--json").stdout) == [
        {"name": "anthropic", "source": "environment: ANTHROPIC_API_KEY", "ending": "...9999"}
    ]
    again = user.run("keys", "set", "anthropic", text=SECRET)
    assert "the key in the environment: ANTHROPIC_API_KEY takes precedence over it" in again.stderr
    doctor = user.run("doctor")
    assert "provider anthropic: Anthropic" in doctor.stdout
    assert "key from environment: ANTHROPIC_API_KEY" in doctor.stdout
    removed = user.run("keys", "remove", "claude")
    assert removed.stdout == "The key of anthropic is removed.\n"
    for each in (done, again, removed, doctor):
        assert SECRET not in each.stdout + each.stderr
    assert "no key of 'claude' is kept; kept: none" in user.run("keys", "remove", "claude").stderr
