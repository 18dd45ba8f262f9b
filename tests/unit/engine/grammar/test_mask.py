"""Which tokens may come next: on small vocabularies by hand, and on the embedded model through the engine."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from array import array
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.engine.masks import Pieces, allowed, constrainer, reads

from shepherd.core import EngineError, InvalidRequest, Sampling
from shepherd.engine.base import Chunk, Done, Forget, Job, Mask
from shepherd.engine.engine import InProcessEngine
from shepherd.engine.grammar.mask import (
    KEPT,
    MAX_PROBES,
    Constrainer,
    GrammarMask,
    ProbeBudget,
    explain_error,
    fault_of,
    fit_schema,
    locate_fault,
)

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.runtime import LlamaRuntime
    from shepherd.engine.llamacpp.weights import Weights

_proof: type[Mask] = GrammarMask
TEXT = "TEXT: /(?s:.*)/\n"


def after(made: Constrainer, lark: str, tokens: list[int]) -> Mask:
    mask = made.mask(lark)
    for token in tokens:
        assert mask.allows(token)
        mask.accept(token)
    return mask


# -- tokens


def test_pieces_may_end_inside_of_a_character() -> None:
    vocabulary = Pieces([b"\xe2\x82", b"\xac!", b"\xac", b"a\xe2"])
    made = constrainer(vocabulary)
    half, rest, end = vocabulary.id(b"\xe2\x82"), vocabulary.id(b"\xac!"), vocabulary.id("<end>")
    euro = after(made, 'start: "€!"', [half])
    assert allowed(euro, vocabulary.n_vocab) <= {0xAC, rest, vocabulary.id(b"\xac")}
    assert euro.allows(rest)
    free = after(made, "start: TEXT\n" + TEXT, [half])
    inside = allowed(free, vocabulary.n_vocab)
    assert {0x80, 0xBF, rest} <= inside
    assert not inside & {end, ord("a"), half, vocabulary.id(b"a\xe2")}, "half a character is no text"
    assert not free.allows(end)
    free.accept(rest)
    assert {end, ord("a"), half, vocabulary.id(b"a\xe2")} <= allowed(free, vocabulary.n_vocab)


def test_tokens_without_text_never_come() -> None:
    vocabulary = Pieces([b"", b"a", b""])
    mask = constrainer(vocabulary).mask("start: TEXT\n" + TEXT)
    assert not allowed(mask, vocabulary.n_vocab) & {256, 258}
    assert not mask.allows(256)


def test_all_tokens_with_the_same_text_may_come() -> None:
    vocabulary = Pieces([b"\n", b"ab", b"ab"])
    mask = constrainer(vocabulary).mask(r"start: /(ab|ac|\n)x/")
    assert allowed(mask, vocabulary.n_vocab) == {ord("a"), ord("\n"), 256, 257, 258}


def test_control_tokens_are_no_text() -> None:
    vocabulary = Pieces([], ["<end>", "<start>", "<call>"], user_defined=["<tool>"])
    made = constrainer(vocabulary, spelled=["<call>"])
    start, call, tool = (vocabulary.ids[text] for text in ("<start>", "<call>", "<tool>"))
    free = made.mask("start: TEXT\n" + TEXT)
    assert {start, call, tool} & allowed(free, vocabulary.n_vocab) == {call, tool}
    assert [free.allows(token) for token in (start, call, tool)] == [False, True, True]
    literal = made.mask('start: ("<call>" | "<start>") "x"')
    assert allowed(literal, vocabulary.n_vocab) == {ord("<"), call}
    assert not made.mask("start: A\nA: ~/x/").allows(start), "an expression that is negated matches anything but text"
    assert start not in allowed(made.mask("start: A\nA: ~/x/"), vocabulary.n_vocab)


def test_what_is_spelled_is_one_token_where_nothing_else_may_come() -> None:
    vocabulary = Pieces([b"<ca"], ["<end>", "<call>", "<call>2"])
    made = constrainer(vocabulary, spelled=["<call>", "<call>2"])
    mask = made.mask('start: "x<call>" "y<call>2"')
    for token in (ord("x"), vocabulary.ids["<call>"], ord("y"), vocabulary.ids["<call>2"], vocabulary.ids["<end>"]):
        assert allowed(mask, vocabulary.n_vocab) == {token}
        mask.accept(token)


def test_all_end_tokens_come_where_the_grammar_may_end_and_only_there() -> None:
    vocabulary = Pieces([], ["<end>", "<stop>", "<start>"], user_defined=["</s>"])
    ends = {vocabulary.ids[text] for text in ("<end>", "<stop>", "</s>")}
    made = constrainer(vocabulary, ends=("<end>", "<stop>", "</s>"), spelled=("<stop>",))
    for lark, text, may_end, may_go_on in (
        ('start: "ab"', "", False, True),
        ('start: "ab"', "a", False, True),
        ('start: "ab"', "ab", True, False),
        ('start: "ab" "c"?', "ab", True, True),
        ("start: TEXT\n" + TEXT, "x", True, True),
        ('start: ""', "", True, False),
        ('start: "<stop>"', "", False, True),
    ):
        mask = after(made, lark, list(text.encode()))
        assert {mask.allows(end) for end in ends} == {may_end}, (lark, text)
        left = allowed(mask, vocabulary.n_vocab)
        assert left & ends == (ends if may_end else set()), (lark, text)
        assert bool(left - ends) == may_go_on, (lark, text)
    mask = after(made, 'start: "a"', [ord("a")])
    mask.accept(min(ends))
    assert allowed(mask, vocabulary.n_vocab) == ends, "the last token is not one too many"


@pytest.mark.parametrize("spaced", [False, True])
def test_forced_text_is_what_the_tokenizer_makes_of_it_and_nothing_else(spaced: bool) -> None:
    vocabulary = Pieces([b" hello", b"hello", b"\x02", b" ", b" \x02"], spaced=spaced)
    made = constrainer(vocabulary)
    mask = made.mask('start: "hello" "!"')
    assert allowed(mask, vocabulary.n_vocab) == {vocabulary.id("hello")}
    mask.accept(vocabulary.id("hello"))
    assert allowed(mask, vocabulary.n_vocab) == {ord("!")}


def test_rows_of_logits_may_be_longer_or_shorter_than_the_vocabulary() -> None:
    vocabulary = Pieces()
    mask = constrainer(vocabulary).mask("start: /[ab]/")
    assert allowed(mask, vocabulary.n_vocab + 63) == {ord("a"), ord("b")}
    assert allowed(mask, ord("b")) == {ord("a")}
    with pytest.raises(EngineError, match="allows no token here that the model has"):
        allowed(mask, 10)
    free = constrainer(vocabulary).mask("start: TEXT\n" + TEXT)
    assert max(allowed(free, vocabulary.n_vocab + 63)) < vocabulary.n_vocab


def test_a_token_that_may_not_come_cannot_be_accepted() -> None:
    mask = constrainer().mask('start: "a"')
    with pytest.raises(EngineError, match="the grammar cannot go on: what has been written does not satisfy it"):
        mask.accept(98)
    with pytest.raises(EngineError, match="the grammar cannot go on"):
        mask.allow(memoryview(array("f", [0.0] * 300)))


LARKS = [
    "start: TEXT\n" + TEXT,
    'start: (free call)* TEXT\nfree[lazy]: TEXT "<t>"\ncall: %json {"type": "integer"}\n' + TEXT,
    'start: %json {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}',
    r"start: /(a|é|€x)*b?/",
]
WIDE = Pieces(
    [b"ab", b"aa", b'{"', b'"a', b'":', b"<t", b"t>", b"\xc3", b"\xa9a", b"1}", b'"}', b" "], ["<end>", "<x>"]
)
WIDELY = constrainer(WIDE)


@settings(max_examples=examples(60))
@given(st.sampled_from(LARKS), st.lists(st.integers(0, WIDE.n_vocab - 1), max_size=12))
def test_asking_for_one_token_and_for_all_of_them_says_the_same(lark: str, wishes: list[int]) -> None:
    """But for text that is forced: of its spellings, `allow` leaves the tokenizer's own only."""
    mask = WIDELY.mask(lark)
    for wish in wishes:
        left = allowed(mask, WIDE.n_vocab)
        single = {token for token in range(WIDE.n_vocab) if mask.allows(token)}
        assert left <= single
        assert left == single or len(left) == 1
        if WIDE.ids["<end>"] in left and len(left) == 1:
            return
        token = min(left - {WIDE.ids["<end>"]}, key=lambda token: abs(token - wish))
        mask.accept(token)


