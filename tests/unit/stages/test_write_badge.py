"""The badge for a model's README: how far a training scales, by records of known times."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from builders import manifest_of, raw_config, study_folder, write_failure, write_record
from seeds import drawn_seed
from tfscaling.conclusions.scaling_range import EFFICIENCY_MIN, find_scaling_ranges
from tfscaling.stages import write_badge, write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study import config_validation
from tfscaling.tables.data_warnings import (
    LIMITED,
    SERIOUS,
    DataWarning,
    read_warnings,
    write_warnings,
)

SEED = drawn_seed()
TEXT = "{http://www.w3.org/2000/svg}text"
RUNS = 8
#: Factors that scatter the times of a configuration's runs.
FACTORS = [0.99 + 0.02 * n / (RUNS - 1) for n in range(RUNS)]
ONE_NODE_S = 800.0


def study_of(
    folder: Path,
    efficiencies: dict[int, float],
    runs: dict[int, int] | None = None,
    *changes: tuple[tuple[str | int, ...], Any],
) -> StudyFolder:
    """A study whose numbers of nodes have these efficiencies; `runs` of them are valid.

    Its records are of one machine: without the warning about it, they are as of a cluster.
    """
    raw = raw_config(
        (("grid", 0, "repeats"), RUNS), (("grid", 0, "nodes"), [*efficiencies]), *changes
    )
    raw["platforms"]["cluster"]["nodes_max"] = 64
    config = config_validation.convert_to_types(raw)
    planned = manifest_of(config)
    dice, base = random.Random(SEED), min(efficiencies)
    factors = {nodes: dice.sample(FACTORS, RUNS) for nodes in efficiencies}
    for run in planned.runs:
        nodes = run.spec.point.nodes
        factor = factors[nodes][run.spec.repeat - 1]
        time_s = ONE_NODE_S * base / nodes / efficiencies[nodes] * factor
        if run.spec.repeat <= (runs or {}).get(nodes, RUNS):
            write_record(folder / "runs", run, time_s)
        else:
            write_failure(folder / "runs", run)
    return write_study_tables(study_folder(folder / "main", config, planned))


def write_study_tables(study: StudyFolder) -> StudyFolder:
    """Make the tables that the badge reads, without warnings."""
    for stage in (write_tables.collect, write_tables.compare):
        stage(study)
    write_warnings(study.details / "warnings.json", [])
    return study


def message_of(study: StudyFolder) -> str:
    """Write the badge, and return its message."""
    write_badge.run(study)
    root = ET.parse(study.folder / "badge/scaling.svg").getroot()
    label, message = (str(each.text) for each in root.iter(TEXT))
    assert label == "scaling"
    return message


def verdicts_of(study: StudyFolder) -> dict[int, bool]:
    """Nodes → whether the efficiency is shown, for the only line."""
    warnings = read_warnings(study.details / "warnings.json")
    (found,) = find_scaling_ranges(write_tables.load_own_evidence(study), warnings)
    return {each.row.nodes: each.is_efficient for each in found.configurations}


def test_a_training_scales_to_the_last_number_of_nodes_that_keeps_the_efficiency(
    tmp_path: Path,
) -> None:
    dice = random.Random(SEED)
    nodes = sorted(dice.sample(range(2, 20), 3))
    good = dice.randint(1, 2)
    efficiencies = {1: 1.0} | {
        number: dice.uniform(0.8, 0.95) if place < good else dice.uniform(0.3, 0.6)
        for place, number in enumerate(nodes)
    }
    study = study_of(tmp_path, efficiencies)
    assert message_of(study) == f"to {nodes[good - 1]} nodes (95 %)", SEED
    kept = {number: number == 1 or number in nodes[:good] for number in efficiencies}
    assert verdicts_of(study) == kept, SEED


def test_more_nodes_beyond_a_number_that_is_not_shown_are_not_claimed(tmp_path: Path) -> None:
    study = study_of(tmp_path, {1: 1.0, 2: 0.95, 3: 0.55, 4: 0.9})
    assert verdicts_of(study) == {1: True, 2: True, 3: False, 4: True}
    assert message_of(study) == "to 2 nodes (95 %)"


@pytest.mark.parametrize(
    ("efficiencies", "runs"),
    [
        ({1: 1.0, 2: 0.5}, {}),
        ({1: 1.0, 2: EFFICIENCY_MIN}, {}),  # runs on both sides of the limit
        ({1: 1.0, 2: 0.95}, {2: 5}),  # too few
        ({1: 1.0, 2: 0.95}, {1: 5}),
        ({1: 1.0, 2: 0.95}, {1: 0}),
        ({1: 1.0, 2: 0.95}, {1: 0, 2: 0}),
        ({2: 1.0}, {}),
    ],
)
def test_what_the_runs_do_not_show_is_not_shown(
    tmp_path: Path, efficiencies: dict[int, float], runs: dict[int, int]
) -> None:
    study = study_of(tmp_path, efficiencies, runs)
    assert message_of(study) == "not shown"
    assert "not shown" in (study.folder / "badge/scaling.md").read_text()


def test_a_badge_names_the_nodes_of_a_baseline_of_several(tmp_path: Path) -> None:
    assert message_of(study_of(tmp_path, {4: 1.0, 8: 0.9})) == "from 4 to 8 nodes (95 %)"


def test_a_slower_platform_as_the_baseline_shows_nothing(tmp_path: Path) -> None:
    """One node of the baseline takes ten times as long: every efficiency is far above 1."""
    raw = raw_config((("comparison",), {"baseline": {"platform": "slow", "nodes": 1}}))
    raw["platforms"]["slow"] = {"launcher": "srun", "nodes_max": 8, "cpus_per_node": 8}
    block = {"model": "mnist_cnn", "recipe": "weak", "repeats": RUNS}
    raw["grid"] = [
        {**block, "platform": "cluster", "nodes": [1, 2]},
        {**block, "platform": "slow", "nodes": [1]},
    ]
    config = config_validation.convert_to_types(raw)
    planned = manifest_of(config)
    for run in planned.runs:
        time_s = 900.0 if run.spec.point.platform == "slow" else 90.0
        write_record(tmp_path / "runs", run, time_s + run.spec.repeat / 10)
    study = write_study_tables(study_folder(tmp_path / "main", config, planned))
    assert study.read_table("comparison")["scaling_efficiency"].max() > 2
    assert message_of(study) == "not shown"


def test_nodes_that_one_machine_simulated_show_nothing(tmp_path: Path) -> None:
    study = study_of(tmp_path, {1: 1.0, 2: 0.95})
    assert message_of(study) == "to 2 nodes (95 %)"
    write_tables.compare(study)  # with its warnings
    assert message_of(study) == "not shown"


@pytest.mark.parametrize("severity", [SERIOUS, LIMITED])
@pytest.mark.parametrize("nodes", [1, 4])
def test_configurations_with_a_serious_warning_are_not_shown(
    tmp_path: Path, severity: str, nodes: int
) -> None:
    """A warning about the baseline, on one node, concerns all."""
    study = study_of(tmp_path, {1: 1.0, 2: 0.95, 4: 0.9})
    (point,) = {r.spec.point for r in study.manifest.runs if r.spec.point.nodes == nodes}
    warning = DataWarning("one_machine", severity, "A sentence.", "in <short>", (point,), RUNS)
    write_warnings(study.details / "warnings.json", [warning])
    expected = {1: "not shown", 4: "to 2 nodes (95 %)"}[nodes]
    assert message_of(study) == (expected if severity == SERIOUS else "to 4 nodes (95 %)")
    text = (study.folder / "badge/scaling.md").read_text()
    assert (r"in \<short" in text) == (severity == SERIOUS)


def test_the_table_has_each_configuration_and_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = study_of(tmp_path, {1: 1.0, 2: 0.9, 4: 0.5})
    capsys.readouterr()
    write_badge.run(study)
    folder = study.folder / "badge"
    assert capsys.readouterr().out.split() == [f"{folder}/scaling.svg", f"{folder}/scaling.md"]
    text = (folder / "scaling.md").read_text()
    assert re.findall(r"\]\((.*?)\)", text) == ["scaling.svg"]
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    head, _, *cells = ([cell.strip() for cell in row] for row in rows)
    assert [row[head.index("nodes")] for row in cells] == ["1", "2", "4"]
    efficiencies = [float(row[head.index("efficiency")].split()[0]) for row in cells]
    assert efficiencies == pytest.approx([1.0, 0.9, 0.5], abs=0.02)
    assert [row[-1] == "yes" for row in cells] == [True, True, False]


def test_several_lines_have_tables_and_the_badge_has_the_best(tmp_path: Path) -> None:
    block = {"platform": "cluster", "model": "mnist_cnn", "repeats": RUNS, "nodes": [1, 2, 4]}
    raw = raw_config((("grid",), [{**block, "recipe": ["weak", "other"]}]))
    raw["recipes"]["other"] = {"global_batch_size": 64, "learning_rate": 0.1, "epochs": 2}
    config = config_validation.convert_to_types(raw)
    planned = manifest_of(config)
    to_nodes = dict(zip(("weak", "other"), random.Random(SEED).sample([2, 4], 2), strict=True))
    for run in planned.runs:
        nodes = run.spec.point.nodes
        efficiency = 0.9 if nodes <= to_nodes[run.spec.point.recipe] else 0.4
        time_s = ONE_NODE_S / nodes / (efficiency if nodes > 1 else 1)
        write_record(tmp_path / "runs", run, time_s * (1 + run.spec.repeat / 1000))
    study = write_study_tables(study_folder(tmp_path / "main", config, planned))
    assert message_of(study) == "to 4 nodes (95 %)", SEED
    headings = re.findall("^## .*", (study.folder / "badge/scaling.md").read_text(), re.M)
    for recipe, nodes in to_nodes.items():
        (own,) = [heading for heading in headings if recipe in heading]
        assert f"to {nodes} nodes" in own, SEED


def test_a_hostile_title_is_text_in_picture_and_page(tmp_path: Path) -> None:
    title = r"[x](javascript:alert(1)) <script>alert(2)</script> \<b> `c` | *d* & \| \\<i>"
    study = study_of(tmp_path, {1: 1.0, 2: 0.9}, {}, (("platforms", "cluster", "title"), title))
    message_of(study)
    text = (study.folder / "badge/scaling.md").read_text()
    assert "alert(2)" in text
    assert not re.search(r"(?<!\\)(?:\\\\)*<[a-z/]", text)
    assert re.findall(r"(?<!\\)(?:\\\\)*\]\((.*?)\)", text) == ["scaling.svg"]
    bars = {len(re.findall(r"(?<!\\)\|", row)) for row in text.splitlines() if row[:1] == "|"}
    assert len(bars) == 1
