"""Further options of sbatch: those that are set elsewhere are refused."""

from __future__ import annotations

import pytest
from tfscaling.study import platforms

GOOD = [
    "--dependency=singleton",
    "--dependency singleton",
    "-d singleton --nice=5 --hold",
    "--exclude=node[1-3] --core-spec=1",
    "--exclusive=user --threads-per-core=1 --hint=nomultithread",
    "--requeue --signal=B:TERM@60 --mail-user=$USER --mail-type=FAIL",
    "-x node1 -Hv --wait-all-nodes=1 --time-min=5",
    "--licenses='a|b' --gpu-bind=closest --ntasks-per-core=1",
]


@pytest.mark.parametrize("extra", GOOD)
def test_options_that_nothing_else_sets_pass(extra: str) -> None:
    assert platforms.extra_options_problem(extra) is None


MANAGED = [
    *("--nodes=7", "--nodes 7", "-N7", "-N 7", "--nice=5 --ntasks=3", "-n3", "-vn3", "-c 4"),
    *("--ntasks-per-n=3", "--nod=7", "--gres=gpu:2", "--gpus-per-task=1", "-G 2", "--mem=4G"),
    *("--mem-per-cpu=4G", "-t 5", "--partition=big", "-pbig", "-A me", "--qos=high", "-C avx512"),
    *("--reservation=day", "-M other", "--wrap='rm x'", "--wra=x", "--export=NONE", "-J name"),
    *("--comment=x", "--array=1-3", "--wait", "--test-only"),
]
NO_OPTIONS = [
    *("nodes=7", "--nice=5; rm -r /", "--nice=5 && true", "--nice=5 > file", "--nice=`x`"),
    *("--nice=$(x)", "--nice=5 # --hold", "--licenses='a"),
]


@pytest.mark.parametrize("extra", [*MANAGED, *NO_OPTIONS])
def test_others_are_refused(extra: str) -> None:
    found = platforms.extra_options_problem(extra)
    assert found is not None
    assert ("does not set" in found) == (extra in MANAGED)


@pytest.mark.parametrize(("key", "option"), platforms.SBATCH_OPTIONS.items())
def test_an_option_that_a_key_sets_is_refused_with_the_key(key: str, option: str) -> None:
    found = platforms.extra_options_problem(f"--nice=5 --{option}=x")
    assert found is not None and f"use the key `{key}`" in found


def test_what_the_executor_plugin_forbids_is_refused_here_as_well() -> None:
    """Its own check ends a sweep in the middle, job by job."""
    from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options

    for pattern in get_forbidden_slurm_options():
        for form in pattern.split("|"):
            option = form.replace(r"\s?", "").replace("[=\\s]", "=x").replace(r"\s", " x")
            if not option.startswith("--workdir"):  # no option of sbatch any more
                assert platforms.extra_options_problem(option) is not None, option
