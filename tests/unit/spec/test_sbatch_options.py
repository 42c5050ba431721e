"""Further options of sbatch: those that are set elsewhere are refused with what to use instead."""

from __future__ import annotations

import pytest
from tfscaling.spec import platforms

GOOD = [
    "--dependency=singleton",
    "--dependency singleton",
    "-d singleton --nice=5 --hold",
    "--exclude=node[1-3] --switches=1@10:00",
    "--exclusive=user --threads-per-core=1 --hint=nomultithread",
    "--requeue --signal=B:TERM@60 --mail-user=$USER --mail-type=FAIL",
    "-x node1 -Hv --wait-all-nodes=1 --time-min=5",
    "--licenses='a|b' --gpu-bind=closest --ntasks-per-core=1",
]


@pytest.mark.parametrize("extra", GOOD)
def test_options_that_nothing_else_sets_pass(extra: str) -> None:
    assert platforms.extra_problem(extra) is None


BAD = {
    "--nodes=7": "grid's nodes",
    "--nodes 7": "grid's nodes",
    "-N7": "grid's nodes",
    "-N 7": "grid's nodes",
    "--nice=5 --ntasks=3": "tasks_per_node",
    "-n3": "tasks_per_node",
    "-vn3": "tasks_per_node",
    "--ntasks-per-n=3": "tasks_per_node",
    "--nod=7": "grid's nodes",
    "-c 4": "cpus_per_node",
    "--gres=gpu:2": "gpus_per_node",
    "--gpus-per-task=1": "gpus_per_node",
    "-G 2": "gpus_per_node",
    "--mem=4G": "mem_mb",
    "--mem-per-cpu=4G": "mem_mb",
    "-t 5": "runtime_min",
    "--partition=big": "partition",
    "-pbig": "partition",
    "-A me": "account",
    "--qos=high": "qos",
    "-C avx512": "constraint",
    "--reservation=day": "reservation",
    "-M other": "multi_cluster",
    "--wrap='rm x'": "executor plugin",
    "--wra=x": "executor plugin",
    "--export=NONE": "key env",
    "-J name": "executor plugin",
    "--comment=x": "executor plugin",
    "--array=1-3": "separate job",
    "--wait": "waits",
    "--test-only": "nothing would be submitted",
    "nodes=7": "nodes=7 is no option",
    "--nice=5; rm -r /": "the shell",
    "--nice=5 && true": "the shell",
    "--nice=5 > file": "the shell",
    "--nice=`x`": "the shell",
    "--nice=$(x)": "the shell",
    "--nice=5 # --hold": "the shell",
    "--licenses='a": "no closing quotation",
}


@pytest.mark.parametrize(("extra", "rule"), BAD.items(), ids=list(BAD))
def test_others_are_refused_with_what_to_use_instead(extra: str, rule: str) -> None:
    found = platforms.extra_problem(extra)
    assert found is not None
    assert rule in found


def test_what_the_executor_plugin_forbids_is_refused_here_as_well() -> None:
    """Its own check ends a sweep in the middle, job by job."""
    from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options

    for pattern in get_forbidden_slurm_options():
        for form in pattern.split("|"):
            option = form.replace(r"\s?", "").replace("[=\\s]", "=x").replace(r"\s", " x")
            if not option.startswith("--workdir"):  # no option of sbatch any more
                assert platforms.extra_problem(option) is not None, option
