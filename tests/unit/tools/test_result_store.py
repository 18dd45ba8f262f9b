"""Results that are kept for reading on."""

import pytest

from shepherd.tools.base import ToolError
from shepherd.tools.results import ResultStore


def test_what_is_kept_is_found_under_its_name_in_any_case() -> None:
    kept = ResultStore()
    assert kept.keep("one") == ("result:1", True)
    assert kept.keep("two\nlines\n") == ("result:2", True)
    assert kept.get("result:1") == "one"
    assert kept.get(" Result:2 ") == "two\nlines\n"


@pytest.mark.parametrize("name", ["result:9", "result:", "result:x", "result:-1", "a.txt", "result:1/..", "result:²"])
def test_what_is_not_kept_is_told_with_what_is(name: str) -> None:
    kept = ResultStore()
    kept.keep("one")
    with pytest.raises(ToolError, match=r"no result is stored .* the names are: result:1$"):
        kept.get(name)


def test_the_oldest_go_first_and_no_name_comes_twice() -> None:
    kept = ResultStore(most_chars=40)
    for n in range(6):
        kept.keep(str(n) * 10)
    with pytest.raises(ToolError, match="the names are: result:3, result:4, result:5, result:6"):
        kept.get("result:2")
    with pytest.raises(ToolError, match="call the tool again"):
        ResultStore().get("result:6")
    assert kept.keep("new") == ("result:7", True)


def test_of_a_text_that_is_too_large_the_beginning_is_kept() -> None:
    kept = ResultStore(most_chars=40)
    assert kept.keep("0123456789+") == ("result:1", False)
    assert kept.get("result:1") == "0123456789"
