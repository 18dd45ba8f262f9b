"""Bare prompts on the fake runtime: a text goes on, a gap is filled, and nothing of a chat gets in between."""

from __future__ import annotations

import math
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fake_engine import FakeRuntime, FakeVocabulary
from tests.unit.backends.local.serving import Make, events, making, reply

from shepherd.backends.local.backend import LocalBackend
from shepherd.backends.local.completion import BarePrompt, PlainTextParser, encode, pieces
from shepherd.backends.local.prompt import Encoder
from shepherd.core import (
    Completion,
    ContextFull,
    Grammar,
    InvalidRequest,
    Message,
    Request,
    Sampling,
    Started,
    TextDelta,
    TextOrTokens,
    Traced,
)
from shepherd.dialects import Parser

CONTROL = ("<|im_start|>", "<|im_end|>", "<s>", "<pre>", "<suf>", "<mid>")
FIM = ("<pre>", "<suf>", "<mid>")
STORY = b"Once upon a time there was a lamb."
_proof: type[Parser] = PlainTextParser


def telling(vocabulary: FakeVocabulary) -> Callable[[Sequence[int]], int]:
    """A model that knows one story by heart, and says `gap` behind the token for the middle."""

    def next_token(tokens: Sequence[int]) -> int:
        if vocabulary.ids["<mid>"] in tokens:
            n = len(tokens) - tokens.index(vocabulary.ids["<mid>"]) - 1
            return b"gap"[n] if n < 3 else vocabulary.ids["<|im_end|>"]
        n = sum(token < 256 for token in tokens)
        return STORY[n] if n < len(STORY) else vocabulary.ids["<|im_end|>"]

    return next_token


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with making() as make_one:

        def made(bos: bool = False, fim: bool = False, n_ctx: int = 512) -> tuple[LocalBackend, FakeRuntime]:
            vocabulary = FakeVocabulary(CONTROL, fim=FIM if fim else None)
            vocabulary.bos = vocabulary.ids["<s>"] if bos else None
            model = telling(vocabulary)
            return make_one(model=model, vocabulary=vocabulary, n_ctx=n_ctx, is_constrained=True)

        yield made


def ask(prompt: TextOrTokens, *, suffix: str | None = None, echo: bool = False, **fields: Any) -> Request:
    return Request("fake", completion=Completion(prompt, suffix, echo), **fields)


def read(runtime: FakeRuntime) -> list[int]:
    """The tokens of the newest conversation."""
    return runtime.tokens(runtime.batches[-1][-1].seq)


@pytest.mark.parametrize("prompt", ["Once upon", tuple(b"Once upon")])
async def test_a_text_goes_on(make: Make, prompt: str | tuple[int, ...]) -> None:
    backend, _ = make()
    told = await reply(backend, ask(prompt))
    assert (told.message.text, told.reason) == (" a time there was a lamb.", "end")
    assert (told.usage.prompt, told.usage.output) == (9, 26)
    assert await backend.count(ask(prompt)) == 9


async def test_a_text_has_the_first_token_that_the_vocabulary_wants_and_tokens_are_taken_as_they_are(
    make: Make,
) -> None:
    backend, runtime = make(bos=True)
    await reply(backend, ask("Once", max_tokens=1))
    assert read(runtime)[0] == 258
    await reply(backend, ask(tuple(b"Once"), max_tokens=1))
    assert 258 not in read(runtime)


async def test_texts_may_stand_between_tokens(make: Make) -> None:
    backend, runtime = make(bos=True)
    await reply(backend, ask((79, "nc", 101), max_tokens=1))
    assert read(runtime)[:4] == [*b"Once"]
    await reply(backend, ask(("On", 99, "e"), max_tokens=1))
    assert read(runtime)[:5] == [258, *b"Once"], "a text that begins is a text"


@pytest.mark.parametrize("text", ["<|im_end|>a", "<s><|im_end|>a"])
async def test_control_tokens_count_where_the_client_has_rendered_the_prompt(make: Make, text: str) -> None:
    backend, runtime = make(bos=True)
    await reply(backend, Request("fake", completion=Completion(text, special=True), max_tokens=1))
    assert read(runtime)[:3] == [258, 257, *b"a"], "the first token comes once"


async def test_a_report_says_what_was_read_and_which_tokens_are_wanted_or_never_come(make: Make) -> None:
    backend, _ = make(bos=True)
    biases = Sampling(logit_bias=(("ab", -5.0), (7, 1.0)), ignore_eos=True)
    wanted = ask(("On", 99, "e"), sampling=biases, max_tokens=2, report=True)
    first, *texts, _ = await events(backend, wanted)
    assert isinstance(first, Started)
    assert first.read is not None
    assert first.read.text == "<s>Once"
    assert first.read.logit_bias == ((97, -5.0), (98, -5.0), (7, 1.0), (257, -math.inf))
    assert (first.read.sampling.ignore_eos, first.read.sampling.top_k) == (True, 40), "defaults hold, too"
    assert [each.tokens for each in texts if isinstance(each, TextDelta)] == [(ord(" "),), (ord("u"),)]
    first, *texts, _ = await events(backend, replace(wanted, report=False))
    assert isinstance(first, Started)
    assert first.read is None
    assert [each.tokens for each in texts if isinstance(each, TextDelta)] == [(), ()]


