"""The functions that the rules call: inputs, resources and parameters of runs.

INPUTS   what common.smk made of the configuration
OUTPUTS  input functions, resource functions, arguments; no other rule file has functions
"""

import json
import shlex

from tfscaling import expectations, parameters, plan, submission, yardstick
from tfscaling.plots import titles


def run_of(wildcards):
    """The run that a train job is for; of a yardstick, which has no repeat, the point's first."""
    path = grid.run_path({"repeat": 1, **dict(wildcards.items())})
    if path not in RUNS:
        raise WorkflowError(f"{path} is not a run of the grid in the configuration")
    return RUNS[path]


def prepared_dataset(wildcards):
    """The file that the run's ranks read."""
    return f"results/datasets/{expectations.dataset_of(CONFIG, run_of(wildcards))}.npz"


def run_arguments(wildcards):
    """Axes and parameters of a run as flags; any change of a value reruns exactly this run."""
    run = run_of(wildcards)
    values = parameters.run_parameters(CONFIG, run, expectations.dataset_of(CONFIG, run))
    return shlex.join(parameters.to_arguments(run.axes, values))


RESOURCES = platforms.resource_functions(CONFIG["platforms"], GRID.runs, run_of)


def yardstick_arguments(wildcards):
    """The same of a yardstick: a change of what cannot change an all-reduce reruns none."""
    run = run_of(wildcards)
    values = yardstick.parameters_of(CONFIG, run)
    return shlex.join(parameters.to_arguments(yardstick.axes_of(run), values))


def wanted_records(wildcards):
    """The records that the tables wait for; a sweep beyond the budget ends here, a plan does not."""
    if refusal := plan.refusal(CONFIG, Path("results/runs"), SOURCES):
        sys.exit(refusal)  # one line; Snakemake would show an exception with a traceback
    if not any(run.further for run in GRID.runs):
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
    wanted = (RUNS[path] for path in PRIORITY if not RUNS[path].further or path in further)
    selected = (run for run in wanted if plan.is_selected(CONFIG, run.platform))
    return [f"results/runs/{run.path}/run.json" for run in selected]


def records_before_round(wildcards):
    return records_after_round(int(wildcards.round) - 1)


def round_before(wildcards):
    number = int(wildcards.round) - 1
    return f"results/repeats/round={number}.json" if number else []


def previous_flag(wildcards, input):
    """`--previous FILE` from the second round on."""
    return shlex.join(["--previous", input.previous]) if input.previous else ""


def run_priority(wildcards):
    """Runs start in random order, repeat by repeat."""
    return PRIORITY[grid.run_path(wildcards)]


def wanted_yardsticks(wildcards):
    """The yardsticks that the tables wait for, if they are enabled."""
    wanted = yardstick.entries(CONFIG, GRID.runs, STRATEGIES)
    timed = (e for e in wanted if plan.is_selected(CONFIG, e["axes"]["platform"]))
    return [f"results/yardsticks/{e['path']}/all_reduce.json" for e in timed if not e["refusal"]]


def plan_submission(wildcards):
    """How jobs leave this machine, as JSON."""
    return json.dumps(submission.describe(workflow), default=str)


def grid_config(wildcards):
    """What grid.json is made from, as JSON: runs, parameters, prices, titles, target accuracy."""
    kept = {key: CONFIG[key] for key in ("grid", "recipes", "platforms", "seed", "yardstick")}
    target = {"target_accuracy": CONFIG["comparison"]["target_accuracy"]}
    return json.dumps({**kept, "comparison": target}, sort_keys=True)


def dataset_path(wildcards):
    """`--path FILE` if the configuration names a local copy of the dataset."""
    path = CONFIG["datasets"].get(wildcards.dataset, {}).get("path")
    return shlex.join(["--path", path]) if path else ""


def published_flag(wildcards, input):
    """`--published FILE` if the configuration names published results."""
    return shlex.join(["--published", input.published]) if input.published else ""
