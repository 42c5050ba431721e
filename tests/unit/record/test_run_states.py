"""States of runs: stale records."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import changed, manifest_of, valid_config, write_record
from generator import write_dataset_facts
from tfscaling.record import attempts, prepared_data, run_states
from tfscaling.study import user_code
from tfscaling.study.manifest import Manifest
from tfscaling.tables import runs_table

CONFIG: list[tuple[Sequence[str | int], Any]] = [
    (("grid", 0, "model"), "net:model"),
    (("grid", 0, "nodes"), [1, 2, 3]),
    (("recipes", "weak", "dataset"), "sets.data:data"),
]
RUNS = Path("results/runs")


@pytest.fixture(autouse=True)
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manifest]:
    """Three runs of own code, all with a record, in the project folder."""
    monkeypatch.chdir(tmp_path)
    run_states.current_checksums.cache_clear()
    Path("sets").mkdir()
    Path("net.py").write_text("def model(): ...\n")
    Path("sets/data.py").write_text("def data(): ...\n")
    manifest = manifest_of(valid_config(*CONFIG))
    for run in manifest.runs:
        change(write_record(RUNS, run), user_code=user_code.code_of_run(run.spec).checksums())
    yield manifest
    run_states.current_checksums.cache_clear()


def change(path: Path, **environment: Any) -> None:
    with changed(path) as record:
        record["environment"] |= environment


def reasons(manifest: Manifest) -> list[tuple[str, str]]:
    """(status, reason) of each run; the table and the list for `rerun: stale` agree."""
    run_states.current_checksums.cache_clear()
    table, _ = runs_table.run_tables(manifest.runs, RUNS)
    specs = [run.spec for run in manifest.runs]
    records = {spec.path: run_states.find_record(spec, RUNS / spec.path) for spec in specs}
    found = {path: record for path, record in records.items() if record is not None}
    listed = run_states.find_stale_runs(found, specs, prepared_data.datasets_folder(RUNS))
    is_stale = table["status"] == "stale"
    assert [spec.path in listed for spec in specs] == is_stale.tolist()
    assert table["execution_time_s"].isna().tolist() == is_stale.tolist()
    return list(zip(table["status"], table["reason"], strict=True))


def of_node(manifest: Manifest, nodes: int) -> Path:
    return RUNS / manifest.runs[nodes - 1].spec.path / "run.json"


@pytest.mark.parametrize("name", ["net.py", "sets/data.py"])
def test_runs_of_earlier_code_are_stale_until_the_change_is_undone(
    name: str, planned: Manifest
) -> None:
    before = Path(name).read_text()
    Path(name).write_text(before + "size = 1\n")
    for status, reason in reasons(planned):
        assert status == "stale"
        assert re.match(rf".*: {name} \([0-9a-f]{{12}}, now [0-9a-f]{{12}}\); ", reason)
        assert "--config rerun=stale" in reason
    change(of_node(planned, 2), user_code=user_code.code_of_run(planned.runs[1].spec).checksums())
    assert [status for status, _ in reasons(planned)] == ["stale", "ok", "stale"]
    Path(name).write_text(before)
    assert [status for status, _ in reasons(planned)] == ["ok", "stale", "ok"]


def test_a_checksum_of_the_whole_file_is_compared_with_the_whole_file(planned: Manifest) -> None:
    code = user_code.code_of_run(planned.runs[0].spec).checksums()
    whole = {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in code}
    change(of_node(planned, 1), user_code=whole)
    assert reasons(planned) == [("ok", "")] * 3
    Path("net.py").write_text("# of mine\n" + Path("net.py").read_text())
    assert [status for status, _ in reasons(planned)] == ["stale", "ok", "ok"]


def test_data_prepared_by_other_code_is_named_too(planned: Manifest) -> None:
    dataset = json.loads(of_node(planned, 1).read_text())["environment"]["dataset"]
    change(of_node(planned, 1), dataset={**dataset, "user_code": {"sets/data.py": "a" * 64}})
    first, *others = reasons(planned)
    assert first[0] == "stale"
    assert "sets/data.py (aaaaaaaaaaaa, now" in first[1]
    assert others == [("ok", "")] * 2


def test_what_cannot_be_compared_counts(planned: Manifest) -> None:
    """Records of before have no checksums; code that is not here has none."""
    change(of_node(planned, 1), user_code={})
    Path("net.py").write_text("def model(): return 1\n")
    assert [status for status, _ in reasons(planned)] == ["ok", "stale", "stale"]
    Path("net.py").unlink()
    Path("sets/data.py").unlink()
    assert [status for status, _ in reasons(planned)] == ["ok"] * 3


def test_runs_of_other_data_are_stale(planned: Manifest) -> None:
    record = json.loads(of_node(planned, 1).read_text())
    dataset = record["environment"]["dataset"]
    change(of_node(planned, 2), dataset={**dataset, "sha256": "b" * 64})
    write_dataset_facts(Path("results/datasets"), dataset["name"], 3, dataset["sha256"])
    assert [status for status, _ in reasons(planned)] == ["ok", "stale", "ok"]


def test_the_record_of_another_run_counts_nowhere(planned: Manifest) -> None:
    record = json.loads(of_node(planned, 1).read_text())
    of_node(planned, 1).write_text(json.dumps(record | {"parameters_hash": "0" * 16}))
    table, _ = runs_table.run_tables(planned.runs, RUNS)
    assert table["status"].tolist() == ["failed", "ok", "ok"]
    assert planned.runs[0].spec.parameters_hash in table["reason"][0]


@pytest.mark.parametrize("is_current", [True, False])
def test_a_kept_record_by_the_present_code_counts_before_one_by_other_code(
    is_current: bool, planned: Manifest
) -> None:
    path, spec = of_node(planned, 1), planned.runs[0].spec
    own = attempts.attempt_folder(path.parent, 1)
    own.mkdir()
    (own / attempts.RECORD).write_bytes(path.read_bytes())
    change(path, user_code={"net.py": "a" * 64})
    if not is_current:
        change(own / attempts.RECORD, user_code={"net.py": "b" * 64})
    found = run_states.find_record(spec, path.parent)
    assert found is not None
    assert found.file == (own / attempts.RECORD if is_current else path)
    later = run_states.find_record(spec, path.parent, replaces=1)
    assert later is None
