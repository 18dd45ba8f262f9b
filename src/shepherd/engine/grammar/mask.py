"""Which tokens a grammar allows next: llguidance compiles grammars over a model's output and applies them.

    request side (any thread)                         engine thread
    check(lark) ── compiles ──▶ kept by text ──▶ mask(lark) ── allow(logits), draw, accept(token) ──▶ ...

A `Constrainer` belongs to one vocabulary. Control tokens are not text: free text never contains one, except those
whose text a dialect writes in its grammars. End tokens are allowed exactly where a grammar may end. Where a grammar
allows only one text, only the tokens that the tokenizer makes of it are allowed.

llguidance and NumPy are imported at first use: half of all servers never constrain an answer.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from shepherd.core import EngineError, InvalidRequest
from shepherd.core.lru import LruCache
from shepherd.engine.base import Mask, Vocabulary
from shepherd.engine.grammar import keywords
from shepherd.engine.grammar import lark as text
from shepherd.engine.grammar.ending import Ending, Letters
from shepherd.engine.grammar.keywords import at, replaced, without
from shepherd.engine.grammar.numbers import Path, members

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

KEPT = 32
"""Number of compiled grammars kept: an agent sends the same tools in every turn."""
MAX_FUEL = 1_000_000
"""Work to build a lexer, about 20 ms: llguidance's own default, as for the limits that are not set here."""
MAX_STATES = 50_000
"""States of one grammar's lexer, 1 to 2 kB each."""
TRIAL_STEPS = 3
"""Number of tokens that `check` tries: some grammars turn out to be too large only in use."""
MAX_PROBES = 20
"""Variants of a schema that are compiled to find out which part of it is wrong."""
MAX_PROBED_VALUES = 50_000
"""Values in all these variants, for all the tools of one request together: a second or two of compiling."""
MAX_LEFT_OUT = 100
"""Keywords of one schema that are left out before it is refused."""
PROBE_COST = 8
"""Values that compiling a variant counts for besides its own."""

T = TypeVar("T")


class Constrainer:
    """Makes masks for one vocabulary. Safe from any thread; a mask belongs to the engine thread that requested it."""

    def __init__(self, vocabulary: Vocabulary, end_tokens: frozenset[int], spelled: Collection[str] = ()) -> None:
        """Builds nothing yet. `spelled`: texts of control tokens that grammars write as ordinary text."""
        self._vocabulary = vocabulary
        self._end_tokens = end_tokens
        self._spelled = frozenset(spelled)
        self._building = threading.Lock()
        self._built: tuple[LLTokenizer, Letters] | None = None
        self._checked: LruCache[LLMatcher | None] = LruCache(KEPT)
        """Compiled grammars in their first state; always copied before use."""

    def prepare(self) -> None:
        """Build the tokenizer before the first check: 0.1 s for 32,000 tokens, 0.6 s for 150,000, half with the GIL.

        Raises: `EngineError` for a vocabulary without an end token.
        """
        self._build()

    def check(self, lark: str, *, field: str | None = None) -> None:
        """Compile a grammar and try it: milliseconds for most grammars, less than a second for any.

        Raises: `InvalidRequest`, with `field`, for a grammar that cannot be used; `EngineError` as `prepare`.
        """
        if self._checked.find(lark) is not None:
            return
        try:
            lark.encode()
            text.check(lark)
        except text.UnsupportedGrammar as error:
            _refuse(field, f" {error.message}")
        except UnicodeEncodeError:
            _refuse(field, " holds half a surrogate pair, which is not a character")
        matcher = compiled(self._build()[0], lark)
        if fault := explain_error(matcher.get_error()) or self._trial(matcher.deep_copy()):
            _refuse(field, f": {fault}")
        self._checked.keep(lark, matcher)

    def accepts(self, lark: str, written: str) -> bool:
        """Whether a text of a checked grammar can begin with `written`."""
        matcher, tokens = self._matcher(lark), self._encoder(written.encode("utf-8", "replace"))
        return bool(matcher.validate_tokens(tokens) == len(tokens))

    def mask(self, lark: str, written: str = "", *, n_tokens: int | None = None) -> Mask:
        """A mask for one answer of `n_tokens` at most that continues `written`; quick for a grammar that was checked
        recently.

        Raises: `EngineError` if the grammar cannot be used, or does not allow `written`.
        """
        matcher = self._matcher(lark)
        fault = explain_error(matcher.get_error())
        if not fault and written:
            matcher.consume_tokens(self._encoder(written.encode("utf-8", "replace")))
            fault = explain_error(matcher.get_error())
        if fault:
            self._forget(lark)
            raise EngineError(f"the grammar cannot be used: {fault}")
        ending = Ending(self._build()[1], n_tokens) if "%json" in lark else None
        return GrammarMask(matcher, self._encoder, lambda: self._forget(lark), ending)

    def _forget(self, lark: str) -> None:
        """Compile the grammar again next time: all copies of a matcher share one lexer, which is useless once full."""
        self._checked.keep(lark, None, weight=0)

    def _trial(self, matcher: LLMatcher) -> str:
        """Try some tokens of a grammar that compiles; returns the fault, empty if there is none so far."""
        mask = GrammarMask(matcher, self._encoder)
        try:
            for _ in range(TRIAL_STEPS):
                token = _guarded(mask.some)
                if token is None:
                    return "no text of this model satisfies it"
                if token in self._end_tokens:
                    break
                mask.accept(token)
        except EngineError as error:
            return explain_error(matcher.get_error()) or error.message
        return ""

    def _matcher(self, lark: str) -> LLMatcher:
        """A matcher for a checked grammar, in its first state."""
        known = self._checked.find(lark)
        return known.deep_copy() if known is not None else compiled(self._build()[0], lark)

    @functools.cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._vocabulary, self._end_tokens, self._spelled)

    def _build(self) -> tuple[LLTokenizer, Letters]:
        with self._building:
            if self._built is None:
                if not self._end_tokens:
                    raise EngineError("this model has no token that ends a text, so its output cannot be constrained")
                letters = Letters(self._encoder.tokens, self._end_tokens)
                self._built = tokenizer_of(self._encoder, self._end_tokens), letters
            return self._built


