"""Overrides of resources by Snakemake's options: as configuration, or refused."""

from __future__ import annotations

import inspect
import os
import random
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from builders import raw_config
from snakemake.cli import get_argument_parser, parse_set_resources
from snakemake.resources import Resources
from snakemake_executor_plugin_slurm import submit_string, utils
from tfscaling.snakemake_adapter import resource_overrides, unsupported_options
from tfscaling.study import config_validation, platforms
from tfscaling.study.geometry import Geometry

#: The same in all processes that collect the tests.
DRAWN = random.Random(int(os.environ.get("SEED", "1")))
MINUTES = DRAWN.randint(1, 5000)
MEMORY = DRAWN.randint(1, 100_000)
NODES = DRAWN.randint(2, 64)


def parse_overrides(*words: str) -> Any:
    """Return the overrides of rule train, parsed as on Snakemake's command line."""
    return parse_set_resources([f"train:{word}" for word in words])["train"]


def overridden(*words: str, defaults: Sequence[str] = (), **keys: Any) -> dict[str, Any]:
    """The resources of a job after --set-resources and --default-resources."""
    raw = raw_config(*((("platforms", "cluster", key), value) for key, value in keys.items()))
    for change in resource_overrides.find_platform_changes(
        raw,
        parse_overrides(*words) if words else {},
        Resources.parse([*defaults], allow_expressions=True),
    ):
        raw = resource_overrides.merge_platforms(raw, change)
    platform = config_validation.convert_to_types(raw).platforms["cluster"]
    return platforms.slurm_resources(platform, Geometry(2, 1, 0))


@pytest.mark.parametrize(
    ("word", "resource", "value"),
    [
        (f"runtime={MINUTES}", "runtime", MINUTES),
        ("runtime='2h'", "runtime", 120),
        ("slurm_partition=other-x", "slurm_partition", "other-x"),
        ("slurm_partition='quoted'", "slurm_partition", "quoted"),
        ("slurm_account=123", "slurm_account", "123"),
        (f"mem_mb={MEMORY}", "mem_mb", MEMORY),
        ("mem='4GB'", "mem_mb", 4000),
        (f"mem_mib={MEMORY}", "mem_mb", int(MEMORY * 1.048576)),
        (f"mem_mb_per_cpu={MEMORY}", "mem_mb_per_cpu", MEMORY),
        ("qos=high", "qos", "high"),
        ("constraint=avx512", "constraint", "avx512"),
        ("stall_timeout_s=77", "stall_timeout_s", 77),
    ],
)
def test_an_override_has_the_meaning_of_the_platforms_key(
    word: str, resource: str, value: object
) -> None:
    before: dict[str, Any] = {
        "runtime_min": 9,
        "partition": "p",
        "account": "a",
        "qos": "q",
        "constraint": "c",
    }
    assert overridden(word, **before)[resource] == value


@pytest.mark.parametrize("word", [f"mem=attempt*{MEMORY}", f"mem=max(attempt, 2)*{MEMORY}"])
def test_an_expression_of_which_snakemake_keeps_no_text_is_refused(word: str) -> None:
    (refusal,) = resource_overrides.find_refusals("train", parse_overrides(word))
    assert "write train:mem_mb=N" in refusal


def test_an_override_of_the_memory_replaces_other_requests_of_memory() -> None:
    asked = overridden("mem_mb=5000", mem_mb_per_cpu=10)
    assert (asked["mem_mb"], asked["mem_mb_per_cpu"]) == (5000, 0)


def test_two_requests_of_memory_are_refused() -> None:
    words = [f"mem_mb={MEMORY}", "mem_mb_per_cpu=10"]
    for order in (words, words[::-1]):
        (refusal,) = resource_overrides.find_refusals("train", parse_overrides(*order))
        assert f"mem_mb={MEMORY}" in refusal and "mem_mb_per_cpu=10" in refusal


@pytest.mark.parametrize("word", ["runtime=attempt*10", "mem_mb=input.size_mb", "qos=f(wildcards)"])
def test_an_expression_is_refused(word: str) -> None:
    with pytest.raises(config_validation.ConfigError, match="platforms"):
        overridden(word)


def test_defaults_fill_what_a_platform_leaves_open() -> None:
    defaults = ("slurm_account=abc", "slurm_partition=cpu", "qos=q", "constraint=fast")
    asked = overridden(defaults=defaults, partition="own")
    assert [asked[n] for n in ("slurm_account", "slurm_partition", "qos", "constraint")] == [
        *("abc", "own", "q", "fast")
    ]


def test_no_default_limits_memory_or_adds_gpus() -> None:
    limits = ("mem_mb=1000", "mem_mb_per_cpu=10", "gres=gpu:1", "gpu=1", "nodes=3", "runtime=1")
    assert overridden(defaults=limits) == overridden()


@pytest.mark.parametrize("name", resource_overrides.REFUSED_RESOURCES)
def test_what_the_grid_sets_is_refused_with_the_key_to_change(name: str) -> None:
    refusals = [*resource_overrides.find_refusals("my_train", {name: 3})]
    assert len(refusals) == 1
    assert f"my_train:{name}=3" in refusals[0]
    assert refusals[0].endswith(resource_overrides.REFUSED_RESOURCES[name])


def test_others_are_left_to_snakemake() -> None:
    assert not [
        *resource_overrides.find_refusals("train", parse_overrides("licence=1", "runtime=2"))
    ]


