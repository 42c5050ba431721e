"""Run records: built from what the ranks left, checked, written at once."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastjsonschema

from tfscaling.files import atomic, strict_json
from tfscaling.records.events import PHASES, times
from tfscaling.study.configuration import load_schema, validator

SCHEMA_VERSION = 3
#: Status of a run by its record: it counts, or it is a result that takes part in no median.
OK, DIVERGED = "ok", "diverged"
RECORD, FAILURE, STEPS, EVENTS = "run.json", "failure.json", "steps.csv", "events.jsonl"
COMPUTE_STEPS = "compute_steps.csv"
#: The phases that sum to the wall time of a run.
WALL_PHASES = (
    *("launch_time_s", "import_time_s", "rendezvous_time_s", "data_time_s", "build_time_s"),
    *("first_step_time_s", "train_time_s", "evaluation_time_s", "probe_time_s"),
    "teardown_time_s",
)
#: Events' times are rounded to a millionth of a second.
CLOCK_TOLERANCE_S = 1e-3
#: What a rank reports step by step or epoch by epoch stands in files of its own.
_RAW = ("steps", "epochs", "compute_steps", "warnings")


class RecordError(ValueError):
    """A file is no run record of this version."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write the whole file or nothing: readers never see half of it.

    Raises ValueError if a number is NaN or infinite: that is no JSON.
    """
    atomic.write_text(path, strict_json.dumps(content, indent=1, default=str) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file, or None if there is none. Raises RecordError if it is broken."""
    try:
        content = strict_json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except strict_json.NotFiniteError as error:
        raise RecordError(
            f"{path}: not JSON: {error}; records made before schema_version 3 have it where a run "
            "diverged: run it again (docs/records.md)"
        ) from error
    except ValueError as error:
        raise RecordError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path}: not a JSON object")
    return content


