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
from training.draw import Draw
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


ORDERS = frozenset(
    """add append attach browse bring call change check clear correct create delete dir discard display download drop
    dump edit enter enumerate erase execute exchange extend fetch find forget format generate get give go grab grep hunt
    indent insert inspect kill launch list load locate look ls make modify name note open overwrite parse peek perform
    pretty-print print pull put query read remove replace request retrieve rm run save scan search see send set show
    start stick store substitute swap switch tack take tell throw trash try turn type unlink update use validate verify
    view visit wipe write""".split()
)
"""What an order begins with."""
FREE = ("{t}", "{q}", "{n}", "{o}", "{s}", "{k}")
"""Text of several words without quotes: what stands behind it would belong to it."""
BEFORE_ORDER = (
    "Please ", "Please ", "Please ", "please ", "Can you ", "Can you ", "can you ", "Could you ", "Could you ",
    "could you please ", "Can you please ", "Would you ", "Would you please ", "Will you ", "I want you to ",
    "I'd like you to ", "I would like you to ", "I need you to ", "You should ", "Go ahead and ", "Now please ",
    "Now ", "ok now ", "Okay, now ", "Next, ", "Then ", "then ", "Quickly ", "First ", "Just ", "just ", "Kindly ",
    "Hey Lamb, can you ", "Hi, please ", "Hello, could you ", "Hey, please ", "pls ", "plz ",
    "Be so kind and ", "Try to ", "Do me a favour and ", "I need your help: ", "Next task: ", "One more thing: ",
)  # fmt: skip
BEFORE_ANY = (
    "Hi. ", "Hello! ", "Hey, ", "Ok, ", "Now, ", "Hey Lamb, ", "Lamb, ", "Hi Lamb, ", "Hello Lamb. ", "ok, ",
    "Okay. ",
    "So, ", "so ", "Well, ", "Alright, ", "Good. ", "Great, ", "Thanks. ", "Thank you. ", "Cool, ", "Good morning. ",
    "And ", "and ", "Hm, ", "Right, ", "Sorry, ", "Yo, ", "Fine, ",
)  # fmt: skip
BEFORE_QUESTION = ("Quick question: ", "Tell me: ", "A question: ", "Say, ", "One question: ", "And now: ", "but ")
BEHIND_ORDER = (
    " for me", " for me", " for me", " for me please", " please", " please", ", please", ", please.", ", thanks",
    ", thanks!", ". Thanks.", ". Thank you!", ", thank you", " if you can", ", will you?", ", would you?",
    ", could you?", ", can you?", " now", " now please", " right now", " quickly", " first", " thanks", " pls",
    ", ok?", ".", ".", ".", ".", ".", "!", " real quick",
)  # fmt: skip
ASKING = ("Can you", "can you", "Could you", "could you", "Would you", "Will you", "Hey Lamb, can", "Hello, could")


def polite(draw: Draw, wording: str, *, is_free: bool = False) -> str:
    """The wording, sometimes with a please or a greeting, or in small letters; `is_free`: its {} is free text."""
    style = draw.weighted(
        (("as it is", 44), ("before", 20), ("behind", 10), ("both", 4), ("small", 9), ("greeting", 9), ("bare", 4))
    )
    first = wording.split(" ", 1)[0]
    is_order = first.lower() in ORDERS
    is_name = first.startswith(("{", "I'")) or first.isupper()
    small = wording if is_name else wording[0].lower() + wording[1:]
    ends_free = wording.endswith((*FREE, "{}") if is_free else FREE)
    is_open = not ends_free and wording[-1] not in "?.!"
    behind = ""
    if is_order and is_open and style in {"behind", "both"}:
        behind = draw.pick(BEHIND_ORDER)
        if " me" in wording and "for me" in behind:
            behind = " please"
    match style:
        case "before" | "both" if is_order:
            before = draw.pick(BEFORE_ORDER)
            if "please" in before.lower() or before.startswith(("pl", "Kind")) or behind.startswith((", w", ", c")):
                behind = "." if behind else ""
            if before.startswith(ASKING):
                behind = "?" if is_open and draw.often(0.5) else behind if behind in {" for me", " please"} else ""
            return f"{before}{small}{behind}"
        case "before" if wording.endswith("?"):
            return f"{draw.pick(BEFORE_QUESTION)}{small}"
        case "behind":
            return f"{wording if draw.often(0.6) else small}{behind}"
        case "small":
            return small
        case "greeting":
            return f"{draw.pick(BEFORE_ANY)}{small}"
        case "bare":
            return small.rstrip("?.!")
    return wording


def missing(draw: Draw, path: str) -> tuple[str, str]:
    """The error for a path that is not there, and the answer."""
    holds = ", ".join(draw.file() for _ in range(draw.whole(1, 5) if draw.often(0.6) else draw.whole(6, 12)))
    return (
        f'Error: there is no "{path}". The current folder, called ".", holds: {holds}',
        f"I could not do that: there is no {path}.",
    )


def text_of_file(draw: Draw) -> str:
    lines = [draw.made(draw.sentence, draw.phrase, draw.value, lambda: line_of_code(draw))
             for _ in range(draw.weighted(((1, 50), (2, 24), (3, 14), (4, 8), (6, 4))))]  # fmt: skip
    if draw.often(0.1):
        lines = [f"{draw.name()},{draw.whole(1, 99)}" for _ in lines]
    return ended(draw, "\n".join(lines))


def ended(draw: Draw, text: str) -> str:
    """A file's text with a line end behind it, as editors leave it, or without one, as `write_file` does."""
    return text + "\n" * draw.often(0.5)


def quoted(draw: Draw, text: str) -> str:
    return draw.of(f'"{text}"', f'"{text}"', text, text, f"'{text}'")


# -- files ------------------------------------------------------------------------------------------------------------


