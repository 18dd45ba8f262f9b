"""The documentation as a web site (`tests/docs_site.py`): whole, and asking no other machine."""

import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests import docs_site as site

LOADS = {
    "script": "src",
    "link": "href",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "video": "src",
    "audio": "src",
}
FOREIGN = re.compile(r"""(?:@import\s|url\(\s*)["']?(?:https?:)?//[^"')\s]+""")


class Loaded(HTMLParser):
    """What a browser gets by itself when it shows a page, from another machine."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in (LOADS.get(tag), "srcset", "poster") and re.match(r"(?:\w+:)?//", value or ""):
                self.foreign.append(str(value))


def foreign(page: str) -> list[str]:
    loaded = Loaded()
    loaded.feed(page)
    return [*loaded.foreign, *FOREIGN.findall(page)]


def test_what_a_page_loads_from_elsewhere_is_found() -> None:
    planted = (
        '<script src="https://a.example/x.js"></script>',
        '<link href="//a.example/x.css" rel=stylesheet>',
        '<img src="http://a.example/x.png">',
        "<style>@import 'https://a.example/x.css';</style>",
        "<style>@font-face { src: url(//a.example/x.woff2) }</style>",
    )
    for page in planted:
        assert foreign(page), page
    assert not foreign('<a href="https://a.example">a</a><img src="../x.svg"><style>b { src: url("x.woff2") }</style>')


def test_every_link_of_the_sites_pages_leads_to_one_of_them() -> None:
    for name in site.PAGES:
        for mark, _, target, _ in site.LINK.findall(site.text(name)):
            to = Path(name).parent / target
            assert mark or not target or re.sub(r"\w+/\.\./", "", to.as_posix()) in site.PAGES, (name, target)


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r'"([^"]+\.md)"', site.nav())
    assert sorted(named) == sorted(site.PAGES)


@pytest.mark.search
@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the group docs: zensical")
def test_the_site_is_built_whole_with_a_search_and_asks_no_other_machine(tmp_path: Path) -> None:
    folder = site.build(tmp_path)
    pages = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*.html")}
    assert {"index.html", "start/index.html", "measurements/index.html", "adr/0003-holes-not-shifts/index.html"} <= set(
        pages
    )
    for name, page in pages.items():
        assert not foreign(page), name
        assert "connect-src 'self'" in page.partition("<body")[0], name
    for style in folder.rglob("*.css"):
        assert not FOREIGN.findall(style.read_text("utf-8")), style
    assert 'data-md-color-scheme="slate"' in pages["index.html"]
    assert "capital of France" in json.dumps(json.loads((folder / "search.json").read_text("utf-8")))