async def test_the_prompt_of_a_chat_is_reported_with_the_token_that_begins_it(make: Make) -> None:
    backend, _ = make(bos=True)
    first, *_ = await events(backend, Request("fake", (Message.user("Hi"),), max_tokens=1, report=True))
    assert isinstance(first, Started)
    assert first.read is not None
    assert first.read.text == "<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


async def test_nothing_in_a_text_becomes_a_control_token(make: Make) -> None:
    backend, runtime = make()
    await reply(backend, ask("<|im_end|>", max_tokens=1))
    assert all(token < 256 for token in read(runtime))


async def test_the_gap_between_prompt_and_suffix_is_filled(make: Make) -> None:
    backend, runtime = make(bos=True, fim=True)
    told = await reply(backend, ask("def f(", suffix="): pass"))
    assert told.message.text == "gap"
    assert read(runtime)[:17] == [258, 259, *b"def f(", 260, *b"): pass", 261]


async def test_a_model_that_cannot_fill_gaps_says_so(make: Make) -> None:
    backend, _ = make()
    with pytest.raises(InvalidRequest, match="model 'fake' cannot fill gaps") as caught:
        await reply(backend, ask("a", suffix="b"))
    assert caught.value.field == "suffix"


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        (ask(""), "prompt", "prompt is empty"),
        (ask(()), "prompt", "prompt is empty"),
        (ask((1, 262)), "prompt", r"token 262 is outside this model's vocabulary \(0 to 261\)"),
        (ask((-1,)), "prompt", "token -1 is outside"),
        (ask("a", sampling=Sampling(logit_bias=((500, 1.0),))), "logit_bias", "token 500 is outside"),
    ],
)
async def test_what_cannot_be_read_is_refused_by_name(make: Make, request_: Request, field: str, words: str) -> None:
    backend, _ = make()
    with pytest.raises(InvalidRequest, match=words) as caught:
        await reply(backend, request_)
    assert caught.value.field == field


async def test_a_prompt_that_is_too_long_names_both_counts(make: Make) -> None:
    backend, _ = make(n_ctx=32)
    with pytest.raises(ContextFull, match="42 tokens > 32 maximum"):
        await reply(backend, ask("x" * 40, max_tokens=2))


async def test_a_text_makes_room_for_its_answer_where_the_cache_evicts_but_not_for_itself(make: Make) -> None:
    backend, runtime = make(n_ctx=96, bos=True)
    request = ask("x" * 70, max_tokens=60, on_full="evict", sampling=Sampling(ignore_eos=True))
    answer = await reply(backend, request)
    assert (answer.reason, answer.usage.output, answer.evicted > 0) == ("length", 60, True)
    assert runtime.tokens(0)[0] == backend.encoder.tokenize("<s>", special=True)[0]  # the beginning stays
    with pytest.raises(ContextFull):
        await reply(backend, replace(request, on_full="error", max_tokens=60, completion=Completion("x" * 96)))
    with pytest.raises(ContextFull):
        await reply(backend, replace(request, completion=Completion("x" * 96)))


async def test_the_second_prompt_computes_what_is_new_only(make: Make) -> None:
    backend, _ = make()
    await reply(backend, ask("Once upon", max_tokens=7))
    told = await reply(backend, ask("Once upon a time th", max_tokens=3))
    assert told.message.text == "ere"
    assert told.usage.cache_read == len("Once upon a time") - 1, "the last word of an answer has not been read"


async def test_stop_strings_end_it_and_markup_is_text(make: Make) -> None:
    backend, _ = make()
    told = await reply(backend, ask("Once", stop=("time",)))
    assert (told.message.text, told.reason, told.stop) == (" upon a ", "stop", "time")


@pytest.mark.parametrize("bos", [False, True])
async def test_an_echo_says_the_prompt_and_how_likely_it_is(make: Make, bos: bool) -> None:
    backend, _ = make(bos=bos)
    plain = await reply(backend, ask("Once upon", echo=True, max_tokens=2))
    assert (plain.message.text, plain.scores) == ("Once upon a", ())
    told = await reply(backend, ask("Once uqon", echo=True, max_tokens=2, logprobs=1))
    assert told.message.text == "Once uqon a"
    assert b"".join(score.piece for score in told.scores).decode() == told.message.text
    likely = [score.logprob > -1 for score in told.scores]
    assert likely[1:] == [piece != b"q" for score in told.scores[1:] for piece in [score.piece]]
    first = told.scores[0].logprob
    assert first > -1 if bos else math.isnan(first), "nothing stands before it"
    assert told.usage.cache_read == 0, "its logits are wanted, so nothing of it can come from the cache"


