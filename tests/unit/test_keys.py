"""Keys of providers: the order of places, the private file, the keyring, and that no key is ever shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shepherd.config import KeyStore, ProviderConfig, find_key, load
from shepherd.core import ConfigError, InvalidRequest

SECRET = "sk-test-abcdefghijklmnop-4242"


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "user")


def test_configuration_beats_environment_beats_file(store: KeyStore, tmp_path: Path) -> None:
    row, env = ProviderConfig("anthropic", "anthropic"), {"ANTHROPIC_API_KEY": "from-env-1234567890"}
    assert find_key(row, {}, store) is None
    store.set("anthropic", SECRET)
    found = find_key(row, {}, store)
    assert found is not None
    assert (found.key, found.place, found.source) == (SECRET, "file", "file of keys")
    found = find_key(row, env, store)
    assert found is not None
    assert (found.key, found.source) == ("from-env-1234567890", "environment: ANTHROPIC_API_KEY")
    (tmp_path / "config.toml").write_text('[providers.anthropic]\napi_key = "from-config-1234567890"\n')
    (row,) = load(env=env, cwd=tmp_path / "user", user_dir=tmp_path).providers
    found = find_key(row, env, store)
    assert found is not None
    assert (found.key, found.place) == ("from-config-1234567890", "configuration")


def test_a_variable_that_the_configuration_names_is_the_environment(store: KeyStore, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[providers.work]\ntype = "openai"\napi_key_env = "WORK"\n')
    env = {"WORK": "from-work-1234567890", "OPENAI_API_KEY": "from-env-1234567890"}
    row = next(each for each in load(env=env, cwd=tmp_path, user_dir=tmp_path).providers if each.name == "work")
    found = find_key(row, env, store)
    assert found is not None
    assert (found.key, found.source) == ("from-work-1234567890", "environment: WORK")


def test_a_stored_key_of_a_kind_is_not_sent_to_another_address(store: KeyStore) -> None:
    store.set("openai", SECRET)
    assert find_key(ProviderConfig("second", "openai"), {}, store) is not None
    assert find_key(ProviderConfig("proxy", "openai", base_url="http://proxy.example"), {}, store) is None
    assert find_key(ProviderConfig("openai", "openai", base_url="http://proxy.example"), {}, store) is not None
    store.set("openai_compat", SECRET)
    assert find_key(ProviderConfig("mine", "openai_compat"), {}, store) is None


def test_the_file_is_private_and_a_key_can_be_replaced_and_removed(store: KeyStore) -> None:
    store.set("grok", SECRET)
    store.set("openai", "sk-other-abcdefghijkl")
    assert [each.stat().st_mode & 0o777 for each in (store.path, store.path.parent)] == [0o600, 0o700]
    assert store.names() == {"grok": "file", "openai": "file"}
    store.path.chmod(0o644)
    before = store.is_open_to_others
    store.set("grok", "sk-newer-abcdefghijkl")
    assert (before, store.is_open_to_others) == (True, False)
    assert store.remove("grok")
    assert not store.remove("grok")
    assert store.names() == {"openai": "file"}
    assert [each.name for each in store.path.parent.iterdir()] == ["keys.json"]


@pytest.mark.parametrize("key", ["", "abc", "with blank in it", "line\nbreak", "gr\u00fcn-1234567", "x" * 5000])
def test_what_is_no_key_is_refused_and_not_shown(store: KeyStore, key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        store.set("grok", key)
    assert not key or key not in caught.value.message
    assert not store.path.exists()


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b'{"keys": 1}', b'{"keys": {"a": 1}}', b'{"keys": {}, "keyring": 3}', b"\xff"]
)
def test_a_damaged_file_is_refused_by_name_and_never_quoted(store: KeyStore, content: bytes) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(content + b" " + SECRET.encode() if content == b"null" else content)
    with pytest.raises(ConfigError, match=r"keys\.json: is no file of keys") as caught:
        store.find("a")
    assert SECRET not in caught.value.message
    assert caught.value.__suppress_context__


def test_only_the_end_of_a_long_key_is_shown(store: KeyStore) -> None:
    store.set("grok", SECRET)
    store.set("openai", "short-key")
    long, short = store.find("grok"), store.find("openai")
    assert long is not None
    assert short is not None
    assert (long.ending, short.ending) == ("...4242", "...")
    assert SECRET not in repr(long)


# -- the models of a configured provider ------------------------------------------------------------------------------

MINE = '[providers.mine]\ntype = "vllm"\n'


def test_a_model_behind_the_name_of_a_configured_provider_is_that_provider(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(MINE)
    made = load(flags={"model": "mine/qwen/qwen3"}, env={}, cwd=tmp_path / "no", user_dir=tmp_path)
    (row,) = made.providers
    assert (row.name, row.model, [rule.provider for rule in made.routes if rule.takes_all]) == (
        "mine", "qwen/qwen3", ["mine"]
    )  # fmt: skip


def test_a_folder_that_sends_prompts_to_the_users_provider_needs_trust(tmp_path: Path) -> None:
    user, folder = tmp_path / "user", tmp_path / "folder"
    for each in (user, folder):
        each.mkdir()
    (user / "config.toml").write_text(MINE)
    (folder / "shepherd.toml").write_text('model = "mine/qwen"\n')
    with pytest.raises(ConfigError, match="is not trusted, and it sets model"):
        load(env={}, cwd=folder, user_dir=user)


# -- the keyring ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ring() -> Iterator[dict[str, str]]:
    """A keyring in memory, behind the real package."""
    keyring = pytest.importorskip("keyring", reason="the extra `keyring` is not installed")
    held: dict[str, str] = {}
    base: Any = keyring.backend.KeyringBackend

    class InMemory(base):  # type: ignore[misc]  # the package may be absent
        priority = 1

        def get_password(self, service: str, username: str) -> str | None:
            if username == "locked":
                raise keyring.errors.KeyringLocked(f"locked: {SECRET}")
            return held.get(f"{service}/{username}")

        def set_password(self, service: str, username: str, password: str) -> None:
            held[f"{service}/{username}"] = password

        def delete_password(self, service: str, username: str) -> None:
            del held[f"{service}/{username}"]

    before = keyring.get_keyring()
    keyring.set_keyring(InMemory())
    yield held
    keyring.set_keyring(before)
