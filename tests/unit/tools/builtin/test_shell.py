"""`execute_command` with real processes: what it says, what it keeps out, and that nothing is left behind."""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.tools.base import ToolError
from shepherd.tools.builtin.shell import HeadAndTail, environment, execute_command, last_line, readable, seconds_of
from shepherd.tools.tool import ToolContext

pytestmark = pytest.mark.skipif(os.name != "posix", reason="commands need a POSIX system")


@pytest.fixture
def seconds() -> Iterator[str]:
    """A number of seconds that no other `sleep` on this machine sleeps; afterwards nobody must sleep so long."""
    number = f"6{uuid.uuid4().int % 10**12}"
    yield number
    left = [process for process in psutil.process_iter() if number in " ".join(command_line(process))]
    for process in left:
        process.kill()
    assert left == []


def command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("  ", {}, "the command is empty"),
        ("echo a\0b", {}, "NUL"),
        ("echo " + "x" * 140_000, {}, "the command has 140005 bytes, the system takes 131071"),
        ("echo x", {"timeout": 0}, "timeout must be more than 0 and at most 3600 seconds, not 0"),
        ("echo x", {"timeout": -1}, "timeout must be"),
        ("echo x", {"timeout": 1e9}, "timeout must be"),
        ("echo x", {"timeout": float("nan")}, "timeout must be"),
        ("echo x", {"timeout": 10**400}, "at most 3600 seconds, not 1000000000000000000"),
        ("echo x", {"timeout": -(10**400)}, "timeout must be"),
        ("echo \ud800", {}, "cannot be encoded"),
    ],
)
async def test_a_command_that_no_shell_takes_is_a_sentence(command: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ToolError) as refused:
        await execute_command.run(ToolContext(), {"command": command, **arguments})
    assert says in refused.value.message


async def test_it_is_offered_only_by_name_and_is_about_its_command() -> None:
    assert not execute_command.offered
    assert (execute_command.category, execute_command.effect) == ("command_execution", "run")
    assert execute_command.subject == "command"
    assert set(execute_command.parameters["properties"]) == {"command", "working_dir", "timeout"}
    assert execute_command.parameters["required"] == ["command"]


# -- where it runs ----------------------------------------------------------------------------------------------------


NAMES = (
    "OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "MYKEY", "api_key",
    "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "DB_PASS", "SSH_PASSPHRASE", "PASSWORD2",
    "GOOGLE_APPLICATION_CREDENTIALS", "SENTRY_DSN", "NPM_CONFIG__AUTH", "X_COOKIE", "NAMED_BY_US",
)  # fmt: skip
SECRETS = dict.fromkeys(NAMES, "a") | {
    "DATABASE_URL": "postgres://me:pw@db.example/x",
    "PLAIN_ONE": "sk-ant-REDACTED",
    "PLAIN_TWO": "ghp_0123456789abcdef",
    "PLAIN_THREE": "eyJhbGciOi.eyJzdWIiOi.x",
    "COPY_OF_ANOTHER": "the-same-long-value-as-a-key",
    "SOME_TOKEN": "the-same-long-value-as-a-key",
}
PLAIN = {
    "PATH": "/bin", "HOME": "/home/me", "LANG": "C.UTF-8", "PWD": "/x", "OLDPWD": "/y", "SSH_AUTH_SOCK": "/run/agent",
    "TOKENIZERS_PARALLELISM": "false", "KEYBOARD": "us", "XAUTHORITY": "/x", "EDITOR": "vi",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus", "URL": "https://example.com/a:b@c",
}  # fmt: skip


SECRET_VALUES = (
    "hvs.CAESIJ0123456789abcdef",
    "hvb.AAAAAQJ0123456789abcdef",
    "xoxb-012345678901-abcdefgh",
    "xoxe.xoxp-1-Mi0yLTAxMjM0NTY",
    "xapp-1-A0123456-0123456789",
    "https://hooks.slack.com/services/T01234567/B01234567/abcdefghijkl",
    "https://hooks.slack.com/workflows/T01234567/A01234567/0123/abcdefgh",
    "https://discord.com/api/webhooks/0123456789/abcdefghijkl",
    "https://0123456789abcdef0123456789abcdef@o12345.ingest.sentry.io/67890",
    "https://0123456789abcdef0123456789abcdef@sentry.example.com:9000/7",
    "sntrys_0123456789abcdef",
    "Server=db;Database=x;User Id=me;Password=hunter2;",
    "Data Source=db; uid=me; PWD = hunter2",
    "Password='a b';Server=db",
    "host=db user=me password=hunter2",
    "Driver={ODBC};Server=db;Uid=me;Pwd={hunter2}",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=MDEyMzQ1Njc4OQ==",
    "Endpoint=sb://a.example/;SharedAccessKeyName=k;SharedAccessKey=MDEyMzQ1",
)
PLAIN_VALUES = (
    "hvs.",
    "hvs.example",
    "hvsa0123456789abcdef",
    "xoxb",
    "xapp-icon",
    "https://hooks.slack.com/",
    "https://api.slack.com/services/T01234567",
    "https://discord.com/channels/0123456789",
    "https://me@sentry.io/organizations/x",
    "https://0123456789abcdef0123456789abcdef.example/67890",
    "Server=db;Trusted_Connection=True;",
    "Server=db;Password=;",
    "Password=",
    "PasswordPolicy=strict;MinPasswordLength=8",
    "reset_password=false",
    "here; pwd=$(pwd)",
    "AccountName=a;SharedAccessKeyName=k",
)


