"""A plugin of pytest for llama.cpp's own tests: their words where another model stands in. It edits no test.

Weights of large models cannot be had here, so what a test expects a model to *say* may be wrong for any server. A test
that compares words goes on where they differ, and its row keeps `OTHER_WORDS`. The real llama-server runs first, with
the same models, and decides: where its words are right, so must be those of Shepherd; where they are not, the rest of
the test still counts. That is stronger than a list of tests by hand: no test is excused that llama-server passes as it
stands. `load_all`, which downloads, does nothing; a LoRA is one of ours.
"""

from __future__ import annotations

import os
import re
import sys

import pytest
from suites.llama_launcher import ADAPTER
from suites.rows_plugin import notes

OTHER_WORDS = "the words are not those of the test"


def pytest_configure(config: pytest.Config) -> None:
    sys.path.insert(0, os.getcwd())
    import utils  # type: ignore[import-not-found] # theirs, in the working folder

    theirs = utils.match_regex

    def match_regex(regex: str, text: str) -> bool:
        if not theirs(regex, text):
            notes[os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]] = OTHER_WORDS
        return True

    download = utils.download_file

    def download_file(url: str, *target: str) -> str:
        own = os.path.join(os.environ["SHEPHERD_SUITE_MODELS"], ADAPTER)
        return own if re.search("lora|shakespeare", url, re.IGNORECASE) else str(download(url, *target))

    utils.match_regex = match_regex
    utils.download_file = download_file
    utils.ServerPreset.load_all = staticmethod(lambda: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only the cases of the file that SHEPHERD_SUITE_CASES names, if there is one."""
    if file := os.environ.get("SHEPHERD_SUITE_CASES"):
        with open(file, encoding="utf-8") as chosen:
            wanted = set(chosen.read().splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]
