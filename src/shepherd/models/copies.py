"""Names that clients have given to models (`POST /api/copy`): a file beside the pulled models, for all programs.

The user's configuration is never written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from shepherd.process.files import keep_json, lock_within, read_within

logger = logging.getLogger(__name__)

FILE, _LOCK = "copies.json", ".copies.lock"
_WAIT_S = 5.0
"""For another process that changes the file, which takes milliseconds."""


class Copies:
    """The file of one folder. Any thread; several processes may use it."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of `pulled.models_folder`; it may not exist yet."""
        self._file = folder / FILE
        self._seen: tuple[object, dict[str, str]] = (None, {})

    def read(self) -> dict[str, str]:
        """What each name stands for; none if the file cannot be read. It is read again when it has changed."""
        try:
            found = self._file.stat()
        except OSError:
            return {}
        mark = (found.st_mtime_ns, found.st_ino, found.st_size)
        if self._seen[0] != mark:
            self._seen = (mark, _read(self._file))
        return dict(self._seen[1])

    def change(self, given: Mapping[str, str | None]) -> None:
        """Give names; None takes one away. Raises: `OSError`."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with (self._file.parent / _LOCK).open("ab") as lock:
            if not lock_within(lock.fileno(), _WAIT_S):
                raise TimeoutError(f"another process holds {lock.name}")
            # Names are found in any case, so that one in another case is the same.
            small = {name.casefold() for name in given}
            names = {name: target for name, target in _read(self._file).items() if name.casefold() not in small}
            names |= {name: target for name, target in given.items() if target is not None}
            keep_json(self._file, {"version": 1, "names": names})


def _read(file: Path) -> dict[str, str]:
    try:
        names = json.loads(read_within(file))["names"]
        return {str(name): str(target) for name, target in names.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        logger.warning("%s cannot be read, and its names are not known: %s", file, error)
        return {}
