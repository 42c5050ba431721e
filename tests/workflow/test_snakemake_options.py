"""Snakemake's options: each changes plan, records and jobs alike, or is refused before a run."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from project import REPOSITORY, Project
from tfscaling.study import grid
from tfscaling.study.manifest import Manifest

SLEEP: dict[str, Any] = {
    "grid": [
        {"platform": "laptop", "strategy": "own", "recipe": "user", "nodes": [1, 2], "repeats": 2},
    ],
    "recipes": {"user": {"program": ["sleep", "1"], "per_replica_batch_size": 1, "epochs": 1}},
}  # fmt: skip
#: The same on a cluster; nothing is submitted here.
CLUSTER: dict[str, Any] = {
    **SLEEP,
    "grid": [{**SLEEP["grid"][0], "platform": "site", "gpus_per_node": [0, 2]}],
    "platforms": {
        "site": {
            "launcher": "srun", "nodes_max": 4, "gpus_per_node_max": 2, "cpus_per_node": 4,
            "partition": "main",
        },
    },
}  # fmt: skip
#: Another lab's profile, in our words: of no use for our runs but its partition and account.
FOREIGN = {
    "executor": "slurm-sweep",
    "jobs": 50,
    "default-resources": ["slurm_account=lab", "mem_mb=1000", "runtime=30", "gres=gpu:1"],
    "set-resources": {"train": {"slurm_partition": "long", "runtime": 240}, "other": {"nodes": 2}},
    "set-threads": {"other": 4},
    "rerun-triggers": "mtime",
    "printshellcmds": True,
}
#: Another lab's profile for a machine without Slurm, in our words.
LAB = {
    "cores": "all",
    "jobs": 8,
    "keep-going": True,
    "rerun-incomplete": True,
    "rerun-triggers": ["mtime"],
    "latency-wait": 30,
    "printshellcmds": True,
    "show-failed-logs": True,
    "default-resources": ["mem_mb=2000", "disk_mb=500", "runtime=120"],
    "resources": ["mem_mb=16000"],
    "set-threads": ["align=8"],
    "set-resources": ["align:mem_mb=8000"],
}
#: Reports epochs; a record keeps their metrics.
REPORTING = """
import json
import os
import time

with open(os.environ["TFSCALING_EVENTS"], "a") as file:
    for number in (1, 2):
        metrics = {"loss": 1 / number, "accuracy": number / 4}
        for event in ({"event": "steps"}, {"event": "epoch", "epoch": number, "metrics": metrics}):
            file.write(json.dumps({**event, "time_s": time.time(), "steps": 3 * number}) + "\\n")
time.sleep(1)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def facts(value: Any, name: str = "") -> Any:
    """Return a part of a record without what differs between equal runs: times and amounts."""
    if isinstance(value, dict):
        # warnings may be about how busy the machine was; addresses have free ports
        times = ("started", "clock", "slowest_rank", "slowest_host")
        left_out = (*times, "use", "warnings", "cluster_hash")
        return {key: facts(each, key) for key, each in value.items() if key not in left_out}
    if isinstance(value, list):
        return [facts(each, name) for each in value]
    return "number" if isinstance(value, float) and name not in ("loss", "accuracy") else value


def plan(
    project: Project, slurm: dict[str, str], profile: str, *options: str
) -> list[dict[str, str]]:
    """The rows of the plan."""
    project.snakemake("plan", *options, profile=profile, environ=slurm)
    with (project.folder / "results/main/details/plan.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("options", "expected", "absent"),
    [
        (
            ["slurm_account=abc", "mem_mb=1000", "gres=gpu:7", "mem_mb_per_cpu=10", "gpu=1"],
            [" -A abc ", " -p main ", " -t 60 "],
            "--mem",
        ),
        (
            ["train:runtime=10", "train:slurm_partition=other", "train:mem_mb=4321"],
            [" -p other ", " -t 10 ", " --mem 4321 "],
            " -p main",
        ),
    ],
    ids=str,
)
def test_plan_and_sbatch_line_have_what_the_options_change(
    options: list[str],
    expected: list[str],
    absent: str,
    project: Project,
    slurm: dict[str, str],
) -> None:
    project.overlay(CLUSTER)
    option = "--set-resources" if ":" in options[0] else "--default-resources"
    rows = plan(project, slurm, "slurm", option, *options)
    assert len(rows) == 4
    for row in rows:
        line = row["submission"].replace("--job-name", "")
        assert all(text in line for text in expected), line
        assert absent not in line.partition(" -D ")[0], line
        assert ("gres" in line) is (row["gpus_per_node"] == "2")
    if "train:runtime=10" in options:
        # not by time: no run has been made, so that each counts with its time limit
        assert {float(row["duration_s"]) for row in rows} == {600.0}
        planned = project.folder / "results/main/details/planned/details/config.json"
        written = planned.read_text()
        assert '"partition": "other"' in written


