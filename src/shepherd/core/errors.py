"""The one tree of errors that cross a seam.

    ShepherdError            status, code, retryable, user-safe message
    ├ InvalidRequest 400     names the field          ├ NotAllowed 401/403     ├ UnknownModel 404
    │ └ Unsupported 400      wrong for this back end only
    │   └ ContextTooSmall    for what stands in every prompt of the client: a shorter conversation cannot help
    ├ ContextFull 400        limit, needed
    ├ BackendError 502       backend, retry_after_s; chained from the library's
    │ ├ Unreachable 503   ├ TimedOut 504   ├ RateLimited 429   ├ Unavailable 503
    │ ├ Refused (their status, body)       └ BadReply 502    (RateLimited: BudgetExceeded, our own limit)
    ├ EngineError 500        our fault; EngineDown 503 when the thread has gone
    ├ MemoryFailure 500      the archive: its disk, its file
    └ ConfigError            at start only; key and file

Foreign errors are translated once, where foreign code is called, with `from`. The message of every error is one
sentence that is safe to show to a user and says what to do; no code parses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

MOST_NEAR, MOST_KNOWN = 3, 5
"""Names of models in one sentence."""


class ShepherdError(Exception):
    """Root of everything that Shepherd raises on purpose."""

    status: int = 500
    """The HTTP status of the answer."""
    code: ClassVar[str] = "server_error"
    """A stable word for programs, as OpenAI's `error.code`."""
    retryable: ClassVar[bool] = False
    request_id: str = ""
    """A provider's, of the request that it refused."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status or self.status

    def __reduce__(self) -> tuple[Any, ...]:  # as it is, past its constructor, whose arguments have names
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ShepherdError], arguments: tuple[object, ...], state: dict[str, Any]) -> ShepherdError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class InvalidRequest(ShepherdError):
    """The request itself is wrong; sending it again cannot help."""

    status = 400
    code = "invalid_request"

    def __init__(self, message: str, *, field: str | None = None, status: int = 400) -> None:
        super().__init__(message, status=status)
        self.field = field


class Unsupported(InvalidRequest):
    """This back end or its model cannot do what the request asks; another one may."""


class ContextTooSmall(Unsupported):
    """What stands in every prompt of a client does not fit: the system prompt, the tools, the newest question. It is no
    `ContextFull`: that makes clients shorten the conversation and ask again, which cannot help here (ADR 18)."""

    code = "context_too_small"

    def __init__(
        self,
        head: str,
        n_head: int,
        n_question: int = 0,
        *,
        limit: int,
        reserve: int = 0,
        window: int = 0,
        trained: int = 0,
    ) -> None:
        """`n_head`: tokens of `head`, which is the system prompt, the tools or both; `n_question`: of the newest
        question, where they fit without it; `limit`: those that the context holds; `reserve`: those of them that are
        kept for an answer; `window`: those that clients are told, where these are more; `trained`: as in `larger`."""
        both = f" and the newest question {n_question:,}" if n_question else ""
        at_a_time = f" at a time, in a window of {window:,}" if window else ""
        n_tokens = n_head + n_question
        todo = larger(n_tokens + reserve, trained, wanted=n_tokens + n_tokens // 2)
        super().__init__(
            f"{head} alone {'has' if head == 'the system prompt' else 'have'} {n_head:,} tokens{both}; the context "
            f"has {limit:,}{at_a_time}, of which {reserve:,} are kept for an answer. All of this stands in every "
            f"request, so a shorter conversation does not help: {todo}"
        )
        self.n_prompt = n_tokens


def usual_size(n_tokens: int) -> str:
    """The least usual size of a context that holds so many tokens, as the command line takes it: `16k`."""
    return f"{_usual_k(n_tokens)}k"


def _usual_k(n_tokens: int) -> int:
    return 1 << max(0, (n_tokens - 1).bit_length() - 10)


def larger(least: int, trained: int = 0, *, wanted: int = 0) -> str:
    """What gets a context for `least` tokens, better for those `wanted`. `trained`: those that the model was trained
    for; 0 = not known."""
    if 0 < trained < least:
        return f"take a model with a larger context (this one was trained for {trained:,} tokens)"
    size_k = _usual_k(max(least, wanted))
    return f"start with --context-size {trained if 0 < trained < 1024 * size_k else f'{size_k}k'}"


class ContextFull(ShepherdError):
    """The prompt and the room for an answer do not fit into the context."""

    status = 400
    code = "context_length_exceeded"

    def __init__(
        self,
        *,
        needed: int,
        limit: int,
        reserve: int = 0,
        cache: str = "",
        n_prompt: int | None = None,
        window: int = 0,
        n_question: int = 0,
        trained: int = 0,
        reported: str = "",
    ) -> None:
        """`needed`: tokens of what cannot leave and of `reserve`, the least room for an answer; `n_prompt`: the whole
        prompt, where that is known. `window`: tokens that clients are told, where these are more than `limit`;
        `n_question`: of the newest question, where it alone does not fit; `trained`: as in `larger`. `reported`: what a
        provider reports; where it names no numbers, `needed` and `limit` are 0."""
        # Clients know it by these words: Claude Code and others by the first, LiteLLM by "this model's maximum context
        # length is", the seeds by "context window" (C10, OAI-30).
        where = f" of cache {cache!r}" if cache else ""
        where += f" has {window}, {limit} of them at a time" if window else ""
        todo = (
            f"the newest question alone has {n_question}: shorten it, or {larger(needed, trained)}"
            if n_question
            else "shorten the conversation or use a larger context size"
        )
        stays = needed - reserve
        what = "the prompt has" if n_prompt in {None, stays} else "what must stay of the prompt has"
        apart = f"; {what} {stays}, and {reserve} are kept for the answer" if reserve else ""
        message = (
            f"prompt is too long: {needed} tokens > {limit} maximum{apart}; this model's maximum context length is "
            f"{limit} tokens (the context window{where}); {todo}"
            if limit
            else "prompt is too long for the context window of this model; shorten the conversation"
        )
        super().__init__(f"{message} ({reported})" if reported else message)
        self.needed = needed
        self.reserve = reserve
        self.n_prompt = needed if n_prompt is None else n_prompt
        self.window = window
        self.limit = limit
        self.cache = cache


class NotAllowed(ShepherdError):
    """The caller has no key (401) or no right (403)."""

    status = 401
    code = "invalid_api_key"


class UnknownModel(ShepherdError):
    """No route, model or cache has this name."""

    status = 404
    code = "model_not_found"

    def __init__(self, model: str, *, known: tuple[str, ...] = ()) -> None:
        super().__init__(f"model {model!r} does not exist{names_near(model, known)}")
        self.model = model
        self.known = known


def names_near(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about a name that does not exist: the nearest ones, or else the first of those known.
    Globs are near to nothing."""
    import difflib  # noqa: PLC0415 - every command imports this file, few need it

    by_small = {each.casefold(): each for each in reversed(known) if not set(each) & set("*?[")}
    if near := difflib.get_close_matches(name.casefold(), by_small, MOST_NEAR):
        return f"; did you mean {' or '.join(repr(by_small[each]) for each in near)}?"
    more = f" and {len(known) - MOST_KNOWN} more" if len(known) > MOST_KNOWN else ""
    return f"; known: {', '.join(known[:MOST_KNOWN])}{more}" if known else ""


