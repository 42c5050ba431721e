"""Test of the jobs' requests before a sweep submits anything: `sbatch --test-only`.

Slurm queues some jobs that no node can ever run. The test refuses them, and estimates when the
others would start. sbatch accepts jobs beyond the limits of a partition, so these limits are
compared here. Jobs beyond the limits of a QOS wait; the console prints the reason.
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
from tfscaling.study.config_types import Config, Platform
from tfscaling.study.run_spec import Point
from tfscaling.tables.row_values import group_by

NO_SBATCH = (
    "this machine has no sbatch: start the sweep on a login node of the cluster, or on this "
    "machine alone with --profile profiles/local"
)
#: End of a message about runs that Slurm refuses: what to do.
ADVICE = (
    "Change the platform (partition, cpus_per_node, gpu_gres, runtime_min, account, …), or leave "
    "the configurations out (`exclude`)."
)
_MEMORY = "it would limit the memory of runs; set mem_mb or mem_mb_per_cpu of the platform"
_GPUS = "it would add GPUs to runs; set gpus_per_node of the grid and gpu_gres of the platform"
#: Variable of sbatch that changes jobs although no key requests it → what it would do.
REFUSED_VARIABLES = {
    "SBATCH_ARRAY_INX": "each run would be several jobs",
    "SBATCH_WAIT": "sbatch would end with the job, and fail if the run fails",
    "SBATCH_ERROR": "the log of a job would lack its errors",
    **dict.fromkeys(("SBATCH_MEM_PER_NODE", "SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU"), _MEMORY),
    **dict.fromkeys(("SBATCH_GRES", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE"), _GPUS),
    **dict.fromkeys(("SBATCH_GPUS_PER_SOCKET", "SBATCH_GPUS_PER_TASK"), _GPUS),
    **dict.fromkeys(("SBATCH_CPUS_PER_GPU", "SBATCH_TRES_PER_TASK"), _GPUS),
}
#: Number of requests that are tested at the same time.
_PARALLEL_REQUESTS = 4
#: Options of a submission that do not change whether and when Slurm starts it; the second constant
#: has options with a value.
_OPTIONS_WITHOUT_EFFECT = ("--parsable", "--export=ALL", "/dev/stdin")
_LEFT_OUT_PAIRS = ("--job-name", "--output", "--comment", "-D")
#: Slurm's message if the nodes of a partition are too few, too small, or out of service now.
_NOT_AVAILABLE = "Requested node configuration is not available"
#: Time limit of a call of Slurm's programs, in seconds.
TIMEOUT_S = 15.0
#: Pauses before a request is repeated that Slurm refused to answer for now, in seconds.
PAUSES_S = (5.0, 10.0)
#: Words in the states of nodes on which Slurm starts nothing now, though perhaps later. A node with
#: `*` does not respond. Idle nodes are unknown while the controller starts, which then offers no
#: node.
_OUT_OF_SERVICE = ("down", "drain", "fail", "error", "unk", "maint", "reboot", "*")

SLURM = SlurmClient(TIMEOUT_S)

_PointT = TypeVar("_PointT", bound=Point)


class SlurmRequest(NamedTuple):
    """The resources that a job requests from Slurm.

    Attributes:
        sbatch_line: The sbatch command with `--test-only`, or, if the executor plugin refuses the
            job, the reason.
        nodes: Number of nodes.
        runtime_min: Time limit in minutes.
        partition: Partition, or several separated by commas; None for the default partition.
        account: Account; None if neither the platform nor the environment names one.
        qos: Quality of service; None if neither the platform nor the environment names one.
    """

    sbatch_line: str
    nodes: int
    runtime_min: int
    #: None: the default partition; several names with commas between: any of them.
    partition: str | None
    account: str | None
    qos: str | None


class TestResult(NamedTuple):
    """Slurm's answer to a test of a request.

    Attributes:
        start: Local time at which Slurm would start the job; None if it is refused or must wait for
            an unknown time.
        refusal: Why Slurm can never start it; "" if it can.
        waits_for: Why the job would wait, such as for nodes out of service; "" if no reason is
            known.
    """

    start: datetime.datetime | None = None
    refusal: str = ""
    waits_for: str = ""


class NoSlurmError(RuntimeError):
    """This machine has no sbatch, or Slurm does not answer."""


def make_requests(
    points: Iterable[Point], config: Config, job_submission: Submission
) -> dict[Point, SlurmRequest]:
    """Return configuration → the request of its jobs; equal jobs have equal requests.

    Args:
        points: The configurations.
        config: The configuration, with the platforms.
        job_submission: How Snakemake submits jobs.
    """
    found = {}
    for point in points:
        platform = config.platforms[point.platform]
        asked = platforms.slurm_resources(platform, point.geometry)
        line = submission.sbatch_line(asked, submission.RUN, job_submission)
        said = test_only_line(line) if line.startswith("sbatch ") else line
        place = _partition_account_and_qos(platform, os.environ)
        found[point] = SlurmRequest(said, int(asked["nodes"]), platform.runtime_min, *place)
    return found


def _partition_account_and_qos(
    platform: Platform, environ: Mapping[str, str]
) -> tuple[str | None, str | None, str | None]:
    """Return where sbatch submits a platform's jobs: partition, account and QOS.

    If the platform does not name one of them, sbatch reads it from its environment.

    Args:
        platform: The platform.
        environ: The environment of sbatch.
    """
    return (
        platform.partition or environ.get("SBATCH_PARTITION") or None,
        platform.account or environ.get("SBATCH_ACCOUNT") or None,
        platform.qos or environ.get("SBATCH_QOS") or None,
    )


def test_only_line(line: str) -> str:
    """Return a job's sbatch line with `--test-only`, less options that do not affect the test."""
    words, asked = iter(shlex.split(line)[1:]), []
    for word in words:
        if word in _LEFT_OUT_PAIRS:
            next(words)
        elif word not in _OPTIONS_WITHOUT_EFFECT and not word.startswith("--wrap="):
            asked.append(word)
    return shlex.join(["sbatch", "--test-only", *asked, "--wrap=true"])


