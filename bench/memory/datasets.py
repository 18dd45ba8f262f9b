"""Reads public question sets about long conversations into cases: messages, questions, and the evidence of answers.

    LoCoMo       one JSON file of conversations between two people, evidence as dialogue ids
    BEAM         a folder of chats (`chat.json` beside `probing_questions/`), any folder above, or rows in one file
    LongMemEval  one JSON file (or JSON lines) of questions, each with its own haystack of sessions

Shepherd contains none of them: a user with such a file can measure the memory. Copies of a data set differ, so unknown
forms of dates and evidence without a message are left out.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from shepherd.core import InvalidRequest, Role
from shepherd.memory.records import Entry

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One message, with the name that questions use for it."""

    id: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    evidence: tuple[str, ...]
    """Names of the messages that answer it, each once; empty without any."""
    kind: str
    headline: bool = True
    """Counts in the totals; else only in the figures of its kind."""


@dataclass(frozen=True, slots=True)
class Case:
    """One archive and its questions."""

    name: str
    sessions: tuple[tuple[SourceMessage, ...], ...]
    """In order of time; each is a conversation."""
    questions: tuple[Question, ...]


def load(path: Path | str) -> Iterator[Case]:
    """The cases of a file or folder, one at a time: a file of gigabytes is never held whole.

    Raises: `InvalidRequest` for a file that cannot be read or has no case, also while the cases are consumed.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidRequest(f"there is no file or folder {path}", field="file")
    cases = _folder(path) if path.is_dir() else _file(path)
    first = next(cases, None)
    if first is None:
        raise InvalidRequest(
            f"{path} holds no conversation with questions of LoCoMo, BEAM or LongMemEval", field="file"
        )
    return chain([first], cases)


def moment(text: object) -> int | None:
    """A date of these files in Unix milliseconds, taken as UTC; None for an unknown form."""
    date = str(text).strip() if text else ""
    for read in (*_DATES, datetime.fromisoformat):
        with suppress(ValueError):
            time = datetime.strptime(date, read) if isinstance(read, str) else read(date)
            return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    return None


_DATES = ("%I:%M %p on %d %B, %Y", "%B-%d-%Y", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d")


def _message(id: object, role: Role, text: str, start: int | None, n: int) -> SourceMessage:
    """Message number `n` of a session that began at `start`; each message is a second later than the one before."""
    return SourceMessage(str(id), Entry(role, text, created_ms=None if start is None else start + n * 1000))


# -- files ---------------------------------------------------------------------------------------------------------


def _file(path: Path) -> Iterator[Case]:
    if path.name in _CHATS:  # one chat of BEAM, named by itself
        yield from _folder(path.parent)
        return
    for n, row in enumerate(_rows(path)):
        if (case := _case(row, f"{path.stem}/{n + 1}")) is not None:
            yield case


def _case(row: Json, name: str) -> Case | None:
    read = next((read for keys, read in _FORMS if keys <= row.keys()), None)
    if read is None:
        return None
    try:
        return read(row, name)
    except (AttributeError, KeyError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        raise InvalidRequest(f"{name} is not written as {read.__name__[1:]} is: {error!r}", field="file") from error


def _folder(path: Path) -> Iterator[Case]:
    """The chats of BEAM at or below a folder, by number, and the files of the other kinds in it."""
    chats = {file.parent for name in _CHATS for file in path.rglob(name)}
    for chat in sorted(chats, key=_natural):
        asked = next((file for file in _ASKED_IN if (chat / file).exists()), None)
        if asked is not None:
            messages = next(chat / name for name in _CHATS if (chat / name).exists())
            row = {"chat": _whole(messages), "probing_questions": _whole(chat / asked)}
            case = _case(row, str(chat.relative_to(path)) if chat != path else chat.name)
            assert case is not None
            yield case
    if not chats:
        for file in sorted(path.glob("*.json*"), key=_natural):
            yield from _file(file)


_CHATS = ("chat_trunecated.json", "chat_truncated.json", "chat.json")
"""The truncated chat comes first: its questions were checked against it."""
_ASKED_IN = ("probing_questions/probing_questions.json", "probing_questions.json")


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def _whole(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, RecursionError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read as JSON: {error}", field="file") from error


def _rows(path: Path) -> Iterator[Json]:
    """The rows of a JSON array, of JSON lines, or of an object that holds them, read as they come."""
    decoder, text, at, ended = json.JSONDecoder(), "", 0, False
    try:
        with path.open(encoding="utf-8-sig") as file:
            while True:
                if start := _BETWEEN.search(text, at):
                    at = start.start()
                    if text[at] != "{":
                        raise ValueError(f"an object was expected, not {text[at : at + 20]!r}")
                    try:
                        row, at = decoder.raw_decode(text, at)
                    except ValueError:
                        if ended:
                            raise
                    else:
                        yield from _inner(row)
                        continue
                elif ended:
                    return
                text = text[at:] if start else ""
                more = file.read(max(1 << 20, len(text)))  # doubling, so that a large object is parsed a few times only
                text, at, ended = text + more, 0, not more
    except (OSError, RecursionError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read as JSON: {error}", field="file") from error


_BETWEEN = re.compile(r"[^\s,\[\]]")
"""The first character that is no punctuation of a list."""


def _inner(value: Any) -> Iterator[Json]:
    """The rows of a known form, at any depth."""
    if isinstance(value, dict) and any(keys <= value.keys() for keys, _ in _FORMS):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _inner(inner)


# -- LoCoMo --------------------------------------------------------------------------------------------------------


_CATEGORIES = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}


def _locomo(row: Json, name: str) -> Case:
    """Both speakers are people: each message is a user message that begins with the speaker's name."""
    talk = row["conversation"]
    numbers = sorted(int(key[8:]) for key in talk if re.fullmatch(r"session_\d+", key))
    sessions = tuple(_locomo_session(talk, number) for number in numbers)
    known = {message.id for session in sessions for message in session}
    questions = []
    for asked in row["qa"]:
        # Copies differ: "D8:6; D9:17" in one string, "D:11:26", "D30:05".
        ids = (f"D{int(a)}:{int(b)}" for a, b in re.findall(r"D:?(\d+):(\d+)", json.dumps(asked.get("evidence"))))
        category = str(asked.get("category", ""))
        kind = _CATEGORIES.get(category, category)
        question = Question(str(asked["question"]), _only(ids, known), kind, headline=kind != "adversarial")
        questions.append(question)
    return Case(str(row.get("sample_id", name)), sessions, tuple(questions))