class GrammarFailed(EngineError):
    """A checked grammar that still fails in the middle of an answer: too complex, or unsatisfiable from there."""

    status = 400
    code = "invalid_request"


class GrammarMask:
    """The tokens that a grammar allows, for one answer; satisfies `Mask`."""

    def __init__(
        self,
        matcher: LLMatcher,
        encoder: Encoder,
        failed: Callable[[], None] = lambda: None,
        ending: Ending | None = None,
    ) -> None:
        """`failed` is called before an error of the matcher is raised. `ending` takes further tokens away."""
        import numpy as np  # noqa: PLC0415 - see the header
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask  # noqa: PLC0415

        self._matcher = matcher
        self._failed = failed
        self._ending = ending
        self._n_vocab = len(encoder.tokens)
        self._end_tokens = encoder.end_tokens
        self._control = encoder.control
        self._control_ids = np.array(sorted(encoder.control), np.int64)
        self._np = np
        self._fill = fill_next_token_bitmask
        self._words = allocate_token_bitmask(1, self._n_vocab)
        self._bytes = self._words.view(np.uint8)[0]
        self._never = np.float32(-np.inf)

    def allows(self, token: int) -> bool:
        if token in self._end_tokens:  # llguidance does not allow them where the grammar must end
            return bool(self._matcher.is_accepting())
        if token in self._control:  # a client's negated expression would match them
            return False
        allowed = self._matcher.validate_tokens([token]) == 1
        if self._matcher.is_error():
            self._fail()
        if allowed and self._ending is not None and self._ending.may_refuse(token):
            return bool(self._allowed()[token])
        return bool(allowed)

    def n_allowed(self, tokens: Sequence[int]) -> int:
        never = self._end_tokens | self._control
        text = [*itertools.takewhile(lambda token: token not in never, tokens)]
        n = self._matcher.validate_tokens(text)
        return 0 if self._matcher.is_error() else int(n)

    def allow(self, logits: memoryview) -> None:
        np, row = self._np, self._np.frombuffer(logits, self._np.float32)
        n = min(self._n_vocab, len(row))
        allowed = self._allowed()[:n].view(bool)
        n_allowed = np.count_nonzero(allowed)
        if not n_allowed:
            raise EngineError("the grammar allows no token here that the model has")
        if n_allowed < n // 8:
            ids = np.flatnonzero(allowed)
            values = row[ids]
            row.fill(self._never)
            row[ids] = values
        else:
            np.copyto(row[:n], self._never, where=~allowed)
            row[n:] = self._never

    def accept(self, token: int) -> None:
        if self._ending is not None:
            self._ending.accept(token)
        if token not in self._end_tokens and not self._matcher.consume_token(token):
            self._fail()

    def some(self) -> int | None:
        """A token that is allowed next, an end token only if no other is. Raises: `EngineError` as `allow`."""
        found = self._np.flatnonzero(self._allowed()).tolist()
        return min(found, key=lambda token: (token in self._end_tokens, token), default=None)

    def _allowed(self) -> Any:
        """[n_vocab], 1 for each token that is allowed next."""
        self._fill(self._matcher, self._words)
        if self._matcher.is_error():
            self._fail()
        allowed = self._np.unpackbits(self._bytes, bitorder="little", count=self._n_vocab)
        allowed[self._control_ids] = 0
        if self._ending is not None:
            self._ending.restrict(allowed, lambda tokens: self._matcher.validate_tokens([*tokens]) == len(tokens))
        return allowed

    def _fail(self) -> NoReturn:
        self._failed()
        fault = explain_error(self._matcher.get_error())
        if fault == TOO_COMPLEX:
            raise GrammarFailed(
                "the answer could not be held to its form any further: the grammar is too complex;"
                " use smaller repetitions, and fewer of them inside of each other"
            )
        raise (GrammarFailed if fault == NO_TEXT else EngineError)(f"the grammar cannot go on: {fault}")


