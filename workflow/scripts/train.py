#!/usr/bin/env python3
"""Run one training run: start its ranks, watch them, check what they got, write the record.

INPUTS   request.json next to the record, or the run's specification (--spec); the prepared dataset
         (--dataset-file; none for a program that has its own data)
OUTPUTS  run.json (--record), steps.csv and events.jsonl next to it; attempt=<n>/ with the ranks'
         logs, and more if it did not finish; after a failure failure.json with the cause, and no
         run.json; a run that ran out of memory has a run.json that says so
"""

import argparse
from pathlib import Path

from msgspec.structs import replace
from tfscaling.files import program_errors
from tfscaling.launch import attempt as launching
from tfscaling.launch import (
    checkpoint_folder,
    failures,
    provenance,
    rank_files,
    rank_messages,
    slurm_job,
)
from tfscaling.launch.attempt import Attempt
from tfscaling.record import (
    attempts,
    checks,
    clock,
    events,
    prepared_data,
    run_record,
    run_results,
    run_times,
)
from tfscaling.record.attempts import Cause
from tfscaling.record.run_record import DoesNotFit, PreparedData, RunRecord
from tfscaling.study import run_spec, user_code
from tfscaling.study.run_spec import RunRequest, RunSpec

LAUNCH_S = clock.now()
SCRIPTS = Path(__file__).resolve().parent


