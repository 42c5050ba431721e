"""What Slurm answers to the requests of a sweep before anything is submitted: `sbatch --test-only`.

Without this question Slurm queues some jobs for ever that no node can run. The answer refuses them,
and estimates when the others would start. Limits of a QOS are Slurm's own: a job beyond them waits
in the queue, and the console has the reason.
"""

from __future__ import annotations

import datetime
import re
import shlex
import shutil
import subprocess
import types
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from msgspec.structs import replace

from tfscaling.plan import slurm_limits, submission
from tfscaling.plan.plan_rows import REFUSED, PointRow
from tfscaling.plan.slurm_limits import Request
from tfscaling.plan.submission import Submission
from tfscaling.spec import platforms
from tfscaling.spec.config import Config
from tfscaling.spec.run_spec import Point
from tfscaling.tables.display import one_line

NO_SBATCH = (
    "this machine has no sbatch: start the sweep on a login node of the cluster, or on this "
    "machine alone with --profile profiles/local"
)
#: By which a platform asks for what Slurm refuses.
KEYS = "partition, cpus_per_node, gpu_gres, runtime_min, account, …"
#: Requests asked at the same time.
_AT_ONCE = 4
#: What of a submission does not change whether and when Slurm starts it; those with a value.
_LEFT_OUT = ("--parsable", "--export=ALL", "/dev/stdin")
_LEFT_OUT_PAIRS = ("--job-name", "--output", "--comment", "-D")
#: sbatch's words if the controller is not there, or this machine does not know where it is.
_NO_CONTACT = ("Unable to contact", "Could not establish a configuration source")
_STARTS = re.compile(r"to start at (\S+) using")
#: Slurm's words where the nodes of a partition are too few or too small, or out of service now.
_NOT_AVAILABLE = "Requested node configuration is not available"


class Answer(NamedTuple):
    """The local time at which Slurm would start it, a refusal, or what it would wait for."""

    start: datetime.datetime | None = None
    refusal: str = ""
    waits_for: str = ""


class NoSlurmError(RuntimeError):
    """sbatch is not on this machine, or Slurm does not answer."""


class SilentError(NoSlurmError):
    """Slurm was asked, and does not answer."""


def requests(points: Iterable[Point], config: Config, how: Submission) -> dict[Point, Request]:
    """What a job of each point asks of Slurm; points that ask for the same have equal requests."""
    return {point: _request(point, config, how) for point in points}


def _request(point: Point, config: Config, how: Submission) -> Request:
    platform, on_slurm = config.platforms[point.platform], point.geometry
    asked = platforms.slurm_resources(platform, on_slurm)
    line = submission.sbatch_line(asked, submission.RUN, how)
    tasks = on_slurm.tasks_per_node_max if platform.launcher != "local" else 1
    return Request(
        question=question(line) if line.startswith("sbatch ") else line,
        nodes=int(asked["nodes"]),
        cpus=tasks * int(asked["cpus_per_task"]),
        mem_mb=int(asked.get("mem_mb", 0)),
        gres=str(asked.get("gres", "")),
        runtime_min=platform.runtime_min,
        partition=platform.partition,
        account=platform.account,
        qos=platform.qos,
        cluster=platform.cluster if platform.multi_cluster else None,
    )


def question(line: str) -> str:
    """The sbatch line of a job as a question: with `--test-only`, without what names the job."""
    line = line.replace(f" -p {submission.PARTITION}", "")
    words, asked = iter(shlex.split(line)[1:]), []
    for word in words:
        if word in _LEFT_OUT_PAIRS:
            next(words)
        elif word not in _LEFT_OUT and not word.startswith("--wrap="):
            asked.append(word)
    return shlex.join(["sbatch", "--test-only", *asked, "--wrap=true"])


def ask(asked: Iterable[Request]) -> dict[Request, Answer]:
    """Slurm's answers to one or more requests, each distinct one asked once.

    Raises NoSlurmError.
    """
    first, *others = dict.fromkeys(asked)
    if shutil.which("sbatch") is None:
        raise NoSlurmError(NO_SBATCH)
    if silence := slurm_limits.silence():
        raise SilentError(silence)
    answers = {first: _answer(first)}  # alone: if it gets no answer, the others will not
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers |= zip(others, pool.map(_answer, others), strict=True)
    clusters = {each.cluster for each in answers}
    limits = {cluster: slurm_limits.partitions_of(cluster) for cluster in clusters}
    for request, answer in answers.items():
        problem = slurm_limits.problem(request, limits[request.cluster])
        if problem and not answer.refusal:
            answers[request] = Answer(refusal=problem)
    return answers


def _answer(request: Request) -> Answer:
    if not request.question.startswith("sbatch "):  # the plugin refuses it
        return Answer(refusal=request.question)
    try:
        done = slurm_limits.run(*shlex.split(request.question))
    except subprocess.TimeoutExpired:
        raise SilentError(
            f"Slurm does not answer: sbatch said nothing for {slurm_limits.TIMEOUT_S:g} s"
        ) from None
    answer = read(done.returncode, done.stderr)
    if any(words in answer.refusal for words in _NO_CONTACT):
        raise SilentError(f"Slurm does not answer: {answer.refusal}")
    if _NOT_AVAILABLE in answer.refusal:
        nodes = slurm_limits.nodes_of(request)
        if waits_for := slurm_limits.out_of_service(request, nodes):
            return Answer(waits_for=waits_for)
        if lacking := slurm_limits.lacking(request, nodes):
            return Answer(refusal=f"{answer.refusal}: {lacking}")
    return answer


