"""The real snakemake on a small grid of this machine: records, tables, plots."""

from __future__ import annotations

import json
import os
import re
import stat
import tarfile
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from project import REPOSITORY, SMALL_MODEL, Project
from sweep import ADDED, CONSOLE, DRAWN, SECRET, SWEEP, TEMPORARY
from tfscaling.page.plot_registry import PLOTS
from tfscaling.record.phases import PHASES, TRAINER_PHASES
from tfscaling.study import grid
from tfscaling.study.manifest import Manifest
from tfscaling.study.run_spec import run_path

#: The start of a record is rounded to a thousandth of a second, an event to a millionth.
ROUNDED_S = 2e-3


def path_of(record: dict[str, Any]) -> str:
    """The folder of a record's run, below results/runs."""
    return run_path(record["axes"], record["parameters_hash"])


def started_s(record: dict[str, Any]) -> float:
    return datetime.fromisoformat(record["environment"]["started"]).timestamp()


def test_the_console_has_one_line_for_each_run_and_the_answer_at_the_end(finished: Project) -> None:
    text = (finished.folder / CONSOLE).read_text()
    lines = text.splitlines()
    assert len(lines) <= 40
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text)
    done = [line for line in " ".join(text.split()).split(" [")[1:] if ": done, " in line]
    assert [line.partition("]")[0] for line in done] == [f"{n}/6" for n in range(1, 7)]
    for record in finished.records():
        axes = record["axes"]
        words = {axes["platform"], f"nodes={axes['nodes']}", f"recipe={axes['recipe']}"}
        words |= {f"gpus_per_node={axes['gpus_per_node']}", f"repeat={axes['repeat']}:"}
        assert len([line for line in done if words <= set(line.split())]) == 1
    assert all(re.search(r"loss [\d.]+, test accuracy [\d.]+", line) for line in done)
    # the table, the cost, the answer, and last the page
    headline = (
        (finished.folder / "results/main/details/conclusions/headline.md").read_text().split()
    )
    end = [*headline, "page:", "results/main/report.html"]
    assert text.split()[-len(end) :] == end
    assert any(line.startswith("|") and "execution_time_s" in line for line in lines)


def test_every_point_is_a_row(finished: Project) -> None:
    rows = finished.table()
    points = [(r["recipe"], r["nodes"], r["gpus_per_node"], r["status"]) for r in rows]
    assert points == [
        ("tiny", "1", "0", "ok"), ("tiny", "1", "2", "ok"),
        ("tiny", "2", "0", "ok"), ("tiny", "2", "2", "ok"), ("other", "1", "0", "ok"),
        ("tiny", "16", "0", "excluded"), ("tiny", "16", "2", "excluded"),
    ]  # fmt: skip
    assert rows[-1]["reason"] == "16 nodes exceed nodes_max 8"
    assert [r["runs"] for r in rows] == ["1", "1", "1", "1", "2", "0", "0"]


def test_runs_learn_and_ranks_agree(finished: Project) -> None:
    records = finished.records()
    assert len(records) == 6
    for record in records:
        # ten classes: chance is 0.1
        assert record["metrics"]["test_accuracy"] > 0.5
        assert len(record["ranks"]) == record["derived"]["tasks"] == record["axes"]["nodes"]
        assert len({rank["test_accuracy"] for rank in record["ranks"]}) == 1
        assert len({rank["cluster_hash"] for rank in record["ranks"]}) == 1
        devices = max(1, record["axes"]["gpus_per_node"])
        assert {len(rank["devices"]) for rank in record["ranks"]} == {devices}
        assert record["derived"]["replicas"] == devices * record["axes"]["nodes"]


def test_same_replicas_give_the_same_model_wherever_they_run(finished: Project) -> None:
    """2 workers x 1 device and 1 worker x 2 devices: same seed, same data order, same result."""
    by_axes = {
        (r["axes"]["recipe"], r["axes"]["nodes"], r["axes"]["gpus_per_node"]): r["metrics"]
        for r in finished.records()
    }
    two_workers, two_devices = by_axes["tiny", 2, 0], by_axes["tiny", 1, 2]
    assert two_workers["loss"] == pytest.approx(two_devices["loss"], rel=1e-4)
    assert two_workers["test_accuracy"] == pytest.approx(two_devices["test_accuracy"], abs=0.004)


def test_runs_start_in_the_random_order_that_the_seed_gives(finished: Project) -> None:
    """profiles/local runs one at a time: the order is exact."""
    manifest = Manifest.read(finished.folder / "results/main/details/manifest.json")
    records = sorted(finished.records(), key=started_s)
    ordered = grid.randomise_order(manifest.runs, manifest.order_seed, manifest.revisions)
    assert [path_of(record) for record in records] == [run.spec.path for run in ordered]