def list_directory(draw: Draw) -> Request:
    low, high = draw.weighted((((1, 7), 60), ((8, 15), 25), ((16, 30), 15)))
    n = draw.whole(low, high)
    names = (draw.made(draw.file, draw.file, lambda: f"{draw.word()}/") for _ in range(n))
    entries = sorted({f"{name.split('/', 1)[0]}/" if "/" in name else name for name in names})
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
            "What have we got here?", "Have a look around", "I'd like to see the files in this folder",
            "Could you have a look at this directory?", "what files do I have", "Give me a list of the files",
            "Take a look at the current directory", "Which files do I have in here?", "Let me see all files here",
            "Anything in this folder?", "files please", "the files here, please", "Show me this folder",
            "Print the names of the files here", "What can you find in this folder?", "directory listing",
            "I want to see which files exist here", "What is lying around here?", "Display the current directory",
            "Name all the files in this folder", "list it all", "Are there any files here?",
            "What does this folder hold?", "Show me everything in the working directory", "Look at what is here",
            "Tell me which files are here", "could I see the files?", "contents of this folder",
            "Enumerate the files of the current folder", "What do we have in the current directory?", "list dir",
            "How does this folder look?", "Which files does this directory have?",
            "Let's see what is in the current folder", "my files", "Give me an overview of this folder",
            "I need to know what is in this folder", "what's lying in this directory",
            "Peek into the current directory", "Go through this folder and list what is there",
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
        "What have we got in {}?", "Could you have a look at what is in {}?", "I'd like to see the files in {}",
        "Take a look inside {}", "the files in {} please", "Give me a list of what {} holds",
        "Open up the folder {} for me", "What do I have in {}?", "Let me see the folder {}",
        "Have a look into the directory {}", "What files does {} hold?", "folder {}: what is in it?",
        "contents of {}", "Which files live in {}?", "Is there anything in {}?", "Display the directory {}",
        "I want to know which files are in {}", "Tell me what is in the folder {}", "Print the file names in {}",
        "Anything in {}?", "Peek into {}", "Check what is in the folder {}", "show dir {}", "Name the files in {}",
        "In {}, which files are there?", "what's lying around in {}", "Go to {} and list the files", "Browse {}",
        "Get me the listing of {}", "directory listing of {}", "Which entries does the folder {} have?",
        "What can be found in {}?", "I need the list of files in {}", "Could I see what {} contains?",
        "see what is in the directory {}", "Please list everything under {}", "What's there in the folder {}?",
        "Let's see what is in {}", "list all of {}", "Enumerate the files in {}",
    )  # fmt: skip
    said, arguments = polite(draw, draw.wording(there)).format(path), {"path": path}
    if draw.often(0.06):
        return one(said, "list_directory", arguments, *missing(draw, path))
    return one(said, "list_directory", arguments, came, f"The files in {path} are: {', '.join(entries)}.")


READ = (
    "Read {}", "Read the file {}", "What is in the file {}?", "Show me {}", "Open {}", "What does {} say?",
    "Show the content of {}",
    "cat {}", "What is in {}?", "Print {}", "show {}", "Tell me what is in {}", "Open the file {}", "Display {}",
    "What is written in {}?", "let me see {}", "Read me the file {}", "what's in {}", "give me the text of {}",
    "view {}",
    "Could you have a look at {}?", "I'd like to see {}", "{} please", "Take a look inside {}", "Open up {} for me",
    "Show the contents of my file {}", "What have we got in the file {}?", "Let me read {}", "Have a look into {}",
    "Give me {}", "display the file {}", "I want to read {}", "What does the file {} contain?",
    "Print the content of {}", "contents of {}", "Show me what {} says", "Can I see the file {}?", "Look at {}",
    "What stands in {}?", "Dump {}", "I need the text of {}", "type out {}", "Load {} and show it to me",
    "May I see {}?", "Read out {}", "What did I write in {}?", "Pull up {}", "view the file {}",
    "Get me the content of {}", "How does {} read?", "show me my {}",
    "Look inside the file {} and tell me what it says", "What's the content of {}?", "Let's see {}",
    "Print the whole file {}", "I would like to know what is in {}", "Inspect the file {}", "What is the text of {}?",
    "Retrieve the content of {}", "peek at {}", "Bring up {} on the screen", "Read through {}",
    "could I have the text of {}", "What do we have in {}?", "Fetch the text of the file {}", "text of {} please",
    "I wonder what {} says", "Take {} and read it to me", "Present the content of {}",
    "the file {}, what does it say?",
    "read {}", "read the file {}", "read file {}", "Read me {}", "read {} for me", "open {}", "open the file {}",
    "print {}", "print the file {}", "print the content of {}", "Show {}", "show file {}", "show the file {}",
    "show me {}", "show me the file {}", "Show me the content of {}", "show contents of {}", "display {}",
    "cat {} please",
    "what is in {}", "what is in {}?", "whats in {}", "whats in {}?", "What's in the file {}?", "what does {} say",
    "what does the file {} say?", "What is written in the file {}?", "whats written in {}", "What's written in {}?",
    "what stands in the file {}", "what does {} contain?", "What are the contents of {}?", "What text is in {}?",
    "Can you read {}?", "Can you read {} for me?", "can you open {}", "Can you show me {}?", "Could you open {}?",
    "Could you show me what is in {}?", "I want you to read {}", "Tell me what {} says", "tell me what's in {}",
    "Please open {}", "less {}", "more {}", "type {}", "Give me the content of {}",
)  # fmt: skip

IN_FILE = (
    "Which {k} is in {p}?", "What is the {k} in {p}?", "What {k} does {p} have?", "Find the {k} in {p}",
    "Look up the {k} in {p}",
    "What does {p} say about the {k}?", "Tell me the {k} from {p}", "Get the {k} out of {p}",
    "In {p}, what is the {k}?", "Which {k} does {p} give?", "What's the {k} according to {p}?",
    "Read {p} and tell me the {k}", "I need the {k} from {p}", "Check {p} for the value of {k}",
    "which value has {k} in {p}", "Show me the {k} that is in {p}", "What value does {k} have in {p}?",
    "{p} has a {k}, what is it?", "Open {p} and give me the {k}", "the {k} in {p}?", "What is {k} set to in {p}?",
    "How is the {k} set in {p}?", "See {p}: what is the {k}?", "Can you find out the {k} from the file {p}?",
    "Take the {k} from {p}",
)  # fmt: skip
HEAD = (
    "Read the first {n} lines of {p}", "Show the first {n} lines of {p}",
    "Give me the top {n} lines of {p}", "What are the first {n} lines of {p}?",
    "Print only the first {n} lines of the file {p}", "I'd like to see the first {n} lines of {p}",
    "just the first {n} lines of {p}", "Open {p}, but only its first {n} lines",
    "How does {p} begin? {n} lines are enough", "Let me see {n} lines from the top of {p}",
    "Display the first {n} lines from {p}",
)  # fmt: skip