def read(status: int, words: str) -> Answer:
    """The answer from sbatch's exit status and what it wrote to standard error."""
    if status == 0:
        found = _STARTS.search(words)
        return Answer(datetime.datetime.fromisoformat(found[1]) if found else None)
    lines = [line for line in words.splitlines() if line and not line.startswith("Try ")]
    said = "; ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines)
    return Answer(refusal=one_line(said) or f"sbatch ended with exit status {status}")


class Verdict(NamedTuple):
    """Whether a sweep may start: `refusal` says why not, `outlook` what Slurm says of its start."""

    refusal: str = ""
    outlook: tuple[str, ...] = ()
    #: What Slurm says of each point that it refuses.
    refused: Mapping[Point, str] = types.MappingProxyType({})


def verdict(points: Iterable[Point], config: Config, how: Submission) -> Verdict:
    """Slurm's verdict on the jobs of these points, as they are to be submitted."""
    asked = requests(points, config, how)
    if not asked:
        return Verdict()
    try:
        answers = ask(asked.values())
    except NoSlurmError as error:
        return Verdict(str(error))
    of_points = {point: answers[request] for point, request in asked.items()}
    refused = {point: a.refusal for point, a in of_points.items() if a.refusal}
    if refused:
        return Verdict(_refusal(refused, asked), refused=refused)
    return Verdict(outlook=tuple(outlook(of_points, datetime.datetime.now())))


def _refusal(refused: Mapping[Point, str], asked: Mapping[Point, Request]) -> str:
    """A line for each platform and each of Slurm's reasons.

    Each with the first question of its kind, to be tried by hand.
    """
    groups: dict[tuple[str, str], list[Point]] = {}
    for point, words in refused.items():
        groups.setdefault((point.platform, words), []).append(point)
    lines = ["Slurm refuses what these points request:"]
    for (platform, words), points in groups.items():
        lines.append(f"  {platform}, {shapes(points)}: {words}")
        lines.append(f"    {asked[points[0]].question}")
    lines.append(f"Change the platform ({KEYS}), or leave the points out (`exclude`).")
    return "\n".join(lines)


def added(rows: Iterable[PointRow], config: Config, how: Submission) -> list[PointRow]:
    """The rows with Slurm's answers: when it would start a run of each, or why not.

    Raises NoSlurmError.
    """
    rows, now = list(rows), datetime.datetime.now()
    asked = requests((row.point for row in rows if row.runs), config, how)
    answers = ask(asked.values()) if asked else {}
    return [answered(row, answers[asked[row.point]], now) if row.runs else row for row in rows]


def answered(row: PointRow, answer: Answer, now: datetime.datetime) -> PointRow:
    """The row with Slurm's answer; `now` is this machine's local time, as the answer's is."""
    if answer.refusal:
        return replace(row, starts=REFUSED, slurm=answer.refusal)
    if answer.waits_for:
        return replace(row, starts="waits", slurm=answer.waits_for)
    if answer.start is None:
        return replace(row, starts=None)
    wait_s = max(0.0, (answer.start - now).total_seconds())
    ends_in_s = None if row.duration_s is None else wait_s + row.duration_s
    starts = start_text(answer.start, now)
    return replace(row, starts=starts, wait_s=wait_s, ends_in_s=ends_in_s)


def shapes(points: Iterable[Point]) -> str:
    """`nodes 2, 4 with gpus_per_node 1` of points, whatever else they are."""
    nodes: dict[tuple[int, str], list[int]] = {}
    for point in points:
        shape = (point.gpus_per_node, str(point.tasks_per_node))
        nodes.setdefault(shape, []).append(point.nodes)
    texts = []
    for (gpus, tasks), numbers in nodes.items():
        text = f"nodes {', '.join(map(str, dict.fromkeys(numbers)))}"
        text += f" with gpus_per_node {gpus}" if gpus else ""
        texts.append(text + (f" and tasks_per_node {tasks}" if tasks != "1" else ""))
    return "; ".join(texts)


def outlook(answers: Mapping[Point, Answer], now: datetime.datetime) -> list[str]:
    """When Slurm would start what it accepts, each request taken alone, in a few lines."""
    lines = [
        f"{point.platform}, {shapes([point])}: waits, because {answer.waits_for}"
        for point, answer in answers.items()
        if answer.waits_for
    ]
    starts = [max(answer.start, now) for answer in answers.values() if answer.start]
    if starts:
        first, last = (start_text(start, now) for start in (min(starts), max(starts)))
        when = first if first == last else f"the first {first}, the last {last}"
        lines.append(f"Slurm accepts what the runs ask for; alone, each would start: {when}")
    return lines


def start_text(start: datetime.datetime, now: datetime.datetime) -> str:
    """`at once`, or the local time, with the day unless it is today."""
    if start - now < datetime.timedelta(minutes=1):
        return "at once"
    return f"at {start:%H:%M}" if start.date() == now.date() else f"at {start:%Y-%m-%d %H:%M}"
