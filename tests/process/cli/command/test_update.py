"""`shepherd update` against real repositories of git and a real index: it says what is newer, and changes nothing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.in_time import PATIENCE_S

from shepherd.cli.command.update import look
from shepherd.core import EngineError, Unreachable
from shepherd.process.installed import Installed, Way

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
HERE = Path(sys.prefix)
HAS_PIP = importlib.util.find_spec("pip") is not None
PIP = f"{sys.executable} -m pip install" if HAS_PIP else f"uv pip install --python {sys.executable}"
"""What this environment can be changed with."""


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "init.defaultBranch=main"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with a commit, a branch beside it whose name ends alike, and a tag."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init")
    git(folder, "commit", "--allow-empty", "-m", "one")
    git(folder, "tag", "-a", "v1", "-m", "first")
    git(folder, "branch", "feature/main")
    return folder


def clone_of(origin: Path) -> Installed:
    folder = origin.parent / "a clone"
    git(origin.parent, "clone", str(origin), str(folder))
    return Installed("clone", folder)


@needs_git
def test_a_clone_hears_of_commits_that_it_lacks_and_is_left_alone(origin: Path) -> None:
    installed = clone_of(origin)
    news = look(installed, "0.1.0", {})
    assert (news.is_newer, news.get) == (False, "")
    assert "has all of origin main" in news.detail

    git(origin, "commit", "--allow-empty", "-m", "two")
    before = git(installed.folder, "rev-parse", "HEAD", "origin/main")
    news = look(installed, "0.1.0", {})
    assert news.is_newer
    assert news.newest == git(origin, "rev-parse", "HEAD")
    assert news.get == f"git -C '{installed.folder}' pull --ff-only"
    assert git(installed.folder, "rev-parse", "HEAD", "origin/main") == before
    subprocess.run(["sh", "-c", news.get], check=True, capture_output=True)
    assert not look(installed, "0.1.0", {}).is_newer

    git(installed.folder, "commit", "--allow-empty", "-m", "mine")  # ahead of the remote
    assert not look(installed, "0.1.0", {}).is_newer


@needs_git
def test_a_clone_without_a_remote_or_with_one_that_is_away_gets_a_sentence(origin: Path) -> None:
    assert "has no remote: nothing can be newer" in look(Installed("clone", origin), "0.1.0", {}).detail
    installed = clone_of(origin)
    shutil.move(origin, origin.with_name("moved"))
    with pytest.raises(Unreachable, match=r"^the remote origin cannot be asked \(.*\); check the network"):
        look(installed, "0.1.0", {})
    shutil.move(origin.with_name("moved"), origin)
    git(origin, "branch", "-m", "trunk")
    with pytest.raises(EngineError, match=r"the remote origin has no refs/heads/main any more"):
        look(installed, "0.1.0", {})


@needs_git
@pytest.mark.parametrize("revision", [None, "main", "v1"])
def test_a_package_from_a_repository_is_compared_with_what_was_asked_for(origin: Path, revision: str | None) -> None:
    commit = git(origin, "rev-parse", "HEAD")
    source: dict[str, Any] = {"url": str(origin), "vcs_info": {"vcs": "git", "commit_id": commit}}
    if revision is not None:
        source["vcs_info"]["requested_revision"] = revision
    installed = Installed("pip", HERE)
    assert not look(installed, "0.1.0", source).is_newer
    git(origin, "commit", "--allow-empty", "-m", "two")
    news = look(installed, "0.1.0", source)
    assert news.is_newer == (revision != "v1")
    if news.is_newer:
        assert news.get == f"{PIP} --upgrade git+{origin}"
    source["vcs_info"]["requested_revision"] = commit
    assert not look(installed, "0.1.0", source).is_newer


@pytest.mark.parametrize(
    ("way", "get"),
    [
        ("uv tool", "uv tool install --force {}"),
        ("pipx", "pipx install --force {}"),
        ("pip", f"{PIP} --upgrade {{}}"),
    ],
)
def test_a_file_or_a_folder_is_installed_again_and_no_password_is_shown(way: Way, get: str) -> None:
    news = look(Installed(way, HERE), "0.1.0", {"url": "https://ann:secret@files.example/shepherd.whl"})
    assert (news.is_newer, news.get) == (False, get.format("https://files.example/shepherd.whl"))
    assert "secret" not in news.detail


def test_a_folder_that_has_gone_names_no_command(tmp_path: Path) -> None:
    news = look(Installed("pip", HERE), "0.1.0", {"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert (news.is_newer, news.get) == (False, "")
    assert "which is not here: in a container, build its image again" in news.detail
    assert look(Installed("pip", HERE), "0.1.0", {"url": tmp_path.as_uri(), "dir_info": {}}).get


def index(folder: Path, version: str) -> str:
    """The address of an index with this version of a package called shepherd, in a folder."""
    place = folder / "simple" / "shepherd"
    place.mkdir(parents=True, exist_ok=True)
    wheel = place / f"shepherd-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        about = f"shepherd-{version}.dist-info"
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: shepherd\nVersion: {version}\n")
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "")
    links = "".join(f'<a href="{each.name}">{each.name}</a>\n' for each in sorted(place.glob("*.whl")))
    (place / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")
    (folder / "simple" / "index.html").write_text(
        '<!DOCTYPE html><html><body><a href="shepherd/">shepherd</a></body></html>'
    )
    return (folder / "simple").as_uri() + "/"


def asked(env: Mapping[str, str], folder: Path | None = None) -> str:
    """What this environment's tools answer, in a process of its own: what they read of the environment is theirs."""
    code = "import sys; from shepherd.cli.command.update import find_release; print(find_release(sys.executable))"
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env={**kept, **env}, timeout=2 * PATIENCE_S,
        check=False, cwd=folder,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.skipif(not (shutil.which("uv") or HAS_PIP), reason="neither uv nor pip")