# -- grammars

CALL = '%json {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
LAZY = 'start: (free call)* TEXT\nfree[lazy]: TEXT "<call>"\ncall: ' + CALL + ' "</call>"\n' + TEXT
READ: dict[str, tuple[str, dict[str, str]]] = {
    "lazy": (
        LAZY,
        {
            "": "whole",
            "any text, <cal even": "whole",
            "now <call>": "part",
            "now <call>x": "stops at 10",
            'now <call>{"n": 1}</call>': "whole",
            'a <call>{"n": 1}</call> b <call>{"n": 2}</call> c': "whole",
            "a <call>[": "stops at 8",
            'a <call>{"n": 1}</call> b <call>]': "stops at 32",
            'a <call>{"n": x': "stops at 14",
        },
    ),
    "an expression": (r"start: /[0-9]{3}-[a-zé]+/", {"123-é": "whole", "12": "part", "12x": "stops at 2"}),
    "an enum": (
        'start: %json {"enum": ["red", 1, null]}',
        {'"red"': "whole", "1": "whole", "null": "whole", "2": "stops at 0"},
    ),
    "a pattern without anchors": (
        'start: %json {"pattern": "b", "type": "string"}',
        {'"abc"': "whole", '"a"': "stops at 2"},
    ),
}


@pytest.mark.parametrize(("lark", "texts"), READ.values(), ids=READ)
def test_texts_are_read_as_the_grammar_says(lark: str, texts: dict[str, str]) -> None:
    made = constrainer()
    made.check(lark)
    assert {text: reads(made, lark, text) for text in texts} == texts


