"""GBNF as Lark: the same texts are in the grammar."""

from __future__ import annotations

import ctypes
import json
import re
from array import array
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.cases import examples
from tests.unit.engine.masks import constrainer, reads

from shepherd.core import InvalidRequest
from shepherd.engine.grammar.gbnf import gbnf_to_lark
from shepherd.engine.grammar.mask import Constrainer

if TYPE_CHECKING:  # a run without the model loads no native library
    from shepherd.engine.llamacpp.weights import Weights

BYTES = constrainer()

JSON = r"""
# what llama.cpp's own examples look like
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws     ::= ([ \t\n] ws)?
"""

CASES: dict[str, tuple[str, dict[str, str]]] = {
    "text": ('root ::= "ab"', {"ab": "whole", "a": "part", "b": "stops at 0", "abc": "stops at 2"}),
    "nothing": ('root ::= ""', {"": "whole", "a": "stops at 0"}),
    "nothing at all": ("root ::=", {"": "whole", "a": "stops at 0"}),
    "an empty alternative": ('root ::= "a" | ', {"": "whole", "a": "whole"}),
    "escapes": (r'root ::= "\x41\u00e9\U0001F600\"\\\n\t\r"', {'A\u00e9😀"\\\n\t\r': "whole"}),
    "letters": (r"root ::= [a-c\]\-x^]+", {"abc]-x^": "whole", "d": "stops at 0", "": "part"}),
    "other letters": (r"root ::= [^a-c\n]", {"d": "whole", "é": "whole", "b": "stops at 0", "\n": "stops at 0"}),
    "a dash at the end": ("root ::= [a-]+", {"a-a": "whole", "b": "stops at 0"}),
    "set operators are letters": ("root ::= [a&&b~~[:+--]+", {"a&b~": "whole", "[:,": "whole", "x": "stops at 0"}),
    "beyond ASCII": ("root ::= [ぁ-ん]+ [\\U0001F600-\\U0001F64F]", {"あん😃": "whole", "a": "stops at 0"}),
    "any character": ("root ::= .{2}", {"\né": "whole", "x": "part"}),
    "repetitions": (
        'root ::= "a"{2} "b"{1,} "c"{0,2} "d"? "e"* "f"+',
        {"aabf": "whole", "aabbbccdeeff": "whole", "abf": "stops at 1", "aacf": "stops at 2", "aabcccf": "stops at 5"},
    ),
    "a repetition of a repetition": ('root ::= "a"+?', {"": "whole", "aaa": "whole"}),
    "braces with blanks": ('root ::= "a"{ 1 , 2 }', {"a": "whole", "aa": "whole", "aaa": "stops at 2"}),
    "groups": ('root ::= ("a" | "b" ("c" | "d"))+', {"abcbda": "whole", "b": "part", "c": "stops at 0"}),
    "rules": (
        "root ::= my-Rule my_rule2\nmy-Rule ::= [a-z]+\nmy_rule2 ::= my-Rule \"!\"",
        {"ab!": "whole", "a!": "stops at 1", "!": "stops at 0"},
    ),
    "names that become one": ('root ::= a-b a_b A-b\na-b ::= "1"\na_b ::= "2"\nA-b ::= "3"', {"123": "whole"}),
    "a rule called like ours": (
        'root ::= start start-part1\nstart ::= "1" root?\nstart-part1 ::= "2"',
        {"1122": "whole"},
    ),
    "the later rule counts": ('root ::= a\na ::= "1"\na ::= "2"', {"2": "whole", "1": "stops at 0"}),
    "comments and lines": (
        '# one\nroot ::= # two\n  "a" | # three\n\n "b" (  # four\n "c"\n )\n  | "d"\n# five',
        {"a": "whole", "bc": "whole", "d": "whole"},
    ),
    "line ends of Windows": ('root ::= a |\r\n "b"\r\na ::= "1"\r\n', {"1": "whole", "b": "whole"}),
    "recursion": ('root ::= "(" root ")" | "x"', {"((x))": "whole", "((x": "part", "()": "stops at 1"}),
    "recursion at the front": ('root ::= root "+" n | n\nn ::= [0-9]+', {"1+22+3": "whole", "+": "stops at 0"}),
    "recursion at the end": ('root ::= "a" root?', {"aaaa": "whole", "": "part"}),
    "no way to go on twice": ("root ::= [a-z]+ [a-z] [0-9]", {"ab1": "whole", "abc1": "whole", "a1": "stops at 1"}),
    "JSON": (
        JSON,
        {
            '{"a": [1, -2.5e+3, true, null, "\\n\\u00e9\\/é"], "b": {}}': "whole",
            '{"a" : 1}': "whole",
            "{}": "whole",
            "[]": "stops at 0",
            '{"a"}': "stops at 4",
            '{"a": "\n': "stops at 7",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("grammar", "texts"), CASES.values(), ids=CASES)
def test_the_same_texts_are_in_the_grammar(grammar: str, texts: dict[str, str]) -> None:
    lark = gbnf_to_lark(grammar)
    BYTES.check(lark)
    assert {text: reads(BYTES, lark, text) for text in texts} == texts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('root ::= "(" root ")" | word\nword ::= [a-z]+', {"answer"}),
        ("root ::= word\nword ::= [a-z]+", {"answer", "ANSWER"}),
    ],
)
def test_all_names_begin_with_that_of_the_root(text: str, names: set[str]) -> None:
    lark = gbnf_to_lark(text, root="answer")
    assert {line.split(":")[0].split("_")[0] for line in lark.splitlines()} == names
    assert reads(BYTES, 'start: "<" answer ">"\n' + lark, "<a>") == "whole"


