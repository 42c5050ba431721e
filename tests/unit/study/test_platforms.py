"""What is asked of Slurm for each geometry, and prices that mean something."""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest
from builders import SCRIPTS, manifest_of, raw_config, refused, valid_config
from tfscaling.study import config_validation, platforms
from tfscaling.study.config_types import Config, Platform
from tfscaling.study.geometry import Geometry


def platform(**settings: Any) -> Platform:
    name = "laptop" if settings.get("launcher") == "local" else "cluster"
    changes = [(("platforms", name, key), value) for key, value in settings.items()]
    return valid_config(*changes).platforms[name]


def resources(geometry: Geometry, **settings: Any) -> dict[str, Any]:
    return platforms.slurm_resources(platform(**settings), geometry)


ALWAYS = {
    **{"mpi": "", "runtime": 60, "stall_timeout_s": 600, "latency_wait_s": 60, "gres": ""},
    # nothing of Snakemake's --default-resources gets through
    **dict.fromkeys(("gpu", "tasks_per_gpu", "mem_mb", "mem_mb_per_cpu", "disk_mb"), 0),
}
#: nodes, tasks and CPUs of each, tasks of a node as an option
GEOMETRIES: list[tuple[Geometry, tuple[int, int, int], int, dict[str, Any]]] = [
    (Geometry(1, 1, 0), (1, 1, 8), 1, {}),
    (Geometry(6, 1, 0), (6, 6, 8), 1, {}),
    (Geometry(2, 3, 0), (2, 6, 2), 3, {}),
    (Geometry(3, "2+2+1", 0), (3, 5, 4), 2, {}),
    (Geometry(3, 2, 4), (3, 6, 4), 2, {"gres": "gpu:4"}),
    (Geometry(1, 1, 2), (1, 1, 8), 1, {"gres": "gpu:2"}),
]


@pytest.mark.parametrize(("geometry", "sizes", "per_node", "gpus"), GEOMETRIES)
def test_exactly_this_is_asked_when_nothing_else_is_set(
    geometry: Geometry, sizes: tuple[int, int, int], per_node: int, gpus: dict[str, Any]
) -> None:
    asked = dict(zip(("nodes", "tasks", "cpus_per_task"), sizes, strict=True)) | gpus
    options = {"slurm_extra": f"--ntasks-per-node={per_node}"}
    assert resources(geometry) == {**ALWAYS, **asked, **options}


@pytest.mark.parametrize("geometry", [Geometry(1, 1, 0), Geometry(4, 1, 2), Geometry(2, "2+1", 0)])
def test_the_local_launcher_asks_for_one_task_on_one_node(geometry: Geometry) -> None:
    asked = resources(geometry, launcher="local", gpu_gres=None)
    assert (asked["nodes"], asked["tasks"], asked["cpus_per_task"]) == (1, 1, 2)
    assert asked["slurm_extra"] == "--ntasks-per-node=1"
    assert not asked["gres"]


def test_gpus_are_requested_by_their_type_and_logical_devices_are_not() -> None:
    assert resources(Geometry(1, 1, 2), gpu_gres="gpu:v100")["gres"] == "gpu:v100:2"
    logical = resources(Geometry(1, 1, 2), gpu_gres=None, devices="logical")
    assert not logical["gres"]


@pytest.mark.parametrize(
    ("gpu_gres", "gres"),
    [
        # as AutoDetect=nvml and sites write them
        ("gpu:nvidia_a100-sxm4-80gb", "gpu:nvidia_a100-sxm4-80gb:4"),
        ("gpu:a100-40", "gpu:a100-40:4"),
        ("gpu:tesla_v100-sxm2-16gb", "gpu:tesla_v100-sxm2-16gb:4"),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb+me", "gpu:nvidia_h100_80gb_hbm3_1g.10gb+me:4"),
        ("shard", "shard:4"),
        # with other resources of a node
        ("gpu:a100,nvme:1", "gpu:a100:4,nvme:1"),
        ("gpu,craynetwork:1,tmpdisk:10G", "gpu:4,craynetwork:1,tmpdisk:10G"),
    ],
)
def test_gpus_are_requested_as_sites_name_them(gpu_gres: str, gres: str) -> None:
    raw = raw_config((("platforms", "cluster", "gpu_gres"), gpu_gres))
    platform = config_validation.convert_to_types(raw).platforms["cluster"]
    assert platforms.slurm_resources(platform, Geometry(1, 1, 4))["gres"] == gres
    assert not platforms.slurm_resources(platform, Geometry(1, 1, 0))["gres"]