def test_a_foreign_profile_measures_what_ours_measures(
    project: Project, slurm: dict[str, str]
) -> None:
    """Its overrides of rule train are honoured; its defaults limit no memory and add no GPUs."""
    project.overlay(CLUSTER)
    (project.folder / "lab").mkdir()
    (project.folder / "lab/config.yaml").write_text(yaml.safe_dump(FOREIGN))
    for row in plan(project, slurm, str(project.folder / "lab")):
        line = row["submission"]
        assert " -A lab  -p long -t 240 " in line and "--mem" not in line, line
        assert ("gres" in line) is (row["gpus_per_node"] == "2")


@pytest.mark.full
def test_records_without_our_profile_have_what_those_with_it_have(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With `--cores` alone, and with a profile that knows nothing of this workflow."""
    program = {"program": ["python3", "user.py"], "observe": "events", "epochs": 2}
    (project.folder / "user.py").write_text(REPORTING)
    (project.folder / "lab").mkdir()
    (project.folder / "lab/config.yaml").write_text(yaml.safe_dump(LAB))
    recipes = {"user": {**program, "per_replica_batch_size": 1}}
    project.overlay({**SLEEP, "recipes": recipes, "seed": random.randrange(1000)})
    found = []
    for profile, options in [("local", []), (None, ["--cores", "2"]), ("lab", [])]:
        started = project.copy(tmp_path_factory.mktemp("started") / "project")
        is_own = profile == "lab"
        started.snakemake(*options, profile=str(started.folder / "lab") if is_own else profile)
        records = started.records()
        found.append([facts(record) for record in records])
        rows = started.table("results/main/runs.csv")
        assert len(records) == len(rows) == 4
        for row in rows:
            assert (row["status"], float(row["shared_with"])) == ("ok", 0.0)
            # not by time: only whether there is one
            assert row["execution_time_s"]
    assert found[0][0]["metrics"]["epochs"][1]["loss"] == 0.5
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set-resources", "train:nodes=3"], ["train:nodes=3", "nodes of the grid"]),
        (["--set-resources", "train:tasks=3"], ["train:tasks=3", "tasks_per_node of the grid"]),
        (["--set-resources", "train:gres=gpu:1"], ["gpus_per_node of the grid"]),
        (["--set-resources", "train:runtime=attempt*5"], ["--set-resources", "runtime_min"]),
        (["--set-threads", "train=2"], ["--set-threads", "cpus_per_node"]),
        (["--groups", "train=g", "--group-components", "g=2"], ["--groups", "allocation"]),
        (["--all-temp"], ["--all-temp", "records"]),
        (["--shared-fs-usage", "none"], ["--shared-fs-usage", "input-output, persistence"]),
        (
            ["--shared-fs-usage", "persistence", "sources", "storage-local-copies"],
            ["--shared-fs-usage lacks input-output"],
        ),
        (["--replace-workflow-config"], ["platforms"]),
        (["--resources", "training_runs=0"], ["--resources training_runs=0", "1 or more"]),
    ],
    ids=str,
)
def test_what_would_change_the_measurement_is_refused(
    options: list[str], words: list[str], project: Project
) -> None:
    project.overlay(SLEEP)
    done = project.snakemake(*options, "--dry-run", check=False)
    assert done.returncode == 1
    assert all(word in done.stdout for word in words), done.stdout
    assert not project.files_of_runs("run.json")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"groups": ["train=g"], "group-components": ["g=2"]}, ["--groups train=g", "allocation"]),
        ({"groups": ["train=g", "collect=g"]}, ["--groups train=g"]),
        ({"shared-fs-usage": ["persistence", "sources"]}, ["--shared-fs-usage lacks input-output"]),
        ({"set-resources": {"train": {"nodes": 3}}}, ["train:nodes=3", "nodes of the grid"]),
        ({"set-threads": {"train": 3}}, ["--set-threads train", "cpus_per_node"]),
        ({"resources": ["training_runs=0"]}, ["training_runs=0", "1 or more"]),
        ({"all-temp": True}, ["--all-temp", "records"]),
    ],
    ids=str,
)
def test_a_profile_that_would_change_the_measurement_is_refused(
    keys: dict[str, Any], words: list[str], project: Project
) -> None:
    project.overlay(SLEEP)
    (project.folder / "lab").mkdir()
    (project.folder / "lab/config.yaml").write_text(yaml.safe_dump({"cores": 2, **keys}))
    done = project.snakemake("--dry-run", profile=str(project.folder / "lab"), check=False)
    assert done.returncode == 1
    assert all(word in done.stdout for word in words), done.stdout


def test_a_dry_run_has_what_options_change(project: Project) -> None:
    """A dry-run lists partition, account, limit and memory as its jobs have them."""
    minutes = random.randint(61, 999)
    project.overlay(CLUSTER)
    words = ("--set-resources", f"train:runtime={minutes}", "train:slurm_partition=other")
    defaults = ("--default-resources", "slurm_account=lab", "slurm_partition=never")
    shown = project.snakemake("--dry-run", *words, *defaults, profile="slurm").stdout
    assert all(
        each in shown for each in ("partition other", "account lab", f"limit {minutes} min")
    ), shown
    assert "never" not in shown and "partition main" not in shown


@pytest.mark.parametrize(
    ("limit", "lowest"), [("nodes=1", "2"), ("runtime=10", "60"), ("mem='1GB'", "64000")]
)
def test_a_limit_below_the_request_of_a_run_is_refused_by_plan_and_sweep(
    limit: str, lowest: str, project: Project
) -> None:
    """Snakemake would request the limit of Slurm, and runs would fail or be killed."""
    site = {**CLUSTER["platforms"]["site"], "mem_mb": 64000}
    project.overlay({**CLUSTER, "platforms": {"site": site}})
    for words in (["plan"], ["--dry-run"]):
        done = project.snakemake(*words, "--resources", limit, profile="slurm", check=False)
        assert done.returncode == 1
        assert f"expected {lowest} or more" in done.stdout, done.stdout
    enough = ["nodes=2", "runtime='1h'", "mem='64GB'"]
    project.snakemake("--dry-run", "--resources", *enough, profile="slurm")


def test_replace_workflow_config_merges_the_files_that_are_given(project: Project) -> None:
    """All files of --configfile count, a later one more, and --config most."""
    platforms = yaml.safe_load((project.folder / "config/platforms.yaml").read_text())
    laptop, cpus = platforms["platforms"]["laptop"], random.randint(2, 64)
    project.overlay({**SLEEP, "study": "alone", "seed": 1})
    (project.folder / "site.yaml").write_text(yaml.safe_dump({"platforms": {"laptop": laptop}}))
    later = {"platforms": {"laptop": {"cpus_per_node": cpus}}, "seed": 2}
    (project.folder / "later.yaml").write_text(yaml.safe_dump(later))
    written = "results/alone/details/config.json"
    project.snakemake(
        written, "--replace-workflow-config", "--config", "seed=3",
        config=["site.yaml", "overlay.yaml", "later.yaml"],
    )  # fmt: skip
    found = json.loads((project.folder / written).read_text())
    assert [*found["platforms"]] == ["laptop"] and found["seed"] == 3
    assert found["platforms"]["laptop"]["cpus_per_node"] == cpus


#: The workflow as a module, whose rule train the outer workflow changes.
MODULE = """
import yaml


module scaling:
    snakefile:
        "{snakefile}"
    config:
        yaml.safe_load(open("overlay.yaml"))


use rule * from scaling as scaling_*


use rule train from scaling as scaling_train with:
    {change}
"""


def module(project: Project, change: str) -> str:
    """Write a Snakefile with the module, and return its path."""
    project.overlay(CLUSTER)
    path = project.folder / "Snakefile"
    path.write_text(MODULE.format(snakefile=REPOSITORY / "Snakefile", change=change))
    return str(path)


@pytest.mark.parametrize(
    ("change", "replaced"),
    [("resources: runtime=7", "nodes"), ("resources: nodes=3, tasks=3, gres='gpu:1'", "runtime")],
)
def test_a_module_that_replaces_the_resources_of_runs_is_refused(
    change: str, replaced: str, project: Project
) -> None:
    snakefile = module(project, change)
    done = project.snakemake("scaling_all", "--dry-run", snakefile=snakefile, check=False)
    assert done.returncode == 1
    assert "rule scaling_train: `with: resources:`" in done.stdout, done.stdout
    assert replaced in done.stdout and "--set-resources scaling_train:" in done.stdout


@pytest.mark.full
def test_a_module_may_change_what_is_no_request_and_resources_by_the_option(
    project: Project, slurm: dict[str, str]
) -> None:
    minutes = random.randint(2, 999)
    options = ("--set-resources", f"scaling_train:runtime={minutes}")
    snakefile = module(project, "priority: 7")
    project.snakemake("scaling_plan", *options, profile="slurm", snakefile=snakefile, environ=slurm)
    rows = project.table("results/main/details/plan.csv")
    assert len(rows) == 4
    assert all(f" -t {minutes} " in row["submission"] for row in rows), rows


def test_replace_workflow_config_leaves_only_the_given_files(project: Project) -> None:
    platforms = yaml.safe_load((project.folder / "config/platforms.yaml").read_text())
    own = {"study": "alone", "platforms": {"laptop": platforms["platforms"]["laptop"]}}
    project.overlay({**SLEEP, **own})
    config = project.folder / "results/alone/details/config.json"
    project.snakemake(str(config.relative_to(project.folder)))
    merged = config.read_text()
    config.unlink()
    project.snakemake(str(config.relative_to(project.folder)), "--replace-workflow-config")
    assert len(config.read_text()) < len(merged)
    assert '"cpu"' not in config.read_text()


@pytest.mark.parametrize(
    "options",
    [["--cores", "2"], pytest.param(["--resources", "mem_mb=4000"], marks=pytest.mark.full)],
    ids=str,
)
def test_runs_on_this_machine_are_made_one_at_a_time_in_the_order_of_the_seed(
    options: list[str], project: Project
) -> None:
    """Without our profile, and with options that replace its limits."""
    project.overlay({**SLEEP, "seed": random.randrange(1000)})
    profile = None if "--cores" in options else "local"
    project.snakemake(*options, "--", "results/main/runs.csv", profile=profile)
    assert {row["shared_with"] for row in project.table("results/main/runs.csv")} <= {"0", "0.0"}
    details = project.folder / "results/main/details"
    seed = json.loads((details / "config.json").read_text())["seed"]
    planned = grid.randomise_order(Manifest.read(details / "manifest.json").runs, seed)
    records = project.files_of_runs("run.json")
    made = [path.parent for path in sorted(records, key=lambda path: path.stat().st_mtime_ns)]
    # not by time: runs are made one after the other, in the order of the seed
    assert made == [project.folder / "results/runs" / run.spec.path for run in planned]


def test_times_of_runs_that_overlapped_are_not_compared(project: Project) -> None:
    project.overlay(SLEEP)
    target = "results/main/comparison.csv"
    project.snakemake("--resources", "training_runs=4", "--cores", "4", "--", target)
    rows = project.table("results/main/runs.csv")
    shared = [row for row in rows if float(row["shared_with"])]
    assert shared
    for row in rows:
        assert row["status"] == "ok"
        # not by time: runs that overlapped have none
        assert bool(row["execution_time_s"]) is (row not in shared)
        assert ("at the same time" in row["warnings"]) is (row in shared)
    for point in project.table():
        timed = [r for r in rows if r["nodes"] == point["nodes"] and r["execution_time_s"]]
        assert (int(point["runs"]), int(point["runs_timed"])) == (2, len(timed))


def drawn(project: Project, option: str) -> list[list[str]]:
    """The lines of each box of a graph."""
    lines = project.snakemake(option).stdout
    return [label.split("\\n") for label in re.findall(r'label = "(.*?)"', lines)]


def test_boxes_of_the_graph_have_the_axes_that_vary(project: Project) -> None:
    repeats = random.randint(2, 8)
    option = random.choice(["--dag", "--dag=dot"])
    print(f"{repeats} repeats, {option}")
    project.overlay({**SLEEP, "grid": [{**SLEEP["grid"][0], "repeats": repeats}]})
    boxes = [box for box in drawn(project, option) if box[0] == "train"]
    assert len(boxes) == 2 * repeats
    for box in boxes:
        assert {line.partition(":")[0] for line in box[1:]} <= {"nodes", "repeat", "parameters"}
    assert {"nodes: 1", "nodes: 2"} <= {line for box in boxes for line in box}
    assert len(drawn(project, "--rulegraph")) < 10
    assert ".py" not in project.snakemake("--filegraph").stdout.partition("digraph")[2]
