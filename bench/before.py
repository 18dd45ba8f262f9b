"""This commit against an earlier one of ours, in turn: what a change of the code alone has made slower or faster.

    uv run python bench/before.py COMMIT [--rounds 5] [--quick]

Both run from the same Python and the same native library, with the embedded model and one engine thread. *Engine*: the
tokens/s that each commit's own `bench/engine.py` measures of itself. *Clients*: what `bench/clients.py` measures of a
server. *Start*: the CPU time of `shepherd --help`, and of one answer. Ratios above 1 mean that this commit is better.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import clients
import machine
from rich.console import Console
from sides import EMBEDDED, Setup, environment, running
from verdict import WIDTH, Verdict

ROOT = Path(__file__).parent.parent
ENGINE = """
import sys
from pathlib import Path
from engine import Case, ours
print(ours(Path(sys.argv[1]), Case("embedded", sys.argv[2], int(sys.argv[3])), 1))
"""
CASES = (("prefill", 0), ("decode", 0), ("prefill", 2048), ("decode", 2048))
STARTS = 5
COMMANDS = {"--help": ("--help",), "one answer": ("chat", "-p", "Hello", "--threads", "1")}


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="shepherd-before-") as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", tree, commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True)


def engine_tokens_per_s(tree: Path, kind: str, depth: int) -> float:
    """As the benchmark of that commit measures it, in a process of its own."""
    path = os.pathsep.join([str(tree / "src"), str(tree / "bench")])
    child = [sys.executable, "-c", ENGINE, str(EMBEDDED), kind, str(depth)]
    done = subprocess.run(
        child, env={**os.environ, "PYTHONPATH": path}, cwd=tree, check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def start_cpu_ms(tree: Path, arguments: tuple[str, ...]) -> float:
    """User and system time of a run of the program: the average of five, since the clock has steps of 10 ms."""
    before = os.times()
    child = [sys.executable, "-m", "shepherd", *arguments]
    for _ in range(STARTS):
        subprocess.run(child, env=environment(tree / "src"), cwd=tree, check=True, capture_output=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return 1000 * seconds / STARTS


def one_round(
    round_: int, trees: dict[str, Path], servers: dict[str, int], size: clients.Size, verdict: Verdict
) -> None:
    """One round of both commits, in turn within each case: the machine's speed changes within seconds."""
    names = sorted(trees, reverse=bool(round_ % 2))
    for kind, depth in CASES:
        for name in names:
            measured = engine_tokens_per_s(trees[name], kind, depth)
            verdict.add(f"engine: {kind} at {depth}", name, measured, unit="tokens/s", better="more")
    for what, arguments in COMMANDS.items():
        for name in names:
            verdict.add(f"start: {what}", name, start_cpu_ms(trees[name], arguments), unit="ms CPU")
    for n_clients in size.clients:
        for name in names:
            clients.note_crowd(verdict, name, n_clients, clients.crowd(servers[name], round_, n_clients, size))
    for name in names:
        clients.note_stall(verdict, name, clients.stall(servers[name], round_, size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=5, help="both commits run in each, in turn")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, no more")
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    size = (clients.QUICK if options.quick else clients.SIZES)["embedded"]
    verdict = Verdict()
    with checked_out(options.commit) as earlier:
        trees = {"before": earlier, "shepherd": ROOT}
        for tree in trees.values():
            start_cpu_ms(tree, ("--help",))  # byte code and file cache
        with ExitStack() as stack:
            servers = dict[str, int]()
            for name, tree in trees.items():
                setup = Setup(EMBEDDED, size.n_ctx, sequences=max(size.clients), source=tree / "src")
                servers[name] = stack.enter_context(running("shepherd", setup)).port
                clients.crowd(servers[name], -1, 1, size)  # warm-up
            for round_ in range(options.rounds):
                console.print(f"round {round_ + 1}")
                one_round(round_, trees, servers, size, verdict)
    verdict.show(console, f"this commit against {options.commit}, embedded model, 1 thread")
    result = {"bench": "before", "commit": options.commit, "size": asdict(size), "results": verdict.results()}
    console.print(f"written to {machine.save('before', result, quick=options.quick)}")


if __name__ == "__main__":
    main()
