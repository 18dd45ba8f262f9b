"""The tests of `tests/unit/cli/command/test_provider.py` that start programs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from tests.providers_thread import replaying_apart
from tests.unit.backends.cloud.providing import CHAT, spoken
from tests.unit.cli.command.test_provider import (
    SECRET,
    config_of,
    user,  # noqa: F401 - fixtures  # noqa: F401 - fixtures
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


def test_the_way_to_a_provider_is_shown_without_the_password_of_its_proxy(user: Home) -> None:
    config_of(user).parent.mkdir(parents=True)
    with replaying_apart(replace(spoken(), path=f"http://api.invalid{CHAT}")) as server:
        proxy = server.url.replace("://", "://me:hunter22@")
        far = 'type = "openai_compat"\nbase_url = "http://api.invalid"\nmodel = "m"\n'
        config_of(user).write_text(
            f'[providers.far]\n{far}network = {{proxy = "{proxy}", attempts = 9}}\n[providers.by-variable]\n{far}'
            f"[network]\nread_s = 7\n"
        )
        user.env["http_proxy"] = "you:hunter22@other.lan:8080"
        listed = user.run("provider", "list", "--json")
        rows = {each["name"]: each["network"] for each in json.loads(listed.stdout)}
        assert rows["far"] == {
            "proxy": server.url, "proxy_from": "configuration", "ca_file": None,
            "connect_s": 10.0, "idle_s": 300.0, "read_s": 7.0, "attempts": 9, "patience_s": 60.0,
        }  # fmt: skip
        found = rows["by-variable"]
        assert (found["proxy"], found["proxy_from"]) == ("http://other.lan:8080", "environment")
        people = user.run("provider", "list")
        assert f"proxy {server.url}, read_s 7.0, attempts 9" in people.stdout
        tried = user.run("provider", "test", "far")
        assert f"through {server.url}" in tried.stdout
        shown = user.run("config", "show")
        doctor = user.run("doctor")
        assert all("hunter22" not in each.stdout + each.stderr for each in (listed, people, tried, shown, doctor))
        user.env["no_proxy"] = "api.invalid"
        (row,) = [each for each in json.loads(user.run("provider", "--json").stdout) if each["name"] == "by-variable"]
        assert row["network"]["proxy"] is None
