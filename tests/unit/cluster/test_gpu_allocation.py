"""GPUs of a node divided among its tasks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from fake_programs import fake_nvidia_smi, listing, listing_of_slices
from tfscaling.cluster.gpu_allocation import (
    ClusterError,
    Gpu,
    NvidiaSmiError,
    allocate,
    gpu_variable,
    gpus_given,
    gpus_here,
    listed_gpus,
    visible_gpus,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        ("0,1,2", ("0", "1", "2")),
        (" 2, 3 ", ("2", "3")),
        ("0,-1,1", ("0",)),
        ("3,1,", ("3", "1")),
        ("GPU-8932f937,GPU-a1", ("GPU-8932f937", "GPU-a1")),
        ("MIG-GPU-1/1/0", ("MIG-GPU-1/1/0",)),
    ],
)
def test_visible_gpus_are_those_that_cuda_sees(
    value: str | None, expected: tuple[str, ...] | None
) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert visible_gpus(environ) == expected


def test_gpus_here_are_those_that_the_variable_lists_or_else_all(tmp_path: Path) -> None:
    two = fake_nvidia_smi(tmp_path, listing(2))
    assert gpus_here(two) == ("0", "1")
    assert gpus_here({**two, "CUDA_VISIBLE_DEVICES": "1"}) == ("1",)
    assert gpus_here({**two, "CUDA_VISIBLE_DEVICES": ""}) == ()
    assert gpus_here({"PATH": "/nonexistent"}) is None
    with pytest.raises(ClusterError, match="CUDA_VISIBLE_DEVICES is '1,1'"):
        gpus_here({**two, "CUDA_VISIBLE_DEVICES": "1,1"})


QUERIED = 'case "$1" in --query-gpu=*) ;; -L) exit 0;; *) exit 1; esac\n'


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "echo 'Tesla V100-SXM2-16GB, GPU-8932f937, 535.1'; echo 'NVIDIA L4, GPU-2, 535.1'",
            (Gpu("Tesla V100-SXM2-16GB", "GPU-8932f937", "535.1"),
             Gpu("NVIDIA L4", "GPU-2", "535.1")),
        ),
        ("true", ()),
        ("echo 'No devices were found'; exit 6", ()),
    ],
    ids=["two", "none", "no devices found"],
)  # fmt: skip
def test_gpus_are_listed(tmp_path: Path, script: str, expected: tuple[Gpu, ...]) -> None:
    assert listed_gpus(fake_nvidia_smi(tmp_path, QUERIED + script)) == expected


def test_without_the_program_nothing_is_known(tmp_path: Path) -> None:
    assert listed_gpus({"PATH": str(tmp_path)}) is None


def test_a_failure_shows_the_output(tmp_path: Path) -> None:
    environ = fake_nvidia_smi(tmp_path, "echo cannot talk to the driver >&2; exit 9")
    with pytest.raises(NvidiaSmiError, match="9: cannot talk to"):
        listed_gpus(environ)


NONE: tuple[str, ...] = ()


@pytest.mark.parametrize("on_node", [None, "all"])
def test_gpus_of_a_node_are_divided_among_its_tasks(
    on_node: str | None, dice: random.Random
) -> None:
    tasks, share, spare = dice.randint(1, 5), dice.randint(1, 4), 0
    if on_node is None:  # what cannot be divided is left
        spare = dice.randrange(tasks)
    gpus = [str(number) for number in dice.sample(range(32), tasks * share + spare)]
    environ = {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "PATH": "/nonexistent"}
    environ |= {"SLURM_GPUS_ON_NODE": str(len(gpus))} if on_node else {}
    found = [allocate(environ, n, tasks, tasks) for n in range(tasks)]
    assert found == [tuple(gpus[n * share : (n + 1) * share]) for n in range(tasks)]


@pytest.mark.parametrize(
    ("visible", "tasks", "fullest", "on_node", "expected"),
    [
        pytest.param("0,1,2,3", 2, 4, None, [("0",), ("1",)], id="as_on_the_fullest_node"),
        pytest.param("0,1", 2, 4, None, [("0",), ("1",)], id="fewer_gpus_for_fewer_tasks"),
        pytest.param(None, 2, 2, None, [None, None], id="not_set_nothing_known"),
        pytest.param("", 2, 2, None, [NONE, NONE], id="empty"),
        pytest.param("", 2, 2, "4", [NONE, NONE], id="bound_but_none_visible"),
        pytest.param("1", 2, 2, None, [("1",), ("1",)], id="fewer_than_tasks_so_bound"),
        pytest.param("0,1", 4, 4, None, [("0", "1")] * 4, id="two_for_four_tasks_so_bound"),
        pytest.param("2,3", 2, 2, "4", [("2", "3")] * 2, id="bound_two_each"),
        pytest.param("2,3", 1, 2, "4", [("2", "3")], id="bound_uneven"),
    ],
)
def test_allocate(
    visible: str | None, tasks: int, fullest: int, on_node: str | None, expected: Any
) -> None:
    """On a node that has no nvidia-smi."""
    told = {"CUDA_VISIBLE_DEVICES": visible, "SLURM_GPUS_ON_NODE": on_node, "PATH": "/nonexistent"}
    environ = {name: value for name, value in told.items() if value is not None}
    assert [allocate(environ, n, tasks, fullest) for n in range(tasks)] == expected


def test_allocate_counts_with_nvidia_smi_if_the_variable_is_not_set(tmp_path: Path) -> None:
    environ = fake_nvidia_smi(tmp_path, listing(4))
    assert allocate(environ, 1, 2, 2) == ("2", "3")


#: Slices (MIG) that a task sees, GPU by GPU → what it may use. By control groups alone, Slurm sets
#: no variable.
SLICES: dict[str, tuple[list[list[str]], tuple[str, ...]]] = {
    "two of one GPU": ([["3g.20gb", "3g.20gb"]], ("MIG-0-0", "MIG-0-1")),
    "of two GPUs": ([["1g.5gb+me"], ["2g.10gb", "1g.5gb"]], ("MIG-0-0", "MIG-1-0", "MIG-1-1")),
    "parts of a slice": ([["1c.3g.20gb", "2c.3g.20gb"]], ("MIG-0-0", "MIG-0-1")),
    "beside a whole GPU": ([[], ["7g.40gb"]], ("GPU-0", "MIG-1-0")),
    "none": ([[], []], ("0", "1")),
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_of_gpus_are_divided_among_tasks(name: str, tmp_path: Path) -> None:
    slices, expected = SLICES[name]
    environ = fake_nvidia_smi(tmp_path, listing_of_slices("NVIDIA A100-SXM4-40GB", slices))
    assert gpus_here(environ) == expected
    tasks = len(expected)
    in_step = {**environ, "SLURM_GPUS_ON_NODE": str(tasks)}
    found = [allocate(in_step, n, tasks, tasks) for n in range(tasks)]
    assert found == [(gpu,) for gpu in expected]
    names = [gpu.name.removeprefix("NVIDIA A100-SXM4-40GB") for gpu in listed_gpus(environ) or ()]
    assert names == [f" MIG {each}" if each else "" for of_gpu in slices for each in of_gpu or [""]]
    with pytest.raises(ClusterError, match=f"{tasks + 1} tasks run"):
        allocate(environ, 0, tasks + 1, tasks + 1)


@pytest.mark.parametrize("profiles", [["3g.47gb"], ["1g.12gb+me"], ["1c.3g.47gb", "1c.3g.47gb"]])
def test_a_slice_that_a_control_group_shows_to_one_task_is_its_own(
    profiles: list[str], tmp_path: Path, dice: random.Random
) -> None:
    """Each task sees only its own slices; Slurm sets no variable that lists them."""
    environ = fake_nvidia_smi(tmp_path, listing_of_slices("NVIDIA H100 NVL", [profiles]))
    tasks, own = dice.randint(2, 7), tuple(f"MIG-0-{n}" for n in range(len(profiles)))
    environ["SLURM_GPUS_ON_NODE"] = str(tasks * len(profiles))
    assert [allocate(environ, n, tasks, tasks) for n in range(tasks)] == [own] * tasks
    environ["SLURM_GPUS_ON_NODE"] = str(len(profiles))  # all tasks see the same
    with pytest.raises(ClusterError, match=f"{tasks + 1} tasks run"):
        allocate(environ, 0, tasks + 1, tasks + 1)


def test_one_task_on_the_last_node_gets_the_share_of_the_others(tmp_path: Path) -> None:
    """As with `tasks_per_node: "2+1"`: it sees all GPUs of its node, without a variable."""
    environ = fake_nvidia_smi(tmp_path, listing_of_slices("Tesla T4", [[], []]))
    environ["SLURM_GPUS_ON_NODE"] = "2"
    assert [allocate(environ, n, 2, 2) for n in range(2)] == [("0",), ("1",)]
    assert allocate(environ, 0, 1, 2) == ("0",)


#: Of a step with eight tasks on a node of LUMI: Slurm sets AMD's variable alone, for all tasks
#: (github.com/lattice/quda/pull/1356 has it from Frontier).
LUMI = {"ROCR_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "SLURM_GPUS_ON_NODE": "8"}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (LUMI, "ROCR_VISIBLE_DEVICES"),
        # HIP counts within what ROCr shows, and reads CUDA's variable where its own is not set
        (LUMI | {"HIP_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, "HIP_VISIBLE_DEVICES"),
        (LUMI | {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, "CUDA_VISIBLE_DEVICES"),
        # a part of the node: HIP counts the GPUs that ROCr shows from 0
        # (github.com/lumi-ai-factory/laifs-container-recipes/issues/13)
        (
            {"ROCR_VISIBLE_DEVICES": "0,3,4,7", "HIP_VISIBLE_DEVICES": "0,1,2,3"},
            "HIP_VISIBLE_DEVICES",
        ),
        ({"ROCR_VISIBLE_DEVICES": "0,3,4,7", "SLURM_GPUS_ON_NODE": "4"}, "ROCR_VISIBLE_DEVICES"),
        # Intel's, with tiles
        ({"ZE_AFFINITY_MASK": "0.0,0.1,1.0,1.1", "SLURM_GPUS_ON_NODE": "4"}, "ZE_AFFINITY_MASK"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-1a,GPU-2b"}, "ROCR_VISIBLE_DEVICES"),
    ],
    ids=["rocr", "hip", "cuda", "hip-part", "rocr-part", "level-zero", "uuids"],
)
def test_gpus_of_other_makers_are_divided_by_their_own_variables(
    environ: dict[str, str], name: str
) -> None:
    environ = {**environ, "PATH": "/nonexistent"}
    assert gpu_variable(environ) == name
    gpus = environ[name].split(",")
    found = [allocate(environ, n, len(gpus), len(gpus)) for n in range(len(gpus))]
    assert found == [(gpu,) for gpu in gpus]
    # as Slurm has bound it, a task keeps its GPU
    if "SLURM_GPUS_ON_NODE" in environ:
        assert allocate({**environ, name: "5"}, 3, len(gpus), len(gpus)) == ("5",)


def test_variables_of_other_makers_do_not_count_on_nodes_of_nvidia(tmp_path: Path) -> None:
    environ = {**fake_nvidia_smi(tmp_path, listing(2)), "ROCR_VISIBLE_DEVICES": "0,1,2,3"}
    assert gpu_variable(environ) == "CUDA_VISIBLE_DEVICES"
    assert allocate(environ, 1, 2, 2) == ("1",)


@pytest.mark.parametrize(
    ("binding", "visible", "tasks", "is_refused"),
    [
        ("closest", "0,1", 4, True),
        ("verbose,closest", "0,1", 2, True),
        ("closest", "0,1,2,3", 4, False),  # all GPUs of the node: they are divided
        ("closest", "0,1", 1, False),  # no other task on the node
        ("closest", "", 4, False),
        ("single:1", "0", 4, False),
    ],
)
def test_gpus_that_other_tasks_may_see_are_no_tasks_own(
    binding: str, visible: str, tasks: int, is_refused: bool
) -> None:
    environ = {"SLURM_GPU_BIND": binding, "SLURM_GPUS_ON_NODE": "4"}
    environ["CUDA_VISIBLE_DEVICES"] = visible
    if is_refused:
        with pytest.raises(ClusterError, match="SLURM_GPU_BIND .* 2 GPUs"):
            allocate(environ, 0, tasks, tasks)
    else:
        assert allocate(environ, 0, tasks, tasks) is not None


@pytest.mark.parametrize(
    ("visible", "on_node", "expected"),
    [
        ("0,1", "2", 2),
        ("1", "2", 1),
        ("", "2", 0),
        ("NoDevFiles", "2", 0),
        (None, "2", None),
        ("0,1", None, None),
        (None, None, None),
    ],
)
def test_gpus_that_slurm_gives(
    visible: str | None, on_node: str | None, expected: int | None
) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": visible, "SLURM_GPUS_ON_NODE": on_node}
    told = {name: value for name, value in environ.items() if value is not None}
    assert gpus_given(told) == expected
