"""The tests of `tests/unit/test_keys.py` that start programs."""

from __future__ import annotations

import json

import pytest
from tests.unit.test_keys import SECRET, ring, store  # noqa: F401 - fixtures  # noqa: F401 - fixtures

from shepherd.config import KeyStore, ProviderConfig, find_key
from shepherd.core import ConfigError


def test_a_key_in_the_keyring_is_in_no_file(store: KeyStore, ring: dict[str, str]) -> None:
    store.set("grok", SECRET, keyring=True)
    assert ring == {"shepherd/grok": SECRET}
    assert SECRET not in store.path.read_text()
    found = find_key(ProviderConfig("grok", "grok"), {}, store)
    assert found is not None
    assert (found.key, found.place) == (SECRET, "keyring")
    store.set("grok", "sk-in-the-file-12345")
    assert ring == {}, "one key, one place"
    assert store.names() == {"grok": "file"}
    store.set("grok", SECRET, keyring=True)
    assert store.names() == {"grok": "keyring"}
    assert store.remove("grok")
    assert (ring, store.names()) == ({}, {})


def test_a_locked_keyring_is_one_sentence_without_its_words(store: KeyStore, ring: dict[str, str]) -> None:
    store.path.parent.mkdir()
    store.path.write_text(json.dumps({"version": 1, "keys": {}, "keyring": ["locked"]}))
    with pytest.raises(ConfigError, match="keyring refuses: KeyringLocked") as caught:
        store.find("locked")
    assert SECRET not in caught.value.message
