"""The files of the page as they are in the tree: where they come from, what they load, how large they are."""

import gzip
import hashlib
import json
import re
from pathlib import Path

from shepherd.server.endpoints.web_page import FOLDER

VENDOR = FOLDER / "vendor"
PACKAGES = json.loads((VENDOR / "vendor.json").read_text())["packages"]
OWN = sorted(path for path in (FOLDER / "js").rglob("*.js"))
MOST_BYTES = 200_000
"""Of all files compressed, but KaTeX, which is loaded with the first formula."""
MOST_LINES = 3_500
"""Of our own JavaScript, without comments: what a function takes is written in one."""


def test_the_libraries_are_the_files_that_their_authors_published() -> None:
    """`make vendor` compares the archives with the registry's checksum and writes that of each file."""
    named = {"vendor.json"}
    for package in PACKAGES:
        assert package["integrity"].startswith("sha512-")
        assert set(package["sha256"]) == set(package["files"].values())
        for name, digest in package["sha256"].items():
            assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, f"{name} was changed"
            named.add(name)
    assert named == {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}


def test_every_library_has_its_licence_beside_it() -> None:
    for package in PACKAGES:
        folder = next(iter(package["files"].values())).partition("/")[0]
        assert package["licence"]
        assert len((VENDOR / folder / "LICENSE").read_text()) > 500


def test_every_import_leads_to_a_file() -> None:
    import_map = re.search(r'<script type="importmap">(.*?)</script>', (FOLDER / "index.html").read_text(), re.DOTALL)
    assert import_map is not None
    named = {name: _under_web(address) for name, address in json.loads(import_map[1])["imports"].items()}
    for path in [*OWN, *VENDOR.rglob("*.mjs")]:
        for wanted in imports_of(path.read_text()):
            if wanted.startswith("."):
                found = path.parent / wanted
            elif wanted in named:
                found = named[wanted]
            else:
                folder, _, name = wanted.partition("/")
                found = named[f"{folder}/"] / name
            assert found.is_file(), f"{path.relative_to(FOLDER)} imports {wanted}"
    assert all(path.exists() for path in named.values())


def test_the_modules_of_the_first_picture_are_asked_for_at_once() -> None:
    """Not one after the other, as each is found to import the next."""
    page = (FOLDER / "index.html").read_text()
    import_map = re.search(r'<script type="importmap">(.*?)</script>', page, re.DOTALL)
    assert import_map is not None
    named = {name: _under_web(address) for name, address in json.loads(import_map[1])["imports"].items()}
    needed, todo = set[Path](), [FOLDER / "js" / "main.js"]
    while todo:
        path = todo.pop()
        needed.add(path)
        imports = re.findall(r"""(?:\bfrom|^import)\s*["']([^"'\n]+)["']""", _without_comments(path.read_text()), re.M)
        found = {(path.parent / name).resolve() if name.startswith(".") else named[name] for name in imports}
        todo.extend(found - needed)
    preloaded = re.findall(r'<link rel="modulepreload" href="web/([^"]+)" />', page)
    assert {FOLDER / name for name in preloaded} == needed - {FOLDER / "js" / "main.js"}


def test_the_page_asks_for_no_address_but_its_servers() -> None:
    for path in [*OWN, *FOLDER.glob("*.css"), FOLDER / "index.html"]:
        text = path.read_text().replace("http://www.w3.org/", "").replace("https://example.org", "")
        assert not re.search(r"https?://|//cdn|url\((?!#)", text), path.name


def test_the_page_stays_small() -> None:
    sizes = {path: len(gzip.compress(path.read_bytes(), 9)) for path in FOLDER.rglob("*") if path.suffix in SENT}
    before_katex = sum(size for path, size in sizes.items() if "katex" not in path.parts)
    assert before_katex < MOST_BYTES
    code = "\n".join(_without_comments(path.read_text()) for path in OWN)
    lines = [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("//")]
    assert len(lines) <= MOST_LINES


def test_every_icon_has_its_drawing() -> None:
    """By the type of their names, which `make page-check` compares with what is asked for."""
    named = re.search(r"@typedef \{([^}]*)\} IconName", (FOLDER / "js" / "ui.js").read_text())
    assert named is not None
    drawn = re.findall(r'<symbol id="(\w+)"', (FOLDER / "icons.svg").read_text())
    assert sorted(re.findall(r'"(\w+)"', named[1])) == sorted(drawn)


SENT = {".js", ".mjs", ".css", ".html", ".svg"}


def imports_of(text: str) -> set[str]:
    return set(re.findall(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"'\n]+)["']""", _without_comments(text)))


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def _under_web(address: str) -> Path:
    assert address.startswith("./web/")
    return FOLDER / address.removeprefix("./web/")
