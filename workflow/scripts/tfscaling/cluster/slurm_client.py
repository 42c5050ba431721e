"""A client of Slurm's programs: sbatch, squeue, sacct, sacctmgr, scontrol, sinfo and scancel.

Preflight, launcher and both executor plugins call these programs only through `SlurmClient`. The
plugins' package has this file as a link, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeVar

#: Longest wait for an answer. Slurm's programs themselves wait about a minute for a controller.
TIMEOUT_S = 60.0
#: Longest wait for `scontrol ping`.
PING_TIMEOUT_S = 5.0
#: Pauses before a request is repeated that Slurm did not answer, or refused for now; the last one
#: repeats.
PAUSES_S = (5.0, 10.0, 20.0, 40.0, 60.0)

#: Beginnings of variables that change what a query prints or selects, or what scancel cancels.
_FILTERS = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_", "SLURM_BITSTR_LEN")
#: Variables with which Slurm prints times in UTC: local time, without its zone, jumps twice a year.
_IN_UTC = {"TZ": "UTC0", "SLURM_TIME_FORMAT": "standard"}
#: Variables by which Slurm's programs find their controller and identify the user; all others that
#: begin with SLURM_ describe a job or give options.
CONNECTION_VARIABLES = (
    *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_SOCKET"),
)


class RefusalKind(Enum):
    """What a refusal of sbatch means for the request.

    FOR_NOW: submit it again later. QUEUE_LIMIT: submit it again when jobs have left the queue.
    FINAL: do not submit it again.
    """

    FOR_NOW = "for now"
    QUEUE_LIMIT = "queue limit"
    FINAL = "final"


#: Slurm's messages about a full queue: a job may be accepted when others have left. Release 25.05
#: has `MaxJobCount limit reached`; earlier releases report this limit as a temporary refusal.
_QUEUE_LIMIT = re.compile(r"(?:Assoc|QOS)(?:Max|Grp)Submit\w*|MaxJobCount limit|job queue full")
#: Messages about a controller that is away, starting, or busy: from slurm_errno.c and sbatch.c of
#: Slurm 20.11 to 25.11, and from the C library for failed connections.
_FOR_NOW = re.compile(
    "|".join(
        [
            "Unable to contact",
            "Slurm controller not responding",
            "Slurm backup controller in standby mode",
            "Could not establish a configuration source",
            "temporarily unable to accept job",
            "(?:creation|disabled).* retrying",
            "Unable to create job record, try again",
            "I/O error writing script/environment to file",
            "Submission rate too high",
            "System submissions disabled",
            "Rate limit exceeded",
            "Unexpected message received",
            "Unexpected missing socket error",
            "(?:Communication|Message) (?:connection|send|receive|shutdown) failure",
            "Socket timed out",
            "Received (?:zero length message|message length < 0)",
            "Failed to send entire message",
            "Zero Bytes were transmitted or received",
            "Header lengths are longer than data received",
            "Insane message length",
            "(?:Read|Write) would block",
            "Unable to process (?:incoming|outgoing)",
            "Connection rejected by handler",
            "Connection forced closed by quiesce timeout",
            "Kernel reported delayed socket error",
            "Process is shutting down and closing all communications",
            "Protocol authentication error",
            "Failed to connect to authentication agent",
            "Unable to connect to database",
            "Resource temporarily unavailable",
            "Transport endpoint is not connected",
            "Connection (?:refused|reset by peer|timed out)",
            "No route to host",
            "Network is unreachable",
            "Temporary failure in name resolution",
            "Interrupted system call",
            "Broken pipe",
            "did not answer for",
            "was ended by signal",
        ]
    ),
    re.IGNORECASE,
)
#: Text before Slurm's reason in the message of a refused job.
_REASON = re.compile(r"(?:Batch job submission failed|allocation failure): ")
#: squeue's error for a job that Slurm has forgotten.
_NO_SUCH_JOB = "Invalid job id specified"
#: The line of sbatch with the number of a job: with --parsable, or from a wrapper without it.
_NUMBER = re.compile(r"(?:Submitted batch job )?([0-9]+)(?:;\S+| on cluster \S+)?")
_RUN_TIME = re.compile(r"\bRunTime=(?:(\d+)-)?(\d+):(\d+):(\d+)")
#: Since Slurm 25.05, `on cluster NAME` and `a` may be before `using`.
_STARTS = re.compile(r"to start at (\S+)(?: on cluster \S+)?(?: a)? using")


@dataclass(frozen=True)
class NoAnswer:
    """A program of Slurm is missing, failed, or did not answer in time.

    Attributes:
        why: The reason, as a sentence for the user.
    """

    why: str


@dataclass(frozen=True)
class Refusal:
    """A refused request for a job, with the reason.

    Attributes:
        kind: What the refusal means for the request.
        words: Slurm's message in one line.
    """

    kind: RefusalKind
    words: str


@dataclass(frozen=True)
class Submitted:
    """A job that sbatch has submitted.

    Attributes:
        number: The job's number; None if sbatch printed none.
        printed: The output of sbatch.
    """

    number: str | None
    printed: str = ""


@dataclass(frozen=True)
class Accepted:
    """A request that `sbatch --test-only` accepts.

    Attributes:
        start: Expected start in local time; None if unknown.
    """

    start: datetime | None


class QueuedJob(NamedTuple):
    """A job that squeue lists.

    Attributes:
        number: Number of the job, such as `123`.
        state: State in Slurm's words, such as `PENDING`.
        reason: Slurm's reason why the job waits or has failed.
        name: Name of the job.
        partition: Its partition.
        nodes: Its node list; empty before it starts.
        start_s: Start in seconds since the epoch, maybe an estimate; None if unknown.
        end_s: End of its time limit in seconds since the epoch; None if unknown.
        workdir: Its working directory.
        comment: Its comment.
    """

    number: str
    state: str
    reason: str = ""
    name: str = ""
    partition: str = ""
    nodes: str = ""
    start_s: float | None = None
    end_s: float | None = None
    workdir: str = ""
    comment: str = ""


class QueuedStep(NamedTuple):
    """A running step that squeue lists.

    Attributes:
        number: Its number, such as `123.0`.
        name: Its name.
        nodes: Its node list.
    """

    number: str
    name: str
    nodes: str

    @property
    def job(self) -> str:
        """Number of the step's job."""
        return self.number.partition(".")[0]


