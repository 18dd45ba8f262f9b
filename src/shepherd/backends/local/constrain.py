"""The form that a request demands of its answer, as a grammar; a form that cannot be enforced is refused.

    Request ─ tools, tool_choice, schema, grammar ─ dialects.grammar ─▶ Lark ─ Constrainer.check ─▶ Job.grammar

Arguments of calls are held to their schema even where the model is free to call or not. Such a schema never fails a
request: the parts that llguidance does not know are dropped, and if it knows nothing, any JSON is allowed. Only what a
client demands, a form of the answer or a strict tool, is refused by name.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shepherd.backends.local.prefix_hash import text_hash
from shepherd.core import EngineError, InvalidRequest, Request, TextDelta, ToolSpec, Unsupported
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.lru import LruCache
from shepherd.dialects import TagDialect
from shepherd.dialects.grammar import Schema, allowed, grammar, json_answer, literals, written_out
from shepherd.dialects.parse.markup import Markup, no_blocks
from shepherd.engine.base import Vocabulary
from shepherd.engine.grammar import keywords
from shepherd.engine.grammar.gbnf import gbnf_to_lark
from shepherd.engine.grammar.keywords import without
from shepherd.engine.grammar.lark import UnsupportedGrammar, check_document, lark_to_rules, regex_to_lark
from shepherd.engine.grammar.mask import (
    Constrainer,
    ProbeBudget,
    fault_of,
    fit_schema,
    locate_fault,
    path_text,
)
from shepherd.engine.grammar.numbers import Path

logger = logging.getLogger(__name__)

KEPT = 32
"""Grammars that are kept as text: an agent sends the same tools in every turn."""
CONVERTERS: Mapping[str, Callable[..., str]] = {"gbnf": gbnf_to_lark, "regex": regex_to_lark, "lark": lark_to_rules}


@dataclass(frozen=True, slots=True)
class Constraint:
    lark: str | None = None
    """`None`: nothing."""
    written: str = ""
    """The part of it that the prompt has written already."""
    schema: str | None = None
    """A JSON schema that says all of it, as JSON."""
    is_lenient: bool = False
    """No client demands it: it holds calls to the schemas of their tools."""
    left_out: tuple[str, ...] = ()
    """The parts of the form of the answer, by their paths, that it cannot be held to."""


class Constraints:
    """The grammars of one model. Any thread."""

    def __init__(self, vocabulary: Vocabulary, end_tokens: frozenset[int], dialect: TagDialect) -> None:
        """Builds nothing yet. `end_tokens` are all tokens that end an answer."""
        self._dialect = dialect
        self._markup = dialect.markup
        known = literals(self._markup)
        # What a family never writes stays a control token, which no answer can hold.
        self.spelled = tuple(each.text for each in vocabulary.specials if each.text and each.text in known)
        """Texts of control tokens that grammars write as ordinary text."""
        self.constrainer = Constrainer(vocabulary, end_tokens, self.spelled)
        """For the engine of the same model."""
        self._thoughts = written_out(self._markup)
        self._ends = [special.text for special in vocabulary.specials if special.id in end_tokens]
        self._known = LruCache[Constraint](KEPT)
        self._forms = LruCache[keywords.Fitted](KEPT)

    def has_some(self, request: Request, *, calls: bool = True) -> bool:
        """Whether the answer has a grammar. `calls`: calls are held to their schemas even if the request does not ask
        for it."""
        if request.schema is not None or request.grammar is not None:
            return True
        if request.forbids_calls:
            return True
        if request.tool_choice == "none" or not request.tools:
            return False
        insists = request.tool_choice != "auto" or request.parallel_calls is False
        return insists or calls or any(tool.strict for tool in request.tools)

    def find(self, request: Request, opened: str, *, thinks: bool = True) -> Constraint:
        """The grammar for a request that has one; its prompt has written `opened` of the answer already.

        `thinks`: reasoning may come before the part that has a form. Compiles grammars: milliseconds for a new one.
        Raises: `InvalidRequest` that names the field.
        """
        begun = [opened[at:] for thought in self._thoughts if (at := opened.find(thought.opener)) >= 0]
        demanded = is_demanded(request)
        # Behind a thought that the prompt has closed the form begins: no engine has to read what is written.
        if is_over := demanded and self._has_thought(opened):
            found = self._grammar(request, thinks=False, has_begun=True)
        else:
            found = self._found(request, opened, bool(begun) or thinks, begun)
        if found.lark is None:
            return found
        if not demanded and not any(tool.strict for tool in request.tools):
            return replace(found, is_lenient=True)
        has_more = (not is_over and (thinks or opened or self._markup.answer[0])) or self._markup.answer[1]
        if request.schema is None or has_more or allowed(request.tools, request.tool_choice):
            return found
        return replace(found, schema=json.dumps(self._form(request).schema))

    def _has_thought(self, opened: str) -> bool:
        """Whether what the prompt has written of an answer is a whole thought."""
        closers = () if self._markup.headed else (closer for each in self._thoughts for closer in each.closers)
        return any(closer and opened.rstrip().endswith(closer) for closer in closers)

    def _found(self, request: Request, opened: str, thinks: bool, begun: list[str]) -> Constraint:
        known = self._grammar(request, thinks)
        if known.lark is None or not opened:
            return known
        events = self._dialect.parser().feed(opened)
        has_text = any(isinstance(event, TextDelta) and event.text.strip() for event in events)
        # A header may stand before a thought that the prompt has opened: no part of the answer.
        for written in (opened,) if has_text else (*begun, opened):
            if self.constrainer.accepts(known.lark, written):
                return replace(known, written=written)
        # The prompt has begun in another way, for example with a client's prefill: the grammar is for what comes
        # behind.
        return self._grammar(request, thinks=False, has_begun=True) if has_text else known

    def reader(self, request: Request, *, thinks: bool) -> TagDialect:
        """The dialect that reads the answer: an answer with a form, and no tools to call, holds no calls, and where it
        cannot think no thought. Text that looks like markup belongs to the form then."""
        markup = self._markup
        has_form = request.schema is not None or request.grammar is not None
        if not has_form or (request.tools and request.tool_choice != "none") or markup.headed or markup.spelled:
            return self._dialect
        skips = tuple(mark for mark in markup.skips if mark in "".join(markup.answer))
        thoughts = markup.thoughts if thinks else ()
        return replace(
            self._dialect, markup=replace(markup, thoughts=thoughts, blocks=(), skips=skips, declared=no_blocks)
        )

    def _grammar(self, request: Request, thinks: bool, *, has_begun: bool = False) -> Constraint:
        key = key_of(request, thinks, has_begun)
        if (known := self._known.find(key)) is None:
            left_out = [path_text(field_of(request), path) for path in self._form(request).left_out]
            known = Constraint(self._made(request, thinks, has_begun), left_out=tuple(left_out))
            if left_out:
                logger.warning("the answer is not held to these parts of its schema: %s", ", ".join(left_out))
            self._known.keep(key, known)
        return known

    def _made(self, request: Request, thinks: bool, has_begun: bool) -> str | None:
        answer = self._answer(request)
        for number, tool in enumerate(request.tools):
            if tool.strict and not request.forbids_calls:
                fit_schema(tool.parameters, f"tools[{number}].function.parameters", strict=True)
        markup = self._markup if request.completion is None else Markup()  # a bare prompt has no markup
        if has_begun:
            markup = replace(markup, thoughts=(), headed=(), answer=("", markup.answer[1]))
        is_forced = request.tool_choice not in ("auto", "none")
        fault = ""
        for fit in (lenient, partial(loose, probes=ProbeBudget())):
            try:
                lark = grammar(
                    markup,
                    request.tools,
                    choice=request.tool_choice,
                    parallel=request.parallel_calls is not False,
                    answer=answer,
                    thinks=thinks,
                    ends=self._ends,
                    fit=fit,
                )
                if lark is None and is_forced:
                    raise Unsupported(
                        "this model's chat template shows no way to write calls, so tool_choice cannot demand one",
                        field="tool_choice",
                    )
                if lark is not None:
                    self.constrainer.check(lark)
            except MALFORMED as error:
                fault = f"{type(error).__name__}: {error}"
            except (InvalidRequest, EngineError) as error:
                if isinstance(error, InvalidRequest) and error.field:
                    raise
                fault = error.message
            else:
                return lark
        if answer is not None:
            field, fault = field_of(request), fault.removeprefix("the grammar")
            beside = ", beside the tools" if allowed(request.tools, request.tool_choice) else ""
            raise InvalidRequest(f"{field} cannot be kept to{beside}{fault}; make it simpler", field=field)
        if is_forced:
            raise InvalidRequest(f"the tools cannot be offered in this way: {fault}", field="tools")
        logger.warning("calls are not held to the schemas of their tools: %s", fault)
        return None

    def _form(self, request: Request) -> keywords.Fitted:
        """The schema that the answer is held to. Raises: `InvalidRequest`."""
        if request.schema is None:
            return keywords.Fitted(None)
        key = text_hash(json.dumps((request.schema, request.strict_schema, field_of(request)), default=repr))
        if (known := self._forms.find(key)) is None:
            known = fit_schema(plain(request.schema), field_of(request), strict=request.strict_schema)
            self._forms.keep(key, known)
        return known

    def _answer(self, request: Request) -> str | None:
        """The form of the answer as rules, checked by itself so that an error can name what is wrong."""
        field = field_of(request)
        if request.schema is not None:
            return json_answer(self._form(request).schema)
        if request.grammar is None:
            return None
        convert = CONVERTERS[request.grammar.kind]
        self.constrainer.check(convert(request.grammar.text, field=field), field=field)
        return convert(request.grammar.text, root="answer", field=field)


def is_demanded(request: Request) -> bool:
    return request.schema is not None or request.grammar is not None or request.tool_choice not in ("auto", "none")


def plain(schema: Schema) -> Schema:
    """The schema without llguidance's own key, which is not for clients."""
    return {key: value for key, value in schema.items() if key != "x-guidance"}


