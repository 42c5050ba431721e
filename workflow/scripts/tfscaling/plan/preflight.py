"""What Slurm answers to the requests of a sweep before anything is submitted: `sbatch --test-only`.

Without this question Slurm queues some jobs forever that no node can run. The answer refuses them,
and estimates when the others would start. sbatch accepts jobs beyond the limits of a partition:
these limits are compared here. Jobs beyond the limits of a QOS wait; the console prints the reason.
"""

from __future__ import annotations

import datetime
import functools
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import pandas as pd
from msgspec.structs import replace

from tfscaling.cluster import slurm_client
from tfscaling.cluster.slurm_client import (
    NoAnswer,
    Refusal,
    RefusalKind,
    SlurmClient,
    submission_options,
)
from tfscaling.plan.costed_plan import REFUSED, PlanRow
from tfscaling.snakemake_adapter import submission
from tfscaling.snakemake_adapter.submission import Submission
from tfscaling.study import platforms
from tfscaling.study.config_types import Config
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_values import grouped

NO_SBATCH = (
    "this machine has no sbatch: start the sweep on a login node of the cluster, or on this "
    "machine alone with --profile profiles/local"
)
#: What to do about points that Slurm refuses.
ADVICE = (
    "Change the platform (partition, cpus_per_node, gpu_gres, runtime_min, account, …), or leave "
    "the configurations out (`exclude`)."
)
#: Requests asked at the same time.
_AT_ONCE = 4
#: What of a submission does not change whether and when Slurm starts it; those with a value.
_LEFT_OUT = ("--parsable", "--export=ALL", "/dev/stdin")
_LEFT_OUT_PAIRS = ("--job-name", "--output", "--comment", "-D")
#: Slurm's words where the nodes of a partition are too few or too small, or out of service now.
_NOT_AVAILABLE = "Requested node configuration is not available"
#: Longest wait for an answer of Slurm's programs.
TIMEOUT_S = 15.0
#: Pauses before a question is repeated that Slurm does not answer for now.
PAUSES_S = (5.0, 10.0)
#: In the states of a node on which Slurm starts nothing now, though perhaps later. A node with `*`
#: does not respond. Idle nodes are unknown while the controller starts, which then offers no node.
_OUT_OF_SERVICE = ("down", "drain", "fail", "error", "unk", "maint", "reboot", "*")

SLURM = SlurmClient(TIMEOUT_S)

_PointT = TypeVar("_PointT", bound=Point)


class Request(NamedTuple):
    """What a job requests of Slurm: the question to sbatch, and what is compared with limits."""

    question: str
    nodes: int
    runtime_min: int
    #: None: the default partition; several names with commas between: any of them.
    partition: str | None
    account: str | None
    qos: str | None


class Answer(NamedTuple):
    """The local time at which Slurm would start it, a refusal, or what it would wait for."""

    start: datetime.datetime | None = None
    refusal: str = ""
    waits_for: str = ""


class NoSlurmError(RuntimeError):
    """sbatch is not on this machine, or Slurm does not answer."""


def requests(points: Iterable[Point], config: Config, how: Submission) -> dict[Point, Request]:
    """What a job of each point asks of Slurm; points that ask for the same have equal requests."""
    found = {}
    for point in points:
        platform = config.platforms[point.platform]
        asked = platforms.slurm_resources(platform, point.geometry)
        line = submission.sbatch_line(asked, submission.RUN, how)
        said = question(line) if line.startswith("sbatch ") else line
        of_platform = platform.runtime_min, platform.partition, platform.account, platform.qos
        found[point] = Request(said, int(asked["nodes"]), *of_platform)
    return found


def question(line: str) -> str:
    """The sbatch line of a job as a question: with `--test-only`, without what names the job."""
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
    if silent := silence():
        raise NoSlurmError(silent)
    answers = {first: _answer(first)}  # alone: if it gets no answer, the others will not
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers |= zip(others, pool.map(_answer, others), strict=True)
    limits = partitions()
    for request, answer in answers.items():
        if not answer.refusal and (limit := problem(request, limits)):
            answers[request] = Answer(refusal=limit)
        elif answer.start and (stopped := stopped_partitions(request, limits)):
            answers[request] = Answer(waits_for=stopped)
    return answers