def test_the_newest_version_is_that_of_the_configured_index(tmp_path: Path) -> None:
    url = index(tmp_path, "0.0.9")
    own = {"PIP_INDEX_URL": url, "UV_DEFAULT_INDEX": url, "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    own |= {"UV_NO_CONFIG": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert asked(own) == "0.0.9"
    index(tmp_path, "99.10.0")
    index(tmp_path, "99.9.0")
    assert asked(own) == "99.10.0"
    (tmp_path / "simple" / "shepherd" / "index.html").write_text("<!DOCTYPE html><html><body></body></html>")
    assert "the package index tells no version of shepherd" in asked({**own, "XDG_CACHE_HOME": str(tmp_path / "other")})


@pytest.mark.skipif(not (shutil.which("uv") or HAS_PIP), reason="neither uv nor pip")
def test_files_of_the_working_folder_neither_run_nor_choose_the_index(tmp_path: Path) -> None:
    url, folder = index(tmp_path, "0.0.9"), tmp_path / "work"
    folder.mkdir()
    (folder / "pip.py").write_text("print('shepherd (666)')\n")
    (folder / "uv.toml").write_text(f'[[index]]\nurl = "{index(tmp_path / "other", "666")}"\ndefault = true\n')
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv" / "uv.toml").write_text(f'[[index]]\nurl = "{url}"\ndefault = true\n')
    own = {"PIP_INDEX_URL": url, "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    assert asked({**own, "XDG_CACHE_HOME": str(tmp_path / "cache")}, folder) == "0.0.9"


@needs_git
def test_settings_of_a_repository_in_the_working_folder_do_not_count(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "work"
    git(tmp_path, "clone", str(origin), str(other))
    git(other, "commit", "--allow-empty", "-m", "two")
    git(other, "config", f"url.{other}.insteadOf", str(origin))
    monkeypatch.chdir(other)
    source = {"url": str(origin), "vcs_info": {"vcs": "git", "commit_id": git(origin, "rev-parse", "HEAD")}}
    assert not look(Installed("pip", HERE), "0.1.0", source).is_newer