def field_of(request: Request) -> str:
    """The field that demands the form of the answer."""
    return str(request.extra.get("constrained_by") or ("response_format" if request.grammar is None else "grammar"))


MALFORMED = (RecursionError, TypeError, ValueError, KeyError, AttributeError, IndexError)
"""What writing a grammar may raise for a malformed schema of a tool."""
MAX_LOOSENED = 20
"""Parts of one schema that are dropped before the rest is dropped, too."""


def lenient(tool: ToolSpec, schema: Schema) -> Schema:
    """The schema without what llguidance does not know; the whole schema for a strict tool."""
    try:
        fitted = keywords.fit(schema)
    except UnsupportedGrammar:
        return schema if tool.strict else {**schema, "x-guidance": {"lenient": True}}
    if tool.strict:
        return fitted.schema  # type: ignore[no-any-return]  # it has been checked that nothing is left out
    for path in fitted.left_out:
        logger.warning(NOT_KEPT, tool.name, path_text("", path)[1:])
    return {**fitted.schema, "x-guidance": {"lenient": True}}


NOT_KEPT = "the schema of tool %r is not kept to at %s"


def loose(tool: ToolSpec, schema: Schema, probes: ProbeBudget | None = None) -> Schema:
    """The schema without its faults; any value of its kind if there are too many, or `probes` are used up."""
    if tool.strict:
        return lenient(tool, schema)
    probes = probes or ProbeBudget()
    left: Any = lenient(tool, schema)
    for _ in range(MAX_LOOSENED):
        if not probes.take(left):
            break
        path = find_fault(left, probes)
        if path is None:
            return left  # type: ignore[no-any-return]  # nothing but parts of it have been replaced
        if not path:
            break
        logger.warning(NOT_KEPT, tool.name, path_text("", path)[1:])
        left = without(left, path)
    return {"type": "object"} if schema.get("type") == "object" else {}


def find_fault(schema: Schema, probes: ProbeBudget | None = None) -> Path | None:
    """The smallest part of a schema in which a fault is found; None if it has none."""
    try:
        check_document(schema)
        fault = fault_of(schema)
        return locate_fault(schema, fault, probes) if fault else None
    except UnsupportedGrammar as error:
        return error.path


def key_of(request: Request, thinks: bool, has_begun: bool) -> bytes:
    """A hash of all that a grammar depends on."""
    tools = [(tool.name, tool.strict, tool.parameters) for tool in request.tools]
    asked = (
        request.tool_choice, request.parallel_calls, tools, request.schema, request.strict_schema, thinks, has_begun,
        request.completion is None,
        request.grammar and (request.grammar.kind, request.grammar.text), request.extra.get("constrained_by"),
    )  # fmt: skip
    return text_hash(json.dumps(asked, default=repr))
