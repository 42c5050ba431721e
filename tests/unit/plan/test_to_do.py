"""Which runs are to do, in a project folder of made-up records."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, valid_config, write_failure, write_record
from generator import write_dataset_facts
from tfscaling.plan import costed_plan
from tfscaling.plan.to_do import RunRequests, RunsToDo
from tfscaling.record import attempts, run_states
from tfscaling.record.phases import WALL_PHASES
from tfscaling.study import run_spec, user_code
from tfscaling.study.manifest import PlannedRun
from tfscaling.tables import runs_table

CONFIG = [
    (("grid", 0, "model"), "net:model"),
    (("search",), {"repeats_max": 2}),
    (("recipes", "weak", "dataset"), "data:data"),
]
DATA = "data:data"
RUNS = Path("results/runs")
STALE = (("rerun",), "stale")
CHANGED = "def model(): return 1\n"


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PlannedRun]]:
    """A run on one node and one on two, each with an extra repeat, of code that is as it was."""
    monkeypatch.chdir(tmp_path)
    run_states.current_checksums.cache_clear()
    Path("net.py").write_text("def model(): ...\n")
    Path("data.py").write_text("def data(): ...\n")
    planned = list(manifest_of(valid_config(*CONFIG)).runs)
    for run in planned:
        write_current_record(run)
    dataset = json.loads(record_path(planned[0]).read_text())["environment"]["dataset"]
    facts = Path("results/datasets", f"{DATA}.json")
    write_dataset_facts(facts.parent, DATA, 3, dataset["sha256"])
    made_by = user_code.code_of_functions(DATA).checksums()
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "user_code": made_by}))
    yield planned
    run_states.current_checksums.cache_clear()


def write_current_record(run: PlannedRun) -> None:
    """Write a record of the current code."""
    path = write_record(RUNS, run)
    record = json.loads(path.read_text())
    record["environment"]["user_code"] = user_code.code_of_run(run.spec).checksums()
    path.write_text(json.dumps(record))


def to_do(*changes: Any, forced: frozenset[str] = frozenset()) -> RunsToDo:
    """What a start of the workflow has to do, with the code as it is now."""
    run_states.current_checksums.cache_clear()
    config = valid_config(*CONFIG, *changes)
    return RunsToDo(config, manifest_of(config).runs, RUNS, forced)


def record_path(run: PlannedRun) -> Path:
    return RUNS / run.spec.path / "run.json"


def kept(run: PlannedRun, number: int = 1) -> Path:
    """The record that an attempt keeps, which is made from the run's record."""
    path = attempts.attempt_folder(record_path(run).parent, number) / attempts.RECORD
    path.parent.mkdir(exist_ok=True)
    record = json.loads(record_path(run).read_text())
    path.write_text(json.dumps({**record, "attempt": number}))
    return path


def planned_by(*changes: Any) -> set[str]:
    """The folders of the runs that the plan has, which are those to do."""
    config = valid_config(*CONFIG, *changes)
    manifest = manifest_of(config)
    plan = costed_plan.make_plan(config, manifest, RUNS)
    due = RunsToDo(config, manifest.runs, RUNS).folders_to_do
    assert sum(row.runs or 0 for row in plan.runs) == len(due)
    return {*due}


def test_changed_parameters_are_new_runs_and_changed_back_nothing_is_to_do(
    runs: list[PlannedRun],
) -> None:
    assert to_do().folders_to_do == frozenset()
    print(f"epochs: {(epochs := random.randint(3, 1000))}")
    other = (("recipes", "weak", "epochs"), epochs)
    made = to_do(other).folders_to_do
    assert len(made) == len(runs) and not made & {run.spec.path for run in runs}
    assert planned_by(other) == made
    assert to_do().folders_to_do == frozenset() == planned_by()
    config = valid_config(*CONFIG, other)
    rows = costed_plan.make_plan(config, manifest_of(config), RUNS).runs
    before = runs[0].spec.recipe.epochs
    assert all(row.reason.endswith(f"epochs: {before}, now {epochs}") for row in rows)


def test_a_stale_run_is_to_do_only_where_that_is_asked_for(runs: list[PlannedRun]) -> None:
    assert to_do(STALE).folders_to_do == frozenset()
    Path("net.py").write_text(CHANGED)
    paths = {run.spec.path for run in runs}
    forced, *stale = sorted(paths)
    start = to_do(STALE, forced=frozenset({forced}))
    assert start.folders_to_do == paths
    assert [start.why_repeated(path) for path in (forced, *stale)] == ["forced"] + ["stale"] * 3
    assert to_do().folders_to_do == frozenset()
    assert {to_do().why_repeated(path) for path in paths} == {""}


