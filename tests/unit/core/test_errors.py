"""The error tree: what each error says, and what a server makes of it."""

import inspect

import pytest

from shepherd.core import errors
from shepherd.core.errors import (
    ConfigError,
    ContextFull,
    ContextTooSmall,
    InvalidRequest,
    RateLimited,
    ShepherdError,
    UnknownModel,
)

STATUS = {
    "InvalidRequest": 400, "ContextFull": 400, "NotAllowed": 401, "UnknownModel": 404, "BackendError": 502,
    "Unreachable": 503, "TimedOut": 504, "RateLimited": 429, "BadReply": 502, "EngineError": 500, "EngineDown": 503,
}  # fmt: skip


@pytest.mark.parametrize(("name", "status"), STATUS.items())
def test_every_error_has_its_status(name: str, status: int) -> None:
    assert getattr(errors, name).status == status


def test_the_tree_is_drawn_at_the_head_of_the_file() -> None:
    drawn = errors.__doc__ or ""
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, ShepherdError):
            assert name in drawn


def test_a_full_context_says_both_counts_and_what_clients_look_for() -> None:
    error = ContextFull(needed=5000, limit=4096, cache="main")
    assert "prompt is too long: 5000 tokens > 4096 maximum" in error.message
    assert "context window" in error.message
    assert error.code == "context_length_exceeded"


def test_the_prompt_and_what_is_kept_for_the_answer_are_counted_apart() -> None:
    error = ContextFull(needed=4100, limit=4096, reserve=256)
    assert "prompt is too long: 4100 tokens > 4096 maximum; the prompt has 3844, and 256 are kept" in str(error)
    error = ContextFull(needed=4100, limit=4096, reserve=256, n_prompt=9000)
    assert "; what must stay of the prompt has 3844, and 256 are kept for the answer; this model's" in str(error)


@pytest.mark.parametrize(
    ("needed", "trained", "todo"),
    [
        (9_293, 0, "start with --context-size 16k"),
        (9_293, 131_072, "start with --context-size 16k"),
        (35_000, 40_960, "start with --context-size 40960"),
        (9_293, 8_192, "take a model with a larger context (this one was trained for 8,192 tokens)"),
    ],
)
def test_no_context_is_advised_that_the_model_was_not_trained_for(needed: int, trained: int, todo: str) -> None:
    full = ContextFull(needed=needed, limit=4096, n_question=9_000, trained=trained)
    assert str(full).endswith(f"alone has 9000: shorten it, or {todo}")
    small = ContextTooSmall("the tools", needed - 256, limit=4096, reserve=256, trained=trained)
    assert str(small).endswith(f"a shorter conversation does not help: {todo}")


def test_a_config_error_names_file_and_key() -> None:
    assert (
        str(ConfigError("must be a number", key="server.port", file="a.toml"))
        == "a.toml: server.port: must be a number"
    )


def test_an_unknown_model_lists_the_known_ones() -> None:
    assert "lamb" in UnknownModel("gpt", known=("lamb",)).message


def test_details_are_kept_for_programs() -> None:
    assert InvalidRequest("bad", field="messages[0]").field == "messages[0]"
    assert RateLimited("slow down", backend="x", retry_after_s=2.5).retry_after_s == 2.5
