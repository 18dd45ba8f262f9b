"""Which files of the working folder count before the user trusts them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shepherd import config
from shepherd.config import Config, FolderFile, TrustStore
from shepherd.config.kinds import Kind, Table
from shepherd.config.schema import SCHEMA
from shepherd.config.trust import HARMLESS, NEEDS_TRUST, UNKNOWN, risks_of
from shepherd.core import ConfigError

STARTS = '[[mcp_servers]]\nname = "x"\ncommand = "sh"\nargs = ["-c", "evil && true"]\nenv = { BASH_ENV = "e" }\n'


def read(folder: Path, text: str, *, user: str = "", env: Mapping[str, str] | None = None, **rest: Any) -> Config:
    """The configuration of a folder with this `shepherd.toml`."""
    for file, content in ((folder / "work" / "shepherd.toml", text), (folder / "user" / "config.toml", user)):
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    return config.load(
        env={"HOME": str(folder)} | dict(env or {}), cwd=folder / "work", user_dir=folder / "user", **rest
    )


def asked_about(folder: Path, text: str, user: str = "") -> list[str]:
    """The keys and effects of the question about a file; none without a question."""
    files: list[FolderFile] = []

    def refuse(file: FolderFile) -> bool:
        files.append(file)
        return False

    read(folder, text, user=user, consent=refuse)
    return [f"{risk.key} {risk.effect}: {risk.value}" for file in files for risk in file.risks]


@pytest.mark.parametrize(
    "text",
    [
        "",
        'model = "~/a.gguf"\ncontext_size = 512\nmax_tokens = 9\n[sampling]\ntemperature = 0.5\n',
        '[models.a]\npath = "a.gguf"\nload = "demand"\n[caches.a]\nmodel = "a"\nn_ctx = 4096\n',
        '[caches.main]\n[[routes]]\nmatch = "*"\ncache = "main"\noverflow = "evict"\nbackground = true\n',
        '[tools]\ndisabled = ["command"]\ndeny = ["*(*.env)"]\nread_only = true\nenabled = []\nmax_rounds = 3\n',
        '[server]\nhost = "127.0.0.1"\nport = 9000\nlog_json = true\n[kv]\nram_bytes = 0\n[rag]\nrecall = false\n',
        'backend = "llamacpp"\nmcp_servers = []\nnonsense = 1\n',
    ],
)
def test_settings_that_start_and_widen_nothing_need_no_question(tmp_path: Path, text: str) -> None:
    assert asked_about(tmp_path, text) == []
    assert read(tmp_path, text).sources or not text


@pytest.mark.parametrize(
    ("text", "risk"),
    [
        (STARTS, "mcp_servers[0] starts a program, or connects to a server: x: sh -c 'evil && true', with BASH_ENV"),
        ('[[mcp_servers]]\nname = "y"\nurl = "https://me:pw@x.example/m"', "***@x.example/m"),
        ('[tools]\nfiles = ["t.py"]', "tools.files runs Python code: ["),
        ('[tools]\nenabled = ["command"]', 'tools.enabled lets tools run without a question'),
        ('[tools]\nallow = ["*"]', 'tools.allow lets tools run without a question: ["*"]'),
        ("[tools]\nask = []", "tools.ask replaces"),
        ('[tools]\nroots = ["/"]', 'tools.roots opens folders to file tools: ["/"]'),
        ("[tools.http]\nallow_private = true", "tools.http.allow_private opens hosts"),
        ('[tools.command]\nkeep_env = ["*"]', "tools.command.keep_env"),
        ('system = "Obey."', "system is in every prompt: Obey."),
        ('[models.a]\npath = "embedded"\nchat_template = "t.jinja"', "models.a.chat_template writes every prompt"),
        (
            '[models.a]\npath = "embedded"\nrpc_servers = ["10.0.0.5:1"]',
            'models.a.rpc_servers sends parts of a model, and what they compute, to other machines: ["10.0.0.5:1"]',
        ),
        ('rpc_servers = ["b:1"]', 'rpc_servers sends parts of a model, and what they compute, to other machines: ["b'),
        ('backend = "openai"', "backend may send prompts to a provider"),
        ('model = "grok"', "model may send prompts to a provider"),
        ("[providers.openai]", "providers.openai may send prompts"),
        ('[api_keys]\nxai = "s3cret"', "api_keys.xai may send prompts to a provider: (a secret)"),
        ('[caches.main]\n[[routes]]\nmatch = "*"\ncache = "main"\nuser = "local"', "routes[0].user gives requests"),
        ('[server]\nhost = "0.0.0.0"', "server.host decides which clients"),
        ('[server]\napi_keys = ["s3cret"]', "server.api_keys decides which clients the server lets in: (a secret)"),
        ('[[server.keys]]\nname = "ann"\nkey = "s3cret"', "server.keys decides which clients the server lets in: ann"),
        ('[server]\norigins = ["*"]', "server.origins"),
        ('[server]\nrecord_dir = "r"', "server.record_dir writes requests"),
        ("[server]\nenabled = true", "server.enabled starts a server"),
        ('[rag]\ndatabase_path = "m.db"', "rag.database_path decides which memory"),
        ("[memory]\nmax_size_bytes = 1", "memory.max_size_bytes decides"),
        ("[chat]\nkeep = 1", "chat.keep"),
    ],
)  # fmt: skip
def test_a_setting_that_starts_or_widens_something_is_asked_for_with_its_value(
    tmp_path: Path, text: str, risk: str
) -> None:
    (told,) = asked_about(tmp_path, text)
    assert risk in told
    assert "s3cret" not in told
    assert "me:pw" not in told
    with pytest.raises(ConfigError, match=r"is not trusted, and it sets .*'shepherd trust /.*/shepherd.toml'"):
        read(tmp_path, text)


def test_a_models_name_that_is_a_provider_of_the_user_is_asked_for(tmp_path: Path) -> None:
    user = '[providers.far]\ntype = "openai_compat"\nbase_url = "https://far.example"\n'
    assert asked_about(tmp_path, 'model = "far"', user) == ["model may send prompts to a provider: far"]


def test_every_setting_is_in_one_of_the_two_tables() -> None:
    def keys(table: Mapping[str, Kind | Table], above: str = "") -> Iterator[str]:
        for name, kind in table.items():
            is_rows = isinstance(kind, Table) and kind.form == "list" and above + name != "routes"
            if isinstance(kind, Kind) or is_rows:
                yield above + name
            elif isinstance(kind, Table):
                yield from keys(kind.keys, f"{above}{name}." + ("NAME." if kind.form == "named" else ""))

    from fnmatch import fnmatchcase

    unlisted = [key for key in keys(SCHEMA) if not any(fnmatchcase(key, glob) for glob in (*NEEDS_TRUST, *HARMLESS))]
    assert unlisted == []


def test_a_setting_in_neither_table_needs_trust() -> None:
    from shepherd.config.layers import Setting

    (risk,) = risks_of({("later", "invented"): Setting(1, key="later.invented")})
    assert risk.effect == UNKNOWN


def test_the_environment_trusts_for_one_run_or_leaves_the_file_out(tmp_path: Path) -> None:
    assert read(tmp_path, STARTS, env={"SHEPHERD_TRUST": "1"}).mcp_servers
    made = read(tmp_path, STARTS + "[tools]\nmax_rounds = 1", env={"SHEPHERD_TRUST": "0"})
    assert made.mcp_servers == ()
    assert made.tools.max_rounds != 1
    assert made.sources == ()
    (warning,) = made.warnings
    assert "left out, because it is not trusted and sets mcp_servers;" in warning
    with pytest.raises(ConfigError, match="SHEPHERD_TRUST: got 'maybe', expected 1 to trust"):
        read(tmp_path, STARTS, env={"SHEPHERD_TRUST": "maybe"})


def test_a_file_that_the_user_names_and_the_users_own_need_no_trust(tmp_path: Path) -> None:
    assert read(tmp_path, "", user=STARTS).mcp_servers
    file = tmp_path / "work" / "shepherd.toml"
    assert read(tmp_path, STARTS, file=file).mcp_servers
    assert read(tmp_path, STARTS, env={"SHEPHERD_CONFIG": str(file)}).mcp_servers
    assert config.load(env={}, cwd=tmp_path / "work", user_dir=tmp_path / "work").mcp_servers


def test_trust_is_for_a_path_and_its_content_with_the_python_files_that_it_runs(tmp_path: Path) -> None:
    store, tool = TrustStore(tmp_path / "state" / "trusted.json"), tmp_path / "work" / "t.py"
    asked: list[FolderFile] = []

    def consent(file: FolderFile) -> bool:
        if file in store:
            return True
        asked.append(file)
        store.add(file)
        return True

    def n_asked(text: str, folder: Path = tmp_path) -> int:
        asked.clear()
        read(folder, text, consent=consent)
        return len(asked)

    (tmp_path / "work").mkdir()
    tool.write_text("a = 1")
    text = '[tools]\nfiles = ["t.py"]\n'
    assert [n_asked(text), n_asked(text)] == [1, 0]
    tool.write_text("a = 2")
    assert [n_asked(text), n_asked(text), n_asked(text + "# more"), n_asked(text)] == [1, 0, 1, 1]
    (tmp_path / "copy").mkdir()
    assert n_asked(text, tmp_path / "copy") == 1
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.remove(tmp_path / "work" / "shepherd.toml")
    assert not store.remove(tmp_path / "work" / "shepherd.toml")
    assert [n_asked(text), n_asked(text, tmp_path / "copy")] == [1, 0]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"trusted": 3}', b"[" * 100_000])
def test_a_damaged_store_trusts_nothing_and_can_be_written_again(tmp_path: Path, content: bytes) -> None:
    store, file = TrustStore(tmp_path / "trusted.json"), FolderFile(tmp_path / "a", "d", ())
    store.path.write_bytes(content)
    assert file not in store
    store.add(file)
    assert file in store
    assert json.loads(store.path.read_text())["trusted"] == {str(tmp_path / "a"): "d"}


def test_a_memory_that_lies_in_the_folder_is_used_once_the_user_trusts_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    planted = tmp_path / "work" / "shepherd_memory.db"
    assert read(tmp_path, "").memory.database_path is None
    planted.write_bytes(b"one")
    with pytest.raises(ConfigError, match=r"shepherd_memory.db: is not trusted, and it would become your memory;"):
        read(tmp_path, "")
    made = read(tmp_path, "", env={"SHEPHERD_TRUST": "0"})
    assert made.memory.database_path is None
    assert [warning.partition("; ")[0] for warning in made.warnings] == [
        f"{planted}: left out, because it is not trusted and would become your memory"
    ]
    store = TrustStore(tmp_path / "trusted.json")

    def trust(file: FolderFile) -> bool:
        store.add(file)
        return True

    read(tmp_path, "", consent=trust)
    planted.write_bytes(b"two: the memory itself writes to it")
    made = read(tmp_path, "", consent=store.__contains__)
    assert made.memory.database_path == str(planted)
    assert made.sources[-1] == config.Source("working folder", ("shepherd_memory.db",), planted)
    other = tmp_path / "other"
    other.write_bytes(b"another one")
    other.replace(planted)
    assert read(tmp_path, "", consent=store.__contains__).memory.database_path is None


def test_a_memory_in_the_folder_is_not_asked_about_where_another_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "shepherd_memory.db").touch()
    mine = '[memory]\ndatabase_path = "mine.db"\n'
    assert read(tmp_path, "", user=mine).memory.database_path == str(tmp_path / "user" / "mine.db")
    assert read(tmp_path, "", env={"RAG_DB_PATH": "/x.db"}).memory.database_path == "/x.db"
