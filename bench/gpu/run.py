"""Shepherd on an NVIDIA GPU, against llama-bench and llama-server: everything on one bare machine without a network.

    python3 -m bench.gpu.pack           # at home, once: what the machine lacks, into bench/out/gpu-pack
    python3 -m bench.gpu.run            # there, from the root of the repository; again, until it says that all is done
    python3 -m bench.gpu.run --step clients     # one step, although it is done
    python3 -m bench.gpu.run --cpu      # the same path without a GPU, in small shapes

    run (standard library) ─┬─ facts, unpack          in this process
                            └─ build, measure ... ──▶ a child each, with a deadline, on the unpacked packages
                                                      bench/out/gpu-work: stamps, logs, llama.cpp, models

Each step leaves a stamp: the next call goes on behind the last one. The budgets of the steps are in `plan.py`: a step
that would pass what is left is left out, with a line that says so. Ends with 0 when all is done, with 1 when a step
failed, with 75 when the next call goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.gpu import facts, plan
from bench.gpu.plan import BY_NAME, STEPS, Go, Stamp, Step

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "bench" / "out"
PACK = OUT / "gpu-pack"
SOURCE, SITE, CONTENTS = "llama.tar.xz", "site.tar.xz", "pack.json"
"""The files of a pack."""
LATER = 75
POLL_S, TELL_S = 0.2, 20.0
N_LINES = 15
"""Of a log, where a step has failed."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of a run, and what it was started with."""

    pack: Path
    work: Path
    cpu: bool
    contents: Mapping[str, Any]
    built: Path | None = None
    """A folder with llama.cpp's library and programs, in place of a build."""

    @property
    def key(self) -> str:
        """Of the archives that stamps are made from."""
        return str(self.contents["key"])

    @property
    def cache(self) -> Path:
        return self.work / "cache"

    @property
    def python(self) -> Path:
        """Of an environment with the carried packages and this tree: children of Shepherd read no PYTHONPATH."""
        return self.work / "env" / "bin" / "python"

    @property
    def packages(self) -> Path:
        return self.work / "env" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    @property
    def programs(self) -> Path:
        """Where `bench.rig.llama_tools` builds."""
        return self.cache / "shepherd-bench" / "build" / "bin"

    def environment(self) -> dict[str, str]:
        """Of a child: the library that was built, one GPU, and no file of the user."""
        home = {f"XDG_{kind}_HOME": str(self.work / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        library = {"LLAMA_CPP_LIB_PATH": str(self.programs)} if (self.programs / "libllama.so").exists() else {}
        gpu = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}
        return {
            **os.environ,
            **home,
            **library,
            **gpu,
            "HOME": str(self.work),
            "PYTHONUNBUFFERED": "1",
        }


class Failed(Exception):
    """A step that cannot be done, in a sentence."""


# -- steps in this process -----------------------------------------------------------------------------------------


def _facts(place: Place) -> list[str]:
    found = facts.look(place.work)
    (place.work / "facts.json").write_text(json.dumps(asdict(found)), encoding="utf-8")
    said = facts.lines(found, cpu=place.cpu)
    print(*said, sep="\n")
    major, minor = place.contents["python"]
    wrong = facts.problems(found, cpu=place.cpu, python=(major, minor))
    if wrong:
        raise Failed("; ".join(wrong))
    return said


def known(work: Path) -> facts.Facts:
    """What the first step has found."""
    said: dict[str, Any] = json.loads((work / "facts.json").read_text(encoding="utf-8"))
    for name, value in said.items():
        said[name] = tuple(value) if isinstance(value, list) else value  # JSON has no tuples
    return facts.Facts(**said)


def _unpack(place: Place) -> list[str]:
    # All files of an archive are as old as one another: a build cannot see that they are others.
    key = place.work / "unpacked"
    if not key.exists() or key.read_text(encoding="utf-8") != place.key:
        shutil.rmtree(place.programs.parent, ignore_errors=True)
    key.write_text(place.key, encoding="utf-8")
    venv.EnvBuilder(clear=True, symlinks=True, with_pip=False).create(place.work / "env")
    for name, target in ((SITE, place.packages), (SOURCE, place.cache / "shepherd-bench" / "src")):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        archive = place.pack / name
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != place.contents["sha256"][name]:
            raise Failed(f"{archive} is not the file that was packed: copy it again")
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
        print(f"{name}: {archive.stat().st_size / 2**20:.1f} MiB")
    (place.packages / "tree.pth").write_text(f"{ROOT / 'src'}\n{ROOT}\n", encoding="utf-8")
    return []


def _link(place: Place) -> list[str]:
    assert place.built is not None
    missing = [name for name in BUILT if not (place.built / name).exists()]
    if missing:
        raise Failed(f"{place.built} has no {', '.join(missing)}: leave --built out, and they are built")
    shutil.rmtree(place.programs.parent, ignore_errors=True)
    place.programs.parent.mkdir(parents=True)
    place.programs.symlink_to(place.built, target_is_directory=True)
    return [f"nothing was built: library and programs are those of {place.built}"]


HERE = {"facts": _facts, "unpack": _unpack}
BUILT = ("libllama.so", "libmtmd.so", "llama-bench", "llama-server")


# -- steps in a child ----------------------------------------------------------------------------------------------


def _child(place: Place, step: Step, limit_s: float) -> dict[str, Any]:
    """What a step leaves: rows, promises, notes. Raises: `Failed` with the end of its log."""
    if not place.python.exists():
        raise Failed(f"{place.python} is gone: run the step unpack again, with --step unpack")
    result, log = place.work / "result.json", place.work / "logs" / f"{step.name}.log"
    log.parent.mkdir(exist_ok=True)
    result.unlink(missing_ok=True)
    module = ["bench.gpu.build"] if step.name == "build" else ["bench.gpu.measure", step.name]
    command: list[str | Path] = [
        place.python,
        "-m",
        *module,
        "--work",
        place.work,
        "--to",
        result,
        *(["--cpu"] if place.cpu else []),
    ]
    with log.open("wb") as sink:
        child = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=place.environment(), cwd=ROOT, start_new_session=True
        )
    try:
        ended = _wait(child, log, limit_s)
    finally:
        end(child)
    if not ended:
        raise Failed(f"it took longer than {limit_s:.0f} s and was ended; {log} is what it printed")
    if child.returncode != 0 or not result.exists():
        print(*_last(log, N_LINES), sep="\n")
        how = f"signal {-child.returncode}" if child.returncode < 0 else f"status {child.returncode}"
        raise Failed(f"it ended with {how}: {(_last(log, 1) or ['nothing was printed'])[0][:300]}")
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def _wait(child: subprocess.Popen[bytes], log: Path, limit_s: float) -> bool:
    """Whether it ended in time; its newest line is printed every few seconds."""
    started = told = time.monotonic()
    while child.poll() is None:
        now = time.monotonic()
        if now - started > limit_s:
            return False
        if now - told > TELL_S:
            told = now
            print(f"  {now - started:.0f} s: {(_last(log, 1) or [''])[0][:120]}", flush=True)
        time.sleep(POLL_S)
    return True