def read_file(draw: Draw) -> Request:
    path, text = draw.path(), text_of_file(draw)
    said = polite(draw, draw.wording(READ)).format(path)
    if draw.often(0.08):
        return one(said, "read_file", {"path": path}, *missing(draw, path))
    if draw.often(0.05):
        return one(said, "read_file", {"path": path}, f"{path} is empty", f"The file {path} is empty.")
    if draw.often(0.2):
        key, value = draw.word(), draw.value()
        line = draw.of(f"{key} = {value}", f"{key}: {value}")
        lines = [*text.splitlines(), line] if draw.often(0.5) else [line]
        said = polite(draw, draw.wording(IN_FILE)).format(k=key, p=path)
        return one(said, "read_file", {"path": path}, ended(draw, "\n".join(lines)), f"The {key} in {path} is {value}.")
    arguments: dict[str, Any] = {"path": path}
    if draw.often(0.08):
        n = draw.whole(1, 50)
        said, arguments = polite(draw, draw.wording(HEAD)).format(n=n, p=path), {"path": path, "limit": n}
    return one(said, "read_file", arguments, text, f"The file {path} says: {text.rstrip()}")


def line_of_code(draw: Draw) -> str:
    return draw.made(
        lambda: f"{draw.word()} = {draw.number()}",
        lambda: f"{draw.pick('abcnxyz')} = {draw.whole(0, 99)}",
        lambda: f'print("{draw.phrase(2)}")',
        lambda: f"print({draw.whole(0, 999)})",
        lambda: f"{draw.name()},{draw.whole(1, 99)}",
        lambda: f"import {draw.word()}",
        lambda: f"# {draw.phrase()}",
    )


