"""What reruns and what does not: nothing finished is lost or recomputed without cause."""

from __future__ import annotations

import base64
import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from project import NO_PLOTS, REPOSITORY, Project, axis
from sweep import SWEEP
from tfscaling.page.plot_registry import PLOTS

PRICE = {"usd_per_node_hour": 3.6, "price_date": "2026-01", "price_source": "a price list"}


def changed(**changes: Any) -> dict[str, Any]:
    """The sweep with changes, and without plots."""
    return {**copy.deepcopy(SWEEP), "plots": NO_PLOTS, **changes}


def test_a_finished_sweep_has_nothing_to_do(finished: Project) -> None:
    assert "Nothing to be done" in finished.snakemake().stdout
    assert finished.planned() == set()


def test_a_dry_run_has_a_row_for_each_configuration_and_snakemakes_list_on_request(
    project: Project,
) -> None:
    project.overlay(SWEEP)
    lines = project.snakemake("--dry-run").stdout.splitlines()
    assert any(line.endswith("6 runs to do") for line in lines)
    (head,) = (n for n, line in enumerate(lines) if line.startswith("  recipe"))
    names, *rows = (line.split() for line in lines[head : head + 6] if line.startswith("  "))
    assert names[-2:] == ["runs", "repeats"]
    assert sum(int(row[-2]) for row in rows) == 6
    listed = project.snakemake("--dry-run", "--printshellcmds").stdout
    assert listed.count("rule train:\n") == 6
    assert listed.count("reason: Missing output files: results/runs/platform=laptop") == 6
    assert listed.count("runtime=60") == 6
    quiet = project.snakemake("--dry-run", "--quiet", "rules").stdout
    assert "Job stats:" in quiet and "rule train:" not in quiet


def test_new_nodes_and_repeats_run_and_a_changed_recipe_reruns_its_runs(copied: Project) -> None:
    """Nothing else is planned."""
    content = changed()
    content["grid"][0]["nodes"] = [1, 2, 3]
    content["grid"][1]["repeats"] = 3
    copied.overlay(content)
    new = [tuple(axis(p, name) for name in ("recipe", "nodes", "repeat")) for p in copied.planned()]
    # on three nodes with and without devices
    assert sorted(new) == [("other", "1", "3"), ("tiny", "3", "1"), ("tiny", "3", "1")]
    content["recipes"]["other"]["learning_rate"] = 0.004
    copied.overlay(content)
    recipes = [axis(p, "recipe") for p in copied.planned()]
    assert sorted(recipes) == ["other"] * 3 + ["tiny"] * 2


def test_what_may_be_deleted_is_made_again_without_training(copied: Project) -> None:
    """The folders that docs/how-to.md names; they have the tables, page and logs."""

    def times() -> list[tuple[str, str]]:
        return [(row["status"], row["execution_time_s"]) for row in copied.table()]

    results, before = copied.folder / "results", times()
    for path in (results / "main", results / "logs", *results.glob("runs/**/attempt=*")):
        shutil.rmtree(path)
    assert copied.planned() == set()
    copied.snakemake()
    assert (results / "main/report.html").exists()
    assert times() == before


def test_fetching_the_dataset_again_reruns_no_training(copied: Project) -> None:
    dataset = copied.folder / "results/datasets/mnist.npz"
    shutil.copy(dataset, dataset.with_suffix(".new"))
    dataset.with_suffix(".new").replace(dataset)  # a new mtime
    assert copied.planned() == set()


def test_a_dataset_that_is_missing_or_made_anew_repeats_no_finished_run(copied: Project) -> None:
    content = changed()
    content["grid"][0]["nodes"] = [1, 2, 3]
    copied.overlay(content)
    new = copied.planned()
    assert {axis(path, "nodes") for path in new} == {"3"}
    # what is to run is planned in the same start, and nothing else
    assert copied.planned("--forcerun", "prepare_dataset") == new
    (copied.folder / "results/datasets/mnist.npz").unlink()
    assert copied.planned() == new


def rules_to_do(project: Project, snakefile: Path) -> set[str]:
    """The rules of the jobs that a dry-run would start, but `all`, which makes nothing."""
    done = project.snakemake("--dry-run", "-p", snakefile=str(snakefile)).stdout
    if "Nothing to be done" in done:
        return set()
    table = done.split("Job stats:\n")[1].split("\ntotal ")[0].splitlines()
    return {line.split()[0] for line in table[2:]} - {"all"}


