"""The chats of the pages and of test_tiny_model.py, played anew: after another model has come into the package.

python -m tests.play_pages      read what has changed before it is committed: a worse answer is a worse model
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from pathlib import Path

from tests import command_line
from tests.own_app import app_of, loaded
from tests.places import ROOT
from tests.unit import test_docs, test_tiny_model

from shepherd.memory.users import LOCAL

Chats = list[list[tuple[str, str]]]


async def played() -> Chats:
    """The ten chats of `test_tiny_model`, in a folder like its own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "README.md").write_text(test_tiny_model.README)
        os.chdir(folder)
        chats: Chats = []
        async with loaded(app_of(folder)) as app:
            for chat in test_tiny_model.EXAMPLES:
                session = app.conversations.session(user=LOCAL, recall=False)
                chats.append([(typed, (await test_tiny_model.answered(session, typed))[0]) for typed, _ in chat])
        os.chdir(ROOT)
        return chats


def piped(match: re.Match[str]) -> str:
    """A block of a page, with the answers that a pipe gets now."""
    asked = [line.removeprefix("> ") for line in match.group(1).splitlines() if line.startswith("> ")]
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in test_docs.FILES.items():
            (Path(scratch) / name).write_text(text)
        typed = "".join(f"{line}\n" for line in asked)
        done = command_line.run("--temperature", "0", "--no-recall", stdin=typed, cwd=Path(scratch))
    answers = done.stdout.partition("\n> ")[2].removesuffix("\n> \n").split("\n> ")
    shown = "".join(f"> {line}\n{answer}\n" for line, answer in zip(asked, answers, strict=True))
    return f"```text chat\n{shown}```"


def main() -> None:
    chats = asyncio.run(played())
    test, page = ROOT / "tests" / "unit" / "test_tiny_model.py", ROOT / "docs" / "chat.md"
    text, table = test.read_text("utf-8"), page.read_text("utf-8")
    for before, now in zip(test_tiny_model.EXAMPLES, chats, strict=True):
        old, new = (" · ".join(answer for _, answer in chat) for chat in (before, now))
        typed = " · ".join(typed for typed, _ in now)
        if "\n" in new:
            raise SystemExit(f"the answer to {typed!r} has several lines, and no row of a table: {new!r}")
        table = table.replace(f"| {typed} | {old} |", f"| {typed} | {new} |")
        for (said, answer), (_, came) in zip(before, now, strict=True):
            text = text.replace(f'("{said}", "{answer}")', f"({json.dumps(said)}, {json.dumps(came)})")
    test.write_text(text, "utf-8")
    page.write_text(table, "utf-8")
    for each in test_docs.PAGES:
        each.write_text(test_docs.CHAT.sub(piped, each.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
