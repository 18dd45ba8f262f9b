"""How ranks start, as values: the command, the environment, and a sentence for each thing that is wrong."""

import sys

import pytest

from shepherd.core.errors import ConfigError
from shepherd.engine.trtllm.launch import DEFAULTS, Launch, Wish, plan, without_complaints

SPAWN = (sys.executable, "-m", "shepherd.engine.trtllm")
HEAD = ("/usr/bin/mpirun", "-n")
OPTIONS = ("--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "0")


def planned(mapping: tuple[int, int, int] | None, wish: Wish = "auto", **variables: str) -> Launch:
    return plan(mapping, wish, environ=variables, find=lambda name: f"/usr/bin/{name}", is_root=False)


@pytest.mark.parametrize(
    ("mapping", "wish", "n_ranks", "under_mpirun"),
    [
        ((1, 1, 1), "auto", 1, False),
        ((2, 1, 1), "auto", 2, False),
        ((1, 1, 2), "auto", 2, False),
        ((1, 2, 1), "auto", 2, True),
        ((1, 3, 1), "auto", 3, True),
        ((2, 2, 1), "auto", 4, True),
        ((2, 3, 2), "auto", 12, True),
        ((1, 2, 1), "spawn", 2, False),
        ((2, 1, 1), "mpirun", 2, True),
        ((1, 1, 1), "mpirun", 1, True),
        (None, "auto", 1, False),
        (None, "spawn", 1, False),
    ],
)
def test_the_mapping_and_the_wish_decide(
    mapping: tuple[int, int, int] | None, wish: Wish, n_ranks: int, under_mpirun: bool
) -> None:
    command = (*HEAD, str(n_ranks), *OPTIONS, *SPAWN) if under_mpirun else SPAWN
    own = {"SHEPHERD_RANKS": str(n_ranks)} if under_mpirun else {}
    assert planned(mapping, wish) == Launch(command, DEFAULTS | own, n_ranks)


def test_arguments_are_those_of_the_program() -> None:
    wishes: list[Wish] = ["spawn", "mpirun"]
    for wish in wishes:
        found = plan((1, 2, 1), wish, arguments=("a", "b c"), environ={}, find=lambda name: name)
        assert found.command[-4:] == ("-m", "shepherd.engine.trtllm", "a", "b c")


def test_root_is_allowed_and_said() -> None:
    found = plan((1, 2, 1), environ={}, find=lambda name: f"/usr/bin/{name}", is_root=True)
    assert found.command == (*HEAD, "2", *OPTIONS, "--allow-run-as-root", *SPAWN)
    assert found.notes == ("mpirun runs as root, which Open MPI advises against",)
    assert plan((2, 1, 1), environ={}, is_root=True).notes == ()  # nothing refuses root there


@pytest.mark.parametrize("wish", ["spawn", "mpirun"])
def test_the_user_overrides_what_ranks_find_in_their_environment(wish: Wish) -> None:
    own = dict.fromkeys(DEFAULTS, "mine") | {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1,0", "OMPI_MCA_btl": "tcp,self"}
    assert own.items() <= planned((1, 2, 1), wish, **own).environment.items()
    assert planned((1, 2, 1), wish).environment["TLLM_LOG_LEVEL"] == "error"


@pytest.mark.parametrize("wish", ["spawn", "mpirun"])
@pytest.mark.parametrize(
    "name",
    [
        "OMPI_UNIVERSE_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess_base_jobid",
        "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_FILE_LOCATION", "PMIX_RANK", "PMIX_NAMESPACE",
        "PMIX_SERVER_URI41", "PMI_RANK",
        "PMI_FD", "SLURM_NTASKS", "SLURM_JOB_ID", "HYDRA_CONTROL_FD", "MPI_LOCALRANKID", "PRTE_LAUNCHED",
    ],
)  # fmt: skip
def test_variables_of_another_job_are_left_out(wish: Wish, name: str) -> None:
    assert planned((1, 2, 1), wish, **{name: "7"}) == planned((1, 2, 1), wish)


def test_a_rank_of_an_older_start_is_forgotten() -> None:
    assert planned((1, 2, 1), "mpirun", SHEPHERD_RANKS="9").environment["SHEPHERD_RANKS"] == "2"
    assert "SHEPHERD_RANKS" not in planned((1, 2, 1), "spawn", SHEPHERD_RANKS="9").environment


def test_what_is_wrong_is_one_sentence() -> None:
    def refused(mapping: tuple[int, int, int] | None, wish: Wish, **variables: str) -> str:
        with pytest.raises(ConfigError) as error:
            plan(mapping, wish, environ=variables, find=lambda name: None)
        return error.value.message

    assert refused((1, 2, 1), "auto") == (
        "launch: this engine runs as 2 ranks under mpirun, which is not installed; install Open MPI "
        '(apt install openmpi-bin), or set launch = "spawn"'
    )
    assert refused(None, "mpirun") == (
        'launch: launch = "mpirun" needs an engine with rank files, and this model is a checkpoint; '
        'set launch = "spawn"'
    )
    under = (
        "Shepherd was started by mpirun (OMPI_COMM_WORLD_SIZE is set), but it starts the ranks of TensorRT-LLM itself; "
        "start it without mpirun"
    )
    wishes: list[Wish] = ["auto", "spawn", "mpirun"]
    for wish in wishes:
        assert refused((1, 2, 1), wish, OMPI_COMM_WORLD_SIZE="2") == under
    assert plan((1, 2, 1), "spawn", environ={}, find=lambda name: None).command == SPAWN


FRAME = "-" * 74 + "\n"
COMPLAINTS = (
    FRAME + "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the "
    "job has been aborted.\n" + FRAME
    + FRAME + "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be "
    "terminated. The first process to do so was:\n\n  Process name: [[1922,1],0]\n  Exit code:    5\n" + FRAME
    + FRAME + "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n" + FRAME
    + "[vm:27528] [[1910,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file x.c at line 507\n"
    + FRAME + "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n\nNOTE: invoking "
    "MPI_ABORT causes Open MPI to kill all MPI processes.\n" + FRAME
    + "[vm:14804] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n"
    + '[vm:14804] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages\n'
    + "[warn] Epoll MOD(1) on fd 22 failed. Old events were 6; read change was 0 (none): Bad file descriptor\n"
)  # fmt: skip
SLOTS = (
    FRAME + "There are not enough slots available in the system to satisfy the 4\nslots that were requested.\n" + FRAME
)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("", ""),
        ("a\nb\n", "a\nb"),
        ("shepherd: it is wrong\nshepherd: it is wrong\n" + COMPLAINTS, "shepherd: it is wrong"),
        (COMPLAINTS + "a\n" + COMPLAINTS + "b", "a\nb"),
        (COMPLAINTS, COMPLAINTS.strip()),
        (SLOTS, "\n".join(SLOTS.splitlines()[:-1])),
    ],
)
def test_complaints_of_mpirun_are_left_out(words: str, left: str) -> None:
    assert without_complaints(words) == left