class BackendError(ShepherdError):
    """A back end other than our own engine failed."""

    status = 502
    code = "backend_error"

    def __init__(self, message: str, *, backend: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.backend = backend
        self.retry_after_s = retry_after_s


class Unreachable(BackendError):
    status = 503
    code = "backend_unreachable"
    retryable = True


class TimedOut(BackendError):
    status = 504
    code = "backend_timeout"
    retryable = True


class RateLimited(BackendError):
    """The back end refuses further requests for now."""

    status = 429
    code = "rate_limit_exceeded"
    retryable = True


class BudgetExceeded(RateLimited):
    """What the user allows a provider to cost in a day is spent; no request was sent."""

    code = "budget_exceeded"
    retryable = False


class Unavailable(BackendError):
    """The back end failed for the moment, or has too much to do."""

    status = 503
    code = "backend_unavailable"
    retryable = True


class Refused(BackendError):
    code = "backend_refused"

    def __init__(self, message: str, *, backend: str, status: int, body: str = "") -> None:
        super().__init__(message, backend=backend)
        self.status = status
        self.body = body


class BadReply(BackendError):
    """The back end's answer broke its own protocol."""

    code = "backend_bad_reply"


class EngineError(ShepherdError):
    code = "engine_error"


class EngineDown(EngineError):
    """The engine thread has gone; requests are refused until it is started again."""

    status = 503
    code = "engine_down"
    retryable = True


class MemoryFailure(ShepherdError):
    """The archive could not be read or written: its disk is full or failed, its file is damaged, locked or closed."""

    code = "memory_error"


class ConfigError(ShepherdError):
    """The configuration cannot be used. Raised at start only."""

    code = "config_error"

    def __init__(self, message: str, *, key: str = "", file: str = "") -> None:
        where = ": ".join(part for part in (file, key) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.key = key
        self.file = file