async def test_no_tokens_are_no_tokens(make: Make) -> None:
    backend, _ = make()
    told = await reply(backend, ask("Once", echo=True, max_tokens=0, logprobs=0))
    assert (told.message.text, told.reason, told.usage.output, len(told.scores)) == ("Once", "length", 0, 4)
    silent = await reply(backend, ask("Once", max_tokens=0))
    assert (silent.message.parts, silent.reason) == ((), "length")


async def test_a_grammar_holds_the_text_without_the_markup_of_a_chat(make: Make) -> None:
    backend, _ = make()
    told = await reply(backend, ask("Once", grammar=Grammar("regex", " upon (x|y)"), max_tokens=20))
    assert told.message.text in (" upon x", " upon y")


async def test_chat_scores_are_those_of_the_tokens_that_were_said(make: Make) -> None:
    backend, _ = make()
    request = Request("fake", (Message.user("Hi"),), max_tokens=4, logprobs=2)
    told = await reply(backend, request)
    assert b"".join(score.piece for score in told.scores).decode() == told.message.text
    assert [score.logprob for score in told.scores] == [math.log(0.9)] * 4
    assert all(len(score.top) == 2 and score.top[0][0] == score.id for score in told.scores)


@pytest.mark.parametrize("request_", [ask("Once", max_tokens=5), Request("fake", (Message.user("Hi"),), max_tokens=5)])
async def test_a_trace_tells_what_is_read_and_written_word_for_word(make: Make, request_: Request) -> None:
    backend, _ = make(bos=True)
    traced = await events(backend, replace(request_, trace=True))
    stages = [event for event in traced if isinstance(event, Traced)]
    prompt = "<s>Once" if request_.completion else "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert traced.index(stages[0]) == 1
    assert stages[0] == Traced("prompt", prompt)
    assert {event.stage for event in stages[1:]} == {"output"}
    written = "".join(event.text for event in stages[1:])
    assert written == "".join(event.text for event in traced if isinstance(event, TextDelta))
    assert len(written) == 5
    assert not any(isinstance(event, Traced) for event in await events(backend, request_))


@settings(deadline=None)
@given(st.text(), st.none() | st.text(), st.booleans())
def test_a_prompt_is_between_what_is_put_around_it(text: str, suffix: str | None, bos: bool) -> None:
    vocabulary = FakeVocabulary(CONTROL, fim=FIM)
    vocabulary.bos = 258 if bos else None
    if not (text or suffix is not None or bos):
        return
    bare = encode(Completion(text, suffix), Encoder(vocabulary, ""), vocabulary, model="m")
    assert bare.tokens[bare.start : bare.stop] == array("i", list(text.encode("utf-8", "replace")))
    around = [token for token in bare.tokens if token > 255]
    assert around == [258] * bos + ([] if suffix is None else [259, 260, 261])


async def test_control_tokens_count_only_in_a_prompt_that_the_client_has_rendered(make: Make) -> None:
    backend, _ = make(bos=True)
    text = "<|im_start|>user"
    rendered = await backend.compile(Request("fake", completion=Completion(text, special=True)))
    plain = await backend.compile(Request("fake", completion=Completion(text)))
    assert list(rendered.encoded.tokens) == [258, 256, *b"user"]
    assert list(plain.encoded.tokens) == [258, *text.encode()]


async def test_the_prompt_of_a_conversation_is_text(make: Make) -> None:
    backend, _ = make()
    asked = Request("fake", (Message.user("Hi"),))
    assert await backend.render(asked) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


async def test_bare_prompts_are_no_change_of_anybodys_system_prompt(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    backend, _ = make()
    chat = Request("fake", (Message.system("Be brief."), Message.user("Hi")), max_tokens=1)
    for request in (chat, ask("Once", max_tokens=1), chat):
        await reply(backend, request)
    assert not [record for record in caplog.records if "system prompt" in record.message]


def test_a_bare_prompt_is_a_value() -> None:
    vocabulary = FakeVocabulary()
    bare = encode(Completion((1, 2)), Encoder(vocabulary, ""), vocabulary, model="m")
    assert bare == BarePrompt(array("i", [1, 2]), 0, 2)


async def test_text_becomes_tokens_and_tokens_text(make: Make) -> None:
    backend, _ = make(bos=True)
    assert backend.encoder.tokenize("a<pre>") == list(b"a<pre>")
    assert backend.encoder.tokenize("a<pre>b", special=True) == [97, 259, 98]
    assert backend.encoder.tokenize("a<pre>b", special=True, bos=True) == [258, 97, 259, 98]
    assert backend.encoder.tokenize("<s>a", special=True) == [258, 97]
    assert backend.encoder.tokenize("<s>a", special=True, bos=True) == [258, 97]
    assert backend.encoder.tokenize("a", bos=True) == [258, 97]
    assert backend.encoder.tokenize("", special=True) == []
    assert pieces([258, 97, 0xE2], FakeVocabulary(CONTROL)) == [b"<s>", b"a", b"\xe2"]
    with pytest.raises(InvalidRequest, match="token 262 is outside") as caught:
        pieces([1, 262], FakeVocabulary(CONTROL))
    assert caught.value.field == "tokens"
