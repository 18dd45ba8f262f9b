"""One request to a back end, complete and immutable.

`None` = not set: the default of the back end, the route or the model applies. Policy travels down in the request
(`on_full`); nothing below asks back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

from shepherd.core import limit
from shepherd.core.dataclasses import dataclass, field, fields, replace
from shepherd.core.edits import Edit, Place
from shepherd.core.errors import InvalidRequest
from shepherd.core.messages import Message, ToolSpec

ToolChoice = Literal["auto", "none", "required"] | tuple[Literal["named"], str]
ReasoningLevel = Literal["off", "on", "low", "medium", "high", "max"]
"""How much the model thinks; `on` leaves the effort to its template or its provider."""
OnFull = Literal["error", "evict"]
AnswerStart = Literal["turn", "nothing", "text"]
"""What stands before the answer: the head of a new turn; the whole last message and nothing more; the text of the last
message, which the answer continues."""
SharedPrefix = Literal["none", "system", "all"]
"""What owners share of their prompts in a cache: nothing, whole equal beginnings up to the first message that is not
the system's, or everything."""

_SALT = " salt "
_OWNER = re.compile(rf"(.*?)({_SALT}[0-9a-f]{{32}})?", re.DOTALL)


def salted(salt: str) -> str:
    """The owner that a client's salt names. The salt itself is a secret."""
    return _SALT + blake2b(salt.encode("utf-8", "replace"), digest_size=16).hexdigest()


def parts_of_owner(owner: str) -> tuple[str, str]:
    """The user, and the rest, which `salted` has made."""
    found = _OWNER.fullmatch(owner)
    assert found is not None
    return found[1], found[2] or ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Names and meanings are those of llama.cpp's sampler chain. Raises: `InvalidRequest`
    for what is beyond its limits (`limit`)."""

    temperature: float | None = None
    """0 = greedy."""
    top_k: int | None = None
    """0 = off."""
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repeat_last_n: int | None = None
    """Tokens that the three penalties look back on; 0 = none, -1 = the whole context."""
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[str, ...] | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: Literal[0, 1, 2] | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    seed: int | None = None
    logit_bias: tuple[tuple[int | str, float], ...] | None = None
    """A text stands for each of its tokens."""
    ignore_eos: bool | None = None

    def __post_init__(self) -> None:
        for name in limit.SAMPLING:
            if (value := getattr(self, name)) is not None:
                limit.check_sampling_number(name, value)
        limit.check_breakers(self.dry_sequence_breakers or ())
        limit.check_biases(self.logit_bias or ())

    def over(self, defaults: Sampling) -> Sampling:
        """These values where they are set, those of `defaults` elsewhere."""
        if defaults == _UNSET:
            return self
        return replace(
            defaults, **{f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        )


_UNSET = Sampling()


@dataclass(frozen=True, slots=True)
class Grammar:
    """The form of the visible answer, as a client writes it."""

    kind: Literal["gbnf", "regex", "lark"]
    text: str


LoraScale = tuple[int | str, float]
"""An adapter of the model, by its number or its name, and its scale."""
TextOrTokens = str | tuple[str | int, ...]
"""A text, or tokens between which there may be texts."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A bare text to be continued, without messages, tools or a chat template."""

    prompt: TextOrTokens
    """Text, in which nothing is a control token unless `special` is set, or the tokens themselves."""
    suffix: str | None = None
    """The text behind the gap: the answer fills the middle (FIM)."""
    echo: bool = False
    """Repeat the prompt at the head of the answer."""
    special: bool = False
    """The text's control tokens are recognised, as in a prompt that a client has rendered itself."""


@dataclass(frozen=True, slots=True)
class Native:
    """A request as the client sent it: a provider of the same protocol gets the fields that `Request` has no word
    for."""

    protocol: str
    body: Mapping[str, Any]
    demand: InvalidRequest | None = None
    """What the body demands of that protocol's own provider, such as a search: the error for every other model."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those that the protocol has beside its body, such as `anthropic-beta`; never a key of the client."""


@dataclass(frozen=True, slots=True)
class Request:
    """One turn to be generated: the whole conversation, its tools, and how to answer. Raises: `InvalidRequest` for what
    is beyond its limits (`limit`)."""

    model: str
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    """`none`: the prompt names the tools all the same, or it would share no beginning with the other prompts of its
    conversation."""
    shows_tools: bool = True
    """False: the prompt leaves the tools out. Calls are read all the same."""
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    reasoning: ReasoningLevel | None = None
    keeps_thoughts: bool = False
    """Thoughts of a model of this machine stay in the text, with the tags that it writes around them."""
    start: AnswerStart | None = None
    """None: the answer continues the last message where that is the assistant's, else it is a new turn."""
    schema: Mapping[str, Any] | None = None
    """JSON Schema that the visible answer must satisfy; at most one of `schema` and `grammar` is set."""
    strict_schema: bool = False
    """A part of `schema` that cannot be kept to is refused; else it is left out, and `Started` names it."""
    grammar: Grammar | None = None
    parallel_calls: bool | None = None
    """False: at most one call in this answer."""
    speculate: int | None = None
    """Most tokens that are drafted at a time from what the conversation holds; 0: none. None: as the cache does."""
    predicted: tuple[str, ...] = ()
    """Texts that the client expects in the answer: drafts come from them, too."""
    repeatable: bool | None = None
    """True: the same tokens each time, from a cache whose answers are repeatable, or no answer."""
    completion: Completion | None = None
    """A bare prompt in place of messages."""
    logprobs: int | None = None
    """None = not wanted; else the number of alternatives that come with each visible token, 0 or more."""
    scores_drawn: bool = False
    """Log probabilities are those that the token was drawn from, after sampling; else the model's own."""
    on_full: OnFull | None = None
    edits: tuple[Edit, ...] = ()
    """What the client asks to leave its context, in order."""
    lora: tuple[LoraScale, ...] = ()
    """The adapters that change the model's weights, and no others; none: as the name of the model says, or by
    default."""
    cleared: frozenset[Place] = frozenset()
    """What has left it: the prompt is that of all messages, without these."""
    background: bool | None = None
    """A side task (a title, a summary): it takes no room or time from other conversations."""
    report: bool = False
    """Report how the prompt was read (`Started.read`), and the tokens of each piece of a bare answer."""
    trace: bool = False
    """Report the model's exact input and output (`Traced`)."""
    session: str | None = None
    """A stable key of the conversation, where the client has one."""
    owner: str = ""
    """Whose conversation it is: what it leaves in a cache helps no other owner, but for what the cache's options share.
    A user, then what `salted` returns; each may be empty."""
    caller: str = ""
    """Who may come back to what is stored for this request: a user, or an API key. Empty without keys."""
    user: str | None = None
    """The user whose memory is used; None = none. Memories of different users never meet."""
    archive: bool | None = None
    """Whether the messages are kept in that memory."""
    recall: bool | None = None
    """Whether that memory is offered to the model."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields that only one protocol understands."""
    native: Native | None = field(default=None, compare=False, repr=False)

    @property
    def forbids_calls(self) -> bool:
        """Whether the prompt names tools of which none may be called."""
        return self.shows_tools and self.tool_choice == "none" and bool(self.tools)

    def __post_init__(self) -> None:
        limit.check_count("max_tokens", self.max_tokens or 0, limit.INT64_MAX)
        limit.check_count("logprobs", self.logprobs or 0, limit.INT32_MAX)
        limit.check_stops(self.stop)
        limit.check_count("speculate", self.speculate or 0, limit.MAX_DRAFT)
        limit.check_predicted(self.predicted)