class Encoder:
    """A vocabulary in the interface that llguidance needs: the bytes of all tokens, and text to tokens."""

    def __init__(self, vocabulary: Vocabulary, end_tokens: Collection[int], spelled: Collection[str]) -> None:
        self.tokens = [vocabulary.piece(token) for token in range(vocabulary.n_vocab)]
        self.bos_token_id = vocabulary.bos
        self.end_tokens = frozenset(end_tokens)
        self.eos_token_id = min(end_tokens, default=0)
        written = {s.text: s.id for s in vocabulary.specials if s.text and s.text in spelled and s.id not in end_tokens}
        control = {s.id for s in vocabulary.specials if s.control} - {*written.values()}
        self.special_token_ids = sorted(control | self.end_tokens)
        self.control = control - self.end_tokens
        self._tokenize = vocabulary.tokenize
        self._written = written
        longest_first = sorted(map(re.escape, written), key=len, reverse=True)
        self._parts = re.compile(f"({'|'.join(longest_first)})" if written else r"(?!)")
        self._of_byte = {piece[0]: token for token, piece in reversed([*enumerate(self.tokens)]) if len(piece) == 1}

    def __call__(self, raw: bytes) -> list[int]:
        """The tokens of exactly this text, byte by byte where there are no others.

        Must not raise: llguidance would panic.
        """
        try:
            parts = self._parts.split(raw.decode())
        except UnicodeDecodeError:
            return self._spell(raw)
        return [token for part in parts if part for token in self._encode(part)]

    def _encode(self, part: str) -> list[int]:
        if part in self._written:
            return [self._written[part]]
        # Many tokenizers put a space before the beginning of a text; the second try gives the text another beginning.
        for lead in ("", "\x02"):
            before, tokens = self._tokenize(lead) if lead else [], self._tokenize(lead + part)
            rest = tokens[len(before) :]
            if tokens[: len(before)] == before and self._text(rest) == part.encode():
                return rest
        return self._spell(part.encode())

    def _text(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.tokens[token] for token in tokens if token < len(self.tokens))

    def _spell(self, raw: bytes) -> list[int]:
        return [self._of_byte[byte] for byte in raw if byte in self._of_byte]


# -- llguidance -----------------------------------------------------------------------------------------------------


