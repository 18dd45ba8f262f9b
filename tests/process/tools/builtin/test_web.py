"""The tests of `tests/unit/tools/builtin/test_web.py` that start programs."""

from tests.unit.tools.builtin.test_web import (
    Site,
    body_of,
    call,
    site,  # noqa: F401 - fixtures
)

from shepherd.tools.builtin.web import http_get


async def test_a_page_can_be_had_as_text(site: Site) -> None:
    result = await call(http_get, url=f"{site.url}/page", as_text=True)
    assert body_of(result) == "T\n\n# Hi"
    assert body_of(await call(http_get, url=f"{site.url}/plain", as_text=True)) == "hello"