def test_a_value_is_secret_by_its_form() -> None:
    values = {f"V{number}": value for number, value in enumerate((*SECRET_VALUES, *PLAIN_VALUES))}
    seen = environment(values, keep=(), secrets=())
    assert [value for value in values.values() if value in seen.values()] == list(PLAIN_VALUES)


def test_the_environment_has_no_secrets() -> None:
    seen = environment(SECRETS | PLAIN, keep=(), secrets=("named_by_us",))
    assert {name: seen[name] for name in PLAIN} == PLAIN
    assert not set(SECRETS) & set(seen)


@pytest.mark.parametrize(
    ("keep", "secrets", "kept"),
    [
        (("GITHUB_TOKEN",), (), {"GITHUB_TOKEN"}),
        (("GITHUB_*", "PLAIN_ONE"), (), {"GITHUB_TOKEN", "PLAIN_ONE"}),
        (("OPENAI*",), ("OPENAI_API_KEY",), set()),
        (("OPENAI_API_KEY",), ("OPENAI_API_KEY",), {"OPENAI_API_KEY"}),
        (("COPY_OF_ANOTHER",), (), {"COPY_OF_ANOTHER"}),
    ],
)
def test_a_secret_is_kept_by_its_name_and_ours_by_nothing_less(
    keep: tuple[str, ...], secrets: tuple[str, ...], kept: set[str]
) -> None:
    seen = environment(SECRETS, keep=keep, secrets=secrets)
    assert (set(seen) & set(SECRETS)) - {"NAMED_BY_US"} == kept


# -- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "meant"), [(0.5, 0.5), (30, 30), (3600, 3600), (5000, 5), (120_000, 120)])
def test_milliseconds_are_understood(said: float, meant: float) -> None:
    """Models that know other Bash tools say 120000."""
    assert seconds_of(said) == meant


# -- what it writes ---------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(0, 60))
def test_of_any_stream_the_beginning_and_the_end_are_kept(chunks: list[bytes], most: int) -> None:
    capped = HeadAndTail(most)
    for chunk in chunks:
        capped.take(chunk)
    whole = b"".join(chunks)
    assert capped.n_bytes == len(whole)
    assert len(capped.head) + capped.n_tail <= most + 40
    assert bytes(capped.head) == whole[: most // 2]
    kept = b"".join(capped.tail)
    assert (whole[most // 2 :] if len(whole) <= most else whole).endswith(kept[-capped.most_tail :] or b"")
    assert len(kept) >= min(capped.most_tail, len(whole) - len(capped.head))
    if len(whole) <= most and b"\0" not in whole:
        assert capped.text == readable(whole)


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=100), st.integers(20, 60))
def test_no_character_is_cut_in_two(text: str, most: int) -> None:
    capped = HeadAndTail(most)
    capped.take(text.encode())
    head, told, tail = capped.text.partition("\n… ")
    assert told
    assert text.startswith(head)
    n_missing, _, tail = tail.partition(" bytes left out …\n")
    assert text.endswith(tail)
    assert len(head.encode()) + len(tail.encode()) + int(n_missing) == len(text.encode())


@pytest.mark.parametrize(
    ("chunk", "line"),
    [(b"", ""), (b"a\nb\n", "b"), (b"a\n\n \n", "a"), (b"10%\r20%\r", "20%"), (b"x" * 5000, "x" * 200)],
)
def test_the_last_line_is_what_a_person_would_see(chunk: bytes, line: str) -> None:
    assert last_line(chunk) == line


def test_a_long_line_is_read_in_no_time() -> None:
    assert len(readable(b"x" * 3_000_000)) == 3_000_000
    assert readable(b"\x1b[" * 300_000 + b"mend").endswith("end")