def settings_of(**changes: Any) -> list[Any]:
    """Snakemake's settings of resources, storage, groups and jobs; only the changes are refused."""
    shared = frozenset(("persistence", "input-output", "sources", "source-cache"))
    settings = {
        "overwrite_resources": {}, "overwrite_threads": {}, "overwrite_groups": {},
        "immediate_submit": False, "all_temp": False, "default_storage_provider": None,
        "shared_fs_usage": shared, **changes,
    }  # fmt: skip
    return [SimpleNamespace(**settings)] * 4


@pytest.mark.parametrize(
    "changes",
    [
        {"overwrite_resources": {"train": {"nodes": 3}}},
        {"overwrite_threads": {"train": 4}},
        {"overwrite_groups": {"train": "g"}},
        {"default_storage_provider": "fs"},
        {"default_storage_provider": "s3"},
        {"shared_fs_usage": frozenset(("input-output", "sources"))},
        {"shared_fs_usage": frozenset(())},
        {"all_temp": True},
        {"immediate_submit": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_options_that_change_what_is_measured_are_refused(changes: dict[str, Any]) -> None:
    assert len([*unsupported_options.find_refusals("train", *settings_of(**changes))]) == 1


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("--configfile a.yaml --configfile b.yaml -n", "--configfile"),
        ("all --configfiles=a.yaml --cores 1 --configfile b.yaml", "--configfile"),
        ("-C rerun=stale --config cluster=here", "--config"),
        ("-Crerun=stale all --config cluster=here", "--config"),
        ("-C rerun=stale -Ccluster=here", "--config"),
        ("-R train --forcerun collect", "--forcerun"),
        ("-Rtrain --forcerun=collect", "--forcerun"),
        ("--omit-from report -O compare", "--omit-from"),
        ("--set-resources train:runtime=1 --set-resources train:qos=q", "--set-resources"),
    ],
)
def test_an_option_of_which_snakemake_keeps_the_last_is_given_once(line: str, name: str) -> None:
    (refusal,) = unsupported_options.find_repeated_options(line.split())
    assert refusal.startswith(f"{name} is given 2 times")
    once = ["--configfile", "a.yaml", "--config", "seed=1", "--forcerun", "train"]
    assert not [*unsupported_options.find_repeated_options([*once, "--", "--config"])]
    # Snakemake still keeps the last one only
    for words in (["--config", "a=1", "--config", "b=2"], ["-Ca=1", "-Cb=2"]):
        assert get_argument_parser().parse_args(words).config == ["b=2"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"overwrite_resources": {"collect": {"nodes": 3}}},
        {"overwrite_groups": {"collect": "g"}},
        {"overwrite_threads": {"other_train": 2}},
    ],
    ids=str,
)
def test_options_for_other_rules_are_not(changes: dict[str, Any]) -> None:
    assert not [*unsupported_options.find_refusals("train", *settings_of(**changes))]


@pytest.mark.parametrize(
    ("resources", "changed"),
    [
        ({"nodes": 2, "runtime": 60, "tasks": str}, ""),
        ({"nodes": 2, "runtime": 60, "tasks": len, "mine": 1}, ""),
        ({"runtime": 7}, "nodes, runtime, tasks"),
        ({"nodes": 2, "tasks": str, "runtime": 7}, "runtime"),
    ],
)
def test_resources_that_a_module_replaces_are_refused(
    resources: dict[str, Any], changed: str
) -> None:
    rule = SimpleNamespace(name="my_train", resources=resources)
    planned = {"nodes": 2, "runtime": 60, "tasks": str}
    problem = unsupported_options.describe_replaced_resources(rule, planned, ())
    assert bool(problem) is bool(changed)
    assert f"replaces {changed}, and" in problem or not changed


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ([f"nodes={NODES}", "mem_mb=9000", "training_runs=1", "licences=0"], []),
        ([f"nodes={NODES - 1}"], [f"nodes={NODES - 1}"]),
        (["mem='4GB'"], ["mem_mb=4000"]),
        (["runtime='1h'", f"tasks={NODES - 1}"], ["runtime=60", f"tasks={NODES - 1}"]),
        (["training_runs=0"], ["training_runs=0"]),
    ],
    ids=str,
)
def test_limits_that_would_reduce_a_request_are_refused(
    words: list[str], refused: list[str]
) -> None:
    """Snakemake requests no more of Slurm than --resources allows."""
    limits = Resources.parse(words, allow_expressions=False)
    few = {"nodes": 1, "tasks": 1, "mem_mb": 0, "gres": "gpu:1", "training_runs": 1}
    many = {**few, "nodes": NODES, "tasks": NODES, "mem_mb": 9000, "runtime": 90}
    problems = [*unsupported_options.find_low_limits(limits, [few, many, few])]
    assert len(problems) == len(refused)
    assert not {*refused} - {line.split()[1].rstrip(":") for line in problems}


def test_each_resource_that_the_plugin_reads_is_honoured_or_refused() -> None:
    """Another version of the plugin may read further ones."""
    texts = [inspect.getsource(module) for module in (submit_string, utils)]
    read = {name for text in texts for name in re.findall(r'resources\.get\("(\w+)"', text)}
    assert {"nodes", "gres", "runtime"} <= read
    known = resource_overrides.PLATFORM_KEYS.keys() | resource_overrides.REFUSED_RESOURCES.keys()
    assert read <= known
