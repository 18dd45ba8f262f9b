"""`shepherd optimize`: what it prints and writes, with results that are given, and once with real ones."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.command_line import run

from shepherd import config as configuration
from shepherd.cli.command import optimize
from shepherd.core import ConfigError
from shepherd.measure.search import State
from shepherd.measure.space import Candidate, Facts
from shepherd.measure.subject import Subject
from shepherd.measure.trial import Run, Workload
from shepherd.measure.tuning import Progress
from shepherd.models import catalog, gguf

START = Candidate(n_batch=512, n_ubatch=512, flash_attn=False, cache_type_v="q8_0")
BEST = Candidate(n_threads=2, n_batch=512, n_ubatch=512, flash_attn=True)
CRASHED = Candidate(n_threads=3)
SUBJECT = Subject("m", gguf.read_header(catalog.embedded()), START, Facts(2, 2, 1024), "main")
FILE = """# my file
model = "m"   # the default

[models.m]  # ours
path = "embedded"
n_threads = 1  # was measured by hand
[models.other]
path = "embedded"
n_threads = 7

[caches.main]
model = "m"
n_ctx = 1024
cache_type_v = "q8_0"
"""


def progress(best: Candidate = BEST, final: tuple[float, ...] = (0.2, 0.21, 0.19)) -> Progress:
    fast, slow = Run(220.0, 22.0, 20.0, 0.0, 2**28, took_s=1.0), Run(180.0, 18.0, 16.0, 0.0, 2**28, took_s=1.0)
    runs = ((START, slow), (BEST, fast), (START, slow), (CRASHED, Run(problem="it <crashes>", took_s=1.0)))
    return Progress(START, Workload(), State(best), runs, final)


def test_the_settings_are_printed_as_a_part_of_a_configuration() -> None:
    text = optimize.to_toml(SUBJECT, progress())
    assert tomllib.loads(text) == {"models": {"m": {"n_threads": 2, "flash_attn": True, "cache_type_v": "f16"}}}
    worse = progress(final=(-0.2, -0.21, -0.19))
    assert worse.best == START, "the last comparison counts"
    assert optimize.to_toml(SUBJECT, worse) == "# models.m: nothing to change\n"


def test_the_report_and_the_picture_hold_every_combination() -> None:
    found = optimize.report("m", progress(), "chat")
    assert json.loads(json.dumps(found)) == found
    assert found["gain"]["low"] > 1
    best, start, crashed = found["combinations"]
    assert best["settings"] == 'n_threads = 2, flash_attn = true, cache_type_v = "f16"'
    assert (start["settings"], start["runs"]) == ("as it is", 2)
    assert crashed["problem"] == "it <crashes>"
    assert len(ElementTree.fromstring(optimize.to_svg(progress(), "chat")).findall(".//{*}rect")) == 2


def test_only_the_keys_that_change_are_written_and_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text(FILE)
    optimize.write_settings(file, SUBJECT, {"n_threads": 2, "flash_attn": True, "cache_type_v": "f16"})
    assert (tmp_path / "shepherd.toml.bak").read_text() == FILE
    before, after = tomllib.loads(FILE), tomllib.loads(file.read_text())
    assert after["models"]["m"] == {"path": "embedded", "n_threads": 2, "flash_attn": True}
    assert after["caches"]["main"]["cache_type_v"] == "f16", "the cache has its own"
    assert after["models"]["other"] == before["models"]["other"]
    assert file.read_text().startswith('# my file\nmodel = "m"   # the default\n\n[models.m]  # ours\n')
    assert "# was measured by hand" in file.read_text()


def test_what_belongs_to_the_cache_is_written_to_the_cache_of_the_model(tmp_path: Path) -> None:
    best = replace(BEST, sequences=16, override_tensor=(r"blk\.0\.ffn_=CPU",), mmap=None)
    start = replace(START, sequences=4, mmap=False)
    found = replace(progress(best), start=start, runs=((start, Run(1.0, 1.0, 1.0)),))
    told = tomllib.loads(optimize.to_toml(SUBJECT, found))
    assert told["caches"] == {"main": {"model": "m", "sequences": 16}}
    assert told["models"]["m"]["override_tensor"] == [r"blk\.0\.ffn_=CPU"]
    assert told["models"]["m"]["mmap"] is True
    for text, cache in ((FILE, "main"), ('[models.m]\npath = "embedded"\n', "m")):
        file = tmp_path / "shepherd.toml"
        file.write_text(text)
        optimize.write_settings(file, replace(SUBJECT, cache=cache), optimize.report("m", found, "chat")["settings"])
        config = configuration.load(env={}, cwd=tmp_path, user_dir=tmp_path, file=file)
        (main,) = (each for each in config.caches if each.model == "m")
        (model,) = (each for each in config.models if each.name == "m")
        assert (main.name, main.sequences) == (cache, 16)
        assert (model.n_threads, model.flash_attn, model.override_tensor) == (2, True, (r"blk\.0\.ffn_=CPU",))


def test_a_file_without_the_table_of_the_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shepherd.toml"
    file.write_text('model = "embedded"\n')
    with pytest.raises(ConfigError, match=r"there is no table \[models.lamb\] to write to; add it"):
        optimize.changed(file, replace(SUBJECT, name="lamb"), {})


def test_a_budget_that_is_none_is_refused() -> None:
    for budget in ("soon", "0", "-1"):
        done = run("optimize", "--model", "embedded", "--budget", budget)
        assert done.returncode == 1
        assert f"'{budget}' is no budget; write seconds, or a text such as 90s or 5m" in done.stderr