def _answer(request: Request, sleep: Callable[[float], None] = time.sleep) -> Answer:
    if not request.question.startswith("sbatch "):  # the plugin refuses it
        return Answer(refusal=request.question)
    answer = SLURM.test(shlex.split(request.question))
    for pause_s in PAUSES_S:
        if not isinstance(answer, Refusal) or answer.kind is not RefusalKind.FOR_NOW:
            break
        sleep(pause_s)
        answer = SLURM.test(shlex.split(request.question))
    if not isinstance(answer, Refusal):
        return Answer(answer.start)
    if answer.kind is RefusalKind.FOR_NOW:
        raise NoSlurmError(f"Slurm does not answer: {answer.words}")
    if answer.kind is RefusalKind.QUEUE_LIMIT:
        return Answer(waits_for=f"the site takes no more of your jobs now: {answer.words}")
    if _NOT_AVAILABLE in answer.words and (waits_for := out_of_service(request)):
        return Answer(waits_for=waits_for)
    return Answer(refusal=answer.words)


def refusal(points: Iterable[Point], config: Config, how: Submission) -> str:
    """Why Slurm would refuse the jobs of these points, as they are to be submitted, or ""."""
    asked = requests(points, config, how)
    try:
        answers = ask(asked.values()) if asked else {}
    except NoSlurmError as error:
        return str(error)
    said = ((point, answers[request].refusal) for point, request in asked.items())
    lines = []
    for line, point in by_words((point, words) for point, words in said if words):
        lines += [f"  {line}", f"    {asked[point].question}"]  # to be tried by hand
    if lines and (options := submission_options(os.environ)):
        lines.append(f"  The environment adds options to each request: {', '.join(options)}")
    title = "Slurm refuses what these configurations request:"
    return "\n".join([title, *lines, ADVICE]) if lines else ""


def by_words(said: Iterable[tuple[_PointT, str]]) -> list[tuple[str, _PointT]]:
    """`platform, nodes 1, 2: words` and its first point, for each platform and Slurm's words."""
    found = []
    for (platform, words), own in grouped(said, lambda both: (both[0].platform, both[1])).items():
        points = [point for point, _ in own]
        found.append((f"{platform}, {_shapes(points)}: {words}", points[0]))
    return found


def added(rows: Iterable[PlanRow], config: Config, how: Submission) -> list[PlanRow]:
    """The rows with Slurm's answers: when it would start a run of each, or why not.

    Raises NoSlurmError.
    """
    rows, now = list(rows), datetime.datetime.now()
    asked = requests((row.point for row in rows if row.runs), config, how)
    answers = ask(asked.values()) if asked else {}
    return [answered(row, answers[asked[row.point]], now) if row.runs else row for row in rows]


def answered(row: PlanRow, answer: Answer, now: datetime.datetime) -> PlanRow:
    """The row with Slurm's answer; `now` is this machine's local time, as the answer's is."""
    if answer.refusal:
        return replace(row, starts=REFUSED, slurm=answer.refusal)
    if answer.waits_for:
        return replace(row, starts="waits", slurm=answer.waits_for)
    return replace(row, starts=start_text(answer.start, now)) if answer.start else row


def _shapes(points: Iterable[Point]) -> str:
    """`nodes 2, 4 with gpus_per_node 1` of points, whatever else they are."""
    texts = []
    alike = grouped(points, lambda point: (point.gpus_per_node, str(point.tasks_per_node)))
    for (gpus, tasks), own in alike.items():
        text = f"nodes {', '.join(dict.fromkeys(str(point.nodes) for point in own))}"
        text += f" with gpus_per_node {gpus}" if gpus else ""
        texts.append(text + (f" and tasks_per_node {tasks}" if tasks != "1" else ""))
    return "; ".join(texts)


def start_text(start: datetime.datetime, now: datetime.datetime) -> str:
    """`at once`, or the local time, with the day unless it is today."""
    if start - now < datetime.timedelta(minutes=1):
        return "at once"
    return f"at {start:%H:%M}" if start.date() == now.date() else f"at {start:%Y-%m-%d %H:%M}"


@functools.cache
def silence() -> str:
    """Return that Slurm's controller does not answer a ping, or ""; it is asked once."""
    answer = SLURM.ping()
    return "" if answer is None else f"Slurm does not answer: {answer.why}"


def out_of_service(request: Request) -> str:
    """Which nodes of the partition are out of service, for which the request may wait; or ""."""
    states = SLURM.nodes(request.partition)
    if isinstance(states, NoAnswer):
        return ""
    out = [n for n, state in states.items() if any(w in state.lower() for w in _OUT_OF_SERVICE)]
    shown = ", ".join(out[:3]) + (", …" if len(out) > 3 else "")
    return f"{len(out)} of {len(states)} nodes are out of service: {shown}" if out else ""


