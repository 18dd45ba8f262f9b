"""Routes: first match in file order, keys and-ed, globs without case, no silent default."""

import pytest

from shepherd.backends.router import Route, Router
from shepherd.core import OnFull, Request, UnknownModel
from shepherd.wire.names import endpoint_names, model_names

ROUTES = [
    Route("fast", endpoint="/v1/messages/count_tokens"),
    Route("fast", match="*haiku*", background=True),
    Route("exact", model="Qwen3", on_full="evict"),
    Route("both", match="*gpt*", endpoint="/v1/responses"),
    Route("talk", match="*gpt*", endpoint="/api/*"),
    Route("main", match="claude-*"),
]


@pytest.fixture
def router() -> Router:
    return Router(ROUTES, ["qwen", "small"])


@pytest.mark.parametrize(
    ("model", "endpoint", "target"),
    [
        ("claude-3-5-haiku", "", "fast"),
        ("Claude-3-5-HAIKU", "", "fast"),
        ("anything", "/v1/messages/count_tokens", "fast"),
        ("qwen3", "", "exact"),
        ("qwen3:latest", "/api/chat", "exact"),
        ("claude-local-QWEN3", "", "exact"),
        ("gpt-5", "/v1/responses", "both"),
        ("gpt-5", "/responses", "both"),
        ("gpt-5", "/v1/v1/responses", "both"),
        ("gpt-5", "/v1/responses/input_tokens", "both"),
        ("gpt-5", "/api/generate", "talk"),
        ("claude-sonnet", "/v1/messages", "main"),
    ],
)
def test_the_first_rule_that_matches_wins(router: Router, model: str, endpoint: str, target: str) -> None:
    assert router.choose(model, endpoint).target == target


@pytest.mark.parametrize(
    ("model", "endpoint"),
    [("gpt-5", "/v1/chat/completions"), ("qwen3-8b", ""), ("qwen3:8b", ""), ("local-qwen3", ""), ("", "")],
)
def test_what_no_rule_matches_is_refused_with_the_known_names(router: Router, model: str, endpoint: str) -> None:
    with pytest.raises(
        UnknownModel, match=r"did you mean|known: qwen, small, \*, \*haiku\*, Qwen3 and 2 more"
    ) as caught:
        router.choose(model, endpoint)
    assert "did you mean '*" not in caught.value.message, "a glob is no name"


@pytest.mark.parametrize(
    ("model", "said", "wanted"),
    [("qwen3", None, "evict"), ("qwen3", "error", "error"), ("claude-3", None, None), ("claude-3", "evict", "evict")],
)
def test_a_route_says_what_happens_when_the_context_is_full_unless_the_request_does(
    router: Router, model: str, said: OnFull | None, wanted: OnFull | None
) -> None:
    assert router.choose(model).fill(Request(model, (), on_full=said)).on_full == wanted


@pytest.mark.parametrize(("said", "wanted"), [(None, True), (True, True), (False, False)])
def test_a_route_makes_side_tasks_of_requests_that_do_not_say(router: Router, said: bool | None, wanted: bool) -> None:
    assert router.choose("claude-haiku").fill(Request("claude-haiku", background=said)).background is wanted


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/messages", {"/v1/messages"}),
        ("/chat/completions", {"/chat/completions", "/v1/chat/completions"}),
        ("/v1/v1/messages/", {"/v1/v1/messages/", "/v1/messages"}),
        ("/v1/messages/count_tokens", {"/v1/messages/count_tokens", "/v1/messages"}),
        ("/api/chat", {"/api/chat"}),
        ("", {""}),
    ],
)
def test_a_path_counts_as_what_it_is_another_name_of(path: str, names: set[str]) -> None:
    assert set(endpoint_names(path)) == names


@pytest.mark.parametrize(
    "endpoint", ["/chat/completions", "/v1/chat/completions", "/chat/*", "/v1/v1/chat/completions"]
)
@pytest.mark.parametrize("path", ["/chat/completions", "/v1/chat/completions"])
def test_a_rule_may_write_a_path_in_any_way(endpoint: str, path: str) -> None:
    assert Route("x", endpoint=endpoint).takes("any", path)
    assert not Route("x", endpoint=endpoint).takes("any", "/v1/completions")


def test_a_name_as_it_is_said_comes_first() -> None:
    assert model_names("Claude-Local-qwen:latest") == ("Claude-Local-qwen:latest", "qwen:latest", "qwen")
    assert model_names("qwen") == ("qwen",)


def test_the_names_that_rules_take_exactly_are_told_with_where_they_really_lead() -> None:
    rules = [
        Route("fast", match="*mini*"),
        Route("main", model="gpt-4"),
        Route("main", model="gpt-4-mini"),  # the first rule has it
        Route("main", model="claude", endpoint="/v1/messages"),  # on one path only
    ]
    assert Router(rules).names() == {"gpt-4": "main", "gpt-4-mini": "fast"}
    rules.append(Route("slow", match="fim"))
    assert Router(rules).globless() == {"gpt-4": "main", "gpt-4-mini": "fast", "fim": "slow"}


def test_a_rule_for_a_model_takes_the_model_with_an_adapter() -> None:
    routes = [Route("exact", model="qwen:med"), Route("qwen", model="Qwen"), Route("rest", match="*")]
    router = Router(routes, adapters=lambda: {"qwen:law": "qwen", "qwen:med": "qwen"})
    chosen = {name: router.choose(name).target for name in ("qwen:law", "QWEN:Law:latest", "qwen:med", "qwen:tax", "x")}
    assert chosen == {
        "qwen:law": "qwen",
        "QWEN:Law:latest": "qwen",
        "qwen:med": "exact",
        "qwen:tax": "rest",
        "x": "rest",
    }