def main() -> None:
    """Make the next attempt at a run; exit with an error if it fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    run_spec.add_spec_option(parser, required=False)
    what = "fail after this long without a sign of life"
    parser.add_argument("--stall-timeout-s", type=float, default=600.0, help=what)
    what = "a shared file system may show the ranks' files this much later"
    wait_s = rank_messages.LATENCY_WAIT_S
    parser.add_argument("--latency-wait-s", type=float, default=wait_s, help=what)
    what = "file of prepare_dataset; none for a program that has its own data"
    parser.add_argument("--dataset-file", type=Path, nargs="?", help=what)
    parser.add_argument("--record", type=Path, required=True, help="the run.json to write")
    args = parser.parse_args()
    folder: Path = args.record.parent
    try:
        request = RunRequest(spec=args.spec) if args.spec else run_spec.read_request(folder)
    except run_spec.SpecError as error:
        parser.error(f"--record: {error}; start snakemake again, which writes it")
    spec = request.spec
    if args.dataset_file is None and spec.dataset is not None:
        parser.error("--dataset-file: missing")

    def work(attempt: Attempt) -> Cause | None:
        code = user_code.code_of_run(spec).checksums()
        data, arguments = None, []
        if args.dataset_file is not None:
            data = prepared_data.describe_data(args.dataset_file, spec.recipe)
            arguments = ["--dataset-file", str(args.dataset_file)]
        if spec.recipe.writes_checkpoints or spec.recipe.program:
            made_of = {**code, "data": data.sha256 if data else ""}
            checkpoint_folder.write_beginning(attempt.folder, attempt.number, spec, made_of)
        waits_s = args.stall_timeout_s, args.latency_wait_s
        cause = attempt.run_ranks(SCRIPTS / "run_rank.py", arguments, spec, *waits_s)
        cause = cause or check_and_write_record(args.record, spec, attempt, data, code)
        if cause is not None and cause.kind == "out_of_memory":
            write_out_of_memory_record(args.record, spec, attempt, data, code, cause)
            cause = None
        if cause is None or cause.kind == "invalid":
            attempts.remove_checkpoints(attempt.folder)
        return cause

    launching.run_next_attempt(args.record, request, work, args.dataset_file)


def check_and_write_record(
    path: Path,
    spec: RunSpec,
    attempt: Attempt,
    data: PreparedData | None,
    code: dict[str, str],
) -> Cause | None:
    """Check the ranks' reports and events, and write the record if they are valid.

    A run that diverged has a record, too.

    Args:
        path: The run.json to write.
        spec: The run.
        attempt: The attempt whose ranks have ended.
        data: The prepared data that the ranks had to read; None for a program that has its own.
        code: File of user code → its checksum before the ranks started.

    Returns:
        Why the run is invalid and has no record; None if the record was written.
    """
    reports = rank_files.read_reports(attempt.scratch)
    problems = checks.find_problems(spec, data, reports)
    # a run that diverged is a result: it has a record, and is not tried again
    divergence = problems.pop(checks.FINITE, "")
    if problems:
        return Cause(kind="invalid", message="; ".join(problems.values()))
    passed = [
        name
        for name in checks.required_check_names(spec)
        if not divergence or name != checks.FINITE
    ]
    seen = events.read_events_by_rank(attempt.scratch)
    rank_events = [seen[report.rank] for report in reports]
    if missing := run_times.find_missing_events(rank_events, reports):
        return Cause(kind="invalid", message="; ".join(missing))
    changed = user_code.describe_differences(code, user_code.code_of_run(spec).checksums())
    unchecked = (
        *checks.list_unchecked(spec, reports),
        *(f"which code the ranks loaded: {name} was changed during the run" for name in changed),
    )
    if data and not spec.recipe.program:
        data = run_results.fill_example_counts(data, reports)
    environment = provenance.describe_environment(
        SCRIPTS, LAUNCH_S, code, data, unchecked, spec.measured.container
    )
    if spec.measured.launcher != "local" and (
        wrong_nodes := slurm_job.allocation_problem(environment.slurm_job, spec.geometry.nodes)
    ):
        return Cause(kind="invalid", message=wrong_nodes)
    merged = sorted((line for lines in rank_events for line in lines), key=lambda e: e.time_s)
    # next to the reports: files of an earlier record stay as long as that record
    events.write_events(attempt.scratch / run_record.EVENTS, merged)
    run_results.write_steps(attempt.scratch, reports)
    # the wall time ends here: what is left is to check the record and to write it
    end_s = clock.now()
    timed = run_times.select_synchronised_ranks(rank_events, reports)
    durations = run_times.compute_phases(*timed, LAUNCH_S, end_s, environment.slurm_job)
    if wrong := run_times.find_impossible_durations(durations, rank_events, reports):
        return Cause(kind="invalid", message="; ".join(wrong))
    record = run_results.build_record(
        spec, attempt.number, reports, durations, environment, passed, divergence
    )
    record = replace(record, metrics=run_times.add_end_times(record.metrics, *timed))
    record = attempts.add_resumption(record, attempt.folder, reports)
    run_record.write_record(attempt.scratch / attempts.RECORD, record)
    launching.publish_record(attempt.scratch, path)
    print(_describe_result(record))
    return None


def _describe_result(record: RunRecord) -> str:
    """Return one line for the log: time and quality of the run, or why medians exclude it."""
    if not record.is_valid:
        return f"{record.validity.reason}: the run is excluded from all medians"
    learned = {
        name: getattr(record.metrics, name) for name in ("loss", "accuracy", "test_accuracy")
    }
    found = [f"execution_time_s {record.phases.execution_time_s:.3f}"]
    found += [f"{name} {value:.4f}" for name, value in learned.items() if value is not None]
    return f"done: {', '.join(found)}"


def write_out_of_memory_record(
    path: Path,
    spec: RunSpec,
    attempt: Attempt,
    data: PreparedData | None,
    code: dict[str, str],
    cause: Cause,
) -> None:
    """Write the record of a run that ran out of memory, with the status does_not_fit.

    This is a result: later sweeps do not repeat the run.

    Args:
        path: The run.json to write.
        spec: The run.
        attempt: The attempt that ran out of memory.
        data: The prepared data that the ranks had to read; None for a program that has its own.
        code: File of user code → its checksum before the ranks started.
        cause: The failure, with its message.
    """
    environment = provenance.describe_environment(
        SCRIPTS, LAUNCH_S, code, data, (), spec.measured.container
    )
    is_local = spec.measured.launcher == "local"
    memory = failures.memory_use(cause, attempt.scratch, environment.slurm_job, is_local)
    wall_time_s = clock.now() - LAUNCH_S
    record = DoesNotFit.from_spec(
        spec, attempt.number, cause.sentence, environment, wall_time_s=wall_time_s, **memory
    )
    run_record.write_json(attempt.scratch / attempts.RECORD, record)
    launching.publish_record(attempt.scratch, path, ())
    print(f"does not fit in memory: {cause.sentence}")


if __name__ == "__main__":
    program_errors.exit_on_input_error(main)
