"""What a dry-run prints of any grid: few lines, every run counted once, the plan's sums."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, raw_config
from tfscaling.console.dry_run import DryRun
from tfscaling.plan import costed_plan
from tfscaling.study import config_validation
from tfscaling.study.run_spec import RunSpec

#: The same in all processes that collect the tests.
DRAWN = random.Random(int(os.environ.get("SEED", "1")))


class Preview:
    """A dry-run of the whole grid of `nodes` and repeats on the platform `cluster`."""

    def __init__(self, folder: Path, nodes: int, repeats: int, **platform: Any) -> None:
        point = {"platform": "cluster", "nodes": [*range(1, nodes + 1)], "repeats": repeats}
        keys = {"nodes_max": 1000, **platform}
        changes = [(("platforms", "cluster", key), value) for key, value in keys.items()]
        raw = raw_config(*changes)
        raw["grid"] = [{**raw["grid"][0], **point}]
        self.config = config_validation.convert_to_types(raw)
        self.manifest = manifest_of(self.config)
        self.runs = {f"runs/{run.spec.path}/run.json": run for run in self.manifest.runs}
        self.folder = folder
        self.reasons: dict[str, str] = {}
        self.repeated: dict[str, str] = {}
        self.changes: dict[str, str] = {}

    def jobs(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = [
            {
                "rule_name": "train", "output": [record], "is_checkpoint": False,
                "reason": self.reasons.get(record, "Missing output files: …"),
            }
            for record in self.runs
        ]  # fmt: skip
        DRAWN.shuffle(found)
        return found

    def lines(self, *others: Mapping[str, Any]) -> list[str]:
        def change_of(spec: RunSpec) -> str:
            return self.changes.get(f"runs/{spec.path}/run.json", "")

        def why_repeated(path: str) -> str:
            return self.repeated.get(f"runs/{path}/run.json", "")

        shown = DryRun(self.config, self.manifest, self.runs, self.folder, why_repeated, change_of)
        return shown.lines([*self.jobs(), *others])

    def rows(self) -> list[dict[str, str]]:
        """The rows of the table; its last column is not read."""
        table = [line.split() for line in self.lines() if line.startswith("  ")]
        return [dict(zip(table[0], row, strict=False)) for row in table[1:]]


@pytest.mark.parametrize("runs", [24, 500])
def test_any_grid_has_few_lines_with_all_runs(runs: int, tmp_path: Path) -> None:
    repeats = DRAWN.choice([n for n in (1, 2, 4) if runs % n == 0])
    shown = Preview(tmp_path, runs // repeats, repeats)
    lines = shown.lines()
    assert len(lines) <= (40 if runs == 24 else 80)
    counted = sum(int(row["runs"]) for row in shown.rows())
    (rest,) = [line for line in lines if line.startswith("and ")] or [""]
    counted += int(rest.split()[5]) if rest else 0
    assert counted == runs, lines


def test_runs_of_a_configuration_are_one_row_with_their_repeats(tmp_path: Path) -> None:
    nodes, repeats = DRAWN.randint(2, 9), DRAWN.randint(3, 9)
    rows = Preview(tmp_path, nodes, repeats).rows()
    assert [(row["nodes"], row["runs"], row["repeats"]) for row in rows] == [
        (str(number), str(repeats), f"1-{repeats}") for number in range(1, nodes + 1)
    ]


def test_what_all_request_is_said_once(tmp_path: Path) -> None:
    minutes = DRAWN.randint(1, 900)
    lines = Preview(tmp_path, 3, 1, partition="fast", account="lab", runtime_min=minutes).lines()
    head = " ".join(lines)
    for text in ("partition fast", "account lab", f"limit {minutes} min", "reason new"):
        assert head.count(text) == 1, lines


def test_changed_and_forced_runs_have_rows_of_their_own(tmp_path: Path) -> None:
    shown = Preview(tmp_path, 1, 6)
    records = [*shown.runs]
    shown.changes = dict.fromkeys(records[:2], "epochs: 2, now 3")
    shown.reasons = {records[4]: "Updated input files: data.npz"}
    shown.repeated = {records[5]: "forced", records[3]: "stale"}
    lines = shown.lines()
    ends = {"epochs: 2, now 3": 2, "forced": 1, "stale": 1, "new": 1, "prepared again": 1}
    for end, runs in ends.items():
        (row,) = (line for line in lines if line.endswith(end))
        assert f"  {runs}  " in row


def test_the_sums_are_the_plans(tmp_path: Path) -> None:
    price = {"usd_per_node_hour": 2.5, "price_date": "2026-01-01", "price_source": "a list"}
    shown = Preview(tmp_path, 4, 3, **price)
    total = costed_plan.sum_rows(costed_plan.make_plan(shown.config, shown.manifest, tmp_path).runs)
    (line,) = (line for line in shown.lines() if line.startswith("Estimate: "))
    assert f"${total.cost_usd:,.2f}" in line
    assert f" {total.node_hours:.3g} node-hours" in line


def test_other_jobs_are_named(tmp_path: Path) -> None:
    other = {"output": ["a.csv"], "reason": "", "is_checkpoint": False}
    lines = Preview(tmp_path, 1, 1).lines(
        {**other, "rule_name": "collect"},
        {**other, "rule_name": "prepare_dataset"},
        {**other, "rule_name": "prepare_dataset"},
        {**other, "rule_name": "assess_repeats", "is_checkpoint": True},
    )
    assert lines[-1] == "Other jobs: collect, prepare_dataset (2 jobs), assess_repeats."
    assert "may follow" in lines[-2]