def test_what_the_prompt_has_written_is_read_first() -> None:
    vocabulary = Pieces([b'{"n": 1', b"</"], ["<end>", "<call>"])
    made = constrainer(vocabulary, spelled=["<call>"])
    made.check(LAZY)
    mask = made.mask(LAZY, "text <call>{")
    assert [mask.allows(token) for token in b'"n '] == [True, False, True]
    assert made.accepts(LAZY, 'x <call>{"n"')
    assert not made.accepts(LAZY, 'x <call>{"n": x')
    assert made.accepts(LAZY, "")
    assert not made.accepts('start: "a"', "a<end>")
    assert made.accepts('start: "é"', "é") is True
    with pytest.raises(EngineError, match="cannot be used: what has been written does not satisfy it"):
        made.mask(LAZY, "x <call>y")


WRONG = {
    "": "the grammar: empty grammar",
    "start": "the grammar: line 1, column 6: Expected token ':', found '\\n'",
    "start: a": 'the grammar: line 1, column 8: unknown name: "a"',
    "a: /x/": "the grammar: no start rule found",
    'start: "x" "': "the grammar: line 1, column 13: lexer error",
    "start: /(/": "the grammar: line 1, column 8: the pattern cannot be read: unclosed group",
    r"start: /a\bc/": r'the grammar: line 1, column 8: invalid regex "a\\bc" (in regex): lookarounds not supported yet',
    'start: %json {"type": ': "the grammar: failed to parse",
    'start: %json {"type": "x"}': "the grammar: invalid type: x",
    'start: %json {"$ref": "#"}': "the grammar: no text satisfies it",
    r"start: /[^\u{0}-\u{10ffff}]/": "the grammar: no text satisfies it",
    'start: a\na: "x" a': "the grammar has a rule that no text can satisfy, as it always needs itself: a",
    'start: "x"{1000000000}': "the grammar: it is too complex",
    'start: "\\ud800"': "the grammar: line 1, column 16: error parsing string",
    'start: "\ud800"': "the grammar holds half a surrogate pair, which is not a character",
    "start: %json " + "[" * 100_000: "the grammar is nested too deeply",
    '{"grammars": [{"lark_grammar": "start: /x/"}]}': "the grammar is JSON, not Lark",
}


