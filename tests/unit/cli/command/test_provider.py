"""`shepherd keys`, `shepherd provider`, `shepherd models list --provider`, and `-m` with a provider's model."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from tests.providers_replay import Answer
from tests.providers_thread import replaying_apart
from tests.unit.backends.cloud.providing import CHAT, WORDS, chunk, listing, refusal, spoken, sse
from tests.unit.cli.conftest import Home

from shepherd.cli.command.provider_file import changed

SECRET = "sk-test-abcdefghijklmnop-4242"
SAID = "".join(WORDS)
CLAUDE = "".join(
    f"event: {record['type']}\ndata: {json.dumps(record)}\n\n"
    for record in (
        {
            "type": "message_start",
            "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
                "usage": {"input_tokens": 12, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Good day."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    )
).encode()  # fmt: skip
GEMINI = b"data: " + json.dumps(
    {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Good day."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 3, "totalTokenCount": 6},
        "modelVersion": "gemini-2.5-flash",
    }
).encode() + b"\n\n"  # fmt: skip


@pytest.fixture
def user(home: Home) -> Home:
    """A user without any key."""
    words = ("API_KEY", "AUTH_TOKEN", "BASE_URL", "HF_TOKEN", "OLLAMA_HOST")
    home.env = {name: value for name, value in home.env.items() if not any(word in name for word in words)}
    return home


def config_of(user: Home) -> Path:
    return user.folder / ".config" / "shepherd" / "config.toml"


# -- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_never_an_argument_and_a_name_is_checked(user: Home) -> None:
    done = user.run("keys", "set", "openai", SECRET, text=SECRET)
    assert done.returncode == 1
    assert "takes no key" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not config_of(user).with_name("keys.json").exists()
    assert "no provider is called 'opnai'; known: openai, anthropic" in user.run("keys", "set", "opnai").stderr
    assert "a key has 4 to 4096 characters" in user.run("keys", "set", "openai", text="\n").stderr


# -- provider ---------------------------------------------------------------------------------------------------------

WITH_COMMENTS = """# mine
system = "Be kind."  # always