def test_an_endless_grammar_does_not_hang_the_library() -> None:
    """With greedy terminals nothing was left for the second `p`, and more was waited for inside of llguidance."""
    lark = gbnf_to_lark("root ::= p p\np ::= [a]+ | [a]+ p\n")
    BYTES.check(lark)
    assert [reads(BYTES, lark, text) for text in ("a", "aa", "aaaa", "b")] == ["part", "whole", "whole", "stops at 0"]


WRONG = {
    "": "has no rule named 'root'",
    'a ::= "x"': "has no rule named 'root'",
    "root ::= x": "uses the rule 'x' in 'root' and does not define it",
    "root": "cannot be read at line 1, column 5, at the end of the line: '::=' is missing",
    'root = "x"': """cannot be read at line 1, column 6, before '= "x"': '::=' is missing""",
    'root ::= "x': "cannot be read at line 1, column 12, at the end of the line: the closing \" is missing",
    'root ::= "x\n"': "cannot be read at line 1, column 12, at the end of the line: the closing \" is missing",
    "root ::= [a": "cannot be read at line 1, column 12, at the end of the line: the closing ] is missing",
    "root ::= []": "cannot be read at line 1, column 12, at the end of the line: [] matches nothing",
    "root ::= [z-a]": "cannot be read at line 1, column 14, before ']': the range z-a runs backwards",
    'root ::= ("x"': "cannot be read at line 1, column 14, at the end of the line: ')' is missing",
    'root ::= "x")': "cannot be read at line 1, column 13, before ')': the rule should have ended here",
    '\nroot ::= "\\q"': "cannot be read at line 2, column 11, before '\\\\q\"': this escape is not known",
    'root ::= "\\ud800"': "cannot be read at line 1, column 17, before '\"': half a surrogate pair is not a character",
    'root ::= "\\UFFFFFFFF"': (
        "cannot be read at line 1, column 11, before '\\\\UFFFFFFFF\"': this escape is beyond Unicode"
    ),
    'root ::= "x"{a}': "cannot be read at line 1, column 13, before '{a}': a repetition is {m}, {m,} or {m,n}",
    'root ::= "x"{3,2}': (
        "cannot be read at line 1, column 13, before '{3,2}': "
        "a repetition goes from a smaller to a larger number, up to 100000"
    ),
    "root ::= <think>": (
        "cannot be read at line 1, column 10, before '<think>': "
        "references to tokens are not supported; write their text"
    ),
    "root ::= " + "(" * 200: (
        "cannot be read at line 1, column 111, before '((((((((((((((((((((': brackets are nested deeper than 100"
    ),
    "root ::= " + "x" * 70_000: "is too long: 70009 characters, at most 65536",
}  # fmt: skip


@pytest.mark.parametrize(("grammar", "message"), WRONG.items(), ids=[key[:16] for key in WRONG])
def test_a_fault_is_named_with_its_place(grammar: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        gbnf_to_lark(grammar, field="grammar")
    assert (raised.value.message, raised.value.field) == (f"grammar {message}", "grammar")


def test_repetitions_of_repetitions_are_refused_however_many() -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        BYTES.check(gbnf_to_lark('root ::= "a"' + "+" * 5_000))


@given(st.text(alphabet='root ::="ab[]()|*+?{}12,-^.\\#\n', max_size=40))
def test_any_text_is_a_grammar_or_refused(text: str) -> None:
    try:
        lark = gbnf_to_lark("root ::= " + text)
    except InvalidRequest:
        return
    try:
        BYTES.check(lark)
    except InvalidRequest as error:  # one that nothing satisfies
        assert "satisf" in error.message or "complex" in error.message, lark  # noqa: PT017


# -- against other readers


class Text(NamedTuple):
    text: str


class CharacterClass(NamedTuple):
    ranges: tuple[tuple[str, str], ...]
    negated: bool


class Sequence(NamedTuple):
    parts: tuple[Part, ...]


class Choice(NamedTuple):
    parts: tuple[Part, ...]


class Repeat(NamedTuple):
    part: Part
    least: int
    most: int | None


Part = Text | CharacterClass | Sequence | Choice | Repeat

WORDS = st.sampled_from(["a", "b", "ab", "é", ""]).map(Text)
LETTERS = st.builds(CharacterClass, st.sampled_from([(("a", "b"),), (("b", "é"), ("x", "x"))]), st.booleans())


def grown(inner: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    times = st.sampled_from([(0, None), (1, None), (0, 1), (2, 3), (0, 2)])
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Choice(tuple(parts))),
        st.builds(lambda part, some: Repeat(part, *some), inner, times),
    )