@functools.cache
def follows_schema(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The compiled check of this schema: tables of thousands of runs are made in seconds."""
    schema = {key: value for key, value in load_schema(name).items() if key != "$schema"}
    check: Callable[[Mapping[str, Any]], Any] = fastjsonschema.compile(schema)
    return check


def read(path: Path) -> dict[str, Any] | None:
    """A run record that follows the schema, or None if there is no file. Raises RecordError."""
    record = read_json(path)
    if record is not None:
        check(record, path)
    return record


def is_valid(record: Mapping[str, Any]) -> bool:
    """Whether the run of a record that was read counts; else it diverged."""
    return bool(record["validity"]["valid"])


def check(record: Mapping[str, Any], where: object, schema: str = "run_record") -> None:
    """Raise RecordError, with the key, if `record` does not follow the schema."""
    try:
        follows_schema(schema)(record)
        return
    except fastjsonschema.JsonSchemaValueException:
        pass  # said below in the words of the other checks
    version = record.get("schema_version")
    known = load_schema(schema)["properties"]["schema_version"]["const"]
    if isinstance(version, int) and version != known:
        age = "an earlier" if version < known else "a later"
        raise RecordError(
            f"{where}: schema_version {version}, where {known} is read: made by {age} version of "
            "this workflow; run it again, or tabulate it with that version (docs/records.md)"
        )
    for error in validator(schema).iter_errors(record):
        key = ".".join(map(str, error.absolute_path)) or "the whole file"
        raise RecordError(f"{where}: {key}: {error.message}")


def phases(
    rank_events: Sequence[Sequence[Mapping[str, Any]]],
    launch_s: float,
    end_s: float,
    slurm_job: Mapping[str, Any] | None,
) -> dict[str, float | None]:
    """Durations in seconds from the events of all ranks, by the launcher's clock.

    A boundary between two phases is when the last rank passes it, so the phases follow one another
    without gap and their sum from launch to teardown is the wall time; evaluations between epochs
    belong to `evaluation_time_s` and not to the training. `launch_s` is when the
    launcher began, `end_s` when all but the record was checked and written.
    """
    passed = [times(dict(event) for event in events) for events in rank_events]
    last = {name: max(p[name] for p in passed if name in p) for name in passed[0]}
    first_line = min(p["start"] for p in passed)
    job = slurm_job or {}
    # evaluations between epochs, with the same boundaries: from the last rank's end of the epoch
    trained_s, evaluated_s = (_last_by_epoch(rank_events, e) for e in ("epoch", "epoch_evaluated"))
    between_s = sum(evaluated_s[epoch] - trained_s[epoch] for epoch in evaluated_s)
    return {
        "queue_time_s": job.get("queue_time_s"),
        "boot_time_s": job.get("boot_time_s"),
        "launch_time_s": last["start"] - launch_s,
        "import_time_s": last["imported"] - last["start"],
        "rendezvous_time_s": last["rendezvous"] - last["imported"],
        "data_time_s": last["data"] - last["rendezvous"],
        "build_time_s": last["built"] - last["data"],
        "first_step_time_s": last["first_step"] - last["built"],
        "train_time_s": last["trained"] - last["first_step"] - between_s,
        "evaluation_time_s": last["evaluated"] - last["trained"] + between_s,
        "probe_time_s": last["probed"] - last["evaluated"],
        "teardown_time_s": end_s - last["probed"],
        "execution_time_s": last["trained"] - first_line - between_s,
    }


def _last_by_epoch(
    rank_events: Sequence[Sequence[Mapping[str, Any]]], name: str
) -> dict[int, float]:
    """Epoch → when the last rank passed the event `name` of that epoch."""
    last: dict[int, float] = {}
    for events in rank_events:
        for event in events:
            if event["event"] == name:
                last[event["epoch"]] = max(last.get(event["epoch"], -math.inf), event["time_s"])
    return last


def missing_phases(
    rank_events: Sequence[Sequence[Mapping[str, Any]]], reports: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Ranks that trained, but whose events do not have all phases; both in the order of ranks."""
    found = []
    for events, report in zip(rank_events, reports, strict=True):
        wanted = PHASES if "epochs" in report else PHASES[:3]
        if lost := [name for name in wanted if name not in times(dict(e) for e in events)]:
            found.append(f"rank {report['rank']} has no event {', '.join(lost)}")
    return found


def impossible(
    durations: Mapping[str, float | None],
    rank_events: Sequence[Sequence[Mapping[str, Any]]],
    reports: Sequence[Mapping[str, Any]],
) -> list[str]:
    """What cannot be of these durations: a clock was wrong, or files are of different runs."""
    wrong = [
        f"{name} is {value:.6f} s"
        for name in (*WALL_PHASES, "execution_time_s")
        if not 0.0 <= (value := durations[name] or 0.0) < math.inf
    ]
    for events, report in zip(rank_events, reports, strict=True):
        stepping_s = sum(duration for *_, duration in report.get("steps", []))
        if not stepping_s:
            continue
        passed = times(dict(event) for event in events)
        spans = {
            "execution_time_s": durations["execution_time_s"] or 0.0,
            "from built to trained": passed["trained"] - passed["built"],
        }
        wrong += [
            f"rank {report['rank']} measured steps of {stepping_s:.3f} s in all, "
            f"more than {name}, {span_s:.3f} s"
            for name, span_s in spans.items()
            if stepping_s > span_s + CLOCK_TOLERANCE_S
        ]
    return wrong


def computation(reports: Sequence[Mapping[str, Any]], step_time_s: float | None) -> dict[str, Any]:
    """A step's computation and the rest of it, and the slowest rank, from the ranks' own steps.

    `compute_time_s` is that of the median rank; the rest of a step is `synchronisation_time_s`:
    communication, waiting for slower ranks, the update. `straggler_ratio` is the slowest rank's
    computation over the median rank's.
    """
    medians = {
        (report["rank"], report["host"]): statistics.median(report["compute_steps"])
        for report in reports
        if report.get("compute_steps")
    }
    if not medians:
        names = ("compute_time_s", "synchronisation_time_s", "straggler_ratio")
        return {**dict.fromkeys(names), "slowest_rank": None, "slowest_host": None}
    middle, slowest = statistics.median(medians.values()), max(medians, key=lambda k: medians[k])
    return {
        "compute_time_s": middle,
        # both are medians of their own samples: the rest can come out a little below nothing
        "synchronisation_time_s": None if step_time_s is None else max(0.0, step_time_s - middle),
        "straggler_ratio": medians[slowest] / middle if middle else None,
        "slowest_rank": slowest[0],
        "slowest_host": slowest[1],
    }


def metrics(report: Mapping[str, Any], train_time_s: float) -> dict[str, Any]:
    """Metrics of a run from the report of rank 0, the chief; rates are totals over total time."""
    steps = report["steps"]
    # the first execution compiles; if it was the only one, there is no steady state to report
    per_step = [duration / count for _, _, count, duration in steps[1:]]
    # an epoch's last step may be padded: no more examples than the epoch has
    of_epoch = report["examples_trained"] / len(report["epochs"])
    first = min(steps[0][2] * report["examples_per_step"], of_epoch)
    trained = report["examples_trained"] - first if per_step else 0
    final = report["epochs"][-1]
    return {
        "loss": final["loss"],
        "accuracy": final["accuracy"],
        "test_loss": report["test_loss"],
        "test_accuracy": report["test_accuracy"],
        "step_time_s": statistics.median(per_step) if per_step else None,
        "throughput_examples_per_s": trained / train_time_s if trained and train_time_s else None,
        "examples_trained": report["examples_trained"],
        "epochs": report["epochs"],
    }


def build(
    axes: Mapping[str, Any],
    derived: Mapping[str, Any],
    parameters: Mapping[str, Any],
    parameters_hash: str,
    attempt: int,
    reports: Sequence[Mapping[str, Any]],
    durations: Mapping[str, float | None],
    environment: Mapping[str, Any],
    checks: Sequence[str],
    divergence: str = "",
) -> dict[str, Any]:
    """The record of a run that passed `checks`, validated against its schema.

    `divergence` says how the training diverged: such a run is a result, but counts in no median.
    """
    chief = reports[0]
    measured = metrics(chief, durations["train_time_s"] or 0.0)
    steps_per_epoch = sum(count for epoch, _, count, _ in chief["steps"] if epoch == 1)
    record = {
        "schema_version": SCHEMA_VERSION,
        "trainer_version": parameters["trainer_version"],
        "axes": dict(axes),
        "derived": {**derived, "steps_per_epoch": steps_per_epoch},
        "parameters": dict(parameters),
        "parameters_hash": parameters_hash,
        "attempt": attempt,
        "phases": dict(durations),
        "metrics": {**measured, **computation(reports, measured["step_time_s"])},
        "ranks": [
            {key: value for key, value in report.items() if key not in _RAW} for report in reports
        ],
        "environment": dict(environment),
        "warnings": warnings(reports),
        "validity": {
            "valid": not divergence,
            "status": DIVERGED if divergence else OK,
            "reason": divergence,
            "checks": list(checks),
        },
    }
    check(record, RECORD)
    return record


def warnings(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the ranks warn of, each sentence once, in the order of the ranks."""
    return list(dict.fromkeys(w for report in reports for w in report.get("warnings", [])))


def write_steps(folder: Path, reports: Sequence[Mapping[str, Any]]) -> None:
    """Raw step times of every rank as CSV, of the training and of computation alone."""
    steps = [
        f"{report['rank']},{epoch},{first},{count},{duration:.6f}"
        for report in reports
        for epoch, first, count, duration in report.get("steps", [])
    ]
    write_lines(folder / STEPS, ["rank,epoch,first_step,steps,duration_s", *steps])
    compute = [
        f"{report['rank']},{number},{duration:.6f}"
        for report in reports
        for number, duration in enumerate(report.get("compute_steps", []), 1)
    ]
    write_lines(folder / COMPUTE_STEPS, ["rank,step,duration_s", *compute])


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write the whole text file or nothing."""
    atomic.write_text(path, "\n".join(lines) + "\n")