[providers.old]  # keep this
type = "vllm"
"""


def test_a_provider_is_added_tested_and_removed_and_comments_stay(user: Home) -> None:
    config_of(user).parent.mkdir(parents=True)
    config_of(user).write_text(WITH_COMMENTS)
    window = {"data": [{"id": "m", "max_model_len": 32768}]}
    bad = refusal(401, {"error": {"message": f"bad key {SECRET}", "code": "invalid_api_key"}})
    with replaying_apart(spoken(), listing(window), bad, listing(window)) as server:
        user.run("keys", "set", "openai", text=SECRET)
        added = user.run("provider", "add", "mine", "--type", "openai_compat", "--url", server.url, "--use", "m")
        assert (added.returncode, added.stderr) == (0, "")
        assert config_of(user).with_name("config.toml.bak").read_text() == WITH_COMMENTS
        text = config_of(user).read_text()
        assert text.startswith(WITH_COMMENTS)
        assert tomllib.loads(text)["providers"]["mine"] == {
            "type": "openai_compat", "base_url": server.url, "model": "m"
        }  # fmt: skip
        (row,) = [each for each in json.loads(user.run("provider", "list", "--json").stdout) if each["name"] == "mine"]
        assert (row["type"], row["model"], row["address"], row["is_local"]) == (
            "openai_compat", "m", f"{server.url}/v1", True
        )  # fmt: skip
        assert re.search(r"openai +openai .* file of keys +away", user.run("provider").stdout)
        tried = user.run("provider", "test", "mine")
        assert tried.returncode == 0
        assert re.fullmatch(r"✓ mine: answered in \d+\.\d\d s, m, 32,768 tokens of context\n", tried.stdout)
        user.run("keys", "set", "mine", text=SECRET)
        failed = user.run("provider", "test", "mine", "--json")
        assert failed.returncode == 1
        (report,) = json.loads(failed.stdout)
        assert report["status"] >= 400
        assert "bad key ***" in report["problem"]
        assert "shepherd keys set mine" in report["problem"]
        assert SECRET not in failed.stdout + failed.stderr
        assert server.requests[-1].headers["authorization"] == f"Bearer {SECRET}"
    assert "already has a provider 'mine'" in user.run("provider", "add", "mine", "--type", "vllm").stderr
    gone = user.run("provider", "remove", "mine")
    assert "Its key stays" in gone.stdout
    assert config_of(user).read_text().strip() == WITH_COMMENTS.strip()
    assert "has no provider 'mine'; it has: old" in user.run("provider", "remove", "mine").stderr


def test_a_provider_with_several_servers_is_listed_and_tested_with_each(user: Home) -> None:
    config_of(user).parent.mkdir(parents=True)
    dead = refusal(500, {"error": {"message": "the engine is dead"}})
    window = {"data": [{"id": "m", "max_model_len": 32768}]}
    with replaying_apart(spoken(), listing(window)) as first, replaying_apart(dead) as second:
        urls = json.dumps([first.url, second.url])
        config_of(user).write_text(f'[providers.fleet]\ntype = "vllm"\nmodel = "m"\nbase_urls = {urls}\n')
        user.run("keys", "set", "fleet", text=SECRET)
        listed = json.loads(user.run("provider", "list", "--json").stdout)
        assert [(each["name"], each["address"], each["replicas"], each["key"]) for each in listed] == [
            ("fleet", "", ["fleet-1", "fleet-2"], "file of keys"),
            ("fleet-1", f"{first.url}/v1", [], "file of keys"),
            ("fleet-2", f"{second.url}/v1", [], "file of keys"),
        ]
        tried = user.run("provider", "test", "fleet")
        assert tried.returncode == 1
        assert re.fullmatch(
            r"✓ fleet-1: answered in \d+\.\d\d s, m, 32,768 tokens of context\n✗ fleet-2: the engine is dead\n",
            tried.stdout,
        )
        assert first.requests[0].headers["authorization"] == f"Bearer {SECRET}"
        config_of(user).write_text(
            '[providers.far]\ntype = "vllm"\nbase_urls = ["http://127.0.0.1:1", "http://a:pw@b"]\n'
        )
        listed = json.loads(user.run("provider", "list", "--json").stdout)
        assert [each["is_local"] for each in listed] == [False, True, False], "of the group: all of them"
        assert "providers.far.base_urls: an address must not hold a secret" in listed[2]["problem"]
        assert ":pw@" not in json.dumps(listed)


def test_programs_get_one_object_from_every_command(user: Home) -> None:
    def got(*arguments: str, text: str = "") -> dict[str, object]:
        done = user.run(*arguments, "--json", text=text)
        assert (done.returncode, SECRET in done.stdout + done.stderr) == (0, False)
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    file = str(config_of(user))
    added = got("provider", "add", "mine", "--type", "vllm", "--url", "http://10.0.0.1:8000", "--use", "m")
    entry = {"type": "vllm", "base_url": "http://10.0.0.1:8000", "model": "m"}
    assert added == {"name": "mine", "file": file, "entry": entry, "added": True}
    kept = got("keys", "set", "mine", text=SECRET)
    place = str(config_of(user).with_name("keys.json"))
    assert kept == {"name": "mine", "place": place, "counts": kept["counts"], "set": True}
    assert "file of keys" in str(kept["counts"])
    assert got("provider", "remove", "mine") == {"name": "mine", "file": file, "removed": True, "key_stays": True}
    assert got("keys", "remove", "mine") == {"name": "mine", "removed": True}
    for arguments in (("provider", "remove", "mine"), ("keys", "remove", "mine"), ("provider", "add", "mine")):
        failed = user.run(*arguments, "--json")
        assert (failed.returncode, failed.stdout) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "a b"), "is no name"),
        (("add", "mine"), "give --type, one of openai"),
        (("add", "mine", "--type", "nope"), "give --type"),
        (("add", "mine", "--type", "openai_compat"), "give --url"),
        (("add", "mine", "--type", "vllm", "--url", "ftp://x"), "must begin with http"),
        (("add", "mine", "--type", "vllm", "--url", "http://me:pw@x"), "must not hold a secret"),
        (("test", "nope"), "no provider is called 'nope'"),
        (("remove", "nope"), "has no provider 'nope'; it has: none"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_changes_nothing(user: Home, arguments: tuple[str, ...], words: str) -> None:
    done = user.run("provider", *arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not config_of(user).exists()


IN_SEVERAL_PLACES = """# c
[providers.a]
type = "vllm"

