"""Keys of providers: which one counts, and the store for those that are in no configuration.

    configuration > environment > file of keys > the system's keyring        the first that has one

The file is private (0600) and lists which names are in the keyring: the keyring is asked for those only, because it may
ask the user for a password. Its package is the extra `shepherd[keyring]`. A key is in no message and in no `repr`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from shepherd.backends.cloud.provider import ProviderKind, find_kind
from shepherd.config.schema import ProviderConfig
from shepherd.core import ConfigError, InvalidRequest
from shepherd.core.dataclasses import dataclass, field
from shepherd.process.files import keep_json, read_within, writing

Place = Literal["configuration", "environment", "file", "keyring"]
SERVICE = "shepherd"
"""What our keys are filed under in the keyring."""
FILE_NAME = "keys.json"


@dataclass(frozen=True, slots=True)
class FoundKey:
    key: str = field(repr=False)
    place: Place
    where: str = ""
    """The variable, or the name in the store."""

    @property
    def ending(self) -> str:
        """What may be shown of it: the last 4 characters of a long one."""
        return ending_of(self.key)

    @property
    def source(self) -> str:
        words = {"file": "file of keys", "environment": f"environment: {self.where}"}
        return words.get(self.place, self.place)


def ending_of(key: str) -> str:
    return f"...{key[-4:]}" if len(key) >= 16 else "..."


def find_key(row: ProviderConfig, env: Mapping[str, str], store: KeyStore) -> FoundKey | None:
    """The key of a provider. Raises: `ConfigError` where the store cannot be read."""
    kind = find_kind(row.type)
    assert kind is not None
    if (variable := _variable(row, kind, env)) is not None and row.api_key in (None, env[variable]):
        return FoundKey(env[variable], "environment", variable)
    if row.api_key is not None:
        return FoundKey(row.api_key, "configuration")
    # What was stored for OpenAI goes to OpenAI: an address of another name needs a key of its own.
    is_own = row.base_url is None and bool(kind.base_url)
    names = dict.fromkeys(filter(None, (row.name, row.group, kind.name if is_own else "")))
    return next((found for name in names if (found := store.find(name)) is not None), None)


def _variable(row: ProviderConfig, kind: ProviderKind, env: Mapping[str, str]) -> str | None:
    return next((name for name in (row.api_key_env or "", *kind.keys) if env.get(name)), None)


class KeyStore:
    """The file of keys, and the keyring. Of changes by two processes at the same moment one may be lost."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the user's configuration. Nothing is read yet."""
        self.path = folder / FILE_NAME

    def find(self, name: str) -> FoundKey | None:
        """Raises: `ConfigError`."""
        keys, in_keyring = self._read()
        if name in keys:
            return FoundKey(keys[name], "file", name)
        if name in in_keyring and (key := _from_keyring(name)):
            return FoundKey(key, "keyring", name)
        return None

    def names(self) -> dict[str, Place]:
        """Where each key is. Raises: `ConfigError`."""
        keys, in_keyring = self._read()
        places: dict[str, Place] = dict.fromkeys(in_keyring, "keyring")
        return places | dict.fromkeys(keys, "file")

    def set(self, name: str, key: str, *, keyring: bool = False) -> None:
        """Keep a key, in place of the one before. Raises: `ConfigError`, `InvalidRequest` for what is no key."""
        if not re.fullmatch(r"[\x21-\x7e]{4,4096}", key):
            raise InvalidRequest("a key has 4 to 4096 characters without blanks; nothing is changed", field="key")
        keys, in_keyring = self._read()
        if keyring:
            module = _keyring()
            _asked(module, lambda: module.set_password(SERVICE, name, key))
        elif name in in_keyring:
            self._forget(name)
        rest = {each: value for each, value in keys.items() if each != name}
        others = [each for each in in_keyring if each != name]
        self._write(rest if keyring else rest | {name: key}, [*others, *([name] if keyring else [])])

    def remove(self, name: str) -> bool:
        """Whether there was one. Raises: `ConfigError`."""
        keys, in_keyring = self._read()
        if name not in keys and name not in in_keyring:
            return False
        if name in in_keyring:
            self._forget(name)
        rest = {each: value for each, value in keys.items() if each != name}
        self._write(rest, [each for each in in_keyring if each != name])
        return True

    @property
    def is_open_to_others(self) -> bool:
        """Other users of this machine can read the file."""
        return sys.platform != "win32" and self.path.exists() and bool(self.path.stat().st_mode & 0o077)

    def _forget(self, name: str) -> None:
        module = _keyring()
        if _asked(module, lambda: module.get_password(SERVICE, name)) is not None:
            _asked(module, lambda: module.delete_password(SERVICE, name))

    def _read(self) -> tuple[dict[str, str], list[str]]:
        try:
            content = json.loads(read_within(self.path))
            keys, in_keyring = content["keys"], content.get("keyring", [])
            texts = [*keys, *keys.values(), *in_keyring]
        except FileNotFoundError:
            return {}, []
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(self.path)) from error
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            texts = [None]
        if not all(isinstance(each, str) for each in texts):
            # `from None`: the cause quotes the content.
            raise ConfigError("is no file of keys; delete it, and set the keys again", file=str(self.path)) from None
        return dict(keys), list(in_keyring)

    def _write(self, keys: Mapping[str, str], in_keyring: list[str]) -> None:
        with writing(self.path):
            keep_json(self.path, {"version": 1, "keys": keys, "keyring": in_keyring}, durable=True)


def _keyring() -> ModuleType:
    try:
        import keyring  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("the keyring needs a package: install shepherd[keyring]") from error
    return keyring


def _asked(module: Any, work: Any) -> Any:
    try:
        return work()
    except module.errors.KeyringError as error:
        raise ConfigError(
            f"the system's keyring refuses: {type(error).__name__}; unlock it, or use the file"
        ) from error


def _from_keyring(name: str) -> str | None:
    module = _keyring()
    found = _asked(module, lambda: module.get_password(SERVICE, name))
    return found if isinstance(found, str) else None
