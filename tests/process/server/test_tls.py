"""A server with a certificate, as people start it: the commands that find it by its configuration reach it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from tests import command_line
from tests.in_time import PATIENCE_S
from tests.places import ROOT
from tests.started import environment, program, serving

from shepherd.server.http.tls import find_faults, trusting

pytestmark = [pytest.mark.model, pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")]

CONFIG = """
[models.lamb]
path = "embedded"
[caches.main]
model = "lamb"
n_ctx = 1024
"""
TLS = '[server]\ntls_cert = "server.pem"\ntls_key = "server.key"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for file in (ROOT / "tests" / "data" / "tls").iterdir():
        shutil.copy(file, tmp_path)
    for key in tmp_path.glob("*.key"):
        key.chmod(0o600)
    (tmp_path / "shepherd.toml").write_text(CONFIG)
    return tmp_path


def said(home: Path, *words: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    done = command_line.run(*words, env=environment(home), cwd=home)
    return done.returncode, done.stdout


def test_all_commands_reach_a_server_with_a_certificate_of_its_own(home: Path) -> None:
    with serving(home, words=("--tls-cert", "server.pem", "--tls-key", "server.key")) as (process, url):
        assert url.startswith("https://127.0.0.1:")
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        answer = httpx2.post(
            f"{url}/v1/chat/completions", json=body, verify=trusting(str(home / "server.pem")), timeout=PATIENCE_S
        )
        assert answer.status_code == 200
        port = urlsplit(url).port
        (home / "shepherd.toml").write_text(f"{CONFIG}{TLS}port = {port}\n")
        status, told = said(home, "top", "--once", "--json")
        assert (status, '"caches"' in told) == (0, True)
        status, told = said(home, "doctor")
        assert f"server: {url} is ok" in told
        assert f"certificate: {home / 'server.pem'} and its key fit and are valid" in told
        status, told = said(home, "launch", "codex", "--print")
        assert status == 0
        assert f"CODEX_CA_CERTIFICATE={home / 'server.pem'}" in told
        assert url in told
        (home / "shepherd.toml").write_text(CONFIG)
        named = ("top", "--once", "--json", "--url", url)
        assert said(home, *named)[0] == 1
        with program(home, *named, before=["env", f"SSL_CERT_FILE={home / 'ca.pem'}"]) as top:
            told, _ = top.communicate(timeout=PATIENCE_S)
            assert (top.returncode, '"caches"' in told) == (0, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_the_recipe_of_the_page_makes_a_certificate_without_a_fault(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    page = (ROOT / "docs" / "serve.md").read_text("utf-8")
    recipe = re.search(r"```text\n(openssl req .*?)```", page, re.DOTALL)
    assert recipe
    subprocess.run(["sh", "-ec", recipe[1]], cwd=tmp_path, check=True, capture_output=True)
    assert find_faults(str(tmp_path / "server.pem"), str(tmp_path / "server.key")) == []
