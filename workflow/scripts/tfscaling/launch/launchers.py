"""Launchers: they turn a request for ranks into commands. And the start of a command as a process.

Each launcher is a function in LAUNCHERS; `attempt` calls the launcher of the platform.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfscaling.cluster import process_management
from tfscaling.cluster.gpu_allocation import ClusterError, gpu_variable, gpus_here
from tfscaling.cluster.slurm_environment import run_gres, run_node_list
from tfscaling.files import atomic
from tfscaling.launch import containers
from tfscaling.launch.rank_files import rank_log
from tfscaling.study.config_types import Container
from tfscaling.study.geometry import Geometry

#: Option of prctl(2): the signal that a process gets when its parent thread ends.
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
#: Variables with options of srun that Slurm sets in no job, so that they are from the user's shell.
#: A step with them may wait for ever, end early, lack GPUs, begin in another
#: folder, run other programs around each rank, or write a rank's output elsewhere.
_USERS_OPTIONS_OF_SRUN = (
    *("SLURM_CLUSTER_CONSTRAINT", "SLURM_CONSTRAINT", "SLURM_DEPENDENCY", "SLURM_EPILOG"),
    *("SLURM_GRES", "SLURM_HOSTFILE", "SLURM_IMMEDIATE", "SLURM_PROLOG", "SLURM_REMOTE_CWD"),
    *("SLURM_REQ_SWITCH", "SLURM_RESERVATION", "SLURM_SPREAD_JOB", "SLURM_SRUN_MULTI"),
    *("SLURM_STDERRMODE", "SLURM_STDINMODE", "SLURM_STEP_GRES", "SLURM_TASK_EPILOG"),
    *("SLURM_TASK_PROLOG", "SLURM_TEST_EXEC", "SLURM_TIMELIMIT", "SLURM_USE_MIN_NODES"),
    *("SLURM_WAIT", "SLURM_WAIT4SWITCH", "SLURM_WORKING_DIR"),
)
# loaded before any fork; PyDLL keeps Python's lock, which the child of a fork cannot take again
_LIBC = ctypes.PyDLL(None)


@dataclass(frozen=True)
class LaunchRequest:
    """What a launcher starts: one process of `command` for each task of `geometry`.

    Attributes:
        command: Words of the command of a rank.
        geometry: Nodes, tasks and GPUs.
        jobs: Job of the TensorFlow cluster → its number of tasks.
        cpus_per_task: CPUs of each task.
        folder: The attempt's folder, which gets the log of each rank.
        uses_gpus: Whether the ranks use GPUs.
        setup: File of shell lines that each rank runs first, outside of the container.
        container: The image in which the ranks run, if any.
        env: Variables that are added to the environment of the ranks.
        mpi: Value of srun's `--mpi` if the ranks are an MPI job, else None.
        binding: Options of srun that bind tasks to CPUs and GPUs.
        resources: Resources that must stay open until the ranks have ended, such as ports. The
            caller closes them.
    """

    command: Sequence[str]
    geometry: Geometry
    jobs: Mapping[str, int]
    cpus_per_task: int
    folder: Path
    uses_gpus: bool
    setup: Path | None = None
    container: Container | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    mpi: str | None = None
    binding: Sequence[str] = ()
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def words(self) -> list[str]:
        """Complete command line of a rank; it runs `setup`, then the command in its container."""
        words = containers.wrap_command(self.container, self.command, self.uses_gpus)
        return ["bash", "-e", str(self.setup), *words] if self.setup else words


#: Shell code that reports the number of the line of `setup` at which the shell ended: the text of
#: the line may be a secret. In a function, such as `module`, and in a sourced file, it is the line
#: that called it.
_REPORT_FAILURE = (
    "set -E; "
    "trap '_tfs_line=$LINENO; "
    '[ "${#BASH_LINENO[@]}" -lt 2 ] || _tfs_line=${BASH_LINENO[-2]}\' ERR; '
    "trap '_tfs_code=$?; "
    'echo "setup: ${_tfs_line:+line $_tfs_line }ended with exit code $_tfs_code" >&2\' EXIT; '
)
#: Shell code that replaces the shell by the command in its arguments.
_RUN_COMMAND = 'trap - ERR EXIT; exec "$@"'


def write_setup(path: Path, lines: Sequence[str]) -> None:
    """Write a shell script that runs the lines of `setup` and then executes its arguments.

    The lines are in a private file, because every user of the machine could read them in a command
    line. The command replaces the shell, so that it gets the signals. If a line fails, the shell
    prints the line's number and ends.

    Args:
        path: The file to write.
        lines: The lines of `setup`.
    """
    # on the first line, so that bash counts the lines as the configuration does
    text = _REPORT_FAILURE + "\n".join([*lines, _RUN_COMMAND, ""])
    atomic.write_private_text(path, text)


@dataclass(frozen=True)
class Command:
    """One process that the launcher starts.

    Attributes:
        argv: The words of its command line.
        env: Variables that are added to the environment.
        log: File for its output.
        rank: The rank that it runs; None for srun, which starts all ranks.
        is_fork: Whether the rank is forked by a process that runs `argv` once for all such ranks.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    log: Path
    rank: int | None
    is_fork: bool = False