def test_edited_code_makes_again_what_it_makes(copied: Project, tmp_path: Path) -> None:
    """No table depends on the training."""
    workflow, snakefile = tmp_path / "tool/workflow", tmp_path / "tool/Snakefile"
    shutil.copytree(REPOSITORY / "workflow", workflow, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "Snakefile", snakefile)
    copied.snakemake("--touch", snakefile=str(snakefile))  # the code is elsewhere, and the same
    assert rules_to_do(copied, snakefile) == set()

    def edit(*packages: str) -> set[str]:
        for package in packages:
            modules = sorted((workflow / "scripts/tfscaling" / package).glob("*.py"))
            assert modules
            for module in modules:
                module.write_text(module.read_text() + "# edited\n")
        return rules_to_do(copied, snakefile)

    assert edit("train", "launch", "cluster", "datasets") == set()
    assert edit("conclusions") == {"collect", "compare", "write_report"}


def test_without_snakemakes_memory_nothing_current_is_made_anew(copied: Project) -> None:
    shutil.rmtree(copied.folder / ".snakemake")
    assert rules_to_do(copied, REPOSITORY / "Snakefile") == set()


def test_without_snakemakes_memory_the_tables_are_those_of_the_configuration(
    copied: Project,
) -> None:
    """As after results were copied, or merged with those of another cluster."""
    shutil.rmtree(copied.folder / ".snakemake")
    study = copied.folder / "results/main"
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*.json")}
    comparison = {"title": "Priced", "columns": ["execution_time_s", "cost_usd"]}
    content = changed(platforms={"laptop": {"nodes_max": 8, **PRICE}}, comparison=comparison)
    copied.overlay(content)
    assert {"write_config", "write_manifest", "collect", "compare"} <= rules_to_do(
        copied, REPOSITORY / "Snakefile"
    )
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*.json")} == before
    assert copied.planned() == set()
    copied.snakemake()
    assert (study / "details/comparison.md").read_text().startswith("# Priced\n")
    for row in copied.table():
        if row["status"] == "ok":
            expected = 3.6 / 3600 * float(row["execution_time_s"]) * int(row["nodes"])
            assert float(row["cost_usd"]) == pytest.approx(expected)
    assert rules_to_do(copied, REPOSITORY / "Snakefile") == set()

    # of this key the manifest knows nothing
    content["question"] = {"indifference": 0.1}
    copied.overlay(content)
    shutil.rmtree(copied.folder / ".snakemake")
    to_do = rules_to_do(copied, REPOSITORY / "Snakefile")
    assert {"write_config", "compare", "write_report"} == to_do


def test_runs_with_other_parameters_are_missing_and_their_reason_says_what_changed(
    copied: Project,
) -> None:
    """Copied without Snakemake's memory, records must speak for themselves."""
    shutil.rmtree(copied.folder / ".snakemake")
    content = changed()
    content["recipes"]["other"]["epochs"] = 2
    copied.overlay(content)
    copied.snakemake("partial")
    rows = copied.table("results/main/partial/runs.csv")
    missing = [row for row in rows if row["status"] == "missing"]
    assert [row["recipe"] for row in missing] == ["other", "other"]
    assert missing[0]["reason"].endswith(": epochs: 1, now 2")
    shown = [
        r for r in copied.table("results/main/partial/comparison.csv") if r["status"] == "missing"
    ]
    assert [(row["recipe"], row["execution_time_s"]) for row in shown] == [("other", "")]


@pytest.mark.full
def test_runs_of_another_cluster_are_tabulated_but_not_run(copied: Project) -> None:
    """And when the configuration has them no more, their tables and its old plots are removed."""
    content = changed()
    content["platforms"] = {
        "laptop": {"nodes_max": 8, "cluster": "here"},
        "elsewhere": {"launcher": "local", "cpus_per_node": 2, "nodes_max": 8, "cluster": "there"},
    }
    content["grid"][1]["platform"] = ["laptop", "elsewhere"]
    content["plots"] = dict.fromkeys(PLOTS.keys() - {"speedup", "epochs"})
    copied.overlay(content)
    assert {axis(p, "platform") for p in copied.planned()} == {"elsewhere"}
    assert copied.planned("--config", "cluster=here") == set()
    copied.snakemake("--config", "cluster=here")
    status = {row["platform"]: row["status"] for row in copied.table()}
    assert status == {"laptop": "excluded", "elsewhere": "missing"}
    assert sum(row["status"] == "ok" for row in copied.table()) == 5
    results = copied.folder / "results/main"
    made = {path.name for path in results.glob("details/**/*.*")}
    assert {"speedup.svg", "epochs.svg"} <= made

    content["grid"][1]["platform"] = "laptop"
    content["plots"] = dict.fromkeys(PLOTS.keys() - {"speedup"})
    copied.overlay(content)
    copied.snakemake("--config", "cluster=here")
    left = {path.name for path in results.glob("details/**/*.*")}
    plots = {path.name for path in results.glob("details/plots/*.svg")}
    assert plots == {"speedup.svg"}
    assert made - left == {n for n in made if n.endswith(".svg")} - plots

    content["plots"] = NO_PLOTS
    copied.overlay(content)
    copied.snakemake("--config", "cluster=here")
    assert not list(results.glob("details/plots/*.svg"))