def write_file(draw: Draw) -> Request:
    path = draw.path()
    text = draw.made(draw.sentence, draw.value, draw.phrase, draw.phrase, lambda: line_of_code(draw))
    wordings = (
        "Write {q} to {p}", "Save {q} in the file {p}", "Create the file {p} with the content {t}",
        "Write to {p}: {t}",
        "Put {q} into {p}", "Create a file {p} containing {t}", "Create {p} with the text {q}",
        "Make a file {p} with {q} in it",
        "Create a file called {p} with the text {t}", "Write a file {p} that says {q}", "Save the text {t} as {p}",
        "Create a new file {p} with {q}", "New file {p}: {t}", "Store {q} in {p}", "make {p} containing {q}",
        "Write the text {q} into the file {p}", "create {p}, text: {t}", "I need a file {p} with the text {q}",
        "Put the text {t} in a new file {p}", "write {q} in {p}", "Save the text {q} in {p}", "Save {t} to {p}",
        "make a file {p} which says {t}", "Create {p}: {t}", "Put {t} in the file {p}", "Write {t} in the file {p}",
        "Create a text file {p} with {q}", "make {p} with the text {t}", "Create the file {p} that contains {q}",
        "Write the file {p} with this content: {t}",
        "Put the text {q} into the file {p}", "Drop {q} into {p}", "Enter {q} into {p}", "Note down {q} in {p}",
        "Type {q} into a file called {p}", "Generate {p} with the content {q}", "Please make {p} and put {q} in it",
        "{p} should contain {q}", "The file {p} should say {q}", "I'd like a file {p} with the content {t}",
        "Into {p} write {q}", "In {p} put this: {t}", "Put in {p}: {t}", "Fill {p} with {q}",
        "Store the text {t} in {p}", "Save this to {p}: {t}", "save to {p}: {t}",
        "Could you create {p} with {q} inside?", "file {p}, content {q}", "Create a document {p} with the words {q}",
        "Write down {q} in the file {p}", "Write {q} and save it as {p}", "Take the text {q} and store it in {p}",
        "Make me a file {p} with the text {t}", "Generate a file named {p}, its content: {t}",
        "Overwrite {p} with {q}", "Set the content of {p} to {q}", "Make a note in {p}: {t}",
        "Save a file {p} with the line {q}", "note in {p}: {t}", "Type this into {p}: {t}",
        "Store this in the file {p}: {t}", "I want {p} to contain {t}", "Have {q} written to {p}",
        "There should be a file {p} with {q} in it", "New file {p} with the text {q}",
        "Make a new file named {p} with {q} as its text", "Put {q} in a file and call it {p}", "Let {p} contain {q}",
        "Start a new file {p} with {q}", "store {t} as {p}", "Put down {q} in {p}", "write a new file {p}, text {q}",
        "Write {t} to the file {p}", "Put these words into {p}: {t}", "Generate {p}: {t}",
        "Drop the text {t} in the file {p}", "Create {p} and write {q} into it", "Can you write {q} to {p}?",
        "I need {q} saved in {p}", "Enter the text {t} in {p}", "Save {q} under the name {p}",
        "a file {p} please, its text: {t}", "Make {p}, write in it: {t}", "Create the text file {p}. Content: {t}",
        "Put the line {q} into the new file {p}", "Store {q} under {p}", "to {p} write {t}", "Write out {q} to {p}",
        "Make it so that {p} says {q}",
        "Save the text {t} in {p}", "save the text {t} in {p}", "Save {t} in {p}", "Write {t} into {p}",
        "Put {t} into {p}", "Create a new file {p} that says {t}", "create a new file {p} that says {q}",
        "Create a file {p} that says {q}", "Create {p} that says {t}", "Create {p} saying {q}", "Make {p} say {q}",
        "Create a file {p} with the text {t}", "Create a file named {p} with {q}", "create file {p} with {t}",
        "create file {p} with content {q}", "create a file {p} with the line {q}", "make a file {p} with {q}",
        "make a new file {p} containing {q}", "Add a new file {p} with the text {q}", "write a file {p} with {q}",
        "write {t} into the file {p}", "write the line {q} to {p}", "Save {q} to the file {p}", "Save {q} into {p}",
        "store the line {q} in {p}", "I want a file {p} with the text {q}", "I want a file called {p} that says {t}",
    )  # fmt: skip
    said = polite(draw, draw.wording(wordings)).format(q=quoted(draw, text), t=text, p=path)
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
        "Add a line to {p}: {t}", "Write {q} at the end of {p}", "Put {q} at the end of {p}",
        "Add {q} to the file {p}",
        "Append to {p}: {t}", "add one more line to {p}: {t}", "Extend {p} by the line {q}",
        "Add the text {q} to {p}",
        "Attach {q} to the end of {p}", "Add {q} as the last line of {p}", "At the end of {p} add {q}",
        "Add this to {p}: {t}", "Insert {q} at the bottom of {p}", "One more line for {p}: {t}",
        "{p} needs one more line: {t}", "Put the line {q} at the bottom of {p}", "Could you add {q} to {p}?",
        "I'd like to add {q} to {p}", "To {p} add {q}", "Tack {q} onto {p}", "Append this line to {p}: {t}",
        "Add a new line {q} to {p}", "also add {q} to {p}", "add to the file {p}: {t}",
        "Add {t} at the end of the file {p}", "Extend {p} with {q}", "Write one more line into {p}: {t}",
        "Stick {q} on the end of {p}", "Put {q} behind the last line of {p}", "Keep {p} as it is and add {q}",
        "Let {p} end with the new line {q}", "Add another line to {p}, it says {q}",
        "The line {q} is missing at the end of {p}, add it", "Add the words {t} to the file {p}",
        "Append {t} as a new line to {p}", "Insert the line {t} at the end of {p}", "add {t} to my file {p}",
        "I want {q} added to {p}", "Read {p} and add the line {q} to it", "Can you append {q} to {p}?",
        "Add below the rest of {p}: {t}", "at the bottom of {p}: add {t}",
        "Append {t} to {p}", "append {t} to {p}", "Append {t} to the file {p}", "Add {t} to {p}", "add {t} to {p}",
        "Append the text {q} to {p}", "append the line {t} to {p}", "Add the line {t} to {p}", "add line {q} to {p}",
        "Add a line {q} to {p}", "Add a line saying {q} to {p}", "Add a line that says {t} to {p}",
        "Put {t} at the end of {p}", "Add {q} at the end of {p}", "Add {q} at the bottom of {p}", "Add to {p}: {t}",
        "Add to {p} the line {q}", "Append another line to {p}: {t}", "In {p}, add the line {q}",
        "I want to add the line {q} to {p}", "Write {t} on a new line of {p}", "In the file {p} add the line {q}",
    )  # fmt: skip
    whole = f"{text.removesuffix(chr(10))}\n{line}\n"
    done = {"success": True, "path": path, "bytes": len(whole.encode()), "action": "overwrote"}
    return Request(
        polite(draw, draw.wording(wordings)).format(q=quoted(draw, line), t=line, p=path),
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
        "Substitute {n} for {o} in {p}", "Please change {o} in {p} to {n}", "{o} in {p} should become {n}",
        "Make {o} in {p} into {n}", "Update {p}: {o} becomes {n}", "Modify {p} so that {o} is {n}",
        "Could you replace {o} by {n} in {p}?", "I want {n} instead of {o} in {p}", "In {p}, swap {o} for {n}",
        "Rewrite {o} as {n} in {p}", "Where {p} has {o}, write {n}", "{p} says {o}, make that {n}",
        "change the word {o} to {n} in the file {p}", "Exchange {o} for {n} in {p}",
        "In {p} it must be {n} instead of {o}", "Open {p} and change {o} to {n}",
        "Edit the file {p} and replace {o} with {n}", "Replace the text {o} by {n} in the file {p}",
        "in {p}: {o} -> {n}", "Switch {o} to {n} in {p}", "There is {o} in {p}, change it to {n}",
        "Can you change {o} into {n} in {p}?", "Take {o} out of {p} and put {n} there",
        "I'd like {o} in {p} changed to {n}", "Fix {p}: it should say {n}, not {o}", "Update {o} to {n} in {p}",
        "The {o} in {p} is wrong, it is {n}", "Let {p} say {n} where it says {o}",
        "Change {o} to {n} in the file {p}", "change {o} to {n} in {p}", "replace {o} with {n} in {p}",
        "replace {o} with {n} in the file {p}", "Replace {o} by {n} in {p}", "Rename {o} to {n} in {p}",
        "In {p}, rename {o} to {n}", "in {p}, change {o} to {n}", "In {p}, replace {o} with {n}",
        "In the file {p} replace {o} with {n}", "in the file {p}, rename {o} to {n}", "rename {o} to {n} inside {p}",
        "Set {n} instead of {o} in {p}", "Edit {p}: change {o} to {n}", "edit {p} and change {o} to {n}",
        "Could you change {o} to {n} in {p}?", "I want you to change {o} to {n} in {p}", "make {o} to {n} in {p}",
        "In {p} put {n} where it says {o}", "Swap {o} with {n} in {p}", "substitute {o} with {n} in {p}",
    )  # fmt: skip
    quote = draw.of('"{}"', "{}", "{}")
    said = polite(draw, draw.wording(wordings)).format(o=quote.format(old), n=quote.format(new), p=path)
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
                "Please remove {}",
                "Trash {}", "Wipe the file {}", "{} can go", "Could you delete {}?", "I want {} gone",
                "Drop the file {}", "I'd like you to delete the file {}", "Kill the file {}", "Take {} away",
                "remove file {}", "I don't want {} any longer, remove it", "Let's delete {}",
                "Throw the file {} away", "Please get rid of the file {}", "Delete my file {}",
                "The file {} is useless, delete it", "del {}", "Clear away {}", "Can you erase the file {}?",
                "We no longer need {}, so delete it", "Make {} disappear", "Destroy {}", "{} is old, remove it",
                "Discard the file {}", "I want to delete {}", "erase file {}", "Unlink {}", "The file {} must go",
                "Put {} in the bin",
            )  # fmt: skip
    said = polite(draw, draw.wording(wordings)).format(path)
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
                "is there a {}",
                "Can you see whether {} is there?", "Have we got {}?", "Is {} in this folder?", "{} exists?",
                "Have I got a file called {}?", "Check for {}", "Do you find a file {}?",
                "Is there any file named {}?", "I'd like to know whether {} exists", "Does a file {} exist?",
                "Tell me if {} is there", "exists {}", "Was the file {} created?", "Could you check if {} exists?",
                "Is the file {} present?", "Look whether there is a file {}", "Do I still have {}?",
                "Is {} already there?", "See if {} exists", "test whether the file {} exists",
                "Did I delete {} or is it still there?", "Is there something called {}?",
                "Am I right that there is a file {}?", "Find out if we have {}", "Are you able to find a file {}?",
                "is {} missing or is it there?", "Verify that {} exists", "Is a {} there?",
            )  # fmt: skip
    is_there = draw.often(0.6)
    came = {"exists": True, "type": "file"} if is_there else {"exists": False}
    answer = f"Yes, there is {path}." if is_there else f"No, there is no {path}."
    return one(
        polite(draw, draw.wording(wordings)).format(path), "file_exists", {"path": path}, json.dumps(came), answer
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
        "Search for the text {}", "Which of my files mention {}?", "Where is the word {}?",
        "I'm looking for the word {} in my files", "Find every line with {}", "Show me the lines that contain {}",
        "Does any file contain {}?", "Is {} mentioned anywhere?", "Where in the files is {}?",
        "Search all files for the word {}", "Could you find {} in my files?", "In which files does {} appear?",
        "grep for {}", "Where did I write {}?", "Which lines have {}?", "Go through the files and find {}",
        "Scan the files for {}", "full text search for {}", "I want to find {} in the files", "Who mentions {}?",
        "Look through all files for {}", "Which files talk about {}?", "Find where {} is used", "search the text {}",
        "Where can I find the word {}?", "Does {} appear in any file?", "Hunt for {} in the files",
        "find all places with the word {}", "Tell me which file has {} in it", "Search through everything for {}",
        "Find the lines with {}", "List the files that contain {}", "Any file with the word {}?",
        "I need all lines that mention {}",
        "Search my files for {}", "search the files for {}", "search for {}", "Search for {}",
        "search all files for {}",
        "search for the word {}", "Search the word {}", "find {}", "find the word {}", "find {} in all files",
        "Find the text {}", "find text {}", "look for {}", "Look for the word {}", "grep {} in all files",
        "grep -r {}",
        "grep the files for {}", "Which file has {}?", "which file contains {}", "Which file contains the word {}?",
        "which files contain {}", "Which files contain the text {}?", "What file has the word {}?",
        "In what file is the word {}?", "Which file says {}?", "In which file does it say {}?", "where is {} used",
        "Can you search for {}?", "Can you find {} in the files?", "Could you look for {} in all files?",
        "Do any files contain {}?", "Is there a file with the word {}?", "Is {} in any of the files?",
    )  # fmt: skip
    arguments: dict[str, Any] = {"pattern": word}
    shown = quoted(draw, word) if draw.often(0.3) else word
    said = polite(draw, draw.wording(wordings), is_free=True).format(shown)
    if draw.often(0.15):
        folder = draw.folder()
        inside = (
            "Search for {k} in {f}", "Look for {k} in {f}", "Search {f} for {k}", "Which files in {f} contain {k}?",
            "Search the folder {f} for the word {k}", "Find the word {k} in the files of {f}", "grep {k} in {f}",
            "Where in {f} is {k} mentioned?", "In {f}, find the lines with {k}", "Does any file in {f} mention {k}?",
            "Look through {f} for {k}", "Is {k} mentioned anywhere in {f}?",
        )  # fmt: skip
        said = polite(draw, draw.wording(inside)).format(k=word, f=folder)
        arguments = {"pattern": word, "path": folder}
    if draw.often(0.15):
        return one(
            said,
            "search_files",
            arguments,
            f'No line matches "{word}" in {draw.whole(1, 90)} files.',
            f"No file contains {word}.",
        )
    paths = [draw.path() for _ in range(draw.weighted(((1, 50), (2, 30), (3, 20))))]
    came = "\n".join(line_with(draw, word, path) for path in paths)
    return one(said, "search_files", arguments, came, f"I found {word} in: {', '.join(dict.fromkeys(paths))}.")


