"""Results of another cluster are taken whole or refused by name; nothing here changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, valid_config, write_failure, write_record
from generator import write_dataset_facts
from tfscaling.record import run_record, run_states
from tfscaling.spec import user_code
from tfscaling.spec.manifest import Manifest
from tfscaling.stages import merge as merging
from tfscaling.stages.study_folder import StudyFolder

HERE, THERE = Path("results"), Path("other/results")
CONFIG = [
    (("grid", 0, "model"), "net:model"),
    (("grid", 0, "nodes"), [1, 2, 3]),
    (("recipes", "weak", "dataset"), "mnist"),
]


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manifest]:
    """Three runs: the first was made here, the others there."""
    monkeypatch.chdir(tmp_path)
    run_states.now.cache_clear()
    Path("net.py").write_text("def model(): ...\n")
    planned = manifest_of(valid_config(*CONFIG))
    for number, run in enumerate(planned.runs):
        path = write_record((THERE if number else HERE) / "runs", run)
        change(path, environment={"user_code": user_code.of_run(run.spec).checksums()})
    yield planned
    run_states.now.cache_clear()


def change(path: Path, **parts: dict[str, Any]) -> None:
    """Change keys of parts of a record."""
    record = json.loads(path.read_text())
    for part, changes in parts.items():
        record[part] |= changes
    path.write_text(json.dumps(record))


def record(number: int, manifest: Manifest, results: Path = THERE) -> Path:
    return results / "runs" / manifest.runs[number].spec.path / run_record.RECORD


def files(results: Path) -> dict[str, tuple[int, bytes]]:
    paths = [path for path in results.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(results)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in paths
    }


def test_runs_are_taken_with_all_files_and_times(manifest: Manifest) -> None:
    steps = record(1, manifest).with_name("steps.csv")
    steps.write_text("1.0\n")
    os.utime(steps, (1e9, 1e9))
    ours, theirs = files(HERE), files(THERE)
    merge = merging.compare(manifest, HERE, THERE)
    assert (len(merge.taken), merge.alike, merge.conflicts) == (2, 0, ())
    merging.take(merge, HERE, THERE)
    assert files(HERE) == {**ours, **theirs}
    again = merging.compare(manifest, HERE, THERE)
    assert (again.taken, again.alike, again.conflicts) == ((), 2, ())


def truncated(manifest: Manifest) -> None:
    path = record(1, manifest)
    path.write_text(path.read_text()[:200])


def other_parameters(manifest: Manifest) -> None:
    changed = {"parameters": {"learning_rate": 0.7}}
    change(record(1, manifest), **changed)
    text = json.loads(record(1, manifest).read_text()) | {"parameters_hash": "0" * 16}
    record(1, manifest).write_text(json.dumps(text))


def other_code(manifest: Manifest) -> None:
    Path("net.py").write_text("def model(): return 1\n")
    for number in (0, 2):
        code = {"user_code": user_code.of_run(manifest.runs[number].spec).checksums()}
        change(record(number, manifest, HERE if number == 0 else THERE), environment=code)


def other_data(manifest: Manifest) -> None:
    dataset = json.loads(record(1, manifest).read_text())["environment"]["dataset"]
    write_dataset_facts(HERE / "datasets", dataset["name"], 384, dataset["sha256"])
    change(record(1, manifest), environment={"dataset": dataset | {"sha256": "e" * 64}})


def both_have_it(manifest: Manifest) -> None:
    write_record(HERE / "runs", manifest.runs[1], execution_time_s=99.0)


def an_attempt_is_here(manifest: Manifest) -> None:
    write_failure(record(1, manifest, HERE).parent, manifest.runs[1])


def moved(manifest: Manifest) -> None:
    record(1, manifest).write_bytes(record(2, manifest).read_bytes())


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (truncated, "not JSON"),
        (other_parameters, "made with other parameters: learning_rate"),
        (other_code, "made by other code: net.py"),
        (other_data, "made of other data"),
        (both_have_it, "both have a record, and they differ"),
        (an_attempt_is_here, "has an attempt without a record"),
        (moved, "is of another run"),
    ],
)
def test_a_conflict_is_named_and_nothing_is_taken(
    broken: Callable[[Manifest], None], reason: str, manifest: Manifest
) -> None:
    broken(manifest)
    run_states.now.cache_clear()
    study = written(manifest, THERE)
    before = files(HERE)
    merge = merging.compare(manifest, HERE, THERE)
    (conflict,) = merge.conflicts
    assert conflict.startswith(f"runs/{manifest.runs[1].spec.path}: ")
    assert reason in conflict
    with pytest.raises(SystemExit):
        merging.run(study)
    assert files(HERE) == before


def test_what_is_not_planned_stays_there(manifest: Manifest) -> None:
    first = manifest_of(valid_config(*CONFIG, (("grid", 0, "nodes"), [1, 2])))
    merge = merging.compare(first, HERE, THERE)
    assert len(merge.taken) == 1


def written(manifest: Manifest, there: Path) -> StudyFolder:
    """The folder of the study, with its manifest."""
    (HERE / "main/details").mkdir(parents=True, exist_ok=True)
    manifest.write(HERE / "main/details/manifest.json")
    return StudyFolder(HERE / "main", other=there)


def test_the_stage_takes_or_refuses(manifest: Manifest) -> None:
    for wrong in ("results", ".", "nowhere"):
        with pytest.raises(SystemExit):
            merging.run(written(manifest, Path(wrong)))
    merging.run(written(manifest, THERE.parent))
    assert record(1, manifest, HERE).read_bytes() == record(1, manifest).read_bytes()
    assert record(2, manifest, HERE).exists()


def test_a_link_to_a_file_of_mine_is_not_followed(manifest: Manifest) -> None:
    """What somebody else's results name: a copy would have its content."""
    Path("secret").write_text("mine")
    link = record(1, manifest).with_name("steps.csv")
    link.symlink_to(Path("secret").absolute())
    before = files(HERE)
    found = merging.compare(manifest, HERE, THERE)
    (conflict,) = found.conflicts
    assert "steps.csv is a link or no plain file" in conflict
    link.unlink()
    os.mkfifo(link)
    assert "steps.csv is a link" in merging.compare(manifest, HERE, THERE).conflicts[0]
    assert files(HERE) == before