@pytest.mark.parametrize(
    ("memory", "gpus", "expected"),
    [
        ({"mem_mb": 10, "mem_mb_per_cpu": 2}, 0, {"mem_mb_per_cpu": 2}),
        ({"mem_mb": 10, "mem_mb_per_gpu": 3}, 0, {"mem_mb": 10}),
        ({"mem_mb": 10, "mem_mb_per_gpu": 3}, 2, {}),
        ({"mem_mb_per_cpu": 2, "mem_mb_per_gpu": 3}, 2, {}),
    ],
)
def test_memory_is_requested_in_one_way(
    memory: dict[str, int], gpus: int, expected: dict[str, int]
) -> None:
    """Slurm refuses a job that requests memory per node and per CPU or GPU."""
    asked = resources(Geometry(1, 1, gpus), **memory)
    assert {name: asked[name] for name in asked if name[:4] == "mem_" and asked[name]} == expected
    assert ("--mem-per-gpu=3" in str(asked["slurm_extra"])) is not bool(expected)


@pytest.mark.parametrize(
    ("setting", "value", "resource"),
    [
        ("mem_mb", 4000, "mem_mb"),
        ("partition", "v100x4", "slurm_partition"),
        ("account", "team", "slurm_account"),
        ("qos", "high", "qos"),
        ("constraint", "avx512", "constraint"),
    ],
)
def test_a_setting_is_passed_on_and_left_out_when_it_is_not_set(
    setting: str, value: Any, resource: str
) -> None:
    assert resources(Geometry(2, 1, 0), **{setting: value})[resource] == value
    assert not resources(Geometry(2, 1, 0)).get(resource)


def test_further_options_are_appended_in_order() -> None:
    settings = {"reservation": "day", "exclusive": True, "switches": "1@60"}
    asked = resources(Geometry(2, 1, 0), **settings, extra="--nice=5 --hold")
    options = ["--ntasks-per-node=1", "--reservation=day", "--switches=1@60", "--exclusive"]
    options += ["--nice=5", "--hold"]
    assert asked["slurm_extra"].split() == options


def test_an_option_of_sbatch_with_a_key_is_no_further_option() -> None:
    """All these keys reach sbatch, and `extra` cannot override one."""
    assert {"reservation", "switches"} <= platforms.SBATCH_OPTIONS.keys()
    for key, option in platforms.SBATCH_OPTIONS.items():
        value = f"v{random.randint(1, 99)}"
        asked = resources(Geometry(2, 1, 0), **{key: value})
        assert f"--{option}={value}" in asked["slurm_extra"].split()
        assert platforms.extra_options_problem(f"--{option}=other")


def test_each_key_of_a_platform_has_an_effect() -> None:
    """Code reads it, or it is marked as an option of sbatch."""
    trees = [ast.parse(path.read_text()) for path in SCRIPTS.rglob("*.py")]
    read = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    keys = {*Platform.__struct_fields__}
    assert keys - read - platforms.SBATCH_OPTIONS.keys() - {*platforms.SHOWN_KEYS} == set()


PYXIS = {"container": {"image": "tensorflow", "engine": "pyxis"}}
PRICE = {"usd_per_node_hour": 2.9, "price_date": "2022-05", "price_source": "price list"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        PYXIS,
        PRICE,
        {**PRICE, "usd_per_gpu_hour": 2.5},
        *({"price_date": date} for date in ("1970", "2020-02", "2020-02-29", "2099-12-31")),
    ],
)
def test_complete_settings_pass(settings: dict[str, Any]) -> None:
    changes = [(("platforms", "cluster", key), value) for key, value in settings.items()]
    planned = manifest_of(valid_config(*changes))
    assert planned.runs and "cluster" in planned.platforms