def line_with(draw: Draw, word: str, path: str) -> str:
    """What a search finds: the same lines whether the file is to be read then or not."""
    before, behind = (draw.of("", draw.word(), draw.phrase(3)) for _ in range(2))
    return f"{path}:{draw.whole(1, 90)}:{' '.join(filter(None, (before, word, behind)))}"


def find_files(draw: Draw) -> Request:
    ending = draw.of("py", "md", "txt", "json", "csv", "toml", "html", "log")
    wordings = ("Find all {} files", "Which {} files are there?", "List all files that end in .{}",
    "Find files with the ending .{}",
                "Where are the {} files?", "search for *.{}", "show me every .{} file",
                "Which files end in .{}?", "Are there any {} files?", "Do I have {} files?",
                "Give me all files with the ending {}", "I'm looking for {} files", "List every file of the type {}",
                "find *.{}", "all .{} files please", "Where do I have .{} files?", "Look for files ending with .{}",
                "Show the names of all .{} files", "Locate all {} files", "I'd like to see all {} files",
                "What .{} files do we have?", "Search for files that end with .{}",
                "Tell me which {} files there are", "Can you find the .{} files?", "every *.{}",
            )  # fmt: skip
    paths = [f"{draw.word()}.{ending}" for _ in range(draw.whole(1, 4))]
    said = polite(draw, draw.wording(wordings)).format(ending)
    return one(said, "search_files", {"glob": f"*.{ending}"}, "\n".join(paths), f"I found: {', '.join(paths)}.")


# -- commands, the web, JSON -------------------------------------------------------------------------------------------


