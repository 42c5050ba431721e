"""The functions that give a rule its inputs, resources and parameters.

INPUTS   what common.smk made of the configuration
OUTPUTS  input functions, resource functions, arguments; what tables wait for: wanted.smk
"""

import json
import shlex

import msgspec

from tfscaling.plots.plot_registry import titles
from tfscaling.study import manifest, parameters
from tfscaling.study.run_spec import run_path
from tfscaling.sweep import submission


def run_of(wildcards):
    """The run that a train job is for; of a benchmark, which has no repeat, the point's first."""
    path = run_path({"repeat": 1, **dict(wildcards.items())})
    if path not in RUNS:
        raise WorkflowError(f"{path} is not a run of the grid in the configuration")
    return RUNS[path]


def prepared_dataset(wildcards):
    """The file that the run's ranks read."""
    return f"results/datasets/{run_of(wildcards).spec.dataset}.npz"


def run_arguments(wildcards):
    """Axes and parameters of a run as flags; any change of a value reruns exactly this run."""
    spec = run_of(wildcards).spec
    return shlex.join(parameters.to_arguments(spec.axes, spec.parameters))


RESOURCES = platforms.resource_functions(
    CONFIG.platforms,
    (run.spec.point for run in GRID.runs),
    lambda wildcards: run_of(wildcards).spec.point,
)
MANIFEST = manifest.Manifest.of(CONFIG, GRID, STRATEGIES)
BENCHMARKS = {planned.point: planned for planned in MANIFEST.all_reduce_benchmarks}


def benchmark_arguments(wildcards):
    """The same of a benchmark: a change of what cannot change an all-reduce reruns none."""
    spec = BENCHMARKS[run_of(wildcards).spec.point].spec
    return shlex.join(parameters.to_arguments(spec.axes, spec.parameters))


def run_priority(wildcards):
    """Runs start in random order, repeat by repeat."""
    return PRIORITY[run_path(wildcards)]


def plan_submission(wildcards):
    """How jobs leave this machine, as JSON."""
    return json.dumps(submission.describe(workflow, rules.train.rule.name), default=str)


def grid_config(wildcards):
    """What manifest.json is made from, as JSON: runs, parameters, prices, titles, target accuracy."""
    return msgspec.json.encode(CONFIG).decode()


def dataset_path(wildcards):
    """`--path FILE` if the configuration names a local copy of the dataset."""
    path = getattr(CONFIG.datasets.get(wildcards.dataset), "path", None)
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