REGULAR = st.recursive(st.one_of(WORDS, LETTERS), grown, max_leaves=8)


def written(part: Part) -> str:
    """Back to GBNF."""
    match part:
        case Text(text):
            return json.dumps(text, ensure_ascii=False)
        case CharacterClass(ranges, negated):
            return "[" + "^" * negated + "".join(f"{first}-{last}" for first, last in ranges) + "]"
        case Sequence(parts):
            return "(" + " ".join(map(written, parts)) + ")"
        case Choice(parts):
            return "(" + " | ".join(map(written, parts)) + ")"
        case Repeat(inner, least, most):
            return f"({written(inner)}){{{least},{'' if most is None else most}}}"
        case _:
            raise AssertionError(part)


def pattern(part: Part) -> str:
    """As Python's own regular expression."""
    match part:
        case Text(text):
            return re.escape(text)
        case CharacterClass(ranges, negated):
            return "[" + "^" * negated + "".join(f"{first}-{last}" for first, last in ranges) + "]"
        case Sequence(parts):
            return "(?:" + "".join(map(pattern, parts)) + ")"
        case Choice(parts):
            return "(?:" + "|".join(map(pattern, parts)) + ")"
        case Repeat(inner, least, most):
            return f"(?:{pattern(inner)}){{{least},{'' if most is None else most}}}"
        case _:
            raise AssertionError(part)


@settings(max_examples=examples(150))
@given(REGULAR, st.lists(st.text(alphabet="abéx", max_size=5), min_size=5, max_size=5))
def test_without_recursion_it_means_what_a_regular_expression_means(part: Part, texts: list[str]) -> None:
    lark = gbnf_to_lark(f"root ::= {written(part)}")
    expected = re.compile(pattern(part))
    try:
        BYTES.check(lark)
    except InvalidRequest as error:  # llguidance stumbles over choices of choices whose letters overlap
        assume("broke the library" not in error.message)
    for text in texts:
        assert (reads(BYTES, lark, text) == "whole") == bool(expected.fullmatch(text)), (lark, text)


def accepts(weights: Weights, grammar: str, tokens: list[int]) -> bool:
    """Whether llama.cpp's own sampler leaves each of these tokens in the running."""
    from shepherd.engine.llamacpp.library import C

    sampler = C.llama_sampler_init_grammar(weights.vocab, grammar.encode(), b"root")
    assert sampler, "llama.cpp cannot read it"
    try:
        for token in tokens:
            one = (C.llama_token_data * 1)(C.llama_token_data(token, 1.0, 0.0))
            candidates = C.llama_token_data_array(one, 1, -1, False)
            C.llama_sampler_apply(sampler, ctypes.byref(candidates))
            if one[0].logit == float("-inf"):
                return False
            C.llama_sampler_accept(sampler, token)
        return True
    finally:
        C.llama_sampler_free(sampler)


@pytest.mark.model
@pytest.mark.parametrize(
    "grammar",
    [JSON, 'root ::= ("- " [^\\n]+ "\\n")+', 'root ::= e ("=" e)?\ne ::= t ([-+] t)*\nt ::= [a-z] | "(" e ")"'],
    ids=["JSON", "list", "expressions"],
)
def test_llama_cpp_accepts_what_our_masks_allow(grammar: str, weights: Weights) -> None:
    made, random = Constrainer(weights, weights.end_tokens), Random(1)
    lark = gbnf_to_lark(grammar)
    for _ in range(5):
        mask, tokens = made.mask(lark), list[int]()
        while len(tokens) < 30 and not (tokens and tokens[-1] in weights.end_tokens):
            logits = array("f", [0.0] * weights.n_vocab)
            mask.allow(memoryview(logits))
            tokens.append(random.choice([token for token, logit in enumerate(logits) if logit == 0]))
            mask.accept(tokens[-1])
        assert accepts(weights, grammar, tokens), [weights.piece(token) for token in tokens]