def execute_command(draw: Draw) -> Request:
    if draw.often(0.15):
        asked = ("What time is it?", "What is the time?", "What day is it today?", "What is the date?",
        "Which day is today?",
                 "Tell me the time.", "what's the time", "Which date is it today?", "what is today's date",
                 "Could you tell me the time?", "time please", "Got the time?", "Tell me the date of today",
                 "What weekday is it?", "I'd like to know the time", "date?", "How late is it?",
                 "What's the date today?", "Which weekday do we have today?", "Give me the current time",
                 "Do you have the time?", "today's date please", "What is the current date?", "current time",
                 "Can you look up what day it is?", "Say what time it is now", "what day do we have today",
                 "What is the date and the time?", "Which year is it?", "I need the current date",
                 "what time is it right now?", "Which month is it?", "Show the date",
                 "what's today", "Please tell me what day it is",
        )  # fmt: skip
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
    short = ("whoami", "pwd", "date", "hostname", "uname", "uname -a", "uptime", "id", "ls", "df", "env", "who")
    command = draw.pick(short) if draw.often(0.25) else draw.command()
    printed = draw.made(draw.sentence, draw.value, draw.phrase)
    wordings = (
        "Run {}", "Run the command {}", "Execute {}", "Execute the command {}", "Run `{}`", "Run this command: {}",
        "Please run {}", "Start {}", "run: {}", "Execute `{}`", "Run {} in the shell", "Use the shell to run {}",
        "$ {}",
        "try the command {}", "Call {} on the command line",
        "Launch {}", "I'd like you to run {}", "Could you execute {}", "I want to run {}",
        "Do this in the terminal: {}", "In the shell: {}", "Type {} in the terminal", "execute: {}",
        "Use the terminal for {}", "Please execute the command {}", "What does `{}` print?", "Run the following: {}",
        "What is the output of `{}`?", "cmd: {}", "Have the shell run {}", "Fire up {}", "Let's run {}",
        "Let me see what `{}` prints", "shell: {}", "Go and run {}", "Try to run {}", "Start the command {}",
        "run the shell command {}", "What happens if you run `{}`?", "I need the output of {}",
        "Please do {} in a terminal", "Show me the output of {}", "Run {} and show what it prints",
        "execute {} in bash", "Try `{}`", "Enter {} on the command line", "What do you get from `{}`?", "Perform {}",
        "Give me the result of the command {}",
        "run {}", "execute {}", "Run: {}", "exec {}", "please run {}", "please execute {}", "can you run {}",
        "Can you execute {}", "Could you run {}", "I want you to run {}", "Run {} please", "run command {}",
        "run the command {}", "execute the command {}", "execute command {}", "Please run the command {}",
        "run `{}`", "Run {} for me", "Run {} now", "try {}", "> {}", "bash: {}", "terminal: {}", "Now run {}",
    )  # fmt: skip
    said = polite(draw, draw.wording(wordings), is_free=True).format(command)
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
                     "Make a GET request to {u}", "What does {u} return?", "Load {u}", "Show me the page {u}",
                     "Could you fetch {u}?", "Have a look at {u}", "I'd like to see the page {u}", "What's on {u}?",
                     "Visit {u}", "Go to {u}", "Retrieve {u}", "Pull {u}", "What does the page {u} say?",
                     "Read the page {u}", "curl {u}", "Query {u}", "{u} please", "Request {u}",
                     "Call {u} and show me the answer", "Browse to {u}", "What comes back from {u}?",
                     "Give me the content of {u}", "I want to know what {u} says", "Take a look at {u}",
                     "Let me see {u}", "Check what {u} returns", "Send a GET to {u}", "open the website {u}",
                     "Tell me what is on the page {u}", "Which answer does {u} give?", "Look up {u} on the web",
                     "HTTP GET {u}", "Grab the page at {u}", "what do I find at {u}"),
        "http_post": ('Post "{s}" to {u}', "POST {s} to {u}", "Send {s} to {u} by POST",
        "Make a POST request to {u} with {s}",
                     "POST to {u}: {s}", "Send a POST to {u} with the body {s}", "Post the text {s} to {u}",
                     'Please POST "{s}" to {u}', "Use POST to send {s} to {u}", "post this to {u}: {s}",
                     "I'd like to post {s} to {u}", "Do a POST on {u}, body: {s}", 'Could you post "{s}" to {u}?',
                     'HTTP POST {u} with "{s}"'),
        "http_put": ('Put "{s}" to {u}', "PUT {s} to {u}", "Make a PUT request to {u} with {s}",
                     "PUT to {u}: {s}", "Send {s} to {u} by PUT", "Send a PUT to {u} with the body {s}",
                     'Please PUT "{s}" to {u}', "Use PUT to send {s} to {u}", "Do a PUT on {u}, body: {s}",
                     'Could you PUT "{s}" to {u}?', 'HTTP PUT {u} with "{s}"'),
        "http_delete": ("DELETE {u}", "Send a DELETE to {u}", "Make a DELETE request to {u}",
                     "Delete the resource at {u}", "Use DELETE on {u}", "Please send a DELETE request to {u}",
                     "Do a DELETE on {u}", "Delete {u}", "HTTP DELETE {u}", "Could you send DELETE to {u}?",
                     "Call {u} with DELETE", "I want a DELETE request to {u}"),
    }  # fmt: skip
    arguments = {"url": url} | ({"body": sent} if name in {"http_post", "http_put"} else {})
    came = f"HTTP 200 OK\ncontent-type: text/plain\n\n{body}"
    said = polite(draw, draw.wording(wordings[name])).format(u=url, s=sent)
    return one(said, name, arguments, came, f"The page says: {body}")


def json_tool(draw: Draw) -> Request:
    key, value = draw.word(), draw.of(draw.word(), draw.whole(0, 999))
    text = json.dumps({key: value})
    made = {
        "json_parse": (("Is {} valid JSON?", "Parse {}", "Parse the JSON {}",
                        "Can you parse {}?", "Read this JSON: {}", "Please parse {}", "Parse this: {}",
                        "Is this valid JSON: {}", "Does {} parse?", "parse json {}",
                        "I want you to parse the JSON {}", "Is that JSON correct? {}"),
        {"json": text}, text, f"The JSON is valid: {text}"),
        "json_path": (("Take {k} out of {}", "What is {k} in {}?",
                        "Get {k} from {}", "Give me the value of {k} in {}", "Which value has {k} in {}?",
                        "Extract {k} from the JSON {}", "Read {k} from {}", "In {} what is {k}?",
                        "What does {} have as {k}?", "From the JSON {} take {k}", "I need {k} from {}"),
        {"json": text, "path": f"$.{key}"}, json.dumps([value]),
                      f"The value of {key} is {value}."),
        "json_validate": (("Validate {}", "Check the JSON {}",
                        "Validate the JSON {}", "Please validate {}", "Check this JSON: {}", "Can you validate {}?",
                        "validate: {}", "Check the JSON {} for errors", "Are there errors in the JSON {}?",
                        "Do a validation of {}", "Run a JSON check on {}"),
        {"json": text}, '{"valid": true, "errors": []}',
        "The JSON is valid."),
        "json_format": (("Format {}", "Pretty-print {}", "Format the JSON {}",
                        "Please format {}", "Make {} pretty", "Indent the JSON {}", "Format this JSON: {}",
                        "Can you format {}?", "Lay out {} nicely", "pretty print this: {}",
                        "Show {} with indentation", "Print the JSON {} in a readable form"),
        {"json": text}, json.dumps({key: value}, indent=2),
                        json.dumps({key: value}, indent=2)),
    }  # fmt: skip
    name = draw.pick(tuple(made))
    wordings, arguments, came, answer = made[name]
    return one(draw.wording(wordings).format(text, k=key), name, arguments, came, answer)


