"""Decides how the processes of a TensorRT-LLM model start, before anything of MPI or CUDA is imported.

    mapping of the engine, wish ──▶ plan() ──▶ Launch(command, environment, n_ranks, notes) ──▶ a process of its own

    spawn    python -m shepherd.engine.trtllm                       the library starts the other ranks by MPI_Comm_spawn
    mpirun   mpirun -n N ... python -m shepherd.engine.trtllm       Open MPI starts all ranks; rank 0 connects back

The program itself never becomes a rank: `mpirun` would take its terminal and turn Ctrl-C into SIGTERM. A process that
has imported MPI cannot start `mpirun` (exit status 1, without a word), so that this module reads values only. Not here:
what a directory holds (`models/checkpoint.py`), what a rank does (`ranks.py`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Literal

from shepherd.core.dataclasses import dataclass
from shepherd.core.errors import ConfigError

Wish = Literal["auto", "spawn", "mpirun"]

RANKS = "SHEPHERD_RANKS"
"""The variable of our own ranks: how many `mpirun` was asked for. A rank that has it, but not Open MPI's
`OMPI_COMM_WORLD_SIZE`, was started by another MPI's launcher."""
SIZE, RANK = "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"
MODULE = "shepherd.engine.trtllm"

JOB = re.compile(
    r"(OMPI|PMIX?|SLURM|PRTE|HYDRA|MPIR|FLUX)_(?!MCA_)|MPI_LOCAL|"
    r"(OMPI|PMIX)_MCA_(orte|ess|pmix|initial_wdir|shmem_RUNTIME|mpi_oversubscribe|mca_base_component_show)"
)
"""Variables of a job that this program may be part of; ranks that inherit them would look for that job's launcher.
What the user sets for Open MPI (`OMPI_MCA_btl=...`) stays."""

DEFAULTS = {
    "TLLM_LOG_LEVEL": "error",  # read once, when the library is imported
    "MPI4PY_FUTURES_BACKOFF": "0.05",  # seconds; 0.001 costs a waiting rank 2 % of a core
    "OMPI_MCA_hwloc_base_binding_policy": "none",  # the default binds each rank to one core
    # GPUs limit the ranks, not cores: with fewer cores, as in a container, mpirun refuses and MPI_Comm_spawn hangs.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
"""What a rank finds in its environment unless the user sets it."""

FOLDERS = {"TMPDIR": tempfile.gettempdir(), "OMPI_MCA_btl_vader_backing_directory": "/dev/shm"}  # noqa: S108
"""Where Open MPI puts its files: megabytes per rank of shared memory, and sockets. A rank that is killed leaves its
own, and `mpirun` does not always find them."""

COMPLAINT = re.compile(
    r"-{70,}\n(?:Primary job +terminated normally|mpirun (?:detected|noticed) that|MPI_ABORT was invoked).*?\n-{70,}\n?"
    r"|\[[^\]\n]*\] (?:\[\[\d+,\d+\],\d+\] ORTE_ERROR_LOG: |\d+ more process|Set MCA parameter|Epoll )[^\n]*\n?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Launch:
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """All of it; nothing is inherited beside it."""
    n_ranks: int
    """GPUs that are used, and processes that `mpirun` starts."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


def plan(
    mapping: tuple[int, int, int] | None,
    wish: Wish = "auto",
    *,
    arguments: tuple[str, ...] = (),
    python: str = sys.executable,
    environ: Mapping[str, str] = os.environ,
    find: Callable[[str], str | None] = shutil.which,
    is_root: bool = os.geteuid() == 0 if sys.platform != "win32" else False,
) -> Launch:
    """How to start a model. `auto` is `mpirun` for one with pipeline parallelism, else `spawn`.

    mapping: the tensor, pipeline and context parallelism that an engine was built for, or that the configuration wants
    of a checkpoint; None = a checkpoint without stages, for which the library decides. arguments: of `python -m
    shepherd.engine.trtllm`. python: the interpreter.
    find: where a program is.

    Raises: `ConfigError`.
    """
    if SIZE in environ:
        raise ConfigError(
            f"Shepherd was started by mpirun ({SIZE} is set), but it starts the ranks of TensorRT-LLM itself; start "
            "it without mpirun"
        )
    tensor, pipeline, context = mapping or (1, 1, 1)
    own = {name: value for name, value in environ.items() if not JOB.match(name) and name != RANKS}
    environment = DEFAULTS | own
    program = (python, "-m", MODULE, *arguments)
    n_ranks = tensor * pipeline * context
    if wish == "spawn" or (wish == "auto" and pipeline == 1):
        return Launch(program, environment, n_ranks)
    if mapping is None:
        raise ConfigError(
            'launch = "mpirun" needs an engine with rank files, and this model is a checkpoint; set launch = "spawn"',
            key="launch",
        )
    mpirun = find("mpirun")
    if mpirun is None:
        raise ConfigError(
            f"this engine runs as {n_ranks} ranks under mpirun, which is not installed; install Open MPI "
            '(apt install openmpi-bin), or set launch = "spawn"',
            key="launch",
        )
    # Open MPI gives ranks one second to end by SIGTERM when one of them has crashed: they have nothing left to do.
    options = ("-n", str(n_ranks), "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "0")
    as_root = ("--allow-run-as-root",) if is_root else ()
    notes = ("mpirun runs as root, which Open MPI advises against",) if is_root else ()
    return Launch(
        (mpirun, *options, *as_root, *program), environment | {RANKS: str(n_ranks)}, n_ranks, notes
    )  # fmt: skip


def without_complaints(words: str) -> str:
    """What ranks wrote to standard error: each line once, without the frames in which `mpirun` reports that one of them
    has failed. Where there is nothing else, all of it."""
    lines = (line for line in COMPLAINT.sub("", words).splitlines() if line.strip())
    return "\n".join(dict.fromkeys(lines)) or words.strip()