@pytest.mark.grid(0.2)
@pytest.mark.parametrize(("lark", "message"), WRONG.items(), ids=[key[:24] for key in WRONG])
def test_a_fault_of_a_grammar_is_named(lark: str, message: str) -> None:
    made = constrainer()
    for field in (None, "grammar"):
        with pytest.raises(InvalidRequest) as raised:
            made.check(lark, field=field)
        assert raised.value.message.startswith(message.replace("the grammar", field or "the grammar", 1))
        assert "\n" not in raised.value.message
        assert raised.value.field == field


@settings(max_examples=examples(150))
@given(st.text(alphabet='start:abAB|()[]"/\\ \n%json{}1,~&.+*?#@-', max_size=50))
def test_any_text_is_a_grammar_or_refused(text: str) -> None:
    for lark in (text, f"start: {text}", f"start: A\nA: {text}", f"start: /{text}/", f"start: %json {text}"):
        try:
            SMALL.check(lark)
        except InvalidRequest:
            continue
        assert SMALL.mask(lark)


SMALL = constrainer()


def test_a_vocabulary_without_an_end_cannot_be_constrained() -> None:
    with pytest.raises(EngineError, match="no token that ends a text"):
        Constrainer(Pieces(), frozenset()).check('start: "x"')


def test_compiled_grammars_are_kept_and_forgotten() -> None:
    made = constrainer()
    for n in range(KEPT + 5):
        made.check(f'start: "{n}"')
    assert len(made._checked) == KEPT
    assert reads(made, 'start: "0"', "0") == "whole", "one that has been forgotten is compiled again"


