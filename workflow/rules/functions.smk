"""The functions that give a rule its inputs, resources and parameters.

INPUTS   what common.smk made of the configuration
OUTPUTS  input functions, resource functions, arguments; what tables wait for: wanted.smk
"""

import json
import shlex

from tfscaling.plots.plot_registry import titles
from tfscaling.study import all_reduce_benchmark, manifest, parameters
from tfscaling.sweep import submission


def run_of(wildcards):
    """The run that a train job is for; of a benchmark, which has no repeat, the point's first."""
    path = grid.run_path({"repeat": 1, **dict(wildcards.items())})
    if path not in RUNS:
        raise WorkflowError(f"{path} is not a run of the grid in the configuration")
    return RUNS[path]


def prepared_dataset(wildcards):
    """The file that the run's ranks read."""
    return f"results/datasets/{manifest.dataset_of(CONFIG, run_of(wildcards))}.npz"


def run_arguments(wildcards):
    """Axes and parameters of a run as flags; any change of a value reruns exactly this run."""
    run = run_of(wildcards)
    values = parameters.run_parameters(CONFIG, run, manifest.dataset_of(CONFIG, run))
    return shlex.join(parameters.to_arguments(run.axes, values))


RESOURCES = platforms.resource_functions(CONFIG["platforms"], GRID.runs, run_of)


def benchmark_arguments(wildcards):
    """The same of a benchmark: a change of what cannot change an all-reduce reruns none."""
    run = run_of(wildcards)
    values = all_reduce_benchmark.parameters_of(CONFIG, run)
    return shlex.join(parameters.to_arguments(all_reduce_benchmark.axes_of(run), values))


def run_priority(wildcards):
    """Runs start in random order, repeat by repeat."""
    return PRIORITY[grid.run_path(wildcards)]


def plan_submission(wildcards):
    """How jobs leave this machine, as JSON."""
    return json.dumps(submission.describe(workflow, rules.train.rule.name), default=str)


def grid_config(wildcards):
    """What manifest.json is made from, as JSON: runs, parameters, prices, titles, target accuracy."""
    kept = {
        key: CONFIG[key] for key in ("grid", "recipes", "platforms", "seed", "all_reduce_benchmark")
    }
    target = {"target_accuracy": CONFIG["comparison"]["target_accuracy"]}
    return json.dumps({**kept, "comparison": target}, sort_keys=True)


def dataset_path(wildcards):
    """`--path FILE` if the configuration names a local copy of the dataset."""
    path = CONFIG["datasets"].get(wildcards.dataset, {}).get("path")
    return shlex.join(["--path", path]) if path else ""


def tables_folder(wildcards, output):
    """The folder that the tables of `conclude` go to."""
    return os.path.dirname(output.findings)


def unfinished_outputs():
    """The files that were to be made, or made anew, and were not; of plan and partial none."""
    # jobs that have finished are not among these
    return [Path(path) for job in workflow.dag.needrun_jobs() for path in job.output]


def remove_outdated(paths):
    """Remove those of the study, which the next sweep makes again; no runs, data or benchmarks."""
    for path in paths:
        if Path(STUDY) in path.parents:
            path.unlink(missing_ok=True)


def dataset_checksum(wildcards):
    """The checksum of the published arrays; none of a function of the user's."""
    dataset = DATASETS.get(wildcards.dataset)
    return dataset.sha256 if dataset else ""


def published_flag(wildcards, input):
    """`--published FILE` if the configuration names published results."""
    return shlex.join(["--published", input.published]) if input.published else ""