def test_requests(requests: Iterable[SlurmRequest]) -> dict[SlurmRequest, TestResult]:
    """Let Slurm test each distinct request, without starting a job; return request → result.

    Args:
        requests: The requests, at least one.

    Raises:
        NoSlurmError: If Slurm does not answer.
    """
    first, *others = dict.fromkeys(requests)
    if shutil.which("sbatch") is None:
        raise NoSlurmError(NO_SBATCH)
    if silent := controller_problem():
        raise NoSlurmError(silent)
    answers = {first: _test_request(first)}  # alone: if it gets no answer, the others will not
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        answers |= zip(others, pool.map(_test_request, others), strict=True)
    limits = read_partitions()
    for request, answer in answers.items():
        if not answer.refusal and (limit := find_limit_problem(request, limits)):
            answers[request] = TestResult(refusal=limit)
        elif answer.start and (stopped := stopped_partitions(request, limits)):
            answers[request] = TestResult(waits_for=stopped)
    return answers


def _test_request(request: SlurmRequest, sleep: Callable[[float], None] = time.sleep) -> TestResult:
    """Let Slurm test one request; retry after a pause if Slurm is temporarily not available.

    Args:
        request: The request.
        sleep: Waits for this many seconds.

    Raises:
        NoSlurmError: Slurm does not answer, also after the last pause.
    """
    if not request.sbatch_line.startswith("sbatch "):  # the plugin refuses it
        return TestResult(refusal=request.sbatch_line)
    answer = SLURM.test(shlex.split(request.sbatch_line))
    for pause_s in PAUSES_S:
        if not isinstance(answer, Refusal) or answer.kind is not RefusalKind.FOR_NOW:
            break
        sleep(pause_s)
        answer = SLURM.test(shlex.split(request.sbatch_line))
    if not isinstance(answer, Refusal):
        return TestResult(answer.start)
    if answer.kind is RefusalKind.FOR_NOW:
        raise NoSlurmError(f"Slurm does not answer: {answer.words}")
    if answer.kind is RefusalKind.QUEUE_LIMIT:
        return TestResult(waits_for=f"the site takes no more of your jobs now: {answer.words}")
    if _NOT_AVAILABLE in answer.words and (waits_for := nodes_out_of_service(request)):
        return TestResult(waits_for=waits_for)
    return TestResult(refusal=answer.words)


def variables_problem(environ: Mapping[str, str]) -> str:
    """Return which environment variables of sbatch would change what is measured; "" without any.

    Other variables of sbatch are allowed, such as a QOS; keys of the platform override them.
    """
    found = [
        f"{name}={environ[name]}: {why}"
        for name, why in REFUSED_VARIABLES.items()
        if name in environ
    ]
    title = "Your environment has options for sbatch that are not allowed; `unset` them"
    return f"{title}. {'; '.join(found)}" if found else ""


