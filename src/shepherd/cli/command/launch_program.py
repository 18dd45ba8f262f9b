"""The program of a client as it is installed: its version, the Node.js that it needs, and what is known of its prompt.

Nothing here fails a launch: a file that cannot be read or written is as one that is not there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import suppress
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

from shepherd.core.dataclasses import dataclass
from shepherd.process.files import find_object, keep_json

MOST_FOLDERS = 6
"""Above a program, in which its package.json is looked for."""
ASK_S = 10.0
"""For `node --version`."""
_LEAST = re.compile(r"(?<![<\d.])(?<!< )v?(\d{1,4})(?:\.(\d{1,4}))?(?!\d)")


@dataclass(frozen=True, slots=True)
class Package:
    """What npm says of an installed program. Empty for a program that did not come from there."""

    version: str = ""
    node: tuple[int, int] = (0, 0)
    """The least version of Node.js that it runs on."""


def find_package(program: str) -> Package:
    """What the next package.json above the program says, behind the links that npm makes."""
    for folder in islice(Path(program).resolve().parents, MOST_FOLDERS):
        if found := find_object(folder / "package.json"):
            engines = found.get("engines")
            needed = engines.get("node") if isinstance(engines, dict) else None
            return Package(str(found.get("version") or "")[:40], least_node(needed) if needed else (0, 0))
    return Package()


def least_node(wanted: Any) -> tuple[int, int]:
    """The least version in a range such as `>=22.12` or `^20.19 || >=22`; (0, 0) for what is no range."""
    found = [match for each in str(wanted)[:200].split("||") if (match := _LEAST.search(each)) is not None]
    return min(((int(match[1]), int(match[2] or 0)) for match in found), default=(0, 0))


def lacks_node(package: Package) -> str:
    """What is wrong with the Node.js of this machine for the package; empty where nothing is."""
    if package.node == (0, 0):
        return ""
    needed = ".".join(map(str, package.node if package.node[1] else package.node[:1]))
    if (node := shutil.which("node")) is None:
        return f"needs Node.js {needed} or newer, and there is no program 'node' on this machine"
    try:
        done = subprocess.run([node, "--version"], capture_output=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = done.stdout.decode("ascii", "replace")
    here = re.match(r"v(\d{1,4})\.(\d{1,4})", said)
    if here is None or (int(here[1]), int(here[2])) >= package.node:
        return ""
    return f"needs Node.js {needed} or newer, and 'node' is {said.strip()} here; it may not start: install a newer one"


# -- the first prompt -------------------------------------------------------------------------------------------------


def recall_prompt(client: str, file: Path) -> tuple[int, str]:
    """The tokens of the client's first prompt when it ran last, and words for when that was; (0, "") if unknown."""
    known = (find_object(file) or {}).get(client)
    if not isinstance(known, dict) or type(n_tokens := known.get("tokens")) is not int:
        return 0, ""
    return n_tokens, ", ".join(str(known[name]) for name in ("version", "date") if known.get(name))


def keep_prompt(client: str, package: Package, n_tokens: int, file: Path) -> None:
    """Remember the tokens of its first prompt for the next run."""
    newest = {"tokens": n_tokens, "version": package.version, "date": date.today().isoformat()}
    known = {**(find_object(file) or {}), client: newest}
    with suppress(OSError):
        keep_json(file, known)