# -- the memory --------------------------------------------------------------------------------------------------------


SETTINGS = (
    "Set {} to {}", "Set the fact {} to {}", "Save {} = {}", "Store the fact {} with the value {}",
    "Save the fact {}: {}", "set fact {} to {}", "save {} as {}", "Store {} = {}", "set {} = {}", "Set fact {} = {}",
    "Save the fact {} with the value {}", "save the fact {} as {}", "Please set the fact {} to {}",
    "Can you save the fact {} = {}", "Remember the fact {}: {}", "Save as fact: {} is {}", "store the fact {}: {}",
    "I want you to save the fact {} as {}", "Keep the fact {} with the value {}",
)  # fmt: skip


def remember(draw: Draw, told: Fact | None = None) -> Request:
    """A wish to remember: the only reason to store a fact."""
    told = told or fact(draw)
    if draw.often(0.15):
        key, value = draw.word(), draw.value()
        return save(draw, key, value)
    said = statement(draw, told, TOLD_TO_REMEMBER)
    return one(
        said,
        "set_fact",
        {"key": told.key, "value": told.value},
        '{"success": true}',
        f"I saved {told.key} as {told.value}.",
    )


def save(draw: Draw, key: str, value: str) -> Request:
    said = draw.wording(SETTINGS).format(key, value)
    return one(said, "set_fact", {"key": key, "value": value}, '{"success": true}', f"I saved {key} as {value}.")


def look_up(draw: Draw) -> Request:
    key, value = draw.made(draw.word, draw.noun, lambda: fact(draw).key), draw.value()
    return look_up_of(draw, key, None if draw.often(0.2) else value)


def look_up_of(draw: Draw, key: str, value: str | None) -> Request:
    """The value of a key; `None` where there is none."""
    wordings = ("Get the fact {}", "Look up the fact {}", "What is the fact {}?", "Which value is saved for {}?",
    "What did I save for {}?",
                "Show the fact {}", "What value did I store for {}?", "get fact {}",
                "Look up {} in your facts",
                "Tell me the fact {}", "Which fact is stored as {}?", "What is saved under {}?",
                "Give me the saved value of {}", "Could you look up the fact {}?", "Read the fact {}",
                "I saved a fact {}, what is it?", "Retrieve the fact {}", "fact {}?", "What value has the fact {}?",
                "Find the fact {}", "Do you have a fact {}?", "Show me what is saved for {}",
                "What did I store under {}?", "Check the fact {}", "Is there a saved fact {}?",
                "What have I saved as {}?", "I need the fact {}", "What does the fact {} say?", "show fact {}",
                "What's stored for {}?", "Let me see the fact {}", "Print the fact {}",
                "Which value did I save for {}?", "the saved fact {} please", "Fetch the fact {}",
                "what did i save for {}", "What did I save as {}?", "what is saved for {}", "What is saved as {}?",
                "what have I saved for {}", "Which value did I store for {}?", "What did I set {} to?",
                "What is stored under {}?", "what is stored for {}", "look up the fact {}", "look up fact {}",
                "Recall the fact {}", "recall the fact {}", "recall fact {}", "Recall the saved value of {}",
                "get the fact {}", "Please get the fact {}", "Can you get the fact {}?", "Show me the fact {}",
                "show me what I saved for {}", "Tell me what I saved for {}", "Tell me what is saved for {}",
                "What was the fact {}?", "what is the fact {}", "Read me the saved fact {}",
            )  # fmt: skip
    said = polite(draw, draw.wording(wordings), is_free=True).format(key)
    if value is None:
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
    return forget_of(draw, key, is_found=draw.often(0.75))


def forget_of(draw: Draw, key: str, *, is_found: bool) -> Request:
    wordings = ("Forget the {}", "Forget the fact {}", "Delete the fact {}", "Forget {}", "Clear the fact {}",
    "Forget my {}",
                "Remove the fact {}", "forget about the {}", "You can forget the {}",
                "Please forget the fact {}", "Drop the fact {}", "Erase the fact {}", "I want you to forget the {}",
                "Could you forget the {}?", "Wipe the fact {}", "Forget what I saved for {}",
                "Delete what is stored for {}", "Don't keep the {} any more", "Throw away the fact {}",
                "Remove {} from your facts", "You may forget {}", "Forget everything about the {}", "delete fact {}",
                "Clear the saved value of {}", "The fact {} is not needed any more, forget it",
                "Get rid of the fact {}", "Take {} out of your facts", "The fact {} can be deleted", "clear fact {}",
                "I'd like you to forget my {}", "Stop remembering the {}", "No need to remember the {}",
                "Do not remember the {} any longer", "Erase {} from your facts", "remove fact {}",
                "forget the {}", "forget my {}", "forget {}", "Forget {} please", "please forget the {}",
                "Please forget my {}", "Can you forget the {}?", "Could you forget my {}?", "forget fact {}",
                "forget the fact {}", "Delete the saved fact {}", "Delete the saved {}", "clear the fact {}",
                "Clear the saved fact {}", "I want you to forget my {}", "You should forget the {}",
                "Please clear the fact {}", "Remove the saved value of {}", "Now forget the {}", "Forget about my {}",
            )  # fmt: skip
    came = json.dumps({"success": True, "found": is_found})
    answer = f"I forgot {key}." if is_found else f"I found nothing about {key}."
    said = polite(draw, draw.wording(wordings), is_free=True).format(key)
    return one(said, "clear_fact", {"key": key}, came, answer)


def store_answer(draw: Draw) -> Request:
    told = fact(draw)
    asked = told.questions[0]
    wordings = ('Store the question "{q}" with the answer "{v}"', "Store in memory: {q} {v}",
    'Save the answer to "{q}": {v}',
                'The answer to "{q}" is "{v}", store it',
                'Store "{v}" as the answer to "{q}"', 'Save the question "{q}" and its answer "{v}"',
                'When I ask "{q}", the answer is "{v}". Store that', 'Keep in memory: "{q}" - "{v}"',
                'Put the answer "{v}" to the question "{q}" in your memory', "Add to your memory: {q} {v}",
                "Store this question and answer: {q} {v}", 'I want you to store "{v}" for the question "{q}"',
                'Memorize the answer to "{q}": {v}', 'Save to memory the question "{q}" with the answer "{v}"',
                "Question: {q} Answer: {v} Store it.",
            )  # fmt: skip
    said = draw.wording(wordings).format(q=asked, v=told.value)
    return one(
        said, "store_memory", {"question": asked, "answer": told.value}, '{"success": true}', "I stored the answer."
    )