def find_slurm_refusal(points: Iterable[Point], config: Config, job_submission: Submission) -> str:
    """Return why Slurm would refuse jobs of these configurations; "" if it accepts all.

    If Slurm does not answer, the text gives the reason.

    Args:
        points: The configurations.
        config: The configuration, with the platforms.
        job_submission: How Snakemake submits jobs.
    """
    asked = make_requests(points, config, job_submission)
    try:
        answers = test_requests(asked.values()) if asked else {}
    except NoSlurmError as error:
        return str(error)
    said = ((point, answers[request].refusal) for point, request in asked.items())
    lines = []
    for line, point in group_by_message((point, words) for point, words in said if words):
        lines += [f"  {line}", f"    {asked[point].sbatch_line}"]  # to be tried by hand
    if lines and (options := submission_options(os.environ)):
        lines.append(f"  The environment adds options to each request: {', '.join(options)}")
    title = "Slurm refuses what these configurations request:"
    return "\n".join([title, *lines, ADVICE]) if lines else ""


def group_by_message(messages: Iterable[tuple[_PointT, str]]) -> list[tuple[str, _PointT]]:
    """Group configurations by platform and Slurm's message.

    Args:
        messages: Pairs of a configuration and Slurm's message about it.

    Returns:
        Pairs of a text, `platform, nodes 1, 2: message`, and the first of its configurations.
    """
    found = []
    for (platform, words), own in group_by(
        messages, lambda both: (both[0].platform, both[1])
    ).items():
        points = [point for point, _ in own]
        found.append((f"{platform}, {_describe_sizes(points)}: {words}", points[0]))
    return found


def add_test_results(
    rows: Iterable[PlanRow], config: Config, job_submission: Submission
) -> list[PlanRow]:
    """Return the rows with the expected start of a run, or why Slurm refuses it or lets it wait.

    Args:
        rows: The rows.
        config: The configuration, with the platforms.
        job_submission: How Snakemake submits jobs.

    Raises:
        NoSlurmError: Slurm does not answer.
    """
    rows, now = list(rows), datetime.datetime.now()
    asked = make_requests((row.point for row in rows if row.runs), config, job_submission)
    answers = test_requests(asked.values()) if asked else {}
    return [
        add_test_result(row, answers[asked[row.point]], now) if row.runs else row for row in rows
    ]


def add_test_result(row: PlanRow, answer: TestResult, now: datetime.datetime) -> PlanRow:
    """Return a row with the expected start of its runs, or why they are refused or must wait.

    Args:
        row: The row.
        answer: Slurm's answer.
        now: The local time of the answer.
    """
    if answer.refusal:
        return replace(row, starts=REFUSED, slurm=answer.refusal)
    if answer.waits_for:
        return replace(row, starts="waits", slurm=answer.waits_for)
    return replace(row, starts=start_text(answer.start, now)) if answer.start else row


def _describe_sizes(points: Iterable[Point]) -> str:
    """Return sizes of configurations in words, such as `nodes 2, 4 with gpus_per_node 1`."""
    texts = []
    alike = group_by(points, lambda point: (point.gpus_per_node, str(point.tasks_per_node)))
    for (gpus, tasks), own in alike.items():
        text = f"nodes {', '.join(dict.fromkeys(str(point.nodes) for point in own))}"
        text += f" with gpus_per_node {gpus}" if gpus else ""
        texts.append(text + (f" and tasks_per_node {tasks}" if tasks != "1" else ""))
    return "; ".join(texts)


def start_text(start: datetime.datetime, now: datetime.datetime) -> str:
    """Return a start as `at once` or local time, with the day unless it is today."""
    if start - now < datetime.timedelta(minutes=1):
        return "at once"
    return f"at {start:%H:%M}" if start.date() == now.date() else f"at {start:%Y-%m-%d %H:%M}"


@functools.cache
def controller_problem() -> str:
    """Return a message if Slurm's controller does not answer a ping; "" if it does.

    The controller is only queried once: later calls return the first result.
    """
    answer = SLURM.ping()
    return "" if answer is None else f"Slurm does not answer: {answer.why}"


def nodes_out_of_service(request: SlurmRequest) -> str:
    """Return how many nodes of a request's partition are out of service, and some of their names.

    Example: `2 of 8 nodes are out of service: n1, n2`. The text is empty if all are in service or
    Slurm does not answer.
    """
    states = SLURM.nodes(request.partition)
    if isinstance(states, NoAnswer):
        return ""
    out = [n for n, state in states.items() if any(w in state.lower() for w in _OUT_OF_SERVICE)]
    shown = ", ".join(out[:3]) + (", …" if len(out) > 3 else "")
    return f"{len(out)} of {len(states)} nodes are out of service: {shown}" if out else ""