def srun(request: LaunchRequest) -> list[Command]:
    """Return the commands of the launcher `srun`: [one srun that starts all ranks]."""
    shape = request.geometry
    argv = (
        "srun",
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.tasks}",
        f"--ntasks-per-node={shape.tasks_per_node_max}",
        "--distribution=block",
        *([f"--nodelist={part}"] if (part := run_node_list(os.environ)) else []),
        *([f"--gres={gres}"] if (gres := run_gres(os.environ)) else []),
        f"--cpus-per-task={request.cpus_per_task}",
        *([f"--mpi={request.mpi}"] if request.mpi else []),
        *request.binding,
        # overrides the user's SLURM_EXPORT_ENV
        "--export=ALL",
        "--kill-on-bad-exit=1",
        "--unbuffered",
        f"--output={rank_log(request.folder, '%t')}",
        *containers.srun_options(request.container, request.command, request.env),
        *request.words,
    )
    env = containers.container_environment(request.container, request.env)
    return [Command(argv, env, request.folder / "srun.log", None)]


def local(request: LaunchRequest) -> list[Command]:
    """Return the commands of the launcher `local`: one for each rank, all on this machine.

    The variable TF_CONFIG of a command has the rank's place in the cluster. Workers get disjoint
    GPUs in the order of their ranks. A coordinator and parameter servers get no GPUs.

    Raises:
        ClusterError: The machine has too few GPUs, or they cannot be listed.
    """
    shape = request.geometry
    own_gpus = _divide_gpus(request) if request.uses_gpus else {}
    ports = request.resources.enter_context(ReservedPorts(shape.tasks)).numbers
    pmi = None
    if request.mpi is not None:
        pmi = request.resources.enter_context(process_management.pmi_server(shape.tasks))
    addresses = [f"127.0.0.1:{port}" for port in ports]
    # ranks go to the jobs in the order of their names, as Slurm's ranks do in `cluster.resolve`
    places = [(job, n) for job in sorted(request.jobs) for n in range(request.jobs[job])]
    cluster: dict[str, list[str]] = {job: [] for job in request.jobs}
    for (job, _), address in zip(places, addresses, strict=True):
        cluster[job].append(address)
    # of a single rank there is nothing to share, and what loads a GPU's driver cannot be forked
    is_fork = shape.tasks > 1 and not (request.uses_gpus or request.setup or request.container)
    commands = []
    for rank, (job, index) in enumerate(places):
        task = {"cluster": cluster, "task": {"type": job, "index": index}}
        env = {**request.env, "TF_CONFIG": json.dumps(task)}
        if request.uses_gpus:
            env[gpu_variable({**os.environ, **request.env})] = ",".join(
                own_gpus.get((job, index), ())
            )
        if pmi is not None:
            env |= process_management.pmi_variables(pmi, rank)
        env = containers.container_environment(request.container, env)
        log = rank_log(request.folder, rank)
        commands.append(Command(tuple(request.words), env, log, rank, is_fork))
    return commands


def _divide_gpus(request: LaunchRequest) -> dict[tuple[str, int], Sequence[str]]:
    """Return the GPUs of each worker on this machine: (job, index) → numbers or UUIDs.

    Raises:
        ClusterError: The machine has too few GPUs.
    """
    workers, each = request.jobs.get("worker", 0), request.geometry.gpus_per_task
    needed = workers * each
    environ = {**os.environ, **request.env}
    given = gpus_here(environ)
    if given is None:  # CUDA numbers them from 0; a rank that misses one says so
        given = tuple(str(number) for number in range(needed))
    if len(given) < needed:
        shown = ",".join(given)
        raise ClusterError(
            f"{workers} workers with {each} GPUs each on this machine need {needed} GPUs, "
            f"there are {len(given)} ({gpu_variable(environ)}={shown!r}); "
            "expected fewer nodes or GPUs per node, or `devices: logical` in the platform"
        )
    return {("worker", n): given[n * each : (n + 1) * each] for n in range(workers)}


#: Name of a launcher → function that returns the commands to start for a request.
LAUNCHERS: dict[str, Callable[[LaunchRequest], list[Command]]] = {
    "srun": srun,
    "local": local,
}


class ReservedPorts(contextlib.ExitStack):
    """Context manager that reserves free TCP ports of this machine for TensorFlow's servers.

    Another process could take a port between a test and TensorFlow's bind. So each port stays
    bound, but not listening, with SO_REUSEADDR: Linux does not hand it out for port 0 or for
    outgoing connections, and processes without SO_REUSEADDR cannot bind it. TensorFlow's server,
    which sets SO_REUSEADDR, can.

    Args:
        count: Number of ports.

    Attributes:
        numbers: The ports.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.numbers: list[int] = []
        for _ in range(count):
            held = self.enter_context(socket.socket())
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("", 0))
            self.numbers.append(held.getsockname()[1])


def start_process(command: Command) -> subprocess.Popen[bytes]:
    """Start the process of a command in a new session, with its output appended to the log.

    When the calling thread ends, the kernel ends the process: a rank by SIGKILL, srun by SIGTERM.
    """
    # srun ends its step on request; a rank may be stopped, so it gets no request
    number = signal.SIGTERM if command.rank is None else signal.SIGKILL
    inherited = {n: v for n, v in os.environ.items() if n not in _USERS_OPTIONS_OF_SRUN}
    with command.log.open("ab") as log:
        return subprocess.Popen(
            command.argv,
            env={**inherited, **command.env},
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=make_parent_death_hook(number),
        )


def make_parent_death_hook(signal_number: int) -> Callable[[], None]:
    """Return a `preexec_fn` for Popen: its child gets a signal when the calling thread ends.

    Args:
        signal_number: The signal.
    """
    parent = os.getpid()

    def prepare() -> None:
        """Request the signal from the kernel, in the child; exit if the parent has ended."""
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent:  # it ended before
            os._exit(1)

    return prepare
