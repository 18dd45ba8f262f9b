"""`shepherd update`: says what is newer than this Shepherd, and the one command that gets it. It changes nothing.

Nothing asks in the background: this command asks when a person calls it, and each question has a deadline.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.version import Version

import shepherd
from shepherd.cli import render
from shepherd.cli.text import clean, last_line
from shepherd.core import EngineError, TimedOut, Unreachable
from shepherd.core.dataclasses import asdict, dataclass
from shepherd.process.installed import Installed, Way, find_way

ANSWER_S = 30.0
"""For one question to a remote or an index."""
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes", "GIT_ASKPASS": "true"}
"""git asks nobody for a password."""
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

GET: Mapping[Way, str] = {
    "clone": "git -C {folder} pull --ff-only",
    "uv tool": "uv tool upgrade shepherd",
    "pipx": "pipx upgrade shepherd",
    "temporary": "uvx --refresh shepherd",
    "pip": "{pip} --upgrade {source}",
}
"""How a newer version is got. `{source}`: what it was installed from."""
AGAIN: Mapping[Way, str] = {
    **GET,
    "uv tool": "uv tool install --force {source}",
    "pipx": "pipx install --force {source}",
    "temporary": "uvx --from {source} shepherd",
}
"""The same where the source is a file or a folder: its name may be another one."""


@dataclass(frozen=True, slots=True)
class News:
    way: Way
    here: str
    """The version or the commit of this Shepherd."""
    newest: str
    """What its source has; empty where that cannot be asked."""
    is_newer: bool
    get: str
    """The command; empty where there is none."""
    detail: str


def run(options: Mapping[str, Any], *, as_json: bool) -> None:
    installed = find_way(Path(sys.prefix), Path(shepherd.__file__).parent)
    news = look(installed, shepherd.__version__, _source())
    lines = [news.detail, *([f"    {news.get}"] if news.get else [])]
    render.show_done(asdict(news), *lines, as_json=as_json)


def look(installed: Installed, version: str, source: Mapping[str, Any]) -> News:
    """What is newer. `source`: where it was installed from, as direct_url.json has it; empty for an index. Raises:
    `ShepherdError`."""
    if installed.way == "clone":
        return _look_at_clone(installed.folder)
    url, commit = str(source.get("url", "")), (source.get("vcs_info") or {}).get("commit_id", "")
    if commit and source["vcs_info"].get("vcs") == "git":
        return _look_at_repository(installed, url, commit, str(source["vcs_info"].get("requested_revision") or "HEAD"))
    if url:
        shown = _without_password(url)
        if urlsplit(url).scheme == "file" and not os.path.exists(url2pathname(urlsplit(url).path)):
            told = (
                f"This is {version}, installed from {shown}, which is not here: in a container, build its image again."
            )
            return News(installed.way, version, "", False, "", told)
        get = _filled(AGAIN, installed, shown)
        return News(
            installed.way, version, "", False, get,
            f"This is {version}, installed from {shown}: whether that has something newer, only its maker knows. To "
            "install it again:",
        )  # fmt: skip
    newest = find_release(sys.executable)
    is_newer = Version(newest) > Version(version)
    told = f"{newest} is newer than this {version}. To get it:" if is_newer else f"{version} is the newest version."
    return News(installed.way, version, newest, is_newer, _filled(GET, installed, "shepherd") if is_newer else "", told)


# -- git --------------------------------------------------------------------------------------------------------------


def _look_at_clone(folder: Path) -> News:
    here = _git(folder, "rev-parse", "HEAD")
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD")
    remote = _git(folder, "config", f"branch.{branch}.remote", fails=True)
    merged = _git(folder, "config", f"branch.{branch}.merge", fails=True)
    if not remote or remote == ".":
        known = _git(folder, "remote", fails=True).splitlines()
        remote, merged = (known[0] if known else ""), "HEAD"
    if not remote:
        told = f"This is the commit {here[:9]} in {folder}, which has no remote: nothing can be newer than it."
        return News("clone", here, "", False, "", told)
    newest, name = _remote_head(folder, remote, merged or "HEAD"), f"{remote} {(merged or 'HEAD').split('/')[-1]}"
    # The commit is known here, and a part of this history, where this clone is ahead.
    if newest == here or _succeeds(folder, "merge-base", "--is-ancestor", newest, here):
        return News(
            "clone", here, newest, False, "", f"{folder} has all of {name} (its newest commit is {newest[:9]})."
        )
    get = _filled(GET, Installed("clone", folder), "")
    told = f"{name} has commits that are not in {folder} (newest {newest[:9]}, here {here[:9]}). To get them:"
    return News("clone", here, newest, True, get, told)


def _look_at_repository(installed: Installed, url: str, commit: str, revision: str) -> News:
    shown = _without_password(url)
    if _HASH.fullmatch(revision):
        told = f"This is the commit {commit[:9]} of {shown}, which was asked for by its number."
        return News(installed.way, commit, commit, False, "", told)
    newest = _remote_head(Path(sys.prefix), url, revision)
    if newest == commit:
        return News(installed.way, commit, newest, False, "", f"This is the newest commit of {shown} ({commit[:9]}).")
    told = f"{shown} has a newer commit ({newest[:9]}, this is {commit[:9]}). To get it:"
    return News(installed.way, commit, newest, True, _filled(GET, installed, f"git+{shown}"), told)


def _remote_head(folder: Path, remote: str, revision: str) -> str:
    """The commit of a branch, a tag or HEAD there. Raises: `Unreachable`, `TimedOut`."""
    shown = _without_password(remote)
    names = (revision, f"refs/tags/{revision}^{{}}", f"refs/tags/{revision}", f"refs/heads/{revision}")
    done = _run(["git", "-C", str(folder), "ls-remote", "--", remote, *names], f"the remote {shown}")
    if done.returncode != 0:
        why = clean(last_line(done.stderr).replace(remote, shown))
        raise Unreachable(
            f"the remote {shown} cannot be asked ({why}); check the network and your rights", backend="git"
        )
    commits = {name: commit for commit, _, name in (line.partition("\t") for line in done.stdout.splitlines())}
    found = next((commits[name] for name in names if _HASH.fullmatch(commits.get(name, ""))), "")
    if not found:
        raise EngineError(f"the remote {shown} has no {revision} any more; choose another branch with 'git switch'")
    return found


def _git(folder: Path, *words: str, fails: bool = False) -> str:
    """What git prints. `fails`: empty where it fails. Raises: `EngineError`."""
    done = _run(["git", "-C", str(folder), *words], "git")
    if done.returncode != 0 and not fails:
        raise EngineError(f"git cannot read {folder}: {clean(last_line(done.stderr))}")
    return done.stdout.strip() if done.returncode == 0 else ""


def _succeeds(folder: Path, *words: str) -> bool:
    return _run(["git", "-C", str(folder), *words], "git").returncode == 0


# -- an index ---------------------------------------------------------------------------------------------------------


def find_release(python: str) -> str:
    """The newest version on the index, for this Python, as pip or uv are configured. Raises: `ShepherdError`."""
    if importlib.util.find_spec("pip") is not None:
        command = [python, "-m", "pip", "index", "versions", "--disable-pip-version-check", "shepherd"]
        pattern = r"^shepherd \(([^()\s]+)\)"
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--dry-run", "--no-deps", "--reinstall", "--only-binary", ":all:"]
        command += ["--no-progress", "--color", "never", "--python", python, "--upgrade", "shepherd"]
        pattern = r"^ \+ shepherd==(\S+)"
    else:
        raise EngineError("neither pip nor uv is here to ask the package index; they are needed for an update as well")
    done = _run(command, "the package index")
    found = re.search(pattern, done.stdout + done.stderr, re.MULTILINE)
    if done.returncode != 0 or found is None:
        why = clean(last_line(done.stderr)) or f"status {done.returncode}"
        raise Unreachable(
            f"the package index tells no version of shepherd ({why}); check the network, and the index that "
            "pip or uv is configured for",
            backend=command[0],
        )
    return found[1]


def _source() -> Mapping[str, Any]:
    """Where the package was installed from; empty for an index."""
    try:
        found = json.loads(distribution("shepherd").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# -- parts ------------------------------------------------------------------------------------------------------------


def _filled(table: Mapping[Way, str], installed: Installed, source: str) -> str:
    python, has_pip = shlex.quote(sys.executable), importlib.util.find_spec("pip") is not None
    pip = f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"
    words = {"folder": shlex.quote(str(installed.folder)), "pip": pip, "source": shlex.quote(source)}
    return table[installed.way].format_map(words)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _run(command: Sequence[str], what: str) -> subprocess.CompletedProcess[str]:
    """What a program says. It runs in the folder of this Python: in the working folder, its `pip.py`, the index of its
    `uv.toml` and its `.git/config` would count. Raises: `TimedOut`, `EngineError` where the program is missing."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=ANSWER_S,
            stdin=subprocess.DEVNULL, env={**os.environ, **_QUIET}, cwd=sys.prefix,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        told = f"{what} has not answered for {ANSWER_S:g} s; check the network and try again"
        raise TimedOut(told, backend=command[0]) from error
    except OSError as error:
        raise EngineError(f"'{command[0]}' cannot be started: {error.strerror}; install it first") from error