def exceeded_limit(request: SlurmRequest, partition: Mapping[str, str]) -> str:
    """Return the limit of a partition that a request exceeds, as a message; "" if none.

    The message begins with Slurm's name of the reason, such as `PartitionNodeLimit`. With
    `EnforcePartLimits=NO`, Slurm's default, sbatch accepts such a job, which then waits for ever. A
    QOS may replace the limits for time and nodes, so these are not checked for a job with a QOS.

    Args:
        request: The request.
        partition: Setting → value, as from scontrol.
    """
    at = f"partition {partition.get('PartitionName', '')} has"
    max_time, *nodes = (partition.get(key, "") for key in ("MaxTime", "MinNodes", "MaxNodes"))
    min_nodes, max_nodes = (int(text) if text.isdecimal() else None for text in nodes)
    if not request.qos and request.runtime_min > parse_minutes(max_time):
        return f"PartitionTimeLimit: {at} MaxTime={max_time}, runtime_min is {request.runtime_min}"
    if not request.qos and max_nodes is not None and request.nodes > max_nodes:
        return f"PartitionNodeLimit: {at} MaxNodes={max_nodes}"
    if not request.qos and min_nodes is not None and request.nodes < min_nodes:
        return f"PartitionNodeLimit: {at} MinNodes={min_nodes}"
    accounts = (request.account or "").replace(",", " ").split()
    account = accounts[0] if accounts else ""
    for key, reason, name, is_listed in (
        ("Accounts", "AccountNotAllowed", account, _list_has_account),
        ("Qos", "QosNotAllowed", request.qos or "", _list_has_name),
    ):
        allowed, denied = (partition.get(f"{verb}{key}", "") for verb in ("Allow", "Deny"))
        is_limited = allowed not in ("", "ALL")  # Slurm then ignores what is denied
        if name and is_limited and is_listed(allowed, name) is False:
            return f"{reason}: {at} Allow{key}={allowed}"
        if name and not is_limited and is_listed(denied, name):
            return f"{reason}: {at} Deny{key}={denied}"
    return ""


def _list_has_name(listed: str, name: str) -> bool:
    """Return whether a comma-separated list, such as AllowQos, has a name; case is ignored."""
    return name.lower() in listed.lower().split(",")


def _list_has_account(listed: str, account: str) -> bool | None:
    """Return whether a comma-separated list, such as AllowAccounts, has an account.

    Since Slurm 23.11 it is enough that the list has a parent of the account.

    Returns:
        None if the list lacks the account and Slurm is temporarily not available.
    """
    if not listed or _list_has_name(listed, account):
        return bool(listed)
    above = account_with_parents(account)
    return None if above is None else any(_list_has_name(listed, name) for name in above)


@functools.cache
def account_with_parents(account: str) -> tuple[str, ...] | None:
    """Return the account and its parents: access of a parent to a partition holds for the account.

    The result is empty before Slurm 23.11 and without accounting. It is None if Slurm is
    temporarily not available.
    """
    lineages = SLURM.account_lineages(account.lower())
    if isinstance(lineages, NoAnswer):
        return (
            None if slurm_client.classify_refusal(lineages.why).kind is RefusalKind.FOR_NOW else ()
        )
    return tuple(name for lineage in lineages for name in lineage.split("/") if name)


def parse_minutes(text: str) -> float:
    """Convert Slurm's `days-hours:minutes:seconds` to minutes; NaN for no limit."""
    return pd.to_timedelta(text.replace("-", " days "), errors="coerce") / pd.Timedelta(minutes=1)


def has_accounting() -> bool:
    """Return whether Slurm's settings name a storage of finished jobs; True if they are unknown."""
    settings = SLURM.configuration()
    kind = "" if isinstance(settings, NoAnswer) else settings.get("AccountingStorageType", "")
    return kind != "(null)" and not kind.endswith("/none")


def find_limit_problem(request: SlurmRequest, partitions: Iterable[Mapping[str, str]]) -> str:
    """Return why no partition of a request would ever start it; "" if one may.

    Args:
        request: The request.
        partitions: The settings of all partitions.
    """
    problems = [exceeded_limit(request, each) for each in select_partitions(request, partitions)]
    return problems[0] if problems and all(problems) else ""


def stopped_partitions(request: SlurmRequest, partitions: Iterable[Mapping[str, str]]) -> str:
    """Return a message if all partitions of a request are down, so that the job waits; else ""."""
    own = select_partitions(request, partitions)
    if not own or any(each.get("State") != "DOWN" for each in own):
        return ""
    return f"PartitionDown: {', '.join(each['PartitionName'] for each in own)}"


def select_partitions(
    request: SlurmRequest, partitions: Iterable[Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Return the settings of the partitions that a request names, or of the default one."""
    names = request.partition.split(",") if request.partition else []
    key, wanted = ("PartitionName", names) if names else ("Default", ["YES"])
    return [each for each in partitions if each.get(key) in wanted]


def read_partitions() -> list[dict[str, str]]:
    """Return the settings of all partitions, such as MaxTime: 00:30:00; [] without an answer."""
    found = SLURM.partitions()
    return [] if isinstance(found, NoAnswer) else found