def end(child: subprocess.Popen[bytes], grace_s: float = 5.0) -> None:
    """With all that it started: servers, compilers. It leads a group of processes of its own."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
        except ProcessLookupError:
            break
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            continue
    child.wait()


def _last(log: Path, n: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - 10_000, 0))
        said = file.read().decode("utf-8", "replace")
    return [line for line in said.splitlines() if line.strip()][-n:]


# -- a call --------------------------------------------------------------------------------------------------------


def run(place: Place, wanted: list[str], total_s: float, call_s: float) -> int:
    """All steps, or the wanted ones although they are done; what the program ends with."""
    folder, begun = place.work / "steps", time.monotonic()
    steps = [BY_NAME[name] for name in wanted] or list(STEPS)
    status = 0
    for step in steps:
        stamps = plan.read(folder)
        spent_s = sum(stamp.seconds for stamp in stamps.values())
        clock = plan.Clock(total_s, spent_s, call_s - (time.monotonic() - begun))
        old = stamps.get(step.name)
        decision = plan.decide(step, stamps, clock, place.key, cpu=place.cpu, again=bool(wanted))
        if isinstance(decision, plan.Pass):
            print(f"== {step.name}: {decision.why}", flush=True)
            if decision.later:
                status = LATER
                break
            if old is None or old.state != "done":
                plan.write(folder, step.name, Stamp("left out", old.seconds if old else 0.0, place.key, decision.why))
            continue
        print(f"== {step.name}: {step.what} ({decision.limit_s:.0f} s at most)", flush=True)
        stamp = _attempt(place, step, decision, old.seconds if old else 0.0)
        print(f"   {stamp.state}, {stamp.seconds:.1f} s{f': {stamp.why}' if stamp.why else ''}", flush=True)
        if stamp.state == "failed":
            status = 1
            if step.needed:
                break
    return status


def _attempt(place: Place, step: Step, go: Go, before_s: float) -> Stamp:
    """The stamp that it leaves, also where the call is ended meanwhile."""
    started = time.monotonic()
    stamp = Stamp("failed", 0, place.key, "the call was ended")
    try:
        here = _link if step.name == "build" and place.built else HERE.get(step.name)
        found: dict[str, Any] = {"notes": here(place)} if here else _child(place, step, go.limit_s)
        stamp = Stamp("left out" if found.pop("left_out", False) else "done", 0, place.key, **found)
    except (Failed, OSError, tarfile.TarError) as error:
        stamp = Stamp("failed", 0, place.key, str(error))
    finally:
        stamp = replace(stamp, seconds=before_s + time.monotonic() - started)
        plan.write(place.work / "steps", step.name, stamp)
    return stamp


def finish(place: Place, results: Path | None) -> None:
    """Print the table; write all stamps into one file, and copy it and the logs to `results`."""
    stamps = plan.read(place.work / "steps")
    said = plan.report(stamps, cpu=place.cpu)
    machine = json.loads((place.work / "facts.json").read_text()) if (place.work / "facts.json").exists() else {}
    whole = {
        "bench": "gpu", "dry_run": place.cpu, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine, "pack": dict(place.contents),
        "steps": {name: asdict(stamp) for name, stamp in stamps.items()},
    }  # fmt: skip
    path = place.work / f"gpu-{time.strftime('%Y-%m-%d', time.gmtime())}.json"
    path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    (place.work / "table.txt").write_text(said + "\n", encoding="utf-8")
    print("", said, "", f"all of it: {path}", sep="\n")
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        for file in (path, place.work / "table.txt"):
            shutil.copy(file, results)
        with tarfile.open(results / "logs.tar.gz", "w:gz") as tar:
            for log in sorted((place.work / "logs").glob("*.log")):
                tar.add(log, log.name)


def read_pack(folder: Path) -> dict[str, Any]:
    """What a pack says of itself. Raises: `Failed` where it is missing or not whole."""
    missing = [name for name in (CONTENTS, SOURCE, SITE) if not (folder / name).is_file()]
    if missing:
        raise Failed(
            f"{folder} lacks {', '.join(missing)}: make it on a machine with a network, with "
            "`python -m bench.gpu.pack`, and carry the folder here"
        )
    try:
        said = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        python, key, sums = said["python"], said["key"], said["sha256"]
        if [type(each) for each in python] != [int, int] or not key or {SOURCE, SITE} - set(sums):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise Failed(f"{folder / CONTENTS} is not what `python -m bench.gpu.pack` writes: pack again") from None
    return dict(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", choices=list(BY_NAME), action="append", help="only this step, although it is done")
    parser.add_argument("--cpu", action="store_true", help="a dry run without a GPU, in small shapes")
    parser.add_argument("--pack", type=Path, default=PACK, help=f"the carried folder (default: {PACK})")
    parser.add_argument("--work", type=Path, help="where it works (default: bench/out/gpu-work, gpu-work-cpu)")
    parser.add_argument("--built", type=Path, help="a folder with llama.cpp's library and programs: nothing is built")
    parser.add_argument("--results", type=Path, help="a folder that gets the result, the table and the logs")
    parser.add_argument("--minutes", type=float, help="of all steps of all calls (default: 13; with --cpu 60)")
    parser.add_argument("--call-seconds", type=float, default=plan.CALL_S, help="of this call (default: %(default).0f)")
    parser.add_argument("--table", action="store_true", help="print what there is, and run nothing")
    said = parser.parse_args()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda number, _: sys.exit(128 + number))  # so that no server stays behind
    work = (said.work or OUT / ("gpu-work-cpu" if said.cpu else "gpu-work")).resolve()
    default_s = plan.TOTAL_CPU_S if said.cpu else plan.TOTAL_S
    try:
        built = said.built.resolve() if said.built else None
        place = Place(said.pack.resolve(), work, said.cpu, read_pack(said.pack), built)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    work.mkdir(parents=True, exist_ok=True)
    total_s = default_s if said.minutes is None else 60 * said.minutes
    status = 0 if said.table else run(place, said.step or [], total_s, said.call_seconds)
    finish(place, said.results)
    if status == LATER:
        print("Not all is done: the next call goes on.")
    return status


if __name__ == "__main__":
    sys.exit(main())