def test_many_threads_may_check_and_mask_at_once() -> None:
    made = constrainer()
    results: list[str] = []

    def work(n: int) -> None:
        for turn in range(20):
            lark = f'start: "{(n + turn) % 7}" /[a-z]+/'
            made.check(lark)
            results.append(reads(made, lark, f"{(n + turn) % 7}abc"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["whole"] * 80


def test_a_panic_fails_the_request_only() -> None:
    from shepherd.engine.grammar.mask import _guarded

    class PanicException(BaseException):
        pass

    def panic() -> None:
        raise PanicException

    with pytest.raises(EngineError, match="broke the library"):
        _guarded(panic)


# -- schemas

SCHEMAS: dict[str, tuple[object, str, str]] = {
    "no object": ([], "", " must be a JSON schema, an object"),
    "a keyword": ({"contains": {}}, ".contains", ': "contains" is not supported here'),
    "deep inside": (
        {"properties": {"a": {"items": {"properties": {"b": {"uniqueItems": True, "type": "array"}}}}}},
        ".properties.a.items.properties.b.uniqueItems",
        ': "uniqueItems" is not supported here',
    ),
    "among many": (
        {"properties": {**{f"p{i}": {"type": "string"} for i in range(50)}, "bad": {"format": "x", "type": "string"}}},
        ".properties.bad.format",
        ": the format 'x' is not supported",
    ),
    "twice": (
        {"properties": {name: {"not": {"minimum": 1}} for name in "ab"}},
        ".properties.a.not",
        ': "not" is not supported here',
    ),
    "behind a reference": (
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"y": {"type": "string"}, "x": {"type": "strin"}}},
        ".$defs.x.type",
        ": invalid type: strin",
    ),
    "in an alternative": (
        {"anyOf": [{"type": "string"}, {"type": "string", "pattern": "(a"}]},
        ".anyOf[1].pattern",
        ": the pattern cannot be read: unclosed group",
    ),
    "between alternatives": (
        {"items": {"oneOf": [{"type": "string"}, {"maxLength": 3}]}},
        ".items.oneOf",
        ": oneOf must have members that exclude each other; use anyOf",
    ),
    "members that exclude each other": (
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        ".allOf",
        ": nothing satisfies it: incompatible types",
    ),
    "a lookaround": (
        {"properties": {"x": {"pattern": "a(?=b)"}}},
        ".properties.x.pattern",
        ": look-around is supported only as look-ahead at the beginning of a pattern",
    ),
    "numbers": ({"type": "integer", "minimum": 1e30}, ".minimum", ": the numbers are too large for a range"),
    "bounds": (
        {"type": "array", "minItems": 3, "maxItems": 1},
        ".minItems",
        ": nothing satisfies it: minItems (3) is greater than maxItems (1)",
    ),
    "another document": ({"$ref": "http://x/y"}, ".$ref", ": references to other documents are not supported"),
    "nothing there": ({"$ref": "#/$defs/x"}, ".$ref", ": pointer '/$defs/x' does not exist"),
    "a circle": ({"$ref": "#"}, ".$ref", ": what '#' leads to needs itself, so that no value satisfies it"),
    "false": (False, "", ": nothing satisfies it: schema is false"),
    "a bad value": (
        {"items": {"minLength": -1}},
        ".items.minLength",
        ": expected positive integer for 'minLength', got -1",
    ),
    "no schema": ({"properties": {"a": 5}}, ".properties.a", ": schema must be an object or boolean"),
    "too much": (
        {"items": {"multipleOf": 1_000_003}},
        ".items.multipleOf",
        " has too many digits, together with others of this schema; at most 100,000",
    ),
    "not JSON": ({"const": float("nan")}, "", " is not JSON, or nested too deeply"),
    "half a pair": ({"const": "\ud800"}, ".const", ": "),
}


@pytest.mark.parametrize(("schema", "path", "message"), SCHEMAS.values(), ids=SCHEMAS)
def test_the_part_of_a_schema_that_is_wrong_is_named(schema: object, path: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        fit_schema(schema, "format.schema", strict=True)
    assert raised.value.field == f"format.schema{path}"
    assert raised.value.message.startswith(f"format.schema{path}{message}")


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"pattern": "b"},
        {"type": "string", "maxLength": 10**9},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 10**9},
        {"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "type": "object"}}},
        {"properties": {"a": False}},
        {
            "title": "x",
            "x-foo": 1,
            "default": 3,
            "deprecated": True,
            "$schema": "http://json-schema.org/draft-07/schema#",
        },
    ],
    ids=repr,
)
def test_schemas_that_can_be_kept_to_are_accepted(schema: object) -> None:
    fit_schema(schema, "schema", strict=True)


class Counted(ProbeBudget):
    """Counts the compilations that are asked of it."""

    n = 0

    def take(self, schema: object) -> bool:
        self.n += 1
        return super().take(schema)


@pytest.mark.parametrize("place", [0, 77, 199])
def test_naming_the_part_that_is_wrong_takes_few_compilations(place: int) -> None:
    text = {"type": "string", "maxLength": 9}
    good: Any = {"type": "object", "properties": {"a": text, "b": text, "c": text}}
    wrong: Any = {"type": "object", "properties": {"a": text, "b": {"items": {"pattern": "(a", "title": ""}}}}
    schema = {"properties": {f"p{at}": wrong if at == place else good for at in range(200)}}
    counted = Counted(10**9)
    path = ("properties", f"p{place}", "properties", "b", "items", "pattern")
    assert locate_fault(schema, fault_of(schema), counted) == path
    assert counted.n <= MAX_PROBES


def test_without_a_budget_the_path_ends_earlier() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"properties": {"b": {"not": {}}, "c": {}}}, "d": {}}}
    fault = fault_of(schema)
    paths = [locate_fault(schema, fault, ProbeBudget(n)) for n in (0, 20, 40, 10**6)]
    assert paths[-1] == ("properties", "a", "properties", "b", "not")
    assert all(paths[-1][: len(path)] == path for path in paths)