def test_forced_runs_with_a_record_are_made_before_the_rounds_decide(
    runs: list[PlannedRun],
) -> None:
    first = {run.spec.path for run in runs if not run.is_conditional}
    extra = sorted({run.spec.path for run in runs} - first)
    removed, requested = random.sample(extra, 2)
    (RUNS / removed / "run.json").unlink()
    everything = frozenset(run.spec.path for run in runs)
    assert {*to_do().folders_after_round([])} == first
    assert {*to_do().folders_after_round([requested])} == {*first, requested}
    start = to_do(forced=everything)
    assert {*start.folders_after_round([])} == everything - {removed}
    assert {*start.folders_after_round([removed])} == everything


def test_a_forced_run_replaces_all_attempts_that_it_had(runs: list[PlannedRun]) -> None:
    one, two = runs[0], runs[2]
    path, number = one.spec.path, random.randint(1, 30)
    kept(one, number)
    start = to_do(forced=frozenset({path}))
    assert start.folders_to_do == {path}
    assert start.make_request(path) == run_spec.RunRequest(spec=one.spec, replaces=number)
    assert start.make_request(two.spec.path).replaces == 0
    attempts.attempt_folder(record_path(one).parent, number + 1).mkdir()
    assert start.make_request(path).replaces == number  # also when the sweep looks again


def test_requests_are_written_when_the_start_is_accepted(runs: list[PlannedRun]) -> None:
    requests, start = RunRequests(), to_do(forced=frozenset(run.spec.path for run in runs))
    number = random.randint(1, len(runs) - 1)
    folders = [RUNS / run.spec.path for run in runs]
    before = {*RUNS.rglob("*")}
    assert {folder / "run.json" for folder in folders} <= before
    for run in runs[:number]:
        requests.add(start, run.spec.path)
    assert {*RUNS.rglob("*")} == before
    requests.accept()
    written = [{*folder.rglob("*")} - before for folder in folders]
    new = ("request.json", "attempt=1", "attempt=1/record.json")
    expected = [{folder / name for name in new} for folder in folders[:number]]
    assert written == [*expected, *[set()] * (len(runs) - number)]
    # of a round that follows
    requests.add(start, runs[-1].spec.path)
    assert run_spec.read_request(folders[-1].absolute()).replaces == 1


def test_replaced_records_are_listed_with_their_node_hours(runs: list[PlannedRun]) -> None:
    one, two = runs[0], runs[2]
    start = to_do(forced=frozenset({one.spec.path, two.spec.path}))
    other = runs[1].spec.path
    listed = start.replaced_records([one.spec.path, other, two.spec.path])
    assert {file.parents[1] for file, _ in listed} == {RUNS / each.spec.path for each in (one, two)}
    for file, hours in listed:
        record = json.loads((file.parents[1] / "run.json").read_text())
        wall_time_s = sum(record["phases"].get(name) or 0.0 for name in WALL_PHASES)
        expected = record["axes"]["nodes"] * wall_time_s / 3600
        assert hours == pytest.approx(expected)
        assert not file.exists()
        assert start.back_up_record(str(file.parents[1].relative_to(RUNS))) == [(file, hours)]
        assert file.exists()
    assert to_do().replaced_records([one.spec.path]) == []


def test_a_record_is_kept_before_its_run_is_repeated(runs: list[PlannedRun]) -> None:
    """Although the folders of its attempts were deleted to save space."""
    one = runs[0]
    content = record_path(one).read_bytes()
    to_do().back_up_record(one.spec.path)
    record_path(one).unlink()  # by Snakemake, before the job
    write_failure(RUNS, one, message="ValueError: no")
    run_states.current_checksums.cache_clear()
    table, _ = runs_table.run_tables(runs, RUNS)
    row = table.iloc[0]
    assert row["status"] == "ok" and "ValueError: no" in row["warnings"]
    start = to_do()
    assert start.folders_to_do == frozenset() and not record_path(one).exists()
    assert start.file_of_record(one.spec.path) == RUNS / one.spec.path / "attempt=1/record.json"
    start.restore_records()
    assert record_path(one).read_bytes() == content
    assert not record_path(one).with_name("failure.json").exists()


def test_code_that_is_as_before_finds_its_record_again(runs: list[PlannedRun]) -> None:
    one = runs[0]
    before, content = Path("net.py").read_text(), kept(one).read_bytes()
    Path("net.py").write_text(CHANGED)
    write_current_record(one)
    kept(one, 2)
    assert one.spec.path not in to_do(STALE).folders_to_do
    Path("net.py").write_text(before)
    assert to_do(STALE).folders_to_do == frozenset()
    to_do().restore_records()
    assert record_path(one).read_bytes() == content
    assert kept(one, 2).exists()