def test_records_follow_the_schema(finished: Project) -> None:
    schema = yaml.safe_load((REPOSITORY / "workflow/schemas/run_record.schema.yaml").read_text())
    paths = [*finished.folder.glob("results/runs/**/run.json")]
    validator = jsonschema.Draft202012Validator(schema)
    for record in [*finished.records(), *(json.loads(path.read_text()) for path in paths)]:
        assert [*validator.iter_errors(record)] == []


def test_phases_sum_to_the_wall_time(finished: Project) -> None:
    """They follow one another without gap: their sums are the times at which events passed."""
    for record in finished.records():
        phases = record["phases"]
        folder = finished.folder / "results/runs" / path_of(record)
        lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        passed: dict[str, list[float]] = {}
        for line in lines:
            passed.setdefault(line["event"], []).append(line["time_s"] - started_s(record))
        sum_s = 0.0
        for name in TRAINER_PHASES:
            sum_s += phases[name]
            event = PHASES[name].event
            # evaluations between epochs are taken off the training, and added after it
            if event is not None and name != "train_time_s":
                assert sum_s == pytest.approx(max(passed[event]), abs=ROUNDED_S)
        before_s = max(passed["start"]) - min(passed["start"])
        inside_s = sum(
            phases[f"{name}_time_s"]
            for name in ("import", "rendezvous", "data", "build", "first_step", "train")
        )
        assert phases["execution_time_s"] == pytest.approx(inside_s + before_s, abs=ROUNDED_S)
        assert phases["teardown_time_s"] >= 0.0


def test_raw_steps_and_events_stand_beside_the_record(finished: Project) -> None:
    for folder in finished.folder.glob("results/runs/**/repeat=*/*"):
        steps = (folder / "steps.csv").read_text().splitlines()
        ranks = {line.split(",")[0] for line in steps[1:]}
        assert len(steps) > 10
        assert len([path for path in folder.rglob("*") if path.is_file()]) <= 10  # docs/faults.md
        if len(ranks) > 1:
            with tarfile.open(folder / "attempt=1/rank-logs.tar.gz") as archive:
                assert archive.getnames() == [f"rank-{n}.log" for n in range(1, len(ranks))]
        assert (folder / "events.jsonl").read_text().count('"event": "trained"') == len(ranks)


def test_the_chief_logs_each_epoch(finished: Project) -> None:
    logs = list(finished.folder.glob("results/runs/**/rank-0.log"))
    assert len(logs) == 6
    for log in logs:
        assert "epoch 1/1: loss " in log.read_text()


def test_the_report_has_every_point_and_asks_the_network_for_nothing(finished: Project) -> None:
    page = (finished.folder / "results/main/report.html").read_text()
    assert not re.findall(r"""(?:src|href|action)\s*=\s*["']?(?:https?:)?//""", page)
    assert "default-src 'none'" in page
    assert page.count('<figure class="plot">') == len(DRAWN) - 1
    assert "16 nodes exceed nodes_max 8" in page


def test_every_output_warns_of_logical_devices_and_the_one_machine(finished: Project) -> None:
    folder = finished.folder / "results/main"
    warnings = json.loads((folder / "details/warnings.json").read_text())["warnings"]
    by_kind = {warning["kind"]: warning for warning in warnings}
    # a machine whose network changes while the tests run gives another one
    assert {"logical_devices", "one_machine", "few_runs"} <= by_kind.keys()
    assert [by_kind[kind]["runs"] for kind in ("logical_devices", "one_machine")] == [2, 2]
    texts = [warning["text"] for warning in warnings]
    shorts = [warning["short"].split()[0] for warning in warnings]
    pages = [*folder.glob("details/**/*.md"), folder / "report.html"]
    stems = {page.stem for page in pages}
    assert stems >= {"comparison", "report", "decision", "findings"}
    headline = folder / "details/conclusions/headline.md"
    pages.remove(headline)
    pages.remove(headline.with_name("console.md"))  # configurations alone
    words = " ".join(headline.read_text().split())
    assert all(each["short"] in words for each in warnings if each["severity"] == "serious")
    for page in pages:
        assert all(text in page.read_text() for text in texts), page.name
    for plot in folder.glob("details/plots/*.svg"):
        note = plot.read_text().partition("warnings: ")[2]
        assert all(word in note for word in shorts), plot.name
    kinds = {(row["gpus_per_node"], row["devices"]) for row in finished.table()}
    assert kinds == {("0", "CPU"), ("2", "logical")}


