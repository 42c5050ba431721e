"""What is made again although it is there, in a project folder of made-up records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, valid_config, write_failure, write_record
from generator import write_dataset_facts
from tfscaling.plan import costed_plan
from tfscaling.plan.reruns import Reruns
from tfscaling.record import attempts, run_states
from tfscaling.spec import user_code
from tfscaling.spec.manifest import PlannedRun
from tfscaling.tables import runs_table

CONFIG = [
    (("grid", 0, "model"), "net:model"),
    (("search",), {"repeats_max": 2}),
    (("recipes", "weak", "dataset"), "data:data"),
]
DATA = "data:data"


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PlannedRun]]:
    """A run on one node and one on two, each with an extra repeat, of code that is as it was."""
    monkeypatch.chdir(tmp_path)
    run_states.now.cache_clear()
    Path("net.py").write_text("def model(): ...\n")
    Path("data.py").write_text("def data(): ...\n")
    planned = list(manifest_of(valid_config(*CONFIG)).runs)
    for run in planned:
        path = write_record(Path("results/runs"), run)
        record = json.loads(path.read_text())
        record["environment"]["user_code"] = user_code.of_run(run.spec).checksums()
        path.write_text(json.dumps(record))
    facts = Path("results/datasets", f"{DATA}.json")
    write_dataset_facts(facts.parent, DATA, 3, record["environment"]["dataset"]["sha256"])
    made_by = user_code.of_names(DATA).checksums()
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "user_code": made_by}))
    yield planned
    run_states.now.cache_clear()


def reruns(*changes: Any) -> Reruns:
    """As a start of the workflow asks, with the code as it is now."""
    run_states.now.cache_clear()
    config = valid_config(*CONFIG, *changes)
    manifest = manifest_of(config)
    planned = {run.spec.path: run for run in manifest.runs}
    return Reruns(config, planned, Path("results"))


STALE = (("rerun",), "stale")
DATA_FILE = f"results/datasets/{DATA}.npz"


def record_path(run: PlannedRun) -> Path:
    return Path("results/runs", run.spec.path, "run.json")


def brought_back(*changes: Any) -> set[str]:
    """The records that a start puts in their places."""
    before = {*Path("results/runs").rglob("run.json")}
    reruns(*changes).bring_back()
    return {str(path) for path in {*Path("results/runs").rglob("run.json")} - before}


def test_a_stale_run_is_made_again_only_where_that_is_asked_for(runs: list[PlannedRun]) -> None:
    assert reruns(STALE).outdated == frozenset()
    Path("net.py").write_text("def model(): return 1\n")
    assert reruns(STALE).outdated == {str(record_path(run)) for run in runs}
    assert reruns().outdated == frozenset()


def test_changed_data_is_made_again_for_runs_that_have_no_record(runs: list[PlannedRun]) -> None:
    one, extra, two, _ = (run.spec.path for run in runs)
    Path("data.py").write_text("def data(): return 1\n")
    assert DATA_FILE not in reruns().outdated  # all runs are made
    Path("results/runs", extra, "run.json").unlink()
    assert DATA_FILE not in reruns().outdated  # it may not be needed
    Path("results/runs", two, "run.json").unlink()
    assert reruns().runs_of_changed_data == {two}
    assert reruns().outdated == {DATA_FILE}
    assert reruns(STALE).runs_of_changed_data == {one, two}  # the record of `one` is stale


def test_data_of_the_code_that_is_here_is_left_as_it_is(runs: list[PlannedRun]) -> None:
    Path("results/runs", runs[0].spec.path, "run.json").unlink()
    assert reruns().runs_of_changed_data == frozenset()


def test_runs_of_another_cluster_do_not_ask_for_data(runs: list[PlannedRun]) -> None:
    Path("data.py").write_text("def data(): return 1\n")
    Path("results/runs", runs[0].spec.path, "run.json").unlink()
    named = (("platforms", "cluster", "cluster"), "here")
    assert DATA_FILE in reruns(named, (("cluster",), "here")).outdated
    other = (("platforms", "laptop", "cluster"), "there")
    assert DATA_FILE not in reruns(named, other, (("cluster",), "there")).outdated


def made_again(*runs: PlannedRun) -> None:
    """A start that is to make these runs again, and its end before a new one is whole."""
    reruns().keep_earlier({str(record_path(run)) for run in runs})
    for run in runs:
        record_path(run).unlink()  # as Snakemake does


def row_of(runs: list[PlannedRun], run: PlannedRun) -> dict[str, Any]:
    run_states.now.cache_clear()
    table, _ = runs_table.run_tables(runs, Path("results/runs"))
    return dict(table.iloc[runs.index(run)])


def test_the_record_of_a_run_made_again_is_kept_until_the_new_one_is_whole(
    runs: list[PlannedRun],
) -> None:
    one, extra, two, _ = runs
    content, made_ns = record_path(one).read_bytes(), record_path(one).stat().st_mtime_ns
    Path("net.py").write_text("def model(): return 1\n")
    made_again(one)
    assert attempts.backup_of(record_path(extra)).exists()  # rounds may have it made again
    assert not attempts.backup_of(record_path(two)).exists()
    assert brought_back(STALE) == set()  # it is of other code
    write_failure(Path("results/runs"), one, message="ValueError: no")
    row = row_of(runs, one)
    assert row["status"] == "stale"
    for text in ("ValueError: no", "attempt 1, kept as earlier.run.json", "net.py"):
        assert text in row["reason"]
    config = valid_config(*CONFIG)
    (planned, *_) = costed_plan.make(config, manifest_of(config), Path("results/runs")).runs
    assert (planned.nodes, planned.runs) == (1, 1)

    Path("net.py").write_text("def model(): ...\n")
    assert row_of(runs, one)["status"] == "ok"
    assert "ValueError: no" in row_of(runs, one)["warnings"]
    assert brought_back() == {str(record_path(one))}
    found = record_path(one)
    assert (found.read_bytes(), found.stat().st_mtime_ns) == (content, made_ns)
    reruns().keep_earlier(set())
    assert not attempts.backup_of(found).exists()
    found.unlink()  # by the user
    assert brought_back() == set()


def test_an_earlier_record_of_other_parameters_or_a_broken_one_does_not_come_back(
    runs: list[PlannedRun],
) -> None:
    one, _, two, _ = runs
    made_again(one, two)
    changed = (("recipes", "weak", "epochs"), 7)
    assert brought_back(changed) == set()
    attempts.backup_of(record_path(two)).write_text("{")
    assert brought_back() == {str(record_path(one))}


def test_where_links_cannot_be_made_the_record_is_copied(
    runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refused)
    made_again(runs[0])
    assert brought_back() == {str(record_path(runs[0]))}
    assert record_path(runs[0]).stat().st_nlink == 1


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: b"\xff\0 no JSON",
    "brackets": lambda content: b"[" * 200_000,
    "another version": lambda content: content.replace(b'"schema_version":', b'"version":'),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_record_is_restored_from_its_attempt_or_named(
    runs: list[PlannedRun], fault: str
) -> None:
    one, other, sound, _ = map(record_path, runs)
    content = one.read_bytes()
    for path in (one, other):
        path.unlink()  # the attempt's record is another file
        path.write_bytes(BROKEN[fault](content))
    attempts.path(one.parent, 1).mkdir(exist_ok=True)
    whole = attempts.path(one.parent, 1) / attempts.RECORD
    whole.write_bytes(content)
    os.utime(whole, (1, 1))
    before = sound.stat().st_mtime_ns
    (named,) = reruns().restore_records()
    assert str(other) in named and str(one) not in named
    assert one.read_bytes() == content
    assert one.stat().st_mtime > 1e9  # newer than tables without it
    assert sound.stat().st_mtime_ns == before
    # an attempt with other parameters restores nothing
    one.write_bytes(BROKEN[fault](content))
    assert len(reruns((("recipes", "weak", "epochs"), 7)).restore_records()) == 2