# where requests go
[[routes]]
match = "*"
provider = "a"

# b is another
[providers.b]  # x
type = "vllm"
"""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 1",
        IN_SEVERAL_PLACES,
        '[ providers."a" ]\ntype = "vllm"\n# of b\n[providers.b]\ntype = "vllm"\n',
        'providers = {a = {type = "vllm"}}\n',
        'providers.a.type = "vllm"\n',
        '[providers]\na = {type = "vllm"}\n\n[server]\nport = 1\n',
        '[providers.a]\ntype = "vllm"\n[providers.a.sampling]\ntop_k = 3\n[server]\nport = 1',
    ],
)
def test_a_file_of_any_form_is_changed_and_nothing_else_in_it_is(text: str) -> None:
    before, entry = tomllib.loads(text), {"type": "vllm", "base_url": "http://x"}
    providers = {**before.get("providers", {}), "new.one": entry}
    added = changed(text, {**before, "providers": providers}, "new.one", entry)
    assert tomllib.loads(added) == {**before, "providers": providers}
    assert added.startswith(text.rstrip("\n")) or "= {a" in text
    if providers.pop("a", None):
        rest = changed(added, {**before, "providers": providers}, "a", None)
        assert tomllib.loads(rest) == {**before, "providers": providers}
        assert re.findall(r"#.*", rest) == re.findall(r"#.*", text)
    removed = tomllib.loads(changed(added, before, "new.one", None))
    assert {"providers": {}, **removed} == {"providers": {}, **before}


def test_a_provider_that_a_route_names_stays(user: Home) -> None:
    config_of(user).parent.mkdir(parents=True)
    text = '[providers.a]\ntype = "vllm"\n[[routes]]\nmatch = "*"\nprovider = "a"\n'
    config_of(user).write_text(text)
    assert "a route of" in user.run("provider", "remove", "a").stderr
    assert config_of(user).read_text() == text


def test_the_models_of_a_provider_are_asked_for_once_in_a_while(user: Home, tmp_path: Path) -> None:
    user.env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    body = {"data": [{"id": "big/one", "context_length": 131072}, {"id": "two"}]}
    with replaying_apart(listing(body, "/v1/models")) as server:
        user.env |= {"OPENROUTER_API_KEY": SECRET}
        config_of(user).parent.mkdir(parents=True)
        config_of(user).write_text(f'[providers.openrouter]\nbase_url = "{server.url}"\n')
        first = user.run("models", "list", "--provider", "openrouter")
        assert first.stderr == ""
        assert re.search(r"openrouter/big/one +131072", first.stdout)
        assert re.search(r"openrouter/two +\?", first.stdout)
        models = json.loads(user.run("models", "list", "--provider", "openrouter", "--json").stdout)
        assert [each["n_ctx"] for each in models] == [131072, None]
        assert len(server.requests) == 1
    completed = complete(user, "shepherd -m openrouter/b")
    assert completed == ["openrouter/big/one"]
    assert "openrouter/" in complete(user, "shepherd -m open")
    assert complete(user, "shepherd provider test op") == ["openrouter"]
    assert complete(user, "shepherd models list --provider op") == ["openrouter"]


def complete(user: Home, line: str) -> list[str]:
    words = {"_SHEPHERD_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    user.env |= words
    try:
        return [each.partition(",")[2] for each in user.run().stdout.splitlines()]
    finally:
        for word in words:
            del user.env[word]


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "env", "answer", "header"),
    [
        ("claude-sonnet-4-5", ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"), Answer("/v1/messages", CLAUDE), "x-api-key"),
        (
            "gemini/gemini-2.5-flash",
            ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
            Answer("/v1beta/models/gemini-2.5-flash:streamGenerateContent", GEMINI),
            "x-goog-api-key",
        ),
        ("grok/m", ("XAI_API_KEY", "XAI_BASE_URL"), spoken(), "authorization"),
        ("openai/m", ("OPENAI_API_KEY", "OPENAI_BASE_URL"), spoken(), "authorization"),
    ],
)
def test_a_key_in_the_environment_is_enough(
    user: Home, model: str, env: tuple[str, str], answer: Answer, header: str
) -> None:
    missing = refusal(404, {"error": {"message": "no such path"}}, "/v1/responses")
    with replaying_apart(missing, answer) as server:
        user.env |= {env[0]: SECRET, env[1]: server.url}
        done = user.run("-m", model, "-p", "Hello", "--notools")
        assert done.stderr == ""
        assert done.stdout.strip() in ("Good day.", SAID.strip())
        assert SECRET in server.requests[-1].headers[header]
        assert SECRET not in server.requests[-1].path + server.requests[-1].query


def test_openrouter_answers_with_a_kept_key_and_the_banner_says_where_prompts_go(user: Home) -> None:
    with replaying_apart(spoken(), spoken()) as server:
        config_of(user).parent.mkdir(parents=True)
        config_of(user).write_text(f'[providers.openrouter]\nbase_url = "{server.url}"\n')
        user.run("keys", "set", "openrouter", text=SECRET)
        done = user.run("-m", "openrouter/qwen/qwen3", "-p", "Hello", "--notools")
        assert done.stdout.strip() == SAID.strip()
        assert server.requests[-1].json["model"] == "qwen/qwen3"
        assert server.requests[-1].headers["authorization"] == f"Bearer {SECRET}"
        talk = user.run("-m", "openrouter/qwen/qwen3", "--notools", text="Hello\n/stats\n/model\n")
        assert "Backend: OpenRouter\nModel: qwen/qwen3\nProvider: openrouter, prompts stay on this" in talk.stdout
        assert re.search(r"openrouter: +1,812 tokens today", talk.stdout), "both answers of today"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("claude-sonnet-4-5", "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, or run 'shepherd keys set anthropic'"),
        ("gemini/gemini-2.5-flash", "GOOGLE_API_KEY or GEMINI_API_KEY, or run 'shepherd keys set gemini'"),
        ("openrouter/qwen/qwen3", "OPENROUTER_API_KEY, or run 'shepherd keys set openrouter'"),
    ],
)
def test_without_a_key_one_sentence_names_the_variable_and_the_command(user: Home, model: str, words: str) -> None:
    done = user.run("-m", model, "-p", "Hello")
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_budget_that_is_spent_refuses_the_next_program_too(user: Home) -> None:
    body = sse(
        chunk({"content": "Yes."}),
        chunk({}, "stop"),
        {"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 10}},
    )
    with replaying_apart(Answer(CHAT, body), Answer(CHAT, body)) as server:
        config_of(user).parent.mkdir(parents=True)
        config_of(user).write_text(
            f'[providers.mine]\ntype = "openai_compat"\nbase_url = "{server.url}"\nmodel = "m"\nbudget_money = 0.001\n'
            "prices = {input = 10, output = 20}\n"
        )
        first = user.run("-p", "Hello", "--notools")
        assert (first.stdout, first.stderr) == ("Yes.\n", "")
        refused = user.run("-p", "Hello", "--notools")
        assert refused.returncode == 1
        assert "today's budget of the provider 'mine' is spent (0.0011 of 0.001)" in refused.stderr
        assert len(server.requests) == 1