def test_phases_and_steps_are_in_the_table_of_runs(finished: Project) -> None:
    records = {path_of(record): record for record in finished.records()}
    rows = [row for row in finished.table("results/main/runs.csv") if row["record"]]
    assert len(rows) == len(records)
    for row in rows:
        record = records[str(Path(row["record"]).parent).partition("results/runs/")[2]]
        for name in ("compute_time_s", "straggler_ratio"):
            value = record["metrics"][name]  # one replica has none
            assert row[name] == "" if value is None else float(row[name]) == pytest.approx(value)
        for name in ("execution_time_s", "train_time_s"):
            assert float(row[name]) == pytest.approx(record["phases"][name])
        slowest = row["hosts"].split() if row["compute_time_s"] else [""]
        assert row["slowest_host"] in slowest
        clocks = [rank["clock"]["uncertainty_s"] for rank in record["ranks"]]
        assert float(row["clock_uncertainty_max_s"]) == pytest.approx(max(clocks))
        assert row["shared_with"] in ("0", "0.0")  # one at a time


def test_the_shim_has_the_same_target(finished: Project) -> None:
    done = finished.snakemake("--dry-run", snakefile="workflow/Snakefile")
    assert "Nothing to be done" in done.stdout


def test_a_run_outside_the_grid_is_refused(finished: Project) -> None:
    path = (
        f"results/runs/platform=laptop/model={SMALL_MODEL}/strategy=multi_worker_mirrored/"
        "recipe=tiny/nodes=3/gpus_per_node=0/tasks_per_node=1/repeat=1/parameters=0123456789abcdef/run.json"
    )
    done = finished.snakemake(path, "--dry-run", check=False)
    assert done.returncode != 0
    assert "not in the grid" in done.stdout


def test_the_demo_plans_the_advertised_grid(project: Project) -> None:
    done = project.snakemake("--dry-run", "-p", config=[str(Path("config/demo.yaml"))])
    for nodes in (1, 2, 4):
        assert f"recipe=demo/nodes={nodes}/gpus_per_node=0/tasks_per_node=1" in done.stdout


def test_snakemakes_own_report_has_the_page_the_configuration_and_the_table(
    finished: Project, tmp_path: Path
) -> None:
    copied = finished.copy(tmp_path / "project")
    before = os.umask(0o022)
    try:
        copied.snakemake("--report", "report.zip")
    finally:
        os.umask(before)
    # it has the configuration files
    assert not (copied.folder / "report.zip").stat().st_mode & 0o077
    study = copied.folder / "results/main"
    made = [
        study / name for name in ("details/comparison.md", "details/config.json", "report.html")
    ]
    with zipfile.ZipFile(copied.folder / "report.zip") as report:
        content = {name: report.read(name) for name in report.namelist()}
    page = content.pop("report/report.html").decode()
    found = {Path(name).name: text for name, text in content.items()}
    assert found == {path.name: path.read_bytes() for path in made}
    introduction = page.split("var workflow_desc = ")[1].split("</script>")[0]
    assert "What to read first" in introduction


def test_a_study_and_a_run_have_few_files(finished: Project, tmp_path: Path) -> None:
    """Without `export`; a run of one rank. Plots are only on the page."""
    copied = finished.copy(tmp_path / "project")
    copied.overlay({**SWEEP, "plots": dict.fromkeys(sorted(PLOTS.keys() - DRAWN - ADDED))})
    copied.snakemake("--config", "export=[]")
    page = (copied.folder / "results/main/report.html").read_text()
    assert page.count('<figure class="plot">') == len(DRAWN | ADDED) - 1
    study = copied.folder / "results/main"
    assert sorted(path.name for path in study.iterdir()) == [
        "comparison.csv",
        "details",
        "report.html",
        "runs.csv",
    ]
    assert len([path for path in study.rglob("*") if path.is_file()]) <= 18  # with published data
    for record in copied.folder.glob("results/runs/**/nodes=1/**/run.json"):
        assert len([path for path in record.parent.rglob("*") if path.is_file()]) <= 8


def test_ranks_leave_no_temporary_files(finished: Project) -> None:
    """As TensorFlow's files with the code of each compiled function."""
    left = [path.name for path in (finished.folder / TEMPORARY).rglob("*")]
    assert not [name for name in left if name.startswith(("tfscaling-", "__autograph"))], left


def test_what_a_sweep_writes_is_its_owners_and_has_nothing_of_the_environment(
    finished: Project,
) -> None:
    paths = [*(finished.folder / "results").rglob("*")]
    # prepared datasets are those of the session, made before
    made = [path for path in paths if "datasets" not in path.parts and not path.is_symlink()]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made} == {0}
    texts = [path.read_bytes() for path in made if path.is_file()]
    assert len(texts) > 50 and not any(SECRET.encode() in text for text in texts)
