"""Shepherd's own tools: their descriptions as the registry has them, and what people ask for that they do.

    specs()                      all of them, by name
    request(draw, name)          ─▶ Request: what is typed, steps of calls and results, the answer

The results have the forms of the tools themselves; `tests/unit/training` plays them against the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from shepherd.memory.records import Hit
from shepherd.memory.search.search import as_text
from shepherd.tools.registry import Registry
from training.chat import Called, Message, Spec, calls, result, says
from training.draw import Draw, cap
from training.fact import TOLD_TO_REMEMBER, UNKNOWN, Fact, fact, question, statement

DECLINED = "Error: the user refused this call of {}; do not repeat it, ask the user what to do instead"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@cache
def specs() -> dict[str, Spec]:
    """By name, as the prompt of a chat has them."""
    return {
        tool.name: {
            "type": "function",
            "function": {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "parameters": json.loads(json.dumps(tool.spec.parameters)),
            },
        }
        for tool in Registry.found(()).tools()
    }


@dataclass(frozen=True, slots=True)
class Request:
    said: str
    steps: tuple[tuple[tuple[Called, str], ...], ...]
    """One after the other, the calls that are made at the same time, with their results."""
    answer: str
    needs: tuple[str, ...]
    """The tools that must be there."""

    def messages(self) -> list[Message]:
        """All that follows what is said."""
        found: list[Message] = []
        for step in self.steps:
            found += [calls(*(call for call, _ in step)), *(result(text) for _, text in step)]
        return [*found, says(self.answer)]


def one(said: str, name: str, arguments: dict[str, Any], came: str, answer: str) -> Request:
    """A request of one call."""
    return Request(said, (((Called(name, arguments), came),),), answer, (name,))


def polite(draw: Draw, said: str) -> str:
    """What is said, sometimes with a please, or in small letters."""
    style = draw.weighted(
        (("as it is", 62), ("please", 10), ("can you", 10), ("for me", 4), ("small", 8), ("greeting", 6))
    )
    small = said[0].lower() + said[1:]
    is_order = said.split(" ", 1)[0].lower() not in {
        "what",
        "which",
        "where",
        "who",
        "is",
        "does",
        "do",
        "how",
        "what's",
    }
    match style:
        case "please":
            return f"Please {small}" if is_order else said
        case "can you":
            return f"{draw.of('Can you', 'Could you', 'I want you to')} {small}" if is_order else said
        case "for me":
            return f"{said} for me" if is_order and said[-1] not in "?.!" else said
        case "small":
            return small
        case "greeting":
            return f"{draw.of('Hi.', 'Hello!', 'Hey,', 'Ok,', 'Now')} {small}"
    return said


def missing(draw: Draw, path: str) -> tuple[str, str]:
    """The error for a path that is not there, and the answer."""
    holds = ", ".join(draw.file() for _ in range(draw.whole(1, 5)))
    return (
        f'Error: there is no "{path}". The current folder, called ".", holds: {holds}',
        f"I could not do that: there is no {path}.",
    )


def text_of_file(draw: Draw) -> str:
    lines = [draw.made(draw.sentence, draw.phrase, draw.value, lambda: line_of_code(draw))
             for _ in range(draw.weighted(((1, 60), (2, 25), (3, 15))))]  # fmt: skip
    return "\n".join(lines) + "\n"


def quoted(draw: Draw, text: str) -> str:
    return draw.of(f'"{text}"', f'"{text}"', text, f"'{text}'")


# -- files ------------------------------------------------------------------------------------------------------------


def list_directory(draw: Draw) -> Request:
    entries = sorted(
        {draw.made(draw.file, draw.file, lambda: draw.word() + "/").split("/", 1)[0] for _ in range(draw.whole(1, 7))}
    )
    came = "\n".join(entries)
    if draw.often(0.45):
        here = (
            "List the files", "What files are in the current directory?", "What files are here?", "ls",
            "Show me the files here",
            "List this folder", "Which files are in this folder?", "List all files", "What is in this folder?",
            "show files",
            "What is in the current folder?", "list files", "Which files are there?",
            "Show the content of this directory", "dir",
            "list the current directory", "What's here?", "Show all files in the current folder", "see files",
            "list everything here",
        )  # fmt: skip
        return one(
            polite(draw, draw.wording(here)), "list_directory", {}, came, f"The files here are: {', '.join(entries)}."
        )
    path = draw.folder()
    there = (
        "List the files in {}", "What files are in {}?", "Show me the directory {}", "List {}",
        "What is in the folder {}?",
        "ls {}", "Which files are in {}?", "List the directory {}", "Show the contents of the folder {}",
        "What is in {}?",
        "Show me the files in {}", "show {} folder", "What does the folder {} have?", "list all files of {}",
        "files in {}",
        "What's inside {}?", "look into {}", "Show what is in {}", "which files does {} have", "list folder {}",
    )  # fmt: skip
    said, arguments = polite(draw, draw.wording(there).format(path)), {"path": path}
    if draw.often(0.06):
        return one(said, "list_directory", arguments, *missing(draw, path))
    return one(said, "list_directory", arguments, came, f"The files in {path} are: {', '.join(entries)}.")


READ = (
    "Read {}", "Read the file {}", "What is in the file {}?", "Show me {}", "Open {}", "What does {} say?",
    "Show the content of {}",
    "cat {}", "What is in {}?", "Print {}", "show {}", "Tell me what is in {}", "Open the file {}", "Display {}",
    "What is written in {}?", "let me see {}", "Read me the file {}", "what's in {}", "give me the text of {}",
    "view {}",
)  # fmt: skip


def read_file(draw: Draw) -> Request:
    path, text = draw.path(), text_of_file(draw)
    said = polite(draw, draw.wording(READ).format(path))
    if draw.often(0.08):
        return one(said, "read_file", {"path": path}, *missing(draw, path))
    if draw.often(0.05):
        return one(said, "read_file", {"path": path}, f"{path} is empty", f"The file {path} is empty.")
    if draw.often(0.2):
        key, value = draw.word(), draw.value()
        asked = (
            "Which {k} is in {p}?",
            "What is the {k} in {p}?",
            "What {k} does {p} have?",
            "Find the {k} in {p}",
            "Look up the {k} in {p}",
        )
        line = draw.of(f"{key} = {value}", f"{key}: {value}")
        lines = [*text.splitlines(), line] if draw.often(0.5) else [line]
        said = polite(draw, draw.wording(asked).format(k=key, p=path))
        return one(said, "read_file", {"path": path}, "\n".join(lines) + "\n", f"The {key} in {path} is {value}.")
    arguments: dict[str, Any] = {"path": path}
    if draw.often(0.08):
        n = draw.whole(1, 50)
        said, arguments = f"{draw.of('Read', 'Show')} the first {n} lines of {path}", {"path": path, "limit": n}
    return one(said, "read_file", arguments, text, f"The file {path} says: {text.rstrip()}")


def line_of_code(draw: Draw) -> str:
    return draw.made(
        lambda: f"{draw.word()} = {draw.number()}",
        lambda: f"{draw.pick('abcnxyz')} = {draw.whole(0, 99)}",
        lambda: f'print("{draw.phrase(2)}")',
        lambda: f"print({draw.whole(0, 999)})",
        lambda: f"import {draw.word()}",
        lambda: f"# {draw.phrase()}",
    )


def write_file(draw: Draw) -> Request:
    path = draw.path()
    text = draw.made(draw.sentence, draw.value, draw.phrase, draw.phrase, lambda: line_of_code(draw))
    wordings = (
        "Write {q} to {p}", "Save {q} in the file {p}", "Create the file {p} with the content {t}", "Write to {p}: {t}",
        "Put {q} into {p}", "Create a file {p} containing {t}", "Create {p} with the text {q}",
        "Make a file {p} with {q} in it",
        "Create a file called {p} with the text {t}", "Write a file {p} that says {q}", "Save the text {t} as {p}",
        "Create a new file {p} with {q}", "New file {p}: {t}", "Store {q} in {p}", "make {p} containing {q}",
        "Write the text {q} into the file {p}", "create {p}, text: {t}", "I need a file {p} with the text {q}",
        "Put the text {t} in a new file {p}", "write {q} in {p}", "Save the text {q} in {p}", "Save {t} to {p}",
        "make a file {p} which says {t}", "Create {p}: {t}", "Put {t} in the file {p}", "Write {t} in the file {p}",
        "Create a text file {p} with {q}", "make {p} with the text {t}", "Create the file {p} that contains {q}",
        "Write the file {p} with this content: {t}",
    )  # fmt: skip
    said = polite(draw, draw.wording(wordings).format(q=quoted(draw, text), t=text, p=path))
    call = {"path": path, "content": text}
    if draw.often(0.08):
        return one(
            said, "write_file", call, DECLINED.format("write_file"), "You refused that. What should I do instead?"
        )
    done = {"success": True, "path": path, "bytes": len(text.encode()), "action": draw.of("created", "overwrote")}
    return one(said, "write_file", call, json.dumps(done), f"I wrote the text to {path}.")


def append(draw: Draw) -> Request:
    """A file is read, and written with one line more."""
    path, text, line = draw.path(), text_of_file(draw), draw.made(draw.sentence, draw.phrase, draw.value)
    wordings = (
        "Add the line {q} to {p}", "Append {q} to {p}", "Add {q} to {p}", "Append the line {q} to the file {p}",
        "Add a line to {p}: {t}", "Write {q} at the end of {p}", "Put {q} at the end of {p}", "Add {q} to the file {p}",
        "Append to {p}: {t}", "add one more line to {p}: {t}", "Extend {p} by the line {q}", "Add the text {q} to {p}",
    )  # fmt: skip
    whole = f"{text}{line}\n"
    done = {"success": True, "path": path, "bytes": len(whole.encode()), "action": "overwrote"}
    return Request(
        polite(draw, draw.wording(wordings).format(q=quoted(draw, line), t=line, p=path)),
        (
            ((Called("read_file", {"path": path}), text),),
            ((Called("write_file", {"path": path, "content": whole}), json.dumps(done)),),
        ),
        f"I added the line to {path}.",
        ("read_file", "write_file"),
    )


def edit_file(draw: Draw) -> Request:
    path, old, new = draw.path(), draw.made(draw.word, draw.value), draw.made(draw.word, draw.value)
    wordings = (
        "Replace {o} with {n} in {p}", "Change {o} to {n} in {p}", "In {p} replace {o} with {n}",
        "Edit {p}: replace {o} by {n}",
        "In the file {p}, change {o} to {n}", "Replace {o} in {p} with {n}", "Turn {o} into {n} in {p}",
        "Swap {o} for {n} in {p}",
        "Correct {o} to {n} in {p}", "{p}: {o} should be {n}", "In {p} change {o} into {n}",
        "Put {n} in place of {o} in {p}",
    )  # fmt: skip
    quote = draw.of('"{}"', "{}", "{}")
    said = polite(draw, draw.wording(wordings).format(o=quote.format(old), n=quote.format(new), p=path))
    call = {"path": path, "old": old, "new": new}
    if draw.often(0.08):
        why = f'the old text is not in "{path}"; read_file shows what is'
        return one(said, "edit_file", call, f"Error: {why}", f"I could not do that: {old} is not in {path}.")
    done = {"success": True, "path": path, "replacements": 1, "bytes": draw.whole(10, 900)}
    return one(said, "edit_file", call, json.dumps(done), f"I changed {old} to {new} in {path}.")


def delete_file(draw: Draw) -> Request:
    path = draw.path()
    wordings = ("Delete {}", "Delete the file {}", "Remove {}", "Remove the file {}", "rm {}", "Get rid of {}",
    "Erase {}",
                "delete file {}", "I do not need {} any more, delete it", "Throw away {}",
                "Please remove {}")  # fmt: skip
    said = polite(draw, draw.wording(wordings).format(path))
    if draw.often(0.1):
        return one(said, "delete_file", {"path": path}, *missing(draw, path))
    if draw.often(0.1):
        refused = DECLINED.format("delete_file")
        return one(said, "delete_file", {"path": path}, refused, "You refused that. What should I do instead?")
    return one(said, "delete_file", {"path": path}, json.dumps({"success": True, "path": path}), f"I deleted {path}.")


def file_exists(draw: Draw) -> Request:
    path = draw.path()
    wordings = ("Is there a file {}?", "Does {} exist?", "Do we have {}?", "Does the file {} exist?", "Is {} there?",
                "Check whether {} exists", "Check if there is a {}", "do I have a file {}?",
                "is there a {}")  # fmt: skip
    is_there = draw.often(0.6)
    came = {"exists": True, "type": "file"} if is_there else {"exists": False}
    answer = f"Yes, there is {path}." if is_there else f"No, there is no {path}."
    return one(
        polite(draw, draw.wording(wordings).format(path)), "file_exists", {"path": path}, json.dumps(came), answer
    )


def search_files(draw: Draw) -> Request:
    word = draw.made(draw.word, draw.word, draw.name, draw.code)
    wordings = (
        "Search for {} in all files", "Find the word {}", "Which file contains {}?", "grep {}",
        "Search the files for {}",
        "Find {} in the files", "Where is {} mentioned?", "In which file is {}?", "Look for {} in the files",
        "search {}",
        "Which files have the word {}?", "Where does {} occur?", "Find all files with {}", "which file mentions {}",
        "Look for the text {}",
    )  # fmt: skip
    arguments: dict[str, Any] = {"pattern": word}
    said = draw.wording(wordings).format(quoted(draw, word) if draw.often(0.3) else word)
    if draw.often(0.15):
        folder = draw.folder()
        said, arguments = f"{draw.of('Search', 'Look')} for {word} in {folder}", {"pattern": word, "path": folder}
    said = polite(draw, said)
    if draw.often(0.15):
        return one(
            said,
            "search_files",
            arguments,
            f'No line matches "{word}" in {draw.whole(1, 90)} files.',
            f"No file contains {word}.",
        )
    paths = [draw.path() for _ in range(draw.whole(1, 3))]
    came = "\n".join(f"{path}:{draw.whole(1, 90)}:{draw.phrase(3)} {word} {draw.phrase(2)}".rstrip() for path in paths)
    return one(said, "search_files", arguments, came, f"I found {word} in: {', '.join(dict.fromkeys(paths))}.")


def find_files(draw: Draw) -> Request:
    ending = draw.of("py", "md", "txt", "json", "csv", "toml", "html", "log")
    wordings = ("Find all {} files", "Which {} files are there?", "List all files that end in .{}",
    "Find files with the ending .{}",
                "Where are the {} files?", "search for *.{}", "show me every .{} file")  # fmt: skip
    paths = [f"{draw.word()}.{ending}" for _ in range(draw.whole(1, 4))]
    said = polite(draw, draw.wording(wordings).format(ending))
    return one(said, "search_files", {"glob": f"*.{ending}"}, "\n".join(paths), f"I found: {', '.join(paths)}.")


# -- commands, the web, JSON -------------------------------------------------------------------------------------------


def execute_command(draw: Draw) -> Request:
    if draw.often(0.15):
        asked = ("What time is it?", "What is the time?", "What day is it today?", "What is the date?",
        "Which day is today?",
                 "Tell me the time.", "what's the time", "Which date is it today?", "what is today's date")  # fmt: skip
        day, month = (
            draw.of("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
            draw.of("Jan", "Mar", "May", "Sep", "Nov"),
        )
        clock = ":".join(str(draw.whole(10, 59 if at else 23)) for at in range(3))
        moment = f"{day} {month} {draw.whole(1, 28)} {clock} UTC {draw.whole(2024, 2030)}"
        said = polite(draw, draw.wording(asked))
        return one(
            said, "execute_command", {"command": "date"}, f"{moment}\nexit code 0", f"The command printed: {moment}"
        )
    command, printed = draw.command(), draw.made(draw.sentence, draw.value, draw.phrase)
    wordings = (
        "Run {}", "Run the command {}", "Execute {}", "Execute the command {}", "Run `{}`", "Run this command: {}",
        "Please run {}", "Start {}", "run: {}", "Execute `{}`", "Run {} in the shell", "Use the shell to run {}",
        "$ {}",
        "try the command {}", "Call {} on the command line",
    )  # fmt: skip
    said = polite(draw, draw.wording(wordings).format(command))
    call = {"command": command}
    if draw.often(0.1):
        code = draw.whole(1, 127)
        why = draw.of(f"{command.split()[0]}: command not found", "No such file or directory", "Permission denied")
        return one(
            said, "execute_command", call, f"Error: stderr:\n{why}\nexit code {code}", f"The command failed: {why}"
        )
    if draw.often(0.08):
        refused = DECLINED.format("execute_command")
        return one(said, "execute_command", call, refused, "You refused that. What should I do instead?")
    if command.startswith("echo "):
        printed = command.removeprefix("echo ")
    return one(said, "execute_command", call, f"{printed}\nexit code 0", f"The command printed: {printed}")


def http(draw: Draw, name: str = "http_get") -> Request:
    url, body = draw.url(), draw.made(draw.sentence, draw.value, lambda: json.dumps({draw.word(): draw.word()}))
    sent = draw.sentence()
    wordings: dict[str, tuple[str, ...]] = {
        "http_get": ("Get {u}", "Fetch {u}", "What is at {u}?", "Open {u}", "Download {u}", "Fetch the page {u}",
        "GET {u}",
                     "Make a GET request to {u}", "What does {u} return?", "Load {u}", "Show me the page {u}"),
        "http_post": ('Post "{s}" to {u}', "POST {s} to {u}", "Send {s} to {u} by POST",
        "Make a POST request to {u} with {s}"),
        "http_put": ('Put "{s}" to {u}', "PUT {s} to {u}", "Make a PUT request to {u} with {s}"),
        "http_delete": ("DELETE {u}", "Send a DELETE to {u}", "Make a DELETE request to {u}"),
    }  # fmt: skip
    arguments = {"url": url} | ({"body": sent} if name in {"http_post", "http_put"} else {})
    came = f"HTTP 200 OK\ncontent-type: text/plain\n\n{body}"
    said = draw.wording(wordings[name]).format(u=url, s=sent)
    return one(polite(draw, said) if name == "http_get" else said, name, arguments, came, f"The page says: {body}")


def json_tool(draw: Draw) -> Request:
    key, value = draw.word(), draw.of(draw.word(), draw.whole(0, 999))
    text = json.dumps({key: value})
    made = {
        "json_parse": (("Is {} valid JSON?", "Parse {}", "Parse the JSON {}"),
        {"json": text}, text, f"The JSON is valid: {text}"),
        "json_path": ((f"Take {key} out of {{}}", f"What is {key} in {{}}?"),
        {"json": text, "path": f"$.{key}"}, json.dumps([value]),
                      f"The value of {key} is {value}."),
        "json_validate": (("Validate {}", "Check the JSON {}"), {"json": text}, '{"valid": true, "errors": []}',
        "The JSON is valid."),
        "json_format": (("Format {}", "Pretty-print {}", "Format the JSON {}"),
        {"json": text}, json.dumps({key: value}, indent=2),
                        json.dumps({key: value}, indent=2)),
    }  # fmt: skip
    name = draw.pick(tuple(made))
    wordings, arguments, came, answer = made[name]
    return one(draw.pick(wordings).format(text), name, arguments, came, answer)


# -- the memory --------------------------------------------------------------------------------------------------------


def remember(draw: Draw, told: Fact | None = None) -> Request:
    """A wish to remember: the only reason to store a fact."""
    told = told or fact(draw)
    if draw.often(0.15):
        key, value = draw.word(), draw.value()
        said = draw.of(
            "Set {} to {}", "Set the fact {} to {}", "Save {} = {}", "Store the fact {} with the value {}"
        ).format(key, value)
        return one(said, "set_fact", {"key": key, "value": value}, '{"success": true}', f"I saved {key} as {value}.")
    said = statement(draw, told, TOLD_TO_REMEMBER)
    return one(
        said,
        "set_fact",
        {"key": told.key, "value": told.value},
        '{"success": true}',
        f"I saved {told.key} as {told.value}.",
    )


def look_up(draw: Draw) -> Request:
    key, value = draw.made(draw.word, draw.noun, lambda: fact(draw).key), draw.value()
    wordings = ("Get the fact {}", "Look up the fact {}", "What is the fact {}?", "Which value is saved for {}?",
    "What did I save for {}?",
                "Show the fact {}", "What value did I store for {}?", "get fact {}",
                "Look up {} in your facts")  # fmt: skip
    said = polite(draw, draw.wording(wordings).format(key))
    if draw.often(0.2):
        return one(said, "get_fact", {"key": key}, '{"value": null, "found": false}', f"I found nothing about {key}.")
    return one(
        said,
        "get_fact",
        {"key": key},
        json.dumps({"value": value}, ensure_ascii=False),
        f"The value of {key} is {value}.",
    )


def forget(draw: Draw) -> Request:
    key = draw.made(draw.word, draw.noun, lambda: fact(draw).key)
    wordings = ("Forget the {}", "Forget the fact {}", "Delete the fact {}", "Forget {}", "Clear the fact {}",
    "Forget my {}",
                "Remove the fact {}", "forget about the {}", "You can forget the {}")  # fmt: skip
    found = draw.often(0.75)
    came = json.dumps({"success": True, "found": found})
    answer = f"I forgot {key}." if found else f"I found nothing about {key}."
    return one(polite(draw, draw.wording(wordings).format(key)), "clear_fact", {"key": key}, came, answer)


def store_answer(draw: Draw) -> Request:
    told = fact(draw)
    asked = told.questions[0]
    wordings = ('Store the question "{q}" with the answer "{v}"', "Store in memory: {q} {v}",
    'Save the answer to "{q}": {v}',
                'The answer to "{q}" is "{v}", store it')  # fmt: skip
    said = draw.wording(wordings).format(q=asked, v=told.value)
    return one(
        said, "store_memory", {"question": asked, "answer": told.value}, '{"success": true}', "I stored the answer."
    )


def clear_answer(draw: Draw) -> Request:
    asked = fact(draw).questions[0]
    said = draw.of('Forget the question "{}"', 'Delete the stored question "{}"', 'Clear "{}" from your memory').format(
        asked
    )
    return one(said, "clear_memory", {"question": asked}, '{"success": true, "found": true}', "I forgot the question.")


def search_memory(draw: Draw, wanted: Fact | None = None, *, is_found: bool | None = None) -> Request:
    """A question about a fact that the conversation does not have."""
    wanted = wanted or fact(draw)
    said, call = question(draw, wanted), {"query": wanted.key}
    if not (draw.often(0.7) if is_found is None else is_found):
        return one(said, "search_memory", call, f"No archived conversations found matching: {wanted.key}", UNKNOWN)
    told = [wanted, *(fact(draw) for _ in range(draw.weighted(((0, 50), (1, 35), (2, 15)))))]
    hits = [
        Hit(
            round(0.2 + 0.7 * draw.random.random(), 2),
            cap(f"{each.clause}."),
            f"Got it. {each.answer}",
            MOMENT,
            at,
            "user",
            "",
            "",
            "",
        )
        for at, each in enumerate(draw.shuffled(told))
        if each is wanted or each.topic != wanted.topic
    ]
    return one(said, "search_memory", call, as_text(hits, wanted.key), wanted.answer)


# -- several calls -----------------------------------------------------------------------------------------------------


def at_once(draw: Draw) -> Request:
    """Two or three calls of one tool at the same time."""
    n = draw.weighted(((2, 75), (3, 25)))
    kind = draw.of("read", "list", "run")
    if kind == "read":
        paths = [draw.path() for _ in range(n)]
        each = [(Called("read_file", {"path": path}), f"{draw.sentence()}\n") for path in paths]
        said = draw.wording(
            ("Read {}", "Show me {}", "Read the files {}", "What is in {}?", "Open {}", "cat {}")
        ).format(listed(paths))
        answer = "\n".join(f"The file {call.arguments['path']} says: {text.rstrip()}" for call, text in each)
    elif kind == "list":
        paths = [draw.folder() for _ in range(n)]
        each = [
            (Called("list_directory", {"path": path}), "\n".join(draw.file() for _ in range(draw.whole(1, 3))))
            for path in paths
        ]
        said = draw.wording(
            ("List {}", "List the folders {}", "What is in {}?", "Show me the files in {}", "ls {}")
        ).format(listed(paths))
        answer = "\n".join(
            f"The files in {call.arguments['path']} are: {text.replace(chr(10), ', ')}." for call, text in each
        )
    else:
        commands = [draw.command() for _ in range(n)]
        each = [
            (Called("execute_command", {"command": command}), f"{draw.phrase()}\nexit code 0") for command in commands
        ]
        said = draw.wording(("Run {}", "Run the commands {}", "Execute {}", "Please run {}", "Start {}")).format(
            listed(commands)
        )
        answer = "\n".join(f"The command printed: {text.removesuffix(chr(10) + 'exit code 0')}" for _, text in each)
    return Request(said, (tuple(each),), answer, tuple(dict.fromkeys(call.name for call, _ in each)))


def listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def list_then_read(draw: Draw) -> Request:
    """The folder is listed, then the one file in it is read."""
    folder, file, text = draw.folder(), draw.file().rsplit("/", 1)[-1], text_of_file(draw)
    path = f"{folder.rstrip('/')}/{file}"
    wordings = ("Read the only file in {}", "What does the file in {} say?", "Find the file in {} and read it",
    "List {} and read the file in it",
                "Look into {} and show me the file", "There is one file in {}, read it",
                "Open whatever file is in {}")  # fmt: skip
    return Request(
        polite(draw, draw.wording(wordings).format(folder)),
        (
            ((Called("list_directory", {"path": folder}), file),),
            ((Called("read_file", {"path": path}), text),),
        ),
        f"The file {path} says: {text.rstrip()}",
        ("list_directory", "read_file"),
    )


def search_then_read(draw: Draw) -> Request:
    word, path, text = draw.word(), draw.path(), text_of_file(draw)
    wordings = ("Find the file with {} and read it", "Read the file that contains {}",
    "Which file mentions {}? Read it.",
                "Search for {} and open the file", "Open the file that has the word {}")  # fmt: skip
    return Request(
        polite(draw, draw.wording(wordings).format(word)),
        (
            ((Called("search_files", {"pattern": word}), f"{path}:{draw.whole(1, 40)}:{draw.word()} {word}"),),
            ((Called("read_file", {"path": path}), text),),
        ),
        f"The file {path} says: {text.rstrip()}",
        ("search_files", "read_file"),
    )


def vague(draw: Draw) -> Request:
    """A wish that lacks what is to be written."""
    said = (
        "Add a line to {}.",
        "Write something to {}",
        "Write a line into {}",
        "Append to {}",
        "Change {}",
        "Edit {}",
        "Edit the file {}",
    )
    answer = "Which text should I write?"
    return Request(polite(draw, draw.wording(said).format(draw.path())), (), answer, ("write_file", "edit_file"))


REQUESTS: dict[str, tuple[float, Callable[[Draw], Request]]] = {
    "list_directory": (12, list_directory),
    "read_file": (18, read_file),
    "write_file": (14, write_file),
    "append": (5, append),
    "edit_file": (6, edit_file),
    "delete_file": (4, delete_file),
    "file_exists": (3, file_exists),
    "search_files": (10, search_files),
    "find_files": (2, find_files),
    "execute_command": (9, execute_command),
    "http_get": (5, http),
    "http_post": (1, lambda draw: http(draw, "http_post")),
    "http_put": (0.5, lambda draw: http(draw, "http_put")),
    "http_delete": (0.5, lambda draw: http(draw, "http_delete")),
    "json": (2, json_tool),
    "remember": (7, remember),
    "look_up": (4, look_up),
    "forget": (4, forget),
    "store_memory": (1.5, store_answer),
    "clear_memory": (1, clear_answer),
    "search_memory": (6, search_memory),
    "vague": (1.5, vague),
    "at_once": (4, at_once),
    "list_then_read": (3, list_then_read),
    "search_then_read": (2, search_then_read),
}
"""By name, how often, and what makes one."""


def request(draw: Draw, name: str = "") -> Request:
    name = name or draw.weighted([(each, share) for each, (share, _) in REQUESTS.items()])
    return REQUESTS[name][1](draw)
