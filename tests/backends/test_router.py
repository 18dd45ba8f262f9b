"""Routes: first match in file order, keys and-ed, globs without case, no silent default."""

from collections.abc import AsyncGenerator

import pytest

from shepherd.backends.router import Route, Router
from shepherd.core import Event, OnFull, Request, Started, UnknownModel


class Named:
    """A back end that only says its name and what it is asked to do when the context is full."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        yield Started(self.name, request.on_full)


ROUTES = [
    Route("fast", endpoint="/v1/messages/count_tokens"),
    Route("fast", match="*haiku*"),
    Route("exact", model="Qwen3", on_full="evict"),
    Route("both", match="*gpt*", endpoint="/v1/responses"),
    Route("main", match="claude-*"),
]


@pytest.fixture
def router() -> Router:
    return Router({name: Named(name) for name in ("fast", "exact", "both", "main")}, ROUTES)


@pytest.mark.parametrize(
    ("model", "endpoint", "target"),
    [
        ("claude-3-5-haiku", "", "fast"),
        ("Claude-3-5-HAIKU", "", "fast"),
        ("anything", "/v1/messages/count_tokens", "fast"),
        ("qwen3", "", "exact"),
        ("gpt-5", "/v1/responses", "both"),
        ("claude-sonnet", "/v1/messages", "main"),
    ],
)
def test_the_first_rule_that_matches_wins(router: Router, model: str, endpoint: str, target: str) -> None:
    assert router.choose(model, endpoint) == target


@pytest.mark.parametrize(("model", "endpoint"), [("gpt-5", "/v1/chat/completions"), ("qwen3-8b", ""), ("", "")])
def test_what_no_rule_matches_is_refused_with_the_known_names(router: Router, model: str, endpoint: str) -> None:
    with pytest.raises(UnknownModel, match=r"known: \*, \*haiku\*, Qwen3, \*gpt\*, claude-\*"):
        router.choose(model, endpoint)


async def test_a_request_is_answered_by_the_chosen_one(router: Router) -> None:
    events = [event async for event in router.stream(Request("claude-haiku", ()))]
    assert events == [Started("fast")]


@pytest.mark.parametrize(
    ("model", "said", "wanted"),
    [("qwen3", None, "evict"), ("qwen3", "error", "error"), ("claude-3", None, None), ("claude-3", "evict", "evict")],
)
async def test_a_route_says_what_happens_when_the_context_is_full_unless_the_request_does(
    router: Router, model: str, said: OnFull | None, wanted: OnFull | None
) -> None:
    events = [event async for event in router.stream(Request(model, (), on_full=said))]
    assert [event.origin for event in events if isinstance(event, Started)] == [wanted]