def test_everything_shown_is_a_key_of_a_platform() -> None:
    assert set(platforms.SHOWN_KEYS) <= set(Platform.__struct_fields__)


@pytest.mark.parametrize(("devices", "kind"), [("physical", "GPU"), ("logical", "logical")])
def test_logical_devices_are_a_kind_of_their_own(devices: str, kind: str) -> None:
    assert [platforms.device_kind(gpus, devices) for gpus in (0, 2)] == ["CPU", kind]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    *(({"price_date": date}, "price_date", "YYYY-MM-DD")
      for date in ("2020-13", "2020-12-45", "2020-02-30", "0000")),
    ({"extra": "--nodes=7"}, "extra", "--nodes=7"),
    ({"extra": "--hold --wrap=x"}, "extra", "--wrap=x"),
    ({"extra": "--switches=1"}, "extra", "--switches=1"),
    ({"extra": "--hold; date"}, "extra", "the shell"),
    ({"partition": "None"}, "partition", "null without quotes"),
    ({"env": {"TF_CONFIG": "{}"}}, "env", "TF_CONFIG"),
    ({"usd_per_gpu_hour": 2.5}, "usd_per_gpu_hour", "usd_per_node_hour"),
    *(({"launcher": "local", key: "closest"}, key, "srun") for key in ("cpu_bind", "gpu_bind")),
    ({"launcher": "local", **PYXIS}, "container.engine", "pyxis"),
    *(({**PRICE, key: None}, key, key) for key in ("price_date", "price_source")),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "key", "rule"), WRONG)
def test_settings_that_cannot_mean_what_they_say(
    settings: dict[str, Any], key: str, rule: str
) -> None:
    message = refused(platforms.check_keys, {"cluster": platform(**settings)})
    assert f": platforms.cluster.{key}: " in message
    assert " is not allowed; " in message
    assert rule in message


def on_clusters(chosen: str | None, **clusters: str | None) -> Config:
    """The minimal configuration, whose grid names `cluster` only, with these clusters."""
    changes = [(("platforms", name, "cluster"), value) for name, value in clusters.items()]
    return valid_config(*changes, (("cluster",), chosen))


@pytest.mark.parametrize("chosen", [None, "gcp"])
def test_a_cluster_of_the_grid_may_be_chosen(chosen: str | None) -> None:
    config = on_clusters(chosen, cluster="gcp", laptop="aws")
    platforms.check_cluster(config)
    assert config.cluster == chosen


NO_CLUSTER = {
    "typo": ({"cluster": "gcp", "laptop": "aws"}, "gpc", "did you mean 'gcp'? allowed: aws, gcp"),
    "none_defined": ({}, "gcp", "allowed: none defined"),
    "not_in_the_grid": ({"cluster": "gcp", "laptop": "aws"}, "aws", "no platform of the grid"),
    "platform_for_cluster": ({"cluster": "gcp"}, "cluster", "allowed: gcp"),
}


@pytest.mark.parametrize(("clusters", "chosen", "rule"), NO_CLUSTER.values(), ids=NO_CLUSTER)
def test_a_cluster_without_any_run_is_refused(
    clusters: dict[str, str], chosen: str, rule: str
) -> None:
    config = on_clusters(chosen, **clusters)
    message = refused(platforms.check_cluster, config)
    assert f': cluster: "{chosen}" is not allowed; ' in message
    assert rule in message


@pytest.mark.parametrize(
    ("titles", "names"),
    [
        ({"a": None, "b": "A100"}, ["a", "A100"]),
        ({"a": "A100", "b": "A100"}, ["A100 (a)", "A100 (b)"]),
        ({"a": "b", "b": None}, ["b (a)", "b (b)"]),
        ({"a": "A100", "b": "A100", "c": "A100 (a)"}, ["A100 (a) (a)", "A100 (b)", "A100 (a) (c)"]),
    ],
)
def test_no_two_platforms_are_called_alike(titles: dict[str, str | None], names: list[str]) -> None:
    named = {name: platform(title=title) for name, title in titles.items()}
    assert [*platforms.unique_titles(named).values()] == names