def clear_answer(draw: Draw) -> Request:
    asked = fact(draw).questions[0]
    wordings = ('Forget the question "{}"', 'Delete the stored question "{}"', 'Clear "{}" from your memory',
                'Remove the question "{}" from your memory', 'Forget the answer to "{}"', 'Delete "{}" from memory',
                'Erase the stored question "{}"', 'You can forget the question "{}"',
                'Drop the question "{}" from your memory', 'Clear the stored answer to "{}"',
                'Take "{}" out of your memory', 'Forget what I stored for the question "{}"',
    )  # fmt: skip
    said = polite(draw, draw.wording(wordings)).format(asked)
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
            f"{each.begun}.",
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
        each = [(Called("read_file", {"path": path}), ended(draw, draw.sentence())) for path in paths]
        wordings: tuple[str, ...] = (
            "Read {}", "Show me {}", "Read the files {}", "What is in {}?", "Open {}", "cat {}",
            "Print {}", "I'd like to see {}", "Show me the contents of {}", "Could you read {}?", "Have a look at {}",
            "Read {} at the same time", "Give me the texts of {}", "Let me see {}", "What do {} say?",
            "Open the files {}", "display {}", "view {}", "Take a look at the files {}", "Tell me what is in {}",
            "What have I written in {}?",
        )  # fmt: skip
        said = polite(draw, draw.wording(wordings)).format(listed(paths))
        answer = "\n".join(f"The file {call.arguments['path']} says: {text.rstrip()}" for call, text in each)
    elif kind == "list":
        paths = [draw.folder() for _ in range(n)]
        each = [
            (Called("list_directory", {"path": path}), "\n".join(draw.file() for _ in range(draw.whole(1, 3))))
            for path in paths
        ]
        wordings = (
            "List {}", "List the folders {}", "What is in {}?", "Show me the files in {}", "ls {}",
            "Which files are in {}?", "List the directories {}", "I'd like to see the files in {}",
            "Have a look into {}", "What have we got in {}?", "list all files of {}", "Show the folders {}",
            "What files do {} have?", "Take a look inside {}", "Could you list {}?", "Show me what is in {}",
            "Look into {}", "What do {} hold?", "files in {} please", "Give me the listings of {}",
        )  # fmt: skip
        said = polite(draw, draw.wording(wordings)).format(listed(paths))
        answer = "\n".join(
            f"The files in {call.arguments['path']} are: {text.replace(chr(10), ', ')}." for call, text in each
        )
    else:
        commands = [draw.command() for _ in range(n)]
        each = [
            (Called("execute_command", {"command": command}), f"{draw.phrase()}\nexit code 0") for command in commands
        ]
        wordings = (
            "Run {}", "Run the commands {}", "Execute {}", "Please run {}", "Start {}",
            "Execute the commands {}", "Run these commands: {}", "Launch {}", "I want to run {}",
            "In the shell run {}", "Use the shell to run {}", "run: {}", "Could you execute {}",
            "I'd like you to run {}", "Try the commands {}", "Call {} on the command line", "Do {} in the terminal",
            "Type {} in the terminal", "Run the commands {} at the same time", "Show me the output of {}",
        )  # fmt: skip
        said = polite(draw, draw.wording(wordings), is_free=True).format(listed(commands))
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
                "Open whatever file is in {}",
                "There should be just one file in {}, show me what it says", "List {}, then read what you find",
                "See which file is in {} and open it", "What is written in the only file of {}?",
                "I'd like to read the one file in {}", "Go to {} and read the file there",
                "Show me the text of the single file in {}", "Look which file {} has and read it to me",
                "{} has one file, what does it say?", "Could you read the file that is in {}?",
                "Read whatever is in {}", "Check {} and print the file you find",
                "Open the folder {} and then the file in it", "first list {}, then show the file",
                "Which file is in {}? Read it.", "I don't know the name, but read the file in {}",
                "Get the content of the only file in {}", "Find out which file is in {} and show its text",
            )  # fmt: skip
    return Request(
        polite(draw, draw.wording(wordings)).format(folder),
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
                "Search for {} and open the file", "Open the file that has the word {}",
                "Find the file that mentions {} and show it", "Show me the file with the word {}",
                "Search for {}, then read the file", "Which file has {} in it? Show me its text.",
                "Look for the file with {} and print it", "I want to read the file that mentions {}",
                "What does the file with the word {} say?", "Read me the file in which {} occurs",
                "Find {} in the files and open the file", "Somewhere I wrote {}, find the file and read it",
                "Go and find the file with {}, then read it", "Print the file that contains {}",
                "Could you open the file that mentions {}?",
            )  # fmt: skip
    return Request(
        polite(draw, draw.wording(wordings), is_free=True).format(word),
        (
            ((Called("search_files", {"pattern": word}), line_with(draw, word, path)),),
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
        "Put something in {}", "Add something to {}", "I want to change {}", "Write to {}", "Could you edit {}?",
        "Update {}", "I'd like to add a line to {}", "Modify the file {}", "Please change something in {}",
        "append a line to {}", "Make a change to {}", "Insert a line into {}", "{} needs a change",
        "Write into the file {}", "Add one more line to {}", "Save something in {}",
    )  # fmt: skip
    answer = "Which text should I write?"
    return Request(polite(draw, draw.wording(said)).format(draw.path()), (), answer, ("write_file", "edit_file"))


REQUESTS: dict[str, tuple[float, Callable[[Draw], Request]]] = {
    "list_directory": (12, list_directory),
    "read_file": (18, read_file),
    "write_file": (14, write_file),
    "append": (8, append),
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
    "search_then_read": (1.5, search_then_read),
}
"""By name, how often, and what makes one."""


def request(draw: Draw, name: str = "") -> Request:
    name = name or draw.weighted([(each, share) for each, (share, _) in REQUESTS.items()])
    return REQUESTS[name][1](draw)