def _locomo_session(talk: Json, number: int) -> tuple[SourceMessage, ...]:
    start = moment(talk.get(f"session_{number}_date_time"))
    session = []
    for n, turn in enumerate(talk[f"session_{number}"] or ()):
        text = f"{turn.get('speaker', '')}: {turn.get('text', '')}"
        if caption := turn.get("blip_caption"):
            text += f" [shares {caption}]"
        session.append(_message(turn.get("dia_id") or f"D{number}:{n + 1}", "user", text, start, n))
    return tuple(session)


# -- BEAM ----------------------------------------------------------------------------------------------------------

_FACTUAL = {
    "information_extraction", "knowledge_update", "multi_session_reasoning", "temporal_reasoning", "event_ordering",
    "contradiction_resolution",
}  # fmt: skip
"""Abilities whose evidence contains the answer; the others ask for an instruction, a summary, or an abstention."""


def _beam(row: Json, name: str) -> Case:
    """A chat in batches, each with its day; a batch is a session."""
    sessions: list[tuple[SourceMessage, ...]] = []
    day, number = None, 0
    for batch in _batches(row["chat"]):
        session = []
        for n, turn in enumerate(batch):
            day = moment(turn.get("time_anchor")) or day
            # Some messages end with a number of the plan from which they were generated.
            text = re.sub(r"\s*->->[\s\d,]*$", "", str(turn["content"]))
            session.append(_message(turn.get("id", number), _role(turn), text, day, n))
            number += 1
        sessions.append(tuple(session))
    known = {message.id for session in sessions for message in session}
    asked = row["probing_questions"]
    asked = ast.literal_eval(asked) if isinstance(asked, str) else asked
    questions = [
        Question(str(one["question"]), _only(_leaves(one.get("source_chat_ids")), known), kind, kind in _FACTUAL)
        for kind, several in asked.items()
        for one in several
        if isinstance(one, dict) and one.get("question")
    ]
    return Case(str(row.get("conversation_id", name)), tuple(sessions), tuple(questions))


def _batches(chat: Any) -> Iterator[list[Json]]:
    """The innermost lists of messages: all turns of a batch, or a plain list of messages."""
    if isinstance(chat, dict) and "turns" in chat:
        yield [turn for turns in chat["turns"] for turn in (turns if isinstance(turns, list) else [turns])]
    elif isinstance(chat, list) and chat and all(isinstance(turn, dict) and "role" in turn for turn in chat):
        yield chat
    else:
        for inner in chat.values() if isinstance(chat, dict) else chat if isinstance(chat, list) else ():
            yield from _batches(inner)


# -- LongMemEval ---------------------------------------------------------------------------------------------------


def _longmemeval(row: Json, name: str) -> Case:
    """One question with its own sessions. Without labelled turns, all messages of the answer's sessions count."""
    ids = row.get("haystack_session_ids") or []
    dates = row.get("haystack_dates") or []
    sessions, labelled, within = [], [], []
    for n, turns in enumerate(row["haystack_sessions"]):
        start = moment(dates[n]) if n < len(dates) else None
        session = []
        for m, turn in enumerate(turns):
            session.append(_message(f"{n}:{m}", _role(turn), str(turn["content"]), start, m))
            if turn.get("has_answer"):
                labelled.append(f"{n}:{m}")
            if n < len(ids) and ids[n] in (row.get("answer_session_ids") or ()):
                within.append(f"{n}:{m}")
        sessions.append((start or 0, tuple(session)))
    sessions.sort(key=lambda each: each[0])  # the small file is not in order of time
    name = str(row.get("question_id", name))
    evidence = () if name.endswith("_abs") else tuple(labelled or within)
    question = Question(str(row["question"]), evidence, str(row.get("question_type", "")))
    return Case(name, tuple(session for _, session in sessions), (question,))


def _role(turn: Json) -> Role:
    return "user" if turn["role"] == "user" else "assistant"


def _only(ids: Iterable[str], known: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(id for id in ids if id in known))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)


_FORMS: tuple[tuple[set[str], Callable[[Json, str], Case]], ...] = (
    ({"conversation", "qa"}, _locomo),
    ({"chat", "probing_questions"}, _beam),
    ({"haystack_sessions", "question"}, _longmemeval),
)
"""By the keys that a row has."""
