"""The tests of `tests/unit/tools/builtin/test_web.py` that take long."""

from tests.unit.tools.builtin.test_web import (
    Site,
    body_of,
    call,
    site,  # noqa: F401 - fixtures
)

from shepherd.tools.builtin.web import http_get


async def test_a_page_that_no_reader_survives_is_shown_as_it_is(site: Site) -> None:
    result = await call(http_get, url=f"{site.url}/deep-page", as_text=True)
    assert "(shown as it is: this " in result.content
    assert "<p>deep" in body_of(result)
