"""The page in the browser, as the server sends it: who gets it, which files, with which headers."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from tests.in_process import client_of
from tests.scripted_service import ScriptedService, saying

import shepherd
from shepherd.server.endpoints.web_page import FOLDER, TYPES

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())


async def test_a_browser_gets_the_page_at_the_root_and_a_program_the_list_of_endpoints() -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        page = await client.get("/", headers=BROWSER)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.text.startswith("<!doctype html>")
        for accept in ("*/*", "application/json", ""):
            answer = await client.get("/", headers={"accept": accept})
            assert answer.json()["name"] == "shepherd"
        assert (await client.get("/v1", headers={"accept": "*/*"})).json()["name"] == "shepherd"
        head = await client.head("/", headers=BROWSER)
        assert (head.status_code, head.headers["content-type"]) == (200, "text/html; charset=utf-8")


async def test_the_page_needs_no_key_and_all_that_it_asks_for_does() -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=("sk-one",)) as client:
        assert (await client.get("/", headers=BROWSER)).status_code == 200
        assert (await client.get("/web/js/main.js")).status_code == 200
        assert (await client.get("/")).status_code == 401
        assert (await client.post("/", headers=BROWSER)).status_code == 401
        assert (await client.post("/web/js/main.js")).status_code == 401
        for path in ("/v1/models", "/v1", "/web", "/webs/main.js", "/v1/caches"):
            assert (await client.get(path, headers=BROWSER)).status_code == 401


async def test_a_server_without_the_page_answers_browsers_as_programs() -> None:
    async with client_of(ScriptedService(saying("Hi")), page=False) as client:
        assert (await client.get("/", headers=BROWSER)).json()["name"] == "shepherd"
        assert (await client.get("/web/js/main.js")).status_code == 404
    async with client_of(ScriptedService(saying("Hi")), page=False, api_keys=("sk-one",)) as client:
        assert (await client.get("/", headers=BROWSER)).status_code == 401
        assert (await client.get("/web/js/main.js")).status_code == 401


async def test_every_file_of_the_folder_is_served_with_its_type_and_with_nothing_to_guess() -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        for name in FILES:
            answer = await client.get(f"/web/{name}", headers={"accept-encoding": "gzip"})
            assert answer.status_code == 200, name
            assert (
                answer.headers["content-type"]
                == TYPES["." + name.partition(".")[2].rpartition(".")[2] if "." in name else ""]
            )
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            # httpx2 has decompressed it.
            if name != "index.html":
                assert answer.content == (FOLDER / name).read_bytes()
            assert ("content-encoding" in answer.headers) is not name.endswith(".woff2")


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "js", "js/", "vendor/", "nothing.js", "../service.py", "..%2fservice.py", "js/..%2f..%2fservice.py",
        "%2e%2e/service.py", "js/../../service.py", "..\\service.py", "/etc/passwd", "%2fetc%2fpasswd", "js/main.js%00",
        "js/main.js/", "JS/MAIN.JS", "js/main.js.map", ".", "C:/Windows/win.ini", "a" * 5000,
    ],
)  # fmt: skip
async def test_no_path_leads_out_of_the_folder_and_no_folder_is_listed(path: str) -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        answer = await client.get(f"/web/{path}")
        # The slash at the end of a path means nothing, here as everywhere.
        assert answer.status_code == 200 if path == "js/main.js/" else answer.status_code == 404
        assert len(answer.content) < 500 or path == "js/main.js/"


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("gzip ; q=1.0", True), ("identity", False), ("", False),
        ("gzip;q=0", False), ("br, gzip; q=0.000", False), ("*;q=0", False), ("gzip;q=0, *", False), ("xgzip", False),
    ],
)  # fmt: skip
async def test_a_file_is_compressed_for_clients_that_take_it(accepted: str, is_compressed: bool) -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        answer = await client.get("/web/js/api.js", headers={"accept-encoding": accepted})
        assert (answer.headers.get("content-encoding") == "gzip") is is_compressed
        assert answer.content == (FOLDER / "js" / "api.js").read_bytes()


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        for encoding in ("gzip", "identity"):
            first = await client.get("/web/js/api.js", headers={"accept-encoding": encoding})
            assert first.headers["cache-control"] == "no-cache"
            tag = first.headers["etag"]
            for had in (tag, f"W/{tag}", f'"other", {tag}'):
                headers = {"accept-encoding": encoding, "if-none-match": had}
                again = await client.get("/web/js/api.js", headers=headers)
                assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            other = await client.get("/web/js/api.js", headers={"accept-encoding": encoding, "if-none-match": '"x"'})
            assert other.status_code == 200


async def test_the_policy_allows_what_the_server_itself_sends_and_the_import_map_only() -> None:
    async with client_of(ScriptedService(saying("Hi"))) as client:
        page = await client.get("/", headers=BROWSER)
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    import_map = re.search(r'<script type="importmap">(.*?)</script>', page.text, re.DOTALL)
    assert import_map is not None
    digest = base64.b64encode(hashlib.sha256(import_map[1].encode()).digest()).decode()
    assert policy == {
        "default-src": "'none'",
        "script-src": f"'self' 'sha256-{digest}'",
        "style-src": "'self'",
        "img-src": "'self' data: blob:",
        "connect-src": "'self'",
        "media-src": "'self' blob:",
        "font-src": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
        "form-action": "'none'",
    }
    found = _Addresses()
    found.feed(page.text)
    assert found.n_inline == 1, "the import map"
    assert found.addresses
    for address in found.addresses:
        assert (FOLDER / address.removeprefix("web/")).is_file(), f"{address} is no file, or not written relatively"


class _Addresses(HTMLParser):
    """What a page loads, and how many of its scripts and styles are in it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.n_inline = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        self.n_inline += (tag in ("script", "style") and "src" not in named) or "style" in named
        assert not any(name.startswith("on") for name in named)


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/web/app.css", 200), ("/health", 200), ("/v1/models", 401), ("/nothing", 401)]
)
async def test_every_answer_says_the_version_of_the_server(path: str, status: int) -> None:
    async with client_of(ScriptedService(saying("Hi")), api_keys=("sk-one",)) as client:
        answer = await client.get(path, headers=BROWSER)
        assert (answer.status_code, answer.headers["x-shepherd-version"]) == (status, shepherd.__version__)
        page = await client.get("/", headers=BROWSER)
        assert f'data-version="{shepherd.__version__}"' in page.text, "the page compares this with that"