#: Between the fields of squeue: names of jobs and folders may have any other character.
SEPARATOR = "\x1f"
#: The fields of squeue that make a QueuedJob.
QUEUE_FORMAT = SEPARATOR.join(["%i", "%T", "%r", "%j", "%P", "%N", "%S", "%e", "%Z", "%k"])

_T = TypeVar("_T")


class SlurmClient:
    """Calls Slurm's programs with a time limit, without the user's variables that filter output.

    Each method calls one program once. No method raises an exception. Without an answer, `submit`
    and `test` return a `Refusal`, as for a refused job, and `run_time_s` None; the others return
    `NoAnswer`.

    Args:
        timeout_s: Time limit of each call in seconds.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.timeout_s = timeout_s

    # Submission. Variables SBATCH_* are the user's own options and stay.

    def submit(self, line: str, script: str | None = None) -> Submitted | Refusal:
        """Submit a job by sbatch.

        Args:
            line: Shell line of sbatch with --parsable.
            script: The job's script, passed on standard input; None if it is in `line`.

        Returns:
            The submitted job; a Refusal if sbatch fails or does not answer.
        """
        # the job gets this environment: nothing may change in it
        done = self._run(("sh", "-c", f"exec {line}"), os.environ, "sbatch", script)
        if isinstance(done, NoAnswer):
            return classify_refusal(done.why)
        if done.returncode:
            return classify_refusal(error_message(done, "sbatch"))
        return Submitted(parse_job_number(done.stdout), done.stdout.strip())

    def test(self, call: Sequence[str]) -> Accepted | Refusal:
        """Return whether Slurm would accept a job, without submitting it.

        Args:
            call: Words of a command line of sbatch with --test-only.

        Returns:
            Accepted, with the expected start; a Refusal if sbatch fails or does not answer.
        """
        done = self._run(call, {**os.environ, "SLURM_TIME_FORMAT": "standard"})
        if isinstance(done, NoAnswer):
            return classify_refusal(done.why)
        if done.returncode:
            return classify_refusal(error_message(done))
        found = _STARTS.search(done.stderr)
        return Accepted(datetime.fromisoformat(found[1]) if found else None)

    def cancel(self, numbers: Iterable[str] = (), name: str | None = None) -> NoAnswer | None:
        """Cancel jobs by their numbers or by their name.

        Args:
            numbers: Numbers of jobs.
            name: Cancel all jobs of the user with this name.

        Returns:
            None after success, else NoAnswer.
        """
        by_name = (f"--name={name}",) if name else ()
        answer = self._query("scancel", *by_name, *numbers)
        return answer if isinstance(answer, NoAnswer) else None

    def signal(self, numbers: Iterable[str], name: str) -> NoAnswer | None:
        """Send a signal to jobs or steps.

        Args:
            numbers: Ids of jobs or steps, such as `123` or `123.0`.
            name: Name of the signal, such as TERM.

        Returns:
            None after success, else NoAnswer.
        """
        answer = self._query("scancel", f"--signal={name}", *numbers)
        return answer if isinstance(answer, NoAnswer) else None

    def requeue(self, number: str) -> NoAnswer | None:
        """Requeue a running job, which Slurm then restarts; return None or NoAnswer."""
        answer = self._query("scontrol", "requeue", number)
        return answer if isinstance(answer, NoAnswer) else None

    # The queue

    def jobs(
        self, *, numbers: Sequence[str] = (), names: Sequence[str] = (), states: str = "all"
    ) -> list[QueuedJob] | NoAnswer:
        """Return the user's jobs that squeue lists, by default all that Slurm still remembers.

        Args:
            numbers: Return only jobs with these numbers; forgotten jobs are missing in the result.
            names: Return only jobs with these names.
            states: Return only jobs in these states, with commas between them.

        Returns:
            The jobs in squeue's order, or NoAnswer.
        """
        # in all partitions, also hidden ones, and of a federation also those started elsewhere
        which = ["--all", f"--jobs={','.join(numbers)}" if numbers else "--me"]
        which += [f"--name={','.join(names)}"] if names else []
        layout = (f"--states={states}", "--noheader", f"--format={QUEUE_FORMAT}")
        answer = self._query("squeue", *which, *layout)
        if isinstance(answer, NoAnswer):
            return [] if numbers and _NO_SUCH_JOB in answer.why else answer
        # str.splitlines would end a line at other characters, too, which a comment may have
        rows = (line.split(SEPARATOR) for line in answer.split("\n"))
        return [_parse_queued_job(row) for row in rows if len(row) == 10]

    def steps(self, job: str | None = None) -> list[QueuedStep] | NoAnswer:
        """Return the running steps of this user.

        Args:
            job: Number of a job; None: the steps of all jobs.
        """
        which = [f"--jobs={job}"] if job else []
        layout = ("--noheader", f"--format={SEPARATOR.join(['%i', '%j', '%N'])}")
        answer = self._query("squeue", "--all", "--steps", "--me", *layout, *which)
        if isinstance(answer, NoAnswer):
            return [] if job and _NO_SUCH_JOB in answer.why else answer
        rows = (line.split(SEPARATOR) for line in answer.split("\n"))
        return [QueuedStep(*row) for row in rows if len(row) == 3]

    # Accounting

    def accounted_states(self, names: Sequence[str], days: int = 2) -> dict[str, str] | NoAnswer:
        """Return number → state of recent jobs with these names, from sacct.

        Args:
            names: Names of jobs.
            days: Number of days to look back.
        """
        since = datetime.now(timezone.utc) - timedelta(days=days)
        rows = self._query_sacct(
            ("JobIdRaw", "State"),
            f"--starttime={since:%Y-%m-%dT%H:00}",
            "--endtime=now",
            f"--name={','.join(names)}",
        )
        return rows if isinstance(rows, NoAnswer) else dict(rows)

    def accounted_ends(self, numbers: Sequence[str]) -> dict[str, str] | NoAnswer:
        """Return number → state from sacct, such as `CANCELLED`, of jobs or of steps.

        Unknown ones are missing in the result. One call serves all: sacct may take a minute.

        Args:
            numbers: Numbers of jobs, or JOB.STEP of steps.
        """
        are_jobs = not any("." in number for number in numbers)
        which = f"--jobs={','.join(numbers)}"
        rows = self._query_sacct(("JobIdRaw", "State"), which, allocations=are_jobs)
        if isinstance(rows, NoAnswer):
            return rows
        # it may name who has cancelled the job: CANCELLED by 0
        return {number: words.partition(" ")[0] for number, words in rows}

    def accounted_waits(self, partition: str, days: int) -> list[list[str]] | NoAnswer:
        """Return times and size of all users' past jobs in a partition, from sacct.

        Args:
            partition: The partition.
            days: Number of days to look back.

        Returns:
            For each job [eligible time, start, nodes, time limit in minutes, state, end]; times in
            UTC. NoAnswer without an answer.
        """
        since = datetime.now(timezone.utc) - timedelta(days=days)
        fields = ("Eligible", "Start", "NNodes", "TimelimitRaw", "State", "End")
        which = (f"--partition={partition}", f"--starttime={since:%Y-%m-%dT%H:%M}", "--endtime=now")
        return self._query_sacct(fields, "--allusers", *which)

    def accounted_energy(self, number: str) -> list[list[str]] | NoAnswer:
        """Return [number, energy in joules] of a job and of each of its steps, from sacct."""
        fields = ("JobIDRaw", "ConsumedEnergyRaw")
        return self._query_sacct(fields, f"--jobs={number}", allocations=False)

    def account_lineages(self, account: str) -> list[str] | NoAnswer:
        """Return the paths of an account in the tree of accounts, such as `/…/group/name/`.

        Each association of the account has a path. Slurm 23.11 or later is required.
        """
        layout = ("--noheader", "--parsable2", "show", "associations", "format=Lineage")
        return self._query_parsed(str.split, "sacctmgr", *layout, "where", f"accounts={account}")

    def _query_sacct(
        self, fields: Sequence[str], *options: str, allocations: bool = True
    ) -> list[list[str]] | NoAnswer:
        """Return rows of sacct, or NoAnswer.

        Args:
            fields: Fields of sacct, the columns of the result.
            *options: Options that select jobs.
            allocations: Whether the result has only jobs; otherwise it has their steps as well.
        """
        layout = ("--noheader", "--parsable2", f"--format={','.join(fields)}")
        only = ("--allocations",) if allocations else ()
        answer = self._query("sacct", *only, *layout, *options)
        if isinstance(answer, NoAnswer):
            return answer
        rows = (line.strip().split("|") for line in answer.splitlines())
        return [row for row in rows if len(row) == len(fields)]

    # Jobs, nodes, partitions and settings

    def show_job(self, number: str) -> str | NoAnswer:
        """Return the output of `scontrol show job` for a job, with times in UTC."""
        return self._query("scontrol", "show", "job", number)

    def run_time_s(self, number: str) -> float | None:
        """Return the seconds that a job has run since its last start; None if unknown."""
        text = self.show_job(number)
        found = None if isinstance(text, NoAnswer) else _RUN_TIME.search(text)
        if found is None:
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)

    def configuration(self) -> dict[str, str] | NoAnswer:
        """Return name → value of Slurm's settings from `scontrol show config`."""
        return self._query_parsed(_parse_settings, "scontrol", "show", "config")

    def partitions(self) -> list[dict[str, str]] | NoAnswer:
        """Return for each partition its settings by name, such as MaxTime → 00:30:00."""
        return self._query_parsed(parse_partitions, "scontrol", "show", "partition", "--oneliner")

    def nodes(
        self, partition: str | None = None, names: Sequence[str] = ()
    ) -> dict[str, str] | NoAnswer:
        """Return node → state, such as `idle`, for the whole cluster or a part of it.

        Args:
            partition: Return only the nodes of this partition.
            names: Return only these nodes, also in hidden partitions.
        """
        which = [f"--partition={partition}"] if partition else []
        which += ["--all", f"--nodes={','.join(names)}"] if names else []
        return self._query_parsed(
            _parse_node_states, "sinfo", "--noheader", "--Node", "--format=%N|%T", *which
        )

    def hostnames(self, nodes: str) -> tuple[str, ...] | NoAnswer:
        """Return the node names in a node list, expanded by scontrol, in Slurm's order."""
        return self._query_parsed(
            lambda text: tuple(text.split()), "scontrol", "show", "hostnames", nodes
        )

    def ping(self) -> NoAnswer | None:
        """Return None if one of Slurm's controllers answers; else NoAnswer with the reason."""
        done = self._run(
            ("scontrol", "ping"), _remove_filter_variables(os.environ), timeout_s=PING_TIMEOUT_S
        )
        if isinstance(done, NoAnswer):
            return done
        # one of several controllers is enough
        is_down = " is DOWN" in done.stdout and " is UP" not in done.stdout
        return NoAnswer(" ".join(done.stdout.split())) if is_down else None

    def _query_parsed(self, reader: Callable[[str], _T], *command: str) -> _T | NoAnswer:
        """Run a query and return its output parsed by `reader`, or NoAnswer."""
        answer = self._query(*command)
        return answer if isinstance(answer, NoAnswer) else reader(answer)

    def _query(self, *command: str) -> str | NoAnswer:
        """Run a query and return its output, with times in UTC, or NoAnswer."""
        done = self._run(command, {**_remove_filter_variables(os.environ), **_IN_UTC})
        if isinstance(done, NoAnswer):
            return done
        return NoAnswer(error_message(done)) if done.returncode else done.stdout

    def _run(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        program: str | None = None,
        script: str | None = None,
        timeout_s: float | None = None,
    ) -> subprocess.CompletedProcess[str] | NoAnswer:
        """Run a program and wait for its end; kill it and its descendants at the time limit.

        Args:
            command: Words of the command line.
            environ: Environment of the program.
            program: Name of Slurm's program for messages; None: the first word.
            script: Standard input; None for none.
            timeout_s: Time limit in seconds; None: the client's.

        Returns:
            The ended process; NoAnswer if the program is missing or exceeds the limit.
        """
        program = program or command[0]
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if script is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environ,
            )
        except OSError as error:
            return NoAnswer(f"{program}: {error.strerror or error}")
        with process:
            try:
                printed, said = process.communicate(script, timeout=limit_s)
            except BaseException as error:
                # a site's wrapper may have started Slurm's program, which could still submit a job
                for number in process_tree(process.pid):
                    with contextlib.suppress(OSError):  # it just ended, or is another user's
                        os.kill(number, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return NoAnswer(f"{program} did not answer for {limit_s:g} s")
        return subprocess.CompletedProcess(command, process.returncode, printed, said)


def is_node_down(state: str) -> bool:
    """Return whether a state from sinfo means that a node, and all that it ran, is lost.

    These are `down`, `error` and `drained*`. The mark `*` of nodes that do not answer is not enough
    for other states: Slurm's daemon on the node may only be restarting.
    """
    return state == "drained*" or state.rstrip("*~#!%$@^-+") in ("down", "error")


def classify_refusal(words: str) -> Refusal:
    """Return a Refusal with this message of sbatch and the kind that it shows.

    The whole text is searched for a message about a limit of the queue. For all other messages only
    what follows `Batch job submission failed:` or `allocation failure:` is searched, if the text
    has these words: lines before them may be a banner of the site.
    """
    if _QUEUE_LIMIT.search(words):
        return Refusal(RefusalKind.QUEUE_LIMIT, words)
    reason = _REASON.split(words)[-1]
    kind = RefusalKind.FOR_NOW if _FOR_NOW.search(reason) else RefusalKind.FINAL
    return Refusal(kind, words)


def error_message(done: subprocess.CompletedProcess[str], program: str | None = None) -> str:
    """Return the error message of a failed program in one line; without output, how it ended.

    Args:
        done: The ended process.
        program: Name of the program for the message; None: the first word of its command line.
    """
    lines = [line.strip() for line in (done.stderr or done.stdout or "").splitlines()]
    prefix = re.compile(
        r"^(?:sbatch|squeue|sacct|sacctmgr|scontrol|sinfo|scancel): (?:error: |fatal: )?"
    )
    said = [prefix.sub("", line) for line in lines if line and not line.startswith("Try ")]
    program = program or done.args[0]
    if done.returncode < 0:  # as by Ctrl-C: Slurm may have the request
        said.append(f"{program} was ended by signal {-done.returncode}")
    return "; ".join(said) or f"{program} ended with exit status {done.returncode}"


def parse_job_number(printed: str) -> str | None:
    """Return the job number in the output of sbatch, which may also have a banner of the site.

    Returns:
        The number; None if no line has a number, or if several lines have different ones.
    """
    found = [line for each in printed.splitlines() if (line := _NUMBER.fullmatch(each.strip()))]
    in_words = [line for line in found if line[0].startswith("Submitted")]
    numbers = {line[1] for line in in_words or found}
    return numbers.pop() if len(numbers) == 1 else None


def submission_options(environ: Mapping[str, str]) -> list[str]:
    """Return the user's environment variables that set options of sbatch, each as NAME=value."""
    return [
        f"{name}={shlex.quote(value)}"
        for name, value in sorted(environ.items())
        if name.startswith("SBATCH_")
    ]


def process_tree(pid: int) -> list[int]:
    """Return the process ids of a process and all its descendants."""
    found = [pid]
    for process in found:  # which grows meanwhile
        with contextlib.suppress(OSError):  # it just ended
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                with contextlib.suppress(OSError):  # a thread that just ended
                    found += map(int, children.read_text().split())
    return found


def _remove_filter_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that change the output of Slurm's programs.

    Outside a job, SBATCH_CLUSTERS becomes the default of SLURM_CLUSTERS, so that queries go to the
    cluster to which sbatch submits.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_FILTERS)}
    if "SBATCH_CLUSTERS" in environ and "SLURM_JOB_ID" not in environ:
        # where sbatch submits jobs, their states are queried
        kept.setdefault("SLURM_CLUSTERS", environ["SBATCH_CLUSTERS"])
    return kept