@pytest.mark.parametrize("links", [True, False])
def test_an_attempt_that_goes_on_cannot_replace_a_restored_record(
    links: bool, runs: list[PlannedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the processes of a sweep that was killed while it repeated the run."""

    def refused(*_: object) -> None:
        raise PermissionError("no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", refused)
    one = runs[0]
    content, folder = kept(one).read_bytes(), record_path(one).parent
    attempts.create_attempt(folder, 2)
    request = run_spec.RunRequest(spec=one.spec, replaces=1)
    run_spec.write_request(folder, request)
    record_path(one).unlink()
    to_do().restore_records()
    assert run_spec.read_request(folder).replaces == 0  # a job that starts now finds it finished
    late = attempts.attempt_folder(folder, 2) / attempts.RECORD
    late.write_text("{}")
    with pytest.raises(attempts.SupersededError):
        attempts.publish(late, record_path(one))
    assert record_path(one).read_bytes() == content


def test_changed_code_of_data_has_it_prepared_for_runs_without_a_record(
    runs: list[PlannedRun],
) -> None:
    file = Path(f"results/datasets/{DATA}.npz")
    _, extra, two, _ = runs
    Path("data.py").write_text("def data(): return 1\n")
    assert to_do().outdated_data() == []  # all runs are made
    record_path(extra).unlink()
    assert to_do().outdated_data() == []  # it may not be needed
    record_path(two).unlink()
    assert to_do().outdated_data() == [file]
    named = (("platforms", "cluster", "cluster"), "here")
    assert to_do(named, (("cluster",), "here")).outdated_data() == [file]
    other = (("platforms", "laptop", "cluster"), "there")
    assert to_do(named, other, (("cluster",), "there")).outdated_data() == []
    Path("data.py").write_text("def data(): ...\n")
    assert to_do().outdated_data() == []


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: b"\xff\0 no JSON",
    "brackets": lambda content: b"[" * 200_000,
    "another version": lambda content: content.replace(b'"schema_version":', b'"version":'),
    "another run": lambda content: json.dumps(
        json.loads(content) | {"parameters_hash": f"{random.getrandbits(64):016x}"}
    ).encode(),
}


#: What takes the place of a record.
PLACED: dict[str, Callable[[Path], object]] = {
    "folder": lambda path: (path / "files").mkdir(parents=True),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("fault", [*BROKEN, *PLACED])
def test_a_broken_record_is_restored_from_its_attempt_or_named(
    runs: list[PlannedRun], fault: str
) -> None:
    one, other = runs[:2]
    content = kept(one).read_bytes()
    for run in (one, other):
        before = record_path(run).read_bytes()
        record_path(run).unlink()  # the attempt's record is another file
        if fault in BROKEN:
            record_path(run).write_bytes(BROKEN[fault](before))
        else:
            PLACED[fault](record_path(run))
    start = to_do()
    assert start.folders_to_do == frozenset() == planned_by()
    (named,) = start.unreadable.values()
    assert str(record_path(other)) in named
    config = valid_config(*CONFIG)
    assert costed_plan.make_plan(config, manifest_of(config), RUNS).unreadable == (named,)
    start.restore_records()
    assert record_path(one).read_bytes() == content
    assert record_path(one).with_name("broken.run.json").exists()
    assert record_path(other).exists()


#: What else may be in a run's folder, by a copy, an archive that is away, or a user's hand.
STRAY: dict[str, Callable[[Path], object]] = {
    "attempt is a file": lambda folder: (folder / "attempt=3").write_text("a note"),
    "attempt is away": lambda folder: (folder / "attempt=3").symlink_to("/away/attempt=3"),
    "attempt is a loop": lambda folder: (folder / "attempt=3").symlink_to("attempt=3"),
    "failure is a folder": lambda folder: (folder / "failure.json").mkdir(),
    "failure is a pipe": lambda folder: os.mkfifo(folder / "failure.json"),
    "failure is away": lambda folder: (folder / "failure.json").symlink_to("/away/failure.json"),
}


@pytest.mark.parametrize("stray", STRAY)
def test_stray_files_in_a_runs_folder_lose_no_record(stray: str, runs: list[PlannedRun]) -> None:
    print(f"lost: {(lost := random.choice(['nothing', 'record', 'link']))}")
    one = runs[0]
    content, folder = kept(one).read_bytes(), record_path(one).parent
    STRAY[stray](folder)
    if lost != "nothing":
        record_path(one).unlink()
    if lost == "link":
        record_path(one).symlink_to("/away/run.json")
    assert to_do().folders_to_do == frozenset() == planned_by()
    table, _ = runs_table.run_tables(runs, RUNS)
    assert table.iloc[0]["status"] == "ok"
    to_do().restore_records()
    assert json.loads(record_path(one).read_bytes()) == json.loads(content)
    forced = to_do(forced=frozenset({one.spec.path}))
    forced.back_up_record(one.spec.path)
    number = forced.make_request(one.spec.path).replaces + 1
    attempts.create_attempt(folder, number)
    late = attempts.attempt_folder(folder, number) / attempts.RECORD
    late.write_text("{}")
    attempts.publish(late, record_path(one))
    assert record_path(one).read_text() == "{}"
