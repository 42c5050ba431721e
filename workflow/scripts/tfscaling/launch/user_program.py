"""A user's program on one rank: its environment, its start and end, its output, why it failed.

It is a child of the rank's process, in the same process group: whoever signals a rank signals the
group (the local launcher) or all processes of the step, so the program gets each signal once. Where
Slurm signals the rank's process alone, the program has its own group, and the rank forwards signals
to it. If the rank's process ends, the kernel ends the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

from msgspec.structs import asdict, replace

from tfscaling.cluster.gpu_allocation import VISIBLE_GPUS, gpus_here
from tfscaling.launch import checkpoint_folder, failures, heartbeat, rank_files
from tfscaling.launch.heartbeat import Usage
from tfscaling.launch.launchers import make_parent_death_hook
from tfscaling.launch.rank_process import RankContext, WorkFailedError, defer_failure
from tfscaling.record import attempts, crashes, prepared_data
from tfscaling.record.events import EventLog, EventName
from tfscaling.record.observers import (
    OBSERVERS,
    ObservationError,
    count_epochs,
    explain_extra_epochs,
)
from tfscaling.record.rank_report import PROGRAM_PACKAGES, HostFacts, Observed, ProgramReport, Rank
from tfscaling.study import recipes, run_spec, user_code
from tfscaling.study.geometry import Geometry
from tfscaling.study.run_spec import RunSpec

#: Environment variable with the file to which the program writes its events, if the recipe observes
#: them.
EVENTS_VARIABLE = "TFSCALING_EVENTS"
#: Environment variable that is set where the rank forwards signals to the program.
FORWARDS_VARIABLE = "TFSCALING_PASSES_SIGNALS_ON"
#: Environment variable with the folder in which the program finds files that an earlier attempt has
#: written there.
CHECKPOINTS_VARIABLE = "TFSCALING_CHECKPOINTS"
#: Folder with the module `observe` for programs, the first one on their Python path.
OBSERVE = Path(__file__).resolve().parents[3] / "observe"
#: Folder whose `sitecustomize` observes `fit`.
OBSERVE_FIT = OBSERVE / "site"
#: Number of lines at the end of the output that are kept to explain a failure.
_TAIL_LINES = 500
#: Size of the parts in which the output is read, and of the end of a line that is kept.
_PART_BYTES, _LINE_BYTES_MAX = 1 << 16, 1 << 16
#: Seconds for which the output is read after the program's end: processes that it left behind may
#: keep it open.
_DRAIN_S = 2.0
#: Shortest and longest interval between two counts of the program's epochs.
_EPOCHS_INTERVAL_S = 2.0, 60.0
#: Longest interval in seconds between events of a program that is active.
ACTIVITY_INTERVAL_S = 30.0
#: Environment variable of a rank with this interval, which is shorter if `stall_timeout_s` is
#: short.
ACTIVITY_INTERVAL_VARIABLE = "TFSCALING_SIGNS_INTERVAL_S"
#: Program for the environment's Python, 3.8 or later: prints versions of Python and of the packages
#: in its arguments as JSON.
_VERSIONS = """
import importlib.metadata, json, platform, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps([platform.python_version(), {name: version(name) for name in sys.argv[1:]}]))
"""


class UserProgram:
    """The user's program of a run on this rank; `run` executes it.

    Args:
        spec: The run.
        dataset_file: The prepared data for the program, if any.
    """

    def __init__(self, spec: RunSpec, dataset_file: Path | None = None) -> None:
        self._spec = spec
        self._dataset: Path | None = None
        if dataset_file is not None and spec.dataset is not None:
            if user_code.is_pipeline(spec.dataset):
                dataset_file = prepared_data.files_folder(dataset_file)
            self._dataset = dataset_file.absolute()
        self._child: subprocess.Popen[bytes] | None = None
        self._output_bytes = 0
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._report: Path | None = None
        self._hung = False
        # a program does not get it
        self._signs_interval_s = float(
            os.environ.pop(ACTIVITY_INTERVAL_VARIABLE, ACTIVITY_INTERVAL_S)
        )
        #: Why the program was ended: it reported more epochs than requested.
        self._excess = ""

    def usage(self) -> Usage:
        """Return CPU time and I/O of the program and all its descendants so far."""
        child = self._child
        return heartbeat.own_usage() if child is None else heartbeat.tree_usage(child.pid)

    def run(self, context: RankContext) -> ProgramReport:
        """Start the program, wait for its end, and return the rank's report.

        Raises:
            WorkFailedError: The program failed, could not be started, or its report is unusable.
        """
        rank, events = context.cluster.rank, context.events
        own = (context.folder / f"rank-{rank}.files").absolute()
        if self._dataset is not None and not self._dataset.exists():
            text = f"{context.host} does not see the prepared dataset {self._dataset}"
            raise WorkFailedError("FileNotFoundError", text, 1)
        words = [
            self._spec.fill_placeholders(word, own, self._dataset)
            for word in self._spec.recipe.program
        ]
        if any(str(own) in word for word in words):
            own.mkdir(exist_ok=True)
        os.environ.update(program_environment(context, self._spec))
        if _report_source(self._spec) == "events":
            self._report = rank_files.observed_path(context.folder, rank)
        elif _report_source(self._spec) == "output":
            self._report = context.folder / f"rank-{rank}.output"
        # the other words may be secrets, and others may read logs
        print(f"$ {words[0]} …: {len(words)} words, see {run_spec.REQUEST_FILE}", flush=True)
        passes_on = bool(os.environ.pop(FORWARDS_VARIABLE, ""))
        # otherwise the program gets the signal as well, and its end is this process's end
        handler = self._forward_signal if passes_on else lambda *_: None
        for number in (signal.SIGTERM, signal.SIGINT, *([signal.SIGUSR1] if passes_on else [])):
            signal.signal(number, handler)
        started_s = events.add(EventName.PROGRAM_STARTED)
        child = self._child = _start_program(words, context.host, own_group=passes_on)
        done = threading.Event()
        assert isinstance(child.stdout, BufferedReader)
        reader = threading.Thread(target=self._copy_output, args=(child.stdout,), daemon=True)
        signs = threading.Thread(target=self._report_activity, args=(events, done), daemon=True)
        for thread in (reader, signs):
            thread.start()
        code = self._wait(child)
        ended_s = events.add(EventName.PROGRAM_ENDED, exit_code=code)
        done.set()
        reader.join(_DRAIN_S)
        sys.stdout.flush()
        log = rank_files.rank_log(context.folder, rank)
        if self._excess:
            text = f"{self._excess}; log: {log}"
            raise WorkFailedError("ObservationError", text, 1, self._last_lines())
        if code:
            raise self._make_error(code, log)
        if blamed := crashes.find_ending_traceback(self._last_lines(), Path.cwd()):
            text = (
                f"the program ended with exit code 0, but its output ends with an exception, "
                f"{blamed.place}: {blamed.error}; a shell returns the status of its last command: "
                f"write `set -euo pipefail` at the top of the script; log: {log}"
            )
            raise WorkFailedError(blamed.name, text, 1, self._last_lines())
        observed = self._read_observed(rank, log)
        return ProgramReport(
            **asdict(self._describe_rank(context)),
            program=tuple(words),
            program_time_s=ended_s - started_s,
            observed=observed,
        )

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the program's end and return its exit code, negative for a signal.

        The program is ended if it reports more epochs than requested: its training would not count.
        A thread waits without a timeout: with one, `subprocess` polls every 50 ms only. It leaves
        the process id to the main thread, which also counts the epochs: only the main thread gets
        the signal that ends a slow pattern.
        """
        ended = threading.Event()

        def wait_for_end() -> None:
            """Set `ended` when the program has ended: a thread's function."""
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            ended.set()

        threading.Thread(target=wait_for_end, daemon=True).start()
        recipe, pause_s = self._spec.recipe, _EPOCHS_INTERVAL_S[0]
        while not ended.wait(pause_s if self._report else None):
            pause_s = min(1.5 * pause_s, _EPOCHS_INTERVAL_S[1])
            assert self._report is not None
            counts = count_epochs(recipe.observe, self._report, recipe.patterns)
            if max(counts.values(), default=0) > recipe.epochs and not self._excess:
                self._excess = explain_extra_epochs(
                    recipe.observe, recipe.patterns, recipe.epochs, counts
                )
                self._signal(signal.SIGTERM)
            elif self._excess:
                self._signal(signal.SIGKILL)
        return child.wait()

    def _forward_signal(self, number: int, _: object) -> None:
        """Forward a signal to the program's process group: a signal handler."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _describe_rank(self, context: RankContext) -> Rank:
        """Return the rank's host, CPUs and GPUs, and the package versions of its program."""
        place = context.describe_rank()
        here = gpus_here(os.environ) if self._spec.uses_gpus else ()
        names = _driver_names(here or (), place.host_facts)
        facts, environment = place.host_facts, self._spec.recipe.environment
        if environment is not None:
            facts = _add_versions(facts, environment)
        return replace(place, gpu_names=names, host_facts=facts)

    def _copy_output(self, output: BufferedReader) -> None:
        """Copy the program's output to the rank's log; also to a file if metrics are read from it.

        This is a thread's function, which returns at the end of the output.
        """
        copy = self._report if _report_source(self._spec) == "output" else None
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(copy.open("wb")) if copy else None
            line = b""
            # a progress bar ends no line for hours, but its output is activity
            while part := output.read1(_PART_BYTES):
                self._output_bytes += len(part)
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
                if file is not None:
                    file.write(part)
                    file.flush()
                *complete, line = (line + part).split(b"\n")
                self._tail.extend(map(_text_after_last_return, complete))
                line = line[-_LINE_BYTES_MAX:]
            if line:
                self._tail.append(_text_after_last_return(line))

    def _report_activity(self, events: EventLog, done: threading.Event) -> None:
        """Add an event `working` at intervals in which the program was active.

        Active means that it printed or reported something. CPU time counts only if the recipe has
        `observe: nothing`: a program that reports its progress may be in an endless loop. This is a
        thread's function.

        Args:
            events: The rank's event log.
            done: Set after the program's end.
        """
        seen: object = None
        while not done.wait(self._signs_interval_s):
            used, report = self.usage(), 0
            with contextlib.suppress(OSError):  # nothing is written yet
                report = self._report.stat().st_size if self._report else 0
            silent = self._spec.recipe.observe == "nothing"
            working = (
                used.cpu_s // (heartbeat.CPU_SHARE_MIN * self._signs_interval_s) if silent else 0
            )
            if (now := (self._output_bytes, report, working)) != seen:
                seen = now
                events.add(
                    EventName.WORKING, cpu_s=round(used.cpu_s, 2), output_bytes=self._output_bytes
                )

    def give_up(self) -> None:
        """End a hanging program by SIGABRT; Python then prints the line that it was executing."""
        if self._child is not None:
            self._hung = True
            self._signal(signal.SIGABRT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the program; the process started first gets it last."""
        assert self._child is not None
        child, *others = heartbeat.process_tree(self._child.pid)
        for pid in (*reversed(others), child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _read_observed(self, rank: int, log: Path) -> Observed:
        """Read what the program reported; empty if the recipe observes nothing.

        Some programs write logs on rank 0 only: other ranks may then report nothing.

        Args:
            rank: The rank.
            log: The rank's log, for messages.

        Raises:
            WorkFailedError: The report is missing or damaged.
        """
        recipe = self._spec.recipe
        if recipe.observe not in OBSERVERS:
            return Observed()
        assert self._report is not None
        try:
            return OBSERVERS[recipe.observe].read(self._report, recipe.patterns)
        except ObservationError as error:
            if rank > 0 and _report_source(self._spec) != "events":
                return Observed()
            text = f"the program ended without the report of `observe: {recipe.observe}`: {error}"
            text = f"{text}; log: {log}"
            raise WorkFailedError("ObservationError", text, 1, self._last_lines()) from error

    def _last_lines(self) -> list[str]:
        """Return the last lines of the program's output, without secrets.

        Secrets are masked in complete lines, because a part of a secret in a cut line would not be
        recognised.
        """
        recipe, settings = self._spec.recipe, self._spec.measured
        secrets = crashes.find_secrets(os.environ, recipe.program, settings.setup)
        # a copy: a process that the program left may still write
        lines = [line.decode(errors="replace").rstrip() for line in [*self._tail]]
        return [crashes.mask_secrets(line, secrets) for line in lines]

    def _make_error(self, code: int, log: Path) -> WorkFailedError:
        """Return the error for a program that has failed.

        Args:
            code: Its exit code, negative for a signal.
            log: The rank's log, which the error names.
        """
        lines = self._last_lines()
        ended = failures.describe_exit(code)
        text = f"the program was {ended}" if code < 0 else f"the program ended with {ended}"
        name, blamed = ended, crashes.find_last_traceback(lines, Path.cwd())
        if self._hung:
            place = str(blamed.place) if blamed and blamed.error.startswith("Fatal") else ""
            return WorkFailedError(failures.HUNG, place, 1, lines)
        aborted = crashes.find_abort_reason(ended, lines)
        if blamed is not None:
            name, text = blamed.name, f"{text}, {blamed.place}: {blamed.error}"
        if aborted:
            text = f"{text}; {aborted}"
        elif blamed is None and (said := next((line for line in reversed(lines) if line), "")):
            text = f"{text}; its last line: {said[:300]}"
        status = code if code > 0 else 128 - code
        return WorkFailedError(name, f"{text}; log: {log}", status, lines)


def _text_after_last_return(line: bytes) -> bytes:
    """Return what a terminal shows of a line: the part after the last carriage return."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def program_environment(context: RankContext, spec: RunSpec) -> dict[str, str]:
    """Return the environment variables for the user's program, apart from TF_CONFIG.

    Examples are RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR, as PyTorch and other frameworks use
    them.

    Args:
        context: The rank.
        spec: The run.

    Raises:
        WorkFailedError: The rank has another number of GPUs than the run requests, or the recipe's
            environment does not exist on this host.
    """
    rank, cluster = context.cluster.rank, context.cluster
    host, _, port = cluster.jobs["worker"][0].rpartition(":")
    paths = [str(OBSERVE_FIT)] if spec.recipe.observe == "fit" else []
    paths.append(str(OBSERVE))
    variables = {
        **rank_variables(rank, spec.geometry),
        "MASTER_ADDR": host,
        # reserved for rank 0 as its port in TF_CONFIG: free where TensorFlow starts no server
        "MASTER_PORT": port,
        # PyTorch takes this variable as a sign that all others are set
        "TORCHELASTIC_RUN_ID": spec.parameters_hash,
        "JAX_COORDINATOR_ADDRESS": f"{host}:{port}",
        "PYTHONPATH": os.pathsep.join(filter(None, (*paths, os.environ.get("PYTHONPATH")))),
        # a log without the lines before the end explains no failure
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
        "PYTHONFAULTHANDLER": os.environ.get("PYTHONFAULTHANDLER", "1"),
    }
    if (own := spec.recipe.environment) is not None:
        python = run_spec.python_path(own)
        if not recipes.has_executable_python(own):  # another Python would run instead
            text = f"environment {own}: {context.host} has no program {python}"
            raise WorkFailedError("EnvironmentError", text, 127)
        path = os.pathsep.join((str(python.parent), os.environ.get("PATH", os.defpath)))
        variables |= {"VIRTUAL_ENV": str(python.parents[1]), "PATH": path}
    if (beginning := attempts.read_beginning(context.folder)) is not None:
        variables[CHECKPOINTS_VARIABLE] = str(checkpoint_folder.program_folder(beginning))
    if _report_source(spec) == "events":
        variables[EVENTS_VARIABLE] = str(rank_files.observed_path(context.folder, rank).resolve())
    if not spec.uses_gpus:
        return {**variables, VISIBLE_GPUS: ""}
    here, asked = gpus_here(os.environ), spec.geometry.gpus_per_task
    if here is not None and len(here) != asked:
        text = f"requested {asked} GPUs for the program, this rank may use {len(here)}: {here}."
        defer_failure(spec)
        raise WorkFailedError(failures.DEVICE_ERROR, text, 1)
    return variables


def rank_variables(rank: int, geometry: Geometry) -> dict[str, str]:
    """Return the variables of `torchrun` for a rank's place among the tasks.

    Frameworks use the device with the number LOCAL_RANK. A task with one GPU sees only this GPU, as
    device 0. So its variables describe it as the only task on its node.

    Args:
        rank: Number of the rank.
        geometry: Nodes, tasks and GPUs of the run.
    """
    tasks = geometry.tasks
    if geometry.gpus_per_task == 1:
        node, nodes, local_rank, on_node = rank, tasks, 0, 1
    else:  # only the last node may have fewer tasks
        node, local_rank = divmod(rank, geometry.tasks_per_node_max)
        nodes, on_node = geometry.nodes, geometry.tasks_on_nodes[node]
    values = {
        "RANK": rank,
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": on_node,
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": nodes,
        "NODE_RANK": node,
    }
    return {name: str(value) for name, value in values.items()}


def _driver_names(entries: Sequence[str], facts: HostFacts) -> tuple[str, ...]:
    """Return the driver's names of the GPUs that a process may use; () if one is not known.

    Args:
        entries: Numbers or UUIDs as in CUDA_VISIBLE_DEVICES; UUIDs may be cut short.
        facts: Facts about this host, with all its GPUs.
    """
    has_slices = any(uuid.startswith("MIG-") for uuid in facts.gpu_uuids)
    names: list[str] = []
    for entry in entries:
        if entry.isdecimal():  # CUDA does not number slices
            found = [] if has_slices else [*facts.gpus[int(entry) : int(entry) + 1]]
        else:
            both = zip(facts.gpus, facts.gpu_uuids, strict=False)
            found = [name for name, uuid in both if uuid.startswith(entry)]
        if len(found) != 1:
            return ()
        names += found
    return tuple(names)


def _add_versions(facts: HostFacts, environment: str) -> HostFacts:
    """Return the facts with Python and package versions from the recipe's environment.

    Args:
        facts: Facts about this host.
        environment: Folder of the environment.
    """
    command = [str(run_spec.python_path(environment)), "-c", _VERSIONS, *PROGRAM_PACKAGES]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        python, packages = json.loads(shown.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        python, packages = None, {}
    installed = {name: version for name, version in packages.items() if version is not None}
    return replace(facts, python=python, packages=installed)


def _start_program(command: list[str], host: str, own_group: bool) -> subprocess.Popen[bytes]:
    """Start the command line; its output and errors go to one pipe.

    Args:
        command: The command line.
        host: Name of this host, for the error's message.
        own_group: Whether the program starts in its own process group.

    Raises:
        WorkFailedError: If the program cannot be started.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0 if own_group else None,
            preexec_fn=make_parent_death_hook(signal.SIGKILL),
        )
    except OSError as error:
        name = type(error).__name__
        where = "on PATH " if os.sep not in command[0] else ""
        text = f"the program cannot be started on {host}: {command[0]!r} {where}({error.strerror})"
        raise WorkFailedError(name, text, 127) from error


def _report_source(spec: RunSpec) -> str:
    """Return the source of the program's measurements: `events`, `output`, or "" without any.

    `events` is the file of events that the program writes, `output` is a copy of what it prints.
    """
    observer = OBSERVERS.get(spec.recipe.observe)
    return observer.source if observer else ""