JSONISH = st.recursive(
    st.sampled_from(
        [
            True,
            False,
            {},
            {"type": "string"},
            {"type": "integer"},
            {"enum": [1, "x"]},
            {"if": {}},
            5,
            "x",
            {"pattern": "("},
        ]
    ),
    lambda inner: st.one_of(
        st.dictionaries(
            st.sampled_from(["properties", "$defs", "patternProperties"]),
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            max_size=2,
        ),
        st.dictionaries(
            st.sampled_from(["items", "not", "additionalProperties", "$ref", "type", "required"]), inner, max_size=3
        ),
        st.dictionaries(
            st.sampled_from(["anyOf", "allOf", "oneOf", "prefixItems"]), st.lists(inner, max_size=3), max_size=2
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(100))
@given(JSONISH)
def test_any_schema_is_accepted_or_refused_with_a_path_that_is_there(schema: object) -> None:
    try:
        fit_schema(schema, "s", strict=True)
    except InvalidRequest as error:
        path = re.findall(r"\.([^.\[]+)|\[(\d+)\]", (error.field or "").removeprefix("s"))
        node: Any = schema
        for name, index in path:
            node = node[name] if name else node[int(index)]


def test_messages_of_the_library_are_put_into_words() -> None:
    assert explain_error("") == ""
    assert (
        explain_error('at 3(7): unknown name: "x"\n   2 | a\n   3 | x\n       ^\n')
        == 'line 3, column 7: unknown name: "x"'
    )
    assert (
        explain_error("lexer error: too many expressions constructed\n<state>\nTokens: secret") == "it is too complex"
    )


# -- the embedded model

ADDRESS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
HOT = 1.5


def prompt(weights: Weights, text: str) -> array[int]:
    ids = {special.text: special.id for special in weights.specials}
    start, end = ids["<|im_start|>"], ids["<|im_end|>"]
    return array("i", [start, *weights.tokenize("user\n" + text), end, start, *weights.tokenize("assistant\n")])


def on(weights: Weights, **options: Any) -> LlamaRuntime:
    """A context of the embedded model's."""
    from shepherd.engine.llamacpp.runtime import ContextOptions, LlamaRuntime

    return LlamaRuntime(weights, ContextOptions(n_threads=1, **options))


@pytest.fixture(scope="module")
def masks(weights: Weights) -> Constrainer:
    return Constrainer(weights, weights.end_tokens)


@pytest.fixture
async def engine(weights: Weights, masks: Constrainer) -> AsyncIterator[InProcessEngine]:
    runtime = on(weights, n_ctx=2048, n_seq=6)
    made = InProcessEngine(runtime, constrainer=masks)
    yield made
    await asyncio.to_thread(made.close)


async def say(
    engine: InProcessEngine,
    weights: Weights,
    lark: str | None,
    text: str = "hello",
    *,
    written: str = "",
    n: int = 120,
    **sampling: Any,
) -> tuple[str, str]:
    """An answer and how it ended."""
    if lark is not None and (constrainer := engine._scheduler._decode.constrainer) is not None:
        constrainer.check(lark)
    job = Job(prompt(weights, text), n, Sampling(**sampling), grammar=lark, written=written)
    tokens, reason = list[int](), ""
    async for steps in engine.submit(job).batches():
        for step in steps:
            if isinstance(step, int):
                tokens.append(step)
            elif isinstance(step, Done):
                reason = step.reason
    assert not set(tokens) & weights.end_tokens
    return b"".join(weights.piece(token) for token in tokens).decode(), reason


model = pytest.mark.model


@model
async def test_a_schema_holds_for_a_hot_model(engine: InProcessEngine, weights: Weights) -> None:
    lark = "start: %json " + json.dumps(ADDRESS)
    answers = await asyncio.gather(
        *(say(engine, weights, lark, temperature=HOT, seed=seed, top_k=0, min_p=0, top_p=1) for seed in range(20))
    )
    for text, reason in answers:
        assert reason == "end"
        value = json.loads(text)
        assert list(value) == ["name", "age", "tags"]
        assert len(value["name"]) <= 12
        assert 0 <= value["age"] <= 150
        assert set(value["tags"]) <= {"red", "green"}
    assert len({text for text, _ in answers}) > 10, "the model still has a say"


@model
@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0},
        {"temperature": HOT, "typical_p": 0.5, "top_k": 0},
        {"mirostat": 1},
        {"mirostat": 2},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "dry_multiplier": 0.8},
        {"xtc_probability": 1.0, "top_n_sigma": 1.0},
        {"ignore_eos": True},
    ],
    ids=str,
)
async def test_every_way_of_sampling_keeps_to_the_grammar(
    engine: InProcessEngine, weights: Weights, sampling: dict[str, Any]
) -> None:
    lark = r"start: /[0-9]{3}-(red|green)é/"
    for seed in range(3):
        text, reason = await say(engine, weights, lark, seed=seed, **sampling)
        assert re.fullmatch("[0-9]{3}-(red|green)é", text)
        assert reason == "end"