def exceeded(request: Request, partition: Mapping[str, str]) -> str:
    """The limit of a partition that no such job meets, by the name of Slurm's reason, or "".

    With `EnforcePartLimits=NO`, Slurm's default, sbatch accepts such a job, which waits for ever.
    A QOS may replace the limits for time and nodes.
    """
    at = f"partition {partition.get('PartitionName', '')} has"
    max_time, *nodes = (partition.get(key, "") for key in ("MaxTime", "MinNodes", "MaxNodes"))
    min_nodes, max_nodes = (int(text) if text.isdecimal() else None for text in nodes)
    if not request.qos and request.runtime_min > minutes(max_time):
        return f"PartitionTimeLimit: {at} MaxTime={max_time}, runtime_min is {request.runtime_min}"
    if not request.qos and max_nodes is not None and request.nodes > max_nodes:
        return f"PartitionNodeLimit: {at} MaxNodes={max_nodes}"
    if not request.qos and min_nodes is not None and request.nodes < min_nodes:
        return f"PartitionNodeLimit: {at} MinNodes={min_nodes}"
    accounts = (request.account or "").replace(",", " ").split()
    account = accounts[0] if accounts else ""
    for key, reason, name, is_listed in (
        ("Accounts", "AccountNotAllowed", account, _has_account),
        ("Qos", "QosNotAllowed", request.qos or "", _has_name),
    ):
        allowed, denied = (partition.get(f"{verb}{key}", "") for verb in ("Allow", "Deny"))
        is_limited = allowed not in ("", "ALL")  # Slurm then ignores what is denied
        if name and is_limited and is_listed(allowed, name) is False:
            return f"{reason}: {at} Allow{key}={allowed}"
        if name and not is_limited and is_listed(denied, name):
            return f"{reason}: {at} Deny{key}={denied}"
    return ""


def _has_name(listed: str, name: str) -> bool:
    """Return whether a partition's list has a name. Slurm writes names in lower case."""
    return name.lower() in listed.lower().split(",")


def _has_account(listed: str, account: str) -> bool | None:
    """Return whether a partition's list has an account or, since Slurm 23.11, one above it.

    None if that is unknown.
    """
    if not listed or _has_name(listed, account):
        return bool(listed)
    above = accounts_above(account)
    return None if above is None else any(_has_name(listed, name) for name in above)


@functools.cache
def accounts_above(account: str) -> tuple[str, ...] | None:
    """Return the accounts above an account, whose rights in a partition it has, too.

    Before Slurm 23.11, and without accounting, there are none. None if Slurm does not answer now.
    """
    lineages = SLURM.account_lineages(account.lower())
    if isinstance(lineages, NoAnswer):
        return None if slurm_client.refusal(lineages.why).kind is RefusalKind.FOR_NOW else ()
    return tuple(name for lineage in lineages for name in lineage.split("/") if name)


def minutes(text: str) -> float:
    """A time of Slurm's, `days-hours:minutes:seconds`, in minutes; NaN if it is no limit."""
    return pd.to_timedelta(text.replace("-", " days "), errors="coerce") / pd.Timedelta(minutes=1)


def has_accounting() -> bool:
    """Whether Slurm stores its jobs, as far as it shows: sacct reports nothing without that."""
    settings = SLURM.configuration()
    kind = "" if isinstance(settings, NoAnswer) else settings.get("AccountingStorageType", "")
    return kind != "(null)" and not kind.endswith("/none")


def problem(request: Request, partitions: Iterable[Mapping[str, str]]) -> str:
    """Why Slurm would queue the request and never start it in any of its partitions, or ""."""
    problems = [exceeded(request, each) for each in partitions_of(request, partitions)]
    return problems[0] if problems and all(problems) else ""


def stopped_partitions(request: Request, partitions: Iterable[Mapping[str, str]]) -> str:
    """Return that all partitions of a request are down and queue its jobs, or ""."""
    own = partitions_of(request, partitions)
    if not own or any(each.get("State") != "DOWN" for each in own):
        return ""
    return f"PartitionDown: {', '.join(each['PartitionName'] for each in own)}"


def partitions_of(
    request: Request, partitions: Iterable[Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Return the partitions that a request names, or the default one."""
    names = request.partition.split(",") if request.partition else []
    key, wanted = ("PartitionName", names) if names else ("Default", ["YES"])
    return [each for each in partitions if each.get(key) in wanted]


def partitions() -> list[dict[str, str]]:
    """Return the settings of all partitions, such as MaxTime → 00:30:00; none without an answer."""
    found = SLURM.partitions()
    return [] if isinstance(found, NoAnswer) else found
