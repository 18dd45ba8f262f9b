"""The chats of the pages and of test_tiny_model.py, played anew: after another model has come into the package.

python -m tests.play_pages      read what has changed before it is committed: a worse answer is a worse model
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path

from tests.places import ROOT
from tests.unit import test_docs, test_tiny_model


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        chats = asyncio.run(test_tiny_model.played(Path(scratch)))
    test, page = ROOT / "tests" / "unit" / "test_tiny_model.py", ROOT / "docs" / "chat.md"
    text, table = test.read_text("utf-8"), page.read_text("utf-8")
    for before, now in zip(test_tiny_model.EXAMPLES, chats, strict=True):
        typed, old = (" · ".join(each) for each in zip(*before, strict=True))
        new = " · ".join(answer for _, answer, _ in now)
        if "\n" in new:
            raise SystemExit(f"the answer to {typed!r} has several lines, and no row of a table: {new!r}")
        table = table.replace(f"| {typed} | {old} |", f"| {typed} | {new} |")
        for (said, answer), (_, came, _) in zip(before, now, strict=True):
            text = text.replace(f'("{said}", "{answer}")', f"({json.dumps(said)}, {json.dumps(came)})")
    test.write_text(text, "utf-8")
    page.write_text(table, "utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        folder = test_docs.with_files(Path(scratch))
        for each in test_docs.PAGES:
            new_text = test_docs.CHAT.sub(
                lambda match: f"```text chat\n{test_docs.played(match[1], folder)}```", each.read_text("utf-8")
            )
            each.write_text(new_text, "utf-8")


if __name__ == "__main__":
    main()