@model
async def test_without_a_grammar_nothing_is_different(engine: InProcessEngine, weights: Weights) -> None:
    """A grammar that allows everything that the model wants changes nothing, either."""
    for sampling in ({"temperature": 0}, {"seed": 3}, {"seed": 3, "repetition_penalty": 1.2, "dry_multiplier": 0.8}):
        plain = await say(engine, weights, None, n=40, **sampling)
        assert await say(engine, weights, "start: TEXT\n" + TEXT, n=40, **sampling) == plain


@model
async def test_free_text_stays_free_until_the_trigger(engine: InProcessEngine, weights: Weights) -> None:
    question = "what can you do?"  # the answer is known to have two commas
    lark = 'start: (free call)* TEXT\nfree[lazy]: TEXT ","\ncall: " [" /[0-9]{2}/ "]"\n' + TEXT
    plain, _ = await say(engine, weights, None, question, temperature=0)
    text, _ = await say(engine, weights, lark, question, temperature=0)
    at = plain.index(",")
    assert text[: at + 1] == plain[: at + 1]
    assert re.fullmatch(r"([^,]*, \[\d\d\])+[^,]*", text), "every comma is followed by a call, and then text is free"


@model
async def test_the_tool_calls_of_a_conversation_satisfy_their_schema(engine: InProcessEngine, weights: Weights) -> None:
    lark = (
        'start: (free call)* TEXT\nfree[lazy]: TEXT "<tool_call>"\ncall: "\\n" obj "\\n</tool_call>"\n'
        f"obj: %json {json.dumps(ADDRESS)}\n" + TEXT
    )
    for seed in range(3):
        text, reason = await say(engine, weights, lark, written="<tool_call>", temperature=HOT, seed=seed, n=300)
        body, closing, _ = text.partition("\n</tool_call>")
        assert closing or reason == "length"
        assert body.startswith("\n{")
        assert set(json.loads(body)) == {"name", "age", "tags"}


@model
async def test_what_the_prompt_has_written_counts(engine: InProcessEngine, weights: Weights) -> None:
    text, reason = await say(engine, weights, 'start: "red" | "green"', written="gr", temperature=HOT, seed=1)
    assert (text, reason) == ("een", "end")


@model
async def test_jobs_with_and_without_grammars_share_a_batch(engine: InProcessEngine, weights: Weights) -> None:
    greedy: dict[str, Any] = {"temperature": 0, "n": 30}
    alone = await say(engine, weights, None, "tell me a story", **greedy)
    together = await asyncio.gather(
        say(engine, weights, None, "tell me a story", **greedy),
        say(engine, weights, 'start: "red" | "green"', **greedy),
        say(engine, weights, r"start: /[0-9]{5,9}/", **greedy),
        say(engine, weights, None, "tell me a story", **greedy),
    )
    assert together[0] == together[3] == alone
    assert together[1][0] in ("red", "green")
    assert re.fullmatch("[0-9]{5,9}", together[2][0])