def tokenizer_of(encoder: Any, end_tokens: Collection[int]) -> LLTokenizer:
    """llguidance's tokenizer of a vocabulary. Imports NumPy too, so that no engine thread has to."""
    import llguidance.numpy  # noqa: PLC0415 - see the header
    from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415

    assert llguidance.numpy
    return LLTokenizer(TokenizerWrapper(encoder), eos_token=sorted(end_tokens))


def compiled(tokenizer: LLTokenizer, lark: str) -> LLMatcher:
    """Compile a grammar that `lark.check` accepts; the matcher is in its first state, or in an error state."""
    from llguidance import LLMatcher, LLParserLimits  # noqa: PLC0415 - see the header

    limits = LLParserLimits(initial_lexer_fuel=MAX_FUEL, max_lexer_states=MAX_STATES, verbose_errors=False)
    grammar = LLMatcher.grammar_from_lark(text.with_safe_bounds(lark))
    return _guarded(lambda: LLMatcher(tokenizer, grammar, log_level=0, limits=limits))


def _guarded(call: Callable[[], T]) -> T:
    """The result of a call of llguidance. Raises: `EngineError` for a panic of Rust, which is not an `Exception`."""
    try:
        return call()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise EngineError("it broke the library that reads it") from error


TOO_COMPLEX = "it is too complex"
NO_TEXT = "no text satisfies it"

_WORDS: tuple[tuple[str, str], ...] = (
    (r"Unimplemented keys: \[(.*)\]", r"\1 is not supported"),
    (r"Unknown format: (.*)", r"the format '\1' is not supported"),
    (r"Unsatisfiable schema: Regex is empty.*", "pattern, format and lengths exclude each other"),
    (r"Unsatisfiable schema: (.*)", r"nothing satisfies it: \1"),
    (r"Unable to determine if regex is empty.*", "its patterns together are too complex"),
    (r"oneOf constraints are not supported.*", "oneOf must have members that exclude each other; use anyOf"),
    (r"Expected f64 for (.*)", r"expected a number for \1"),
    (r"Failed to generate regex for (?:integer|float) range.*", "the numbers are too large for a range"),
    (r"Resource .* is not present in a registry.*", "references to other documents are not supported"),
    (r"(?:initial lexer configuration .* too big|schema too large).*", "it is too large"),
    (r"(?:lexer error: too many|parser error: Too many|lexer precomputation failed).*", TOO_COMPLEX),
    (r"(?i:parser error: current row has).*", TOO_COMPLEX),
    (r"NoExtension.*", NO_TEXT),
    (r"panic: .*", "it broke the library that reads it"),
    (r"Parser Error: token .*", "what has been written does not satisfy it"),
)
_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): ")
_EXCERPT = re.compile(r"^\s*(?:\d+ \|.*|\^+)?$")


def explain_error(error: str) -> str:
    """An error of llguidance in our words, with the line if it has one; empty for no error."""
    error = error.partition("\n<")[0]
    place = _PLACE.match(error)
    error = error[place.end() :] if place else error
    is_schema = "failed to compile JSON schema: " in error or 'failed to parse "%json"' in error
    error = error.replace("failed to compile JSON schema: ", "")
    lines = [line.strip() for line in error.splitlines() if not _EXCERPT.match(line)]
    reason = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    if reason:
        lines = [f"the pattern cannot be read: {reason}"]
    fault = re.sub(r' \(at ".*\)$', "", lines[0]) if lines else ""
    for pattern, words in _WORDS:
        if found := re.match(pattern, fault):
            fault = found.expand(words)
            break
    if place and not is_schema and fault:
        return f"line {place[1]}, column {place[2]}: {fault}"
    return fault[:1].lower() + fault[1:] if not fault.startswith(("JSON", "RFC")) else fault


def _refuse(field: str | None, what: str) -> NoReturn:
    raise InvalidRequest(f"{field or 'the grammar'}{what}", field=field)


# -- schemas -------------------------------------------------------------------------------------------------------

_DEFINITIONS = ("$defs", "definitions")
_SCHEMAS = ("properties", "patternProperties", "anyOf", "oneOf", "allOf", "prefixItems")
"""Keywords whose members are schemas, as are those of `_DEFINITIONS`."""
_SCHEMA = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_COMBINED = ("anyOf", "oneOf", "allOf")


