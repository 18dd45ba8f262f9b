"""`shepherd memory`: what its commands print, for people and for programs, and how they end."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.own_server import serving
from tests.unit.app.test_cloud_embedder import counting_words
from tests.unit.cli import conftest

from shepherd.agent.compaction_store import CompactionStore
from shepherd.cli.subcommands import SUBCOMMANDS, Subcommand
from shepherd.core import InvalidRequest, Message
from shepherd.memory import Entry, MemoryStore
from shepherd.memory.records import State
from shepherd.memory.users import LOCAL, UserStores

FRANCE = [Entry("user", "What is the capital of France?"), Entry("assistant", "The capital of France is Paris.")]
CAT = [Entry("user", "My cat is called Lamb."), Entry("assistant", "A good name.\nFor a sheep.")]


class Shell(conftest.Shell):
    """A user that has a memory."""

    group = "memory"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "memory.db"
        self.env |= {"XDG_CONFIG_HOME": str(folder), "RAG_DB_PATH": str(self.path), "COLUMNS": "100"}
        self.env["XDG_CACHE_HOME"] = str(folder / "cache")

    def store(self) -> MemoryStore:
        return MemoryStore(self.path)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


@pytest.fixture
def told(shell: Shell) -> Shell:
    """A shell whose memory holds two conversations and a fact."""
    with shell.store() as store:
        store.archive(FRANCE, session="one", model="lamb")
        store.archive([*CAT, Entry("tool", "llamas are not sheep", tool="web")], session="two")
        store.set_fact("favorite_color", "green")
        store.set_fact("favorite_color", "blue")
    return shell


# -- looking ----------------------------------------------------------------------------------------------------------


def test_a_search_tells_people_what_was_said(told: Shell) -> None:
    lines = told.run("search", "capital", "of", "France").stdout.splitlines()
    assert lines[0] == "Found 1 archived conversation(s):"
    assert re.fullmatch(
        r"Result 1 \[Relevance: 0\.9\d\] .* · What is the capital of France\? · .{8} · message \d+", lines[2]
    )
    assert lines[3:] == ["User: What is the capital of France?", "Assistant: The capital of France is Paris."]


def test_a_search_tells_programs_the_same(told: Shell) -> None:
    found = told.json("search", "capital of France")
    assert found["query"] == "capital of France"
    (result,) = found["results"]
    assert result["assistant_response"] == "The capital of France is Paris."
    assert 0.9 <= result["score"] <= 1.0
    assert result["time"].endswith("Z")


@pytest.mark.parametrize(
    ("arguments", "n_found"),
    [
        (("cat",), 1),
        (("sheep",), 1),
        (("sheep", "--role", "user"), 0),
        (("sheep", "--role", "tool"), 1),
        (("sheep", "--role", "tool", "--role", "assistant"), 1),
        (("cat", "--after", "2000-01-01"), 1),
        (("cat", "--after", "1h"), 1),
        (("cat", "--before", "1h"), 0),
        (("cat", "--before", "2000-01-01T12:00"), 0),
        (("--phrase", "cat is called"), 1),
        (("--phrase", "called cat is"), 0),
        (("--prefix", "capit"), 1),
        (("zebra xylophone",), 0),
        ((), 2),
        (("capital cat", "-n", "1"), 1),
        (('"* OR NEAR( \x00 😀',), 0),
    ],
)
def test_a_search_looks_where_it_is_told_to(told: Shell, arguments: Sequence[str], n_found: int) -> None:
    assert len(told.json("search", *arguments)["results"]) == n_found


def test_nothing_found_is_said_and_is_no_error(told: Shell) -> None:
    assert told.run("search", "zebra").stdout == "No archived conversations found matching: zebra\n"
    with told.store() as store:
        (one,) = [each for each in store.conversations() if each.model]
    assert told.json("search", "cat", "--conversation", one.uuid[:8])["results"] == []


def test_an_empty_memory_answers_every_question(shell: Shell) -> None:
    assert "No message is archived yet." in shell.run("search").stdout
    assert "No message is archived yet." in shell.run("show").stdout
    assert "No fact is stored yet." in shell.run("facts").stdout
    assert "The profile is empty." in shell.run("profile").stdout
    assert shell.json("stats")["messages"] == 0
    assert shell.run("export").stdout == ""
    assert "is sound" in shell.run("check").stdout


def test_what_was_said_cannot_steer_the_terminal(shell: Shell) -> None:
    with shell.store() as store:
        store.archive([Entry("user", "evil \x1b]0;owned\x07 \x9b2J [red]words[/red]"), Entry("assistant", "\x1b[2J")])
    for arguments in (["search", "evil"], ["show"], ["show", "1"], ["forget", "--matching", "evil", "--yes"]):
        output = shell.run(*arguments).output
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", output)
        assert "[red]words[/red]" in output or arguments[0] == "forget"


def test_conversations_are_listed_newest_first_and_shown_by_the_beginning_of_their_names(told: Shell) -> None:
    listed = told.json("show")["conversations"]
    assert [each["title"] for each in listed] == ["My cat is called Lamb.", "What is the capital of France?"]
    names = [each["conversation"] for each in listed]
    assert names[1][:8] in told.run("show").stdout
    shown = told.json("show", names[1][:8])
    assert [message["body"] for message in shown["messages"]] == [entry.body for entry in FRANCE]
    assert "There are older conversations" in told.run("show", "-n", "1").stdout
    assert "There are older conversations" not in told.run("show", "-n", "0").stdout


def test_a_message_is_shown_with_its_turn(told: Shell) -> None:
    found = told.json("search", "capital of France")["results"][0]["message_id"]
    for name in (str(found), f"#{found}"):
        assert [message["body"] for message in told.json("show", name)["messages"]] == [entry.body for entry in FRANCE]
    output = told.run("show", str(found)).stdout
    assert "What is the capital of France?" in output
    assert "lamb" in output


@pytest.mark.parametrize(
    ("arguments", "says", "status"),
    [
        (("show", "nowhere"), "no conversation is called 'nowhere'", 1),
        (("show", "#4711"), "no message and no conversation is called 4711", 1),
        (("show", "4711"), "no message and no conversation is called 4711", 1),
        (("show", "9" * 30), "no conversation is called", 1),
        (("search", "x", "--conversation", "nowhere"), "no conversation is called 'nowhere'", 1),
        (("search", "--phrase", "?"), "phrase", 1),
        (("search", "x", "--after", "soon"), "--after: 'soon' is not a time; write 2026-03-02", 2),
        (("search", "x", "--before", "99999y"), "--before: '99999y' is not a time", 2),
        (("profile", "confirm", "9" * 30), "is not a whole number from 1 to 9223372036854775807", 2),
        (("search", "x", "-n", "0"), "'0' is not a whole number from 1 to 50", 2),
        (("search", "x", "--role", "pope"), "'pope' is not one of", 2),
        (("search", "x", "--user", " "), "--user needs a name", 1),
        (("facts", "set", "", "x"), "key: must not be empty", 1),
        (("facts", "set", "k", "x" * 10_001), "value: has 10001 characters", 1),
        (("facts", "get", "nix"), "no fact is called 'nix'", 1),
        (("profile", "confirm", "99"), "there is no fact 99", 1),
        (("profile", "confirm", "x"), "'x' is not a whole number from 1", 2),
        (("forget",), "Give --message, --conversation", 2),
        (("forget", "--everything", "--matching", "x"), "leave the others out", 2),
        (("forget", "--matching", " ", "--yes"), "matching: must not be empty", 1),
        (("forget", "--conversation", "nowhere", "--yes"), "no conversation is called 'nowhere'", 1),
        (("prune", "--to", "much"), "--to: 'much' is not a size", 2),
        (("import", "nowhere.json"), "nowhere.json cannot be read", 1),
        (("export", "nowhere/x.jsonl"), "nowhere/x.jsonl cannot be written", 1),
        (("export", "--conversation", "nowhere"), "none is called 'nowhere'", 1),
        (("embed",), "Give an embedding GGUF", 2),
        (("eval", "x.json", "--embedder", "x.gguf"), "python bench/memory_quality.py FILE", 1),
    ],
)
def test_what_is_wrong_is_one_sentence(told: Shell, arguments: Sequence[str], says: str, status: int) -> None:
    done = told.run(*arguments, ends=status)
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == (1 if status == 1 else 4)


# -- facts and profile ------------------------------------------------------------------------------------------------


def test_facts_are_set_found_listed_and_cleared(told: Shell) -> None:
    assert told.run("facts", "get", "favorite_color").stdout == "blue\n"
    assert told.run("facts", "get", "Favorite Color").stdout == "blue\n"
    assert told.json("facts", "set", "city", "New", "York")["value"] == "New York"
    assert [fact["key"] for fact in told.json("facts")["facts"]] == ["favorite_color", "city"]
    assert [fact["key"] for fact in told.json("facts", "list")["facts"]] == ["favorite_color", "city"]
    assert [fact["value"] for fact in told.json("facts", "history", "favorite_color")["history"]] == ["blue", "green"]
    assert told.json("facts", "clear", "favorite_color") == {"key": "favorite_color", "cleared": True}
    assert told.json("facts", "clear", "favorite_color", ends=1)["cleared"] is False
    assert told.json("facts", "get", "favorite_color", ends=1) == {
        "key": "favorite_color",
        "value": None,
        "found": False,
    }
    assert told.json("facts", "get", "city")["found"] is True


def test_options_of_a_group_count_for_its_commands(told: Shell) -> None:
    assert json.loads(told.run("facts", "--json", "--user", "bob", "list").stdout) == {"facts": []}


def test_the_profile_is_added_to_confirmed_and_rejected(shell: Shell) -> None:
    with shell.store() as store:
        for wish in ("Call me Ann", "Never use tables"):
            assert store.propose(wish, "instruction") is not None
    first, second = (fact["id"] for fact in shell.json("profile")["candidates"])
    assert "shepherd memory profile confirm" in shell.run("profile").stdout
    assert shell.json("profile", "confirm", str(first))["value"] == "Call me Ann"
    shell.run("profile", "reject", str(second))
    added = shell.json("profile", "add", "I", "prefer", "tea", "--kind", "preference")
    assert [(fact["value"], fact["kind"]) for fact in shell.json("profile")["profile"]] == [
        ("Call me Ann", "instruction"),
        ("I prefer tea", "preference"),
    ]
    shell.run("profile", "remove", str(added["id"]))
    listed = shell.json("profile", "list")
    assert [fact["value"] for fact in listed["profile"]] == ["Call me Ann"]
    assert listed["candidates"] == []


# -- forgetting -------------------------------------------------------------------------------------------------------


def test_forgetting_shows_what_would_go_and_does_nothing_unasked(told: Shell) -> None:
    done = told.run("forget", "--matching", "CAT is", ends=1)
    assert "This would be deleted: 1 message(s)" in done.stderr
    assert "My cat is called Lamb." in done.stderr
    assert "add --yes" in done.stderr
    assert told.json("search", "cat")["results"]


@pytest.mark.parametrize(
    ("arguments", "n_messages"),
    [
        (("--matching", "cat"), 1),
        (("--matching", "lamb"), 1),
        (("--message", "1", "--message", "2"), 2),
        (("--message", "1", "--matching", "cat"), 0),
        (("--before", "1h"), 0),
        (("--before", "2999-01-01"), 5),
        (("--everything",), 5),
    ],
)
def test_what_was_chosen_is_forgotten_and_the_rest_stays(
    told: Shell, arguments: Sequence[str], n_messages: int
) -> None:
    before = told.json("stats")
    assert told.json("forget", *arguments, "--yes")["forgotten"]["messages"] == n_messages
    after = told.json("stats")
    assert after["messages"] == before["messages"] - n_messages
    assert after["facts"] == (0 if "--everything" in arguments else 1)


def test_a_conversation_and_facts_that_say_the_phrase_are_forgotten_to_the_last_byte(told: Shell) -> None:
    name = told.json("show")["conversations"][0]["conversation"]
    assert told.json("forget", "--conversation", name[:10], "--yes")["forgotten"] == {"messages": 3, "facts": 0}
    assert told.json("forget", "--matching", "blue", "--yes")["forgotten"]["facts"] == 1
    raw = b"".join(path.read_bytes() for path in told.folder.glob("memory.db*")).lower()
    assert b"paris" in raw
    for word in (b"sheep", b"blue", b"lamb."):
        assert word not in raw


def test_conversations_that_caches_keep_on_disk_go_with_what_is_forgotten(told: Shell) -> None:
    kept = told.folder / "cache" / "shepherd" / "conversations"
    kept.mkdir(parents=True)
    (kept / "a.kv").write_bytes(b"what was said, as numbers")
    told.run("forget", "--matching", "nothing at all", "--yes")
    assert list(kept.iterdir())
    told.run("forget", "--matching", "cat", "--yes")
    assert not list(kept.iterdir())


def test_compacted_conversations_go_with_what_is_forgotten_of_them(told: Shell) -> None:
    messages = (Message.user("My cat is called Lamb."), Message.assistant("Noted."))

    def is_kept(word: str) -> bool:
        try:
            return bool(kept.open(word).messages)
        except InvalidRequest:
            return False

    kept = CompactionStore(told.path.with_name("compactions.db"))
    mine, bobs = (kept.keep(messages, (), user=user) for user in (LOCAL, "bob"))
    told.run("forget", "--matching", "blue", "--yes")
    assert [is_kept(mine), is_kept(bobs)] == [True, True]
    told.run("forget", "--matching", "cat", "--yes")
    assert [is_kept(mine), is_kept(bobs)] == [False, True]
    told.run("facts", "set", "favorite_color", "red", "--user", "bob")
    told.run("forget", "--user", "bob", "--yes")
    assert not is_kept(bobs)
    kept.close()


def test_another_users_memory_is_another_and_is_forgotten_with_its_file(told: Shell) -> None:
    told.run("facts", "set", "favorite_color", "red", "--user", "bob")
    assert told.run("facts", "get", "favorite_color", "--user", "bob").stdout == "red\n"
    assert told.run("facts", "get", "favorite_color").stdout == "blue\n"
    assert told.json("search", "cat", "--user", "bob")["results"] == []
    assert UserStores(told.path).path_of("bob").exists()
    assert told.json("forget", "--user", "bob", "--yes")["forgotten"] == {"messages": 0, "facts": 1}
    assert not UserStores(told.path).path_of("bob").exists()
    assert told.json("stats")["messages"] == 5


# -- the file ---------------------------------------------------------------------------------------------------------


def test_stats_count_what_there_is(told: Shell) -> None:
    found = told.json("stats")
    assert (found["conversations"], found["messages"], found["facts"]) == (2, 5, 1)
    assert found["path"] == str(told.path)
    assert "of 10.0 GiB" in told.run("stats").stdout


def test_the_configured_file_and_limit_are_used(tmp_path: Path, shell: Shell) -> None:
    shell.env["RAG_DB_PATH"] = None
    other = tmp_path / "other.db"
    (tmp_path / "shepherd.toml").write_text(f'[memory]\ndatabase_path = "{other}"\nmax_size_bytes = 123456789\n')
    found = shell.json("stats")
    assert (found["path"], found["limit_bytes"]) == (str(other), 123456789)


def test_an_export_goes_into_a_private_file_once_and_comes_back(told: Shell, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    assert told.json("export", file) == {"file": str(file), "lines": 9}
    assert file.stat().st_mode & 0o777 == 0o600
    assert "already exists" in told.run("export", file, ends=1).stderr
    assert told.run("export").stdout == file.read_text("utf-8")
    done = told.json("import", file, "--user", "bob")["files"][0]
    assert (done["messages"], done["facts"], done["problems"]) == (5, 2, [])
    assert told.run("export", "--user", "bob").stdout == file.read_text("utf-8")
    assert "7 known already" in told.run("import", "-", "--user", "bob", text=file.read_bytes()).stdout


def test_imports_tell_what_was_new_and_what_was_wrong(shell: Shell, tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text('{"role": "user", "content": "I live in Ulm"}\n{"role": "pope", "content": "x"}\noops\n')
    bad = tmp_path / "bad.json"
    bad.write_text("nothing of use")
    done = shell.run("import", good, bad, tmp_path / "gone.json", ends=1)
    assert f"{good}: 1 new message(s) in 1 new conversation(s), 2 problem(s)" in done.stdout
    assert f"{good}: line 2: its role is 'pope'" in done.stderr
    assert f"{good}: line 3: it is not JSON" in done.stderr
    assert f"{bad}: line 1: it is not JSON" in done.stderr
    assert "gone.json cannot be read" in done.stderr
    again = shell.json("import", good)
    assert (again["files"][0]["known"], again["files"][0]["messages"]) == (1, 0)
    assert shell.json("search", "where do I live")["results"][0]["user_message"] == "I live in Ulm"


def test_a_zip_of_a_claude_export_is_imported(shell: Shell, tmp_path: Path) -> None:
    talk = {"uuid": "c1", "name": "A plan", "chat_messages": [{"sender": "human", "text": "Plan a trip to Ulm"}]}
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps([talk]))
    assert "1 new message(s) in 1 new conversation(s)" in shell.run("import", tmp_path / "export.zip").stdout
    assert shell.json("show")["conversations"][0]["source"] == "claude"


def test_pruning_gives_up_what_is_asked_for(shell: Shell) -> None:
    with shell.store() as store:
        for n in range(200):
            store.archive([Entry("user", f"question {n}"), Entry("assistant", f"answer {n} " * 200)], session=f"{n}")
        ids = [each.id for one in store.conversations() for each in store.messages(one.uuid)]
        store.mark(ids, State.EVICTED)
    done = shell.json("prune", "--to", "400KB")
    assert done["limit_bytes"] == 400_000
    assert done["messages"] > 0
    assert done["after_bytes"] < done["before_bytes"]
    assert "pruned" in shell.json("stats")


def test_a_damaged_lane_is_told_and_mended(told: Shell) -> None:
    with told.store() as store:
        store.write(
            lambda connection: connection.execute("INSERT INTO fts_user(fts_user) VALUES('delete-all')").fetchall()
        )
    broken = told.json("check", ends=1)
    assert broken["problems"]
    assert "--repair" in told.run("check", ends=1).stdout
    told.run("check", "--repair")
    assert told.json("check") == {"path": str(told.path), "problems": []}
    assert told.json("search", "capital of France")["results"]


@pytest.mark.model
def test_vectors_are_made_with_an_embedding_model_and_counted(told: Shell, lamb: Path) -> None:
    done = told.json("embed", "--model", lamb)
    assert (done["vectors"], done["dimensions"]) == (2, 256)
    assert told.json("embed", "--model", lamb)["vectors"] == 0
    assert told.json("stats")["vectors"] == 2


def test_a_provider_makes_vectors_until_its_budget_is_spent_or_it_fails_and_what_is_made_stays(shell: Shell) -> None:
    with shell.store() as store:
        store.archive([Entry("user", f"The dog number {n} is here.") for n in range(80)])
    with counting_words() as words:
        toml = f'[providers.v]\ntype = "vllm"\nbase_url = "{words.url}"\nbudget_tokens = %d\n'
        config = Path("shepherd.toml")
        shell.env["SHEPHERD_TRUST"] = "1"
        shell.env["XDG_STATE_HOME"] = "state"
        config.write_text(toml % 330 + '[memory]\nembedding_model = "v/e"\n')
        stopped = shell.run("embed", ends=1)  # 1 for the size, 32 in a step
        assert "32 new vector(s) are kept; the next run continues behind them" in stopped.stderr
        assert "budget of the provider 'v' is spent (340 of 330 tokens)" in stopped.stderr
        config.write_text(toml % 100_000 + '[memory]\nembedding_model = "v/e"\n')
        words.n_answers = 2
        failed = shell.run("embed", ends=1)
        assert "32 new vector(s) are kept" in failed.stderr
        assert "no key" in failed.stderr
        words.n_answers = 100
        assert shell.json("embed") == {"vectors": 16, "embedder": "v/e", "dimensions": 64}
        assert shell.json("stats")["vectors"] == 80
        asked = [len(each.json["input"]) for each in words.requests]
        assert asked == [1, 33, 1, 33, 15, 1, 16], "each step once; short messages bring the one before them"
        assert shell.json("search", "dog number 7")["results"]
        words.is_down = True
        by_words = shell.run("search", "dog number 7")
        assert "the memory is searched by words only: v: " in by_words.stderr
        assert "number 7" in by_words.stdout
        words.is_down = False
        config.write_text(toml % 100_000)
        assert shell.json("embed", "--model", "v/other")["embedder"] == "v/other"


@pytest.mark.model
def test_another_shepherd_makes_the_vectors_of_a_memory(told: Shell, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = '[models.vectors]\npath = "embedded"\npooling = "mean"\n'
    with serving(tmp_path / "other", other) as url:
        told.env["SHEPHERD_TRUST"] = "1"
        told.env["XDG_STATE_HOME"] = "state"
        Path("shepherd.toml").write_text(f'[providers.s]\ntype = "shepherd"\nbase_url = "{url}"\n')
        done = told.json("embed", "--model", "s/vectors")
        assert done == {"vectors": 2, "embedder": "s/vectors", "dimensions": 256}


def test_messages_that_must_stay_here_get_no_vectors_elsewhere(shell: Shell) -> None:
    shell.env["SHEPHERD_TRUST"] = "1"
    shell.env["GROQ_API_KEY"] = "sk-test-0123456789"
    Path("shepherd.toml").write_text(
        '[providers.groq]\n[models.m]\npath = "embedded"\n[caches.m]\nmodel = "m"\n'
        '[[routes]]\nmatch = "*"\ncache = "m"\nprivacy = "local"\n'
    )
    assert "'groq' is not on this machine" in shell.run("embed", "--model", "groq/e", ends=1).stderr


# -- the table --------------------------------------------------------------------------------------------------------


ROWS = [row for row in SUBCOMMANDS if row.name.startswith("memory ")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_command_takes_json_and_a_user(shell: Shell, row: Subcommand) -> None:
    shown = shell.run(*row.name.split()[1:], "--help").stdout
    assert "--json" in shown
    assert "--user" in shown


def test_the_help_of_a_group_names_its_commands(shell: Shell) -> None:
    shown = set(shell.run("--help").stdout.split())
    assert {row.name.split()[1] for row in ROWS if not row.hidden} <= shown
    assert "eval" not in shown, "it only names the script that has replaced it"