@model
async def test_a_preempted_answer_continues_where_its_grammar_was(weights: Weights, masks: Constrainer) -> None:
    runtime = on(weights, n_ctx=256, n_seq=4)
    small = InProcessEngine(runtime, constrainer=masks)
    lark = "start: (A B)*\nA: /[a-m]/\nB: /[0-9]/"
    try:
        answers = await asyncio.gather(
            *(say(small, weights, lark, f"{n} {n}", n=110, seed=n, temperature=HOT, ignore_eos=True) for n in range(4))
        )
    finally:
        await asyncio.to_thread(small.close)
    assert small._scheduler.pool.totals.preemptions, "or this has shown nothing"
    for text, reason in answers:
        assert reason == "length"
        assert re.fullmatch("([a-m][0-9])*[a-m]?", text)


@model
async def test_a_grammar_that_cannot_go_on_fails_its_job_only(engine: InProcessEngine, weights: Weights) -> None:
    plain = asyncio.create_task(say(engine, weights, None, temperature=0, n=60))
    with pytest.raises(EngineError, match="cannot be used: what has been written"):
        await say(engine, weights, 'start: "x"', written="y")
    with pytest.raises(EngineError, match="the grammar is too complex") as raised:
        # Not one that `check` would let pass.
        async for _ in engine.submit(Job(prompt(weights, "x"), 9, grammar='start: "x"{1000000000}')).batches():
            pass
    assert raised.value.status == 400
    assert (await plain)[0]
    assert (await say(engine, weights, 'start: "red"'))[0] == "red"


@model
def test_only_what_may_come_decides_what_is_typical(weights: Weights, masks: Constrainer) -> None:
    """With the others among the candidates, llama.cpp's entropy is not a number, and what it keeps is arbitrary."""
    runtime = on(weights, n_ctx=256)
    lark, one = r"start: /[0-9]{9}/", Sampling(typical_p=0.01, top_k=0, top_p=1.0, min_p=0.0, temperature=1.0)
    try:
        for seed in range(5):
            runtime.apply(Forget(0))
            assert runtime.decode([Chunk(0, prompt(weights, f"count to {seed}"), 0, True)]) == "ok"
            logits = runtime.logits(0)
            masks.mask(lark).allow(memoryview(logits))
            likely = {token: math.exp(logit) for token, logit in enumerate(logits) if logit > -math.inf}
            assert len(likely) > 9
            surprise = {token: -math.log(p / sum(likely.values())) for token, p in likely.items()}
            entropy = sum(value * math.exp(-value) for value in surprise.values())
            sampler = runtime.sampler(replace(one, seed=seed), [], masks.mask(lark))
            assert sampler.sample(0) == min(surprise, key=lambda token: abs(surprise[token] - entropy))
            sampler.close()
    finally:
        runtime.close()


@model
def test_a_ban_of_the_only_token_that_may_come_is_overruled(weights: Weights, masks: Constrainer) -> None:
    runtime = on(weights, n_ctx=256)
    try:
        assert runtime.decode([Chunk(0, prompt(weights, "x"), 0, True)]) == "ok"
        (token,) = weights.tokenize("{")
        for temperature in (0.0, 1.0):
            banned = Sampling(logit_bias=((token, float("-inf")),), temperature=temperature)
            sampler = runtime.sampler(banned, [], masks.mask('start: "{" /x+/'))
            assert sampler.sample(0) == token
            sampler.close()
    finally:
        runtime.close()


@pytest.mark.model
async def test_a_cache_without_a_constrainer_refuses_grammars(weights: Weights) -> None:
    plain = InProcessEngine(on(weights, n_ctx=256))
    try:
        with pytest.raises(InvalidRequest, match="cannot constrain"):
            await say(plain, weights, 'start: "x"')
    finally:
        await asyncio.to_thread(plain.close)