def _parse_queued_job(row: Sequence[str]) -> QueuedJob:
    """Return the job in a line of squeue, whose fields are in the order of QUEUE_FORMAT."""
    number, state, reason, name, partition, nodes, start, end, workdir, comment = row
    times = _parse_utc_time_s(start), _parse_utc_time_s(end)
    return QueuedJob(number, state, reason, name, partition, nodes, *times, workdir, comment)


def _parse_utc_time_s(text: str) -> float | None:
    """Return a time in UTC, as Slurm prints it, in seconds since the epoch; None for `N/A`."""
    try:
        return datetime.fromisoformat(f"{text}+00:00").timestamp()
    except ValueError:  # N/A, NONE, Unknown
        return None


def _parse_settings(text: str) -> dict[str, str]:
    """Return name → value from lines `name = value`."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def parse_partitions(text: str) -> list[dict[str, str]]:
    """Return the settings of each partition, name → value.

    Args:
        text: Output of `scontrol show partition --oneliner`.
    """
    words = (line.split() for line in text.splitlines())
    return [dict(word.partition("=")[::2] for word in line) for line in words if line]


def _parse_node_states(text: str) -> dict[str, str]:
    """Return node → state from lines `node|state` of sinfo."""
    lines = (line.strip().split("|") for line in text.splitlines())
    return {line[0]: line[1] for line in lines if len(line) == 2}