def fit_schema(schema: Any, field: str = "", *, strict: bool = False) -> keywords.Fitted:
    """The schema that answers can be held to: without the parts that are beyond the library.

    Raises: `InvalidRequest` with the path, from `field` on, of a part that is wrong, or above a limit; where the client
    is `strict`, of the first part that would be left out, too.
    """
    if not isinstance(schema, (Mapping, bool)):
        raise InvalidRequest(f"{field} must be a JSON schema, an object", field=field)
    budget = ProbeBudget()
    try:
        small, left_out = (schema, []) if strict else _within_limits(schema, budget)
        text.check_document(small)
        found = keywords.fit(small)
        fitted, left_out = found.schema, [*left_out, *found.left_out]
        if fitted != small:
            text.check_document(fitted)
        while fault := fault_of(fitted):
            path = locate_fault(fitted, fault, budget)
            beyond = keywords.beyond(fitted, path, fault) if len(left_out) < MAX_LEFT_OUT else []
            if not beyond:
                _refuse_part(field, _known_part(schema, path), f": {fault}")
            for path in reversed(beyond):  # inner ones first
                if strict:
                    _refuse_part(field, _known_part(schema, path), f": {fault}")
                fitted = without(fitted, path)
                left_out.append(_known_part(schema, path))
    except text.UnsupportedGrammar as error:
        _refuse_part(field, error.path, f" {error.message}")
    except (RecursionError, ValueError, TypeError) as error:
        raise InvalidRequest(f"{field} is not JSON, or nested too deeply", field=field) from error
    if strict and left_out:
        path = left_out[0]
        _refuse_part(
            field, path, f': {keywords.reason(path[-1], at(schema, path))}; take it out, or send "strict": false'
        )
    return keywords.Fitted(fitted, tuple(dict.fromkeys(left_out)))


def _within_limits(schema: Any, budget: ProbeBudget) -> tuple[Any, list[Path]]:
    """The schema without expressions and numbers that would take too long to compile, and the paths of these."""
    left_out: list[Path] = []
    while budget.take(schema):
        try:
            text.check_document(schema)
        except text.UnsupportedGrammar as error:
            if error.path[-1:] not in (("pattern",), ("patternProperties",), ("multipleOf",)):
                break
            schema = without(schema, error.path)
            left_out.append(error.path)
        else:
            break
    return schema, left_out


def _refuse_part(field: str, path: Path, what: str) -> NoReturn:
    where = path_text(field, path)
    raise InvalidRequest(f"{where}{what}", field=where)


def path_text(field: str, path: Path) -> str:
    """The name of a part of a field, such as `format.properties.a.anyOf[0]`."""
    return field + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _known_part(schema: Any, path: Path) -> Path:
    """As much of the path as leads to a part of the schema that the client has sent."""
    for n, step in enumerate(path):
        known = dict(members(schema))
        if step not in known:
            made_from = [key for key in keywords.MADE_FROM.get(step, ()) if key in known]
            return (*path[:n], *made_from[:1])
        schema = known[step]
    return path


def fault_of(schema: Any) -> str:
    """The fault of a schema, in words that do not depend on its place; empty if there is none."""
    matcher = compiled(_bytes_only(), "start: %json " + json.dumps(schema, allow_nan=False))
    if not matcher.is_error():
        _guarded(matcher.compute_bitmask)  # circular references are found only now
    return explain_error(matcher.get_error())


class ProbeBudget:
    """How much may still be compiled to find what is wrong with the schemas of one request."""

    def __init__(self, n_values: int = MAX_PROBED_VALUES) -> None:
        self._n_values = n_values

    def take(self, schema: Any) -> bool:
        """Whether this schema may still be compiled; it is deducted either way."""
        self._n_values -= PROBE_COST + text.n_values(schema)
        return self._n_values >= 0