@pytest.mark.full
def test_studies_leave_each_other_alone(copied: Project) -> None:
    """Another study of the same runs: nothing is trained, and no file of the first one changes."""
    study = copied.folder / "results/main"
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()}
    first = copied.table()
    copied.overlay(changed(study="other", comparison={"title": "Other"}))
    made = copied.made()
    copied.snakemake()
    assert copied.made() == made
    copied.snakemake("plan", "--forcerun", "train")
    forced = copied.table("results/other/details/plan.csv")
    runs = copied.table("results/other/runs.csv")
    assert sum(float(row["runs"] or 0) for row in forced) == len(runs)
    copied.snakemake("partial")
    assert {p: p.stat().st_mtime_ns for p in study.rglob("*") if p.is_file()} == before
    assert copied.table("results/other/comparison.csv") == first


def test_a_broken_record_is_a_failed_row(copied: Project) -> None:
    record = next(copied.folder.glob("results/runs/**/recipe=other/**/repeat=2/*/run.json"))
    shutil.rmtree(record.with_name("attempt=1"))
    content = json.loads(record.read_text())
    del content["metrics"]["loss"]
    record.write_text(json.dumps(content))
    copied.snakemake("partial")
    rows = copied.table("results/main/partial/runs.csv")
    (row,) = [row for row in rows if row["status"] != "ok"]
    assert (row["recipe"], row["repeat"], row["status"]) == ("other", "2", "failed")
    assert "metrics.loss: missing" in row["reason"]


def test_a_lost_record_is_made_again_although_the_tables_are_there(copied: Project) -> None:
    record = next(copied.folder.glob("results/runs/**/recipe=other/**/repeat=2/*/run.json"))
    shutil.rmtree(record.with_name("attempt=1"))
    record.unlink()
    done = copied.snakemake("--dry-run", "-p").stdout
    lines = (line.strip() for line in done.splitlines())
    reasons = [line for line in lines if line.startswith("reason: Missing output")]
    (reason,) = (line.partition("files: ")[2].rstrip("…") for line in reasons)
    assert str(record.relative_to(copied.folder)).startswith(reason)


def mark_incomplete(project: Project, file: Path) -> None:
    """Leave Snakemake's mark of a job under way, as a snakemake that is killed does."""
    name = str(file.relative_to(project.folder))
    code = base64.urlsafe_b64encode(name.encode()).decode()
    *folders, last = (code[start : start + 254] for start in range(0, len(code), 254))
    mark = project.folder.joinpath(".snakemake/incomplete", *(f"@{each}" for each in folders), last)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text('{"external_jobid": null}')


def test_new_code_that_is_broken_costs_no_finished_run(copied: Project) -> None:
    """Not if the next sweep runs with the code as it was, nor if the snakemake was killed."""
    block = {**SWEEP["grid"][1], "repeats": 1}
    copied.overlay(changed(grid=[block]))
    (record,) = copied.folder.glob("results/runs/**/recipe=other/**/repeat=1/*/run.json")
    content, made = record.read_bytes(), copied.made()
    model = copied.folder / "small.py"
    good = model.read_text()
    model.write_text(good.replace("import keras", "raise ValueError('new and broken')"))
    rerun = ("--config", "rerun=stale")
    assert copied.snakemake(*rerun, check=False).returncode != 0
    assert not record.exists()
    (row,) = copied.table("results/main/partial/runs.csv")
    assert row["status"] == "stale"
    assert "new and broken" in row["reason"] and "replace attempt 1" in row["reason"]
    assert len(copied.planned(*rerun)) == 1  # it is still to be made again

    model.write_text(good)
    mark_incomplete(copied, record)
    assert copied.planned() == set()
    copied.snakemake()
    assert (record.read_bytes(), copied.made()) == (content, made)
    (row,) = copied.table("results/main/runs.csv")
    assert row["status"] == "ok"

    mark_incomplete(copied, record)  # a job that ended after its snakemake was killed
    assert copied.planned() == set()


def test_a_broken_record_is_restored_or_ends_the_sweep_with_its_name(copied: Project) -> None:
    one, other = sorted(copied.folder.glob("results/runs/**/run.json"))[:2]
    content = one.read_bytes()
    one.unlink()
    one.write_bytes(content[: len(content) // 2])
    (whole,) = one.parent.glob("attempt=*/record.json")
    assert whole.read_bytes() == content
    copied.snakemake()
    assert one.read_bytes() == content
    assert {row["status"] for row in copied.table("results/main/runs.csv")} <= {"ok", "excluded"}
    # in place: where the file system has hard links, the attempt's record is the same file
    for path in (other, *other.parent.glob("attempt=*/record.json")):
        os.truncate(path, 100)
    name = str(other.relative_to(copied.folder))
    for _ in range(2):
        done = copied.snakemake(check=False)
        assert done.returncode == 1 and name in "".join(done.stdout.split()), done.stdout
        assert "Delete these records" in done.stdout
