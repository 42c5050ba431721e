"""The records that the tables wait for: those of all runs, of further repeats, of benchmarks.

INPUTS   what common.smk made of the configuration; the rounds of repeats.smk
OUTPUTS  input functions
"""

import json
import shlex

from tfscaling.sweep import costed_plan


def wanted_records(wildcards):
    """The records that the tables wait for; a sweep beyond budget or data ends here, a plan not."""
    refusal = costed_plan.refusal(CONFIG, Path(ROOT, "runs"), SOURCES)
    refusal = refusal or costed_plan.batch_problem(
        CONFIG, GRID.runs, Path(ROOT, "datasets"), SOURCES
    )
    if refusal:
        sys.exit(refusal)  # one line; Snakemake would show an exception with a traceback
    if not any(run.extra_repeat for run in GRID.runs):
        return records_after_round(0)
    number = 1
    while further_runs(number)["added"]:
        number += 1
    return records_after_round(number)


def further_runs(number):
    """What round `number` asks for; Snakemake makes the rounds that are not there yet."""
    return json.loads(Path(checkpoints.assess_repeats.get(round=number).output.wanted).read_text())


def records_after_round(number):
    """The records of all runs that every point has, and of those that rounds up to this one add.

    They come in the order in which the runs are to start.
    """
    further = set(further_runs(number)["runs"]) if number else set()
    wanted = (RUNS[path] for path in PRIORITY if not RUNS[path].extra_repeat or path in further)
    selected = (run for run in wanted if CONFIG.is_selected(run.spec.point.platform))
    return [f"results/runs/{run.spec.path}/run.json" for run in selected]


def records_before_round(wildcards):
    return records_after_round(int(wildcards.round) - 1)


def round_before(wildcards):
    number = int(wildcards.round) - 1
    return f"{RESULTS}/repeats/round={number}.json" if number else []


def previous_flag(wildcards, input):
    """`--previous FILE` from the second round on."""
    return shlex.join(["--previous", input.previous]) if input.previous else ""


def benchmark_records(wildcards):
    """The benchmarks that the tables wait for, if they are enabled."""
    timed = (planned.point for planned in BENCHMARKS.values() if planned.spec)
    selected = (point for point in timed if CONFIG.is_selected(point.platform))
    return [f"results/all_reduce/{point.path}/all_reduce.json" for point in selected]