def locate_fault(schema: Any, fault: str, budget: ProbeBudget | None = None) -> Path:
    """The path of the smallest part of `schema` that has the fault, after at most `MAX_PROBES` compilations.

    llguidance does not name it. So subschemas are ordered, outer ones before inner ones and definitions last, and
    bisection finds the first one with which the fault appears; then its keywords are bisected alike. If the limit or
    the budget is reached, the path ends earlier.
    """
    budget = budget or ProbeBudget()
    n_left = MAX_PROBES

    def has_fault(variant: Any) -> bool | None:
        nonlocal n_left
        n_left -= 1
        return fault_of(variant) == fault if n_left >= 0 and budget.take(variant) else None

    paths = _subschemas(schema)
    low, high = _bisected(len(paths), lambda n: has_fault(_reduced(schema, set(paths[:n]))))
    if high - low > 1:
        return _common(paths[low:high])
    path = paths[high - 1]
    reduced = _reduced(schema, set(paths[:high]))
    outer = [other for other in paths[:high] if path[: len(other)] == other]
    for one, next_one in itertools.pairwise(outer):
        if next_one[len(one)] in _COMBINED:
            alone = reduced
            for name, _ in members(at(reduced, next_one[:-1])):
                if name != next_one[-1]:
                    alone = replaced(alone, (*next_one[:-1], name), next_one[-2] == "allOf")
            if has_fault(alone) is False:
                return next_one[:-1]  # it takes several members
    node = at(reduced, path)
    if not isinstance(node, Mapping) or not node:
        return path
    keys = [*node][::-1]  # of two that exclude each other, the first one is named
    keys.sort(key=lambda key: bool(key != "type"))
    low, high = _bisected(len(keys), lambda n: has_fault(replaced(reduced, path, {key: node[key] for key in keys[:n]})))
    return (*path, keys[high - 1]) if high - low == 1 else path


def _bisected(n: int, has_fault: Callable[[int], bool | None]) -> tuple[int, int]:
    """`low` and `high`: the first `high` of `n` parts have the fault, the first `low` do not.

    They are neighbours unless `has_fault` has returned None, which ends the search.
    """
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        if (found := has_fault(middle)) is None:
            break
        low, high = (low, middle) if found else (middle, high)
    return low, high


def _subschemas(schema: Any) -> list[Path]:
    """The paths of a schema and of all schemas in it: outer ones before inner ones, those in definitions last."""
    found: list[Path] = []
    defined: list[Path] = []
    waiting: list[tuple[Path, Any, bool]] = [((), schema, False)]
    while waiting:
        path, node, is_defined = waiting.pop()
        (defined if is_defined else found).append(path)
        if isinstance(node, Mapping):
            inner = [
                ((*path, key, name), value, is_defined or key in _DEFINITIONS)
                for key in (*_DEFINITIONS, *_SCHEMAS)
                for name, value in members(node.get(key))
            ]
            inner += [((*path, key), node[key], is_defined) for key in _SCHEMA if key in node]
            waiting += reversed(inner)
    return found + defined


def _reduced(node: Any, kept: Collection[Path], path: Path = (), placeholder: Any = True) -> Any:
    """A copy of a schema in which placeholders stand for the subschemas that are not in `kept`."""
    if path not in kept:
        return placeholder
    if not isinstance(node, Mapping):
        return node
    copy = dict(node)
    for key in _SCHEMA:
        if key in node:
            copy[key] = _reduced(node[key], kept, (*path, key))
    for key in (*_DEFINITIONS, *_SCHEMAS):
        is_choice = key in ("anyOf", "oneOf")  # an alternative that allowed everything would hide the others
        reduced = {
            name: _reduced(value, kept, (*path, key, name), (name == 0 and {"const": 0}) if is_choice else True)
            for name, value in members(node.get(key))
        }
        if reduced:
            copy[key] = reduced if isinstance(node[key], Mapping) else [*reduced.values()]
    return copy


def _common(paths: Sequence[Path]) -> Path:
    """The longest path that all of `paths` begin with."""
    first, last = min(paths, key=repr), max(paths, key=repr)
    n = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:n]


@functools.cache
def _bytes_only() -> LLTokenizer:
    """A tokenizer of single bytes: the faults of a schema do not depend on the vocabulary."""

    class Bytes:
        eos_token_id, bos_token_id, special_token_ids = 256, None, (256,)
        tokens = (*(bytes([byte]) for byte in range(256)), b"")

        def __call__(self, raw: bytes) -> list[int]:
            return list(raw)

    return tokenizer_of(Bytes(), Bytes.special_token_ids)
