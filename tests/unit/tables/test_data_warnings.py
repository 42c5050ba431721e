"""The warnings about a data set: what each is about, and that every output has them."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generator
import pandas as pd
import pytest
from builders import changed, manifest_of, raw_config, study_folder, write_failure
from msgspec.structs import replace
from tfscaling.page.plot_registry import PLOTS
from tfscaling.stages import write_page
from tfscaling.study import config_validation
from tfscaling.study.config_types import Config
from tfscaling.study.manifest import Manifest, PlannedRun
from tfscaling.tables import data_warnings, display, runs_table, table_files
from tfscaling.tables.comparison import comparison_table
from tfscaling.tables.data_warnings import LIMITED, SERIOUS, DataWarning
from tfscaling.tables.row_types import RunRow

#: The plots of a grid without a search.
DRAWN = [*PLOTS]
#: What a test changes of a run: (the planned run, its record) → nothing, in place.
Change = Callable[[PlannedRun, dict[str, Any]], None]


def config_of(platform: str = "cluster", repeats: int = 6, **block: Any) -> Config:
    usual = {"model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2]}
    grid = [{**usual, "platform": platform, "repeats": repeats, **block}]
    raw = raw_config((("grid",), grid), (("plots",), {name: {} for name in DRAWN}))
    for run in raw["platforms"].values():
        run |= {"usd_per_node_hour": 1.0, "price_date": "2026", "price_source": "a list"}
    return config_validation.convert_to_types(raw)


def written(config: Config, runs_dir: Path, *changes: Change) -> Manifest:
    """Records of all runs, each on machines of its own, then changed."""
    planned = manifest_of(config)
    generator.write_records(planned.runs, runs_dir)
    for run in planned.runs:
        with changed(runs_dir / run.spec.path / "run.json") as record:
            for change in changes:
                change(run, record)
    return planned


def on_one_machine(run: PlannedRun, record: dict[str, Any]) -> None:
    """All nodes of all runs are one machine with three CPUs; one run follows the other."""
    for rank in record["ranks"]:
        rank["host_facts"] |= {"machine": "m1", "cpus_online": 3}
    point = run.spec.point
    day = 1 + run.spec.repeat + 10 * point.gpus_per_node
    hour = 1 + (point.nodes + run.spec.repeat) % 2
    record["environment"]["started"] = f"2026-01-{day:02}T0{hour}:00:00Z"


def in_order_of_nodes(run: PlannedRun, record: dict[str, Any]) -> None:
    record["environment"]["started"] = (
        f"2026-01-{run.spec.repeat:02}T0{run.spec.point.nodes}:00:00Z"
    )


def with_uncertain_clocks(run: PlannedRun, record: dict[str, Any]) -> None:
    for rank in record["ranks"]:
        rank["clock"]["uncertainty_s"] = 30.0 if run.spec.point.nodes == 1 else 0.001


def sharing_a_machine(run: PlannedRun, record: dict[str, Any]) -> None:
    if run.spec.repeat <= 2 and run.spec.point.nodes == 1:
        record["ranks"][0]["host_facts"]["machine"] = "m1"


def on_unknown_machines(run: PlannedRun, record: dict[str, Any]) -> None:
    for rank in record["ranks"]:
        rank["host_facts"]["machine"] = None


def frames(planned: Manifest, runs_dir: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    runs, _ = runs_table.run_tables(planned.runs, runs_dir)
    return comparison_table(runs, planned), runs


def found(planned: Manifest, runs_dir: Path) -> dict[str, DataWarning]:
    """Kind → warning."""
    warnings = data_warnings.find_warnings(*frames(planned, runs_dir))
    assert len({warning.kind for warning in warnings}) == len(warnings)
    return {warning.kind: warning for warning in warnings}


def nodes_of(warning: DataWarning) -> list[int]:
    return sorted(point.nodes for point in warning.points)


@pytest.mark.parametrize("platform", ["cluster", "laptop"])
def test_the_warning_of_shared_machines_states_whether_times_count(
    platform: str, tmp_path: Path
) -> None:
    planned = written(config_of(platform), tmp_path, sharing_a_machine)
    _, runs = frames(planned, tmp_path)
    shared = runs[runs["shared_with"].astype(bool)]
    is_timed = shared["execution_time_s"].notna()
    assert is_timed.tolist() == [platform == "cluster"] * 2
    text = found(planned, tmp_path)["shared_machine"].text
    assert ("are compared" in text, "not compared" in text) == (is_timed.all(), not is_timed.any())


def test_a_data_set_without_anything_to_warn_of_has_no_warnings(tmp_path: Path) -> None:
    planned = written(config_of(gpus_per_node=[0, 2]), tmp_path)
    assert found(planned, tmp_path) == {}


def test_logical_devices_concern_the_points_that_have_them(tmp_path: Path) -> None:
    config = config_of("laptop", gpus_per_node=[0, 2])
    (only,) = found(written(config, tmp_path), tmp_path).values()
    assert (only.kind, only.severity, only.runs) == ("logical_devices", SERIOUS, 12)
    assert [point.gpus_per_node for point in only.points] == [2, 2]


def test_logical_devices_of_points_that_are_still_to_run_are_warned_of(tmp_path: Path) -> None:
    config = config_of("laptop", gpus_per_node=2)
    assert found(manifest_of(config), tmp_path)["logical_devices"].runs == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (on_one_machine, [("one_machine", SERIOUS, 6, [2])]),
        (on_unknown_machines, []),
        (sharing_a_machine, [("shared_machine", SERIOUS, 2, [1])]),
        (in_order_of_nodes, [("ordered_starts", SERIOUS, 12, [1, 2])]),
        (with_uncertain_clocks, [("uncertain_clocks", LIMITED, 6, [1])]),
    ],
)
def test_a_warning_concerns_the_runs_that_have_what_it_is_about(
    change: Change, expected: list[Any], tmp_path: Path
) -> None:
    warnings = found(written(config_of(), tmp_path, change), tmp_path).values()
    assert [(w.kind, w.severity, w.runs, nodes_of(w)) for w in warnings] == expected


@pytest.mark.parametrize(("cpus", "is_warned_of"), [(1, False), (2, True)])
def test_nodes_with_a_core_each_share_none(cpus: int, is_warned_of: bool, tmp_path: Path) -> None:
    """Two nodes on a machine with three CPUs."""
    read = frames(written(config_of(), tmp_path, on_one_machine), tmp_path)
    kinds = [
        w.kind for w in data_warnings.find_warnings(*read, dict.fromkeys(read[1]["platform"], cpus))
    ]
    assert ("one_machine" in kinds) == is_warned_of


def test_points_that_did_other_work_than_their_baseline_are_warned_of(tmp_path: Path) -> None:
    comparison, runs = frames(written(config_of(), tmp_path), tmp_path)
    comparison["same_work"] = [True, False]
    (only,) = data_warnings.find_warnings(comparison, runs)
    assert (only.kind, only.severity, only.runs) == ("other_work", SERIOUS, 6)
    assert nodes_of(only) == [2]


def test_different_environments_are_named_by_platform_and_fact(tmp_path: Path) -> None:
    def upgrade(run: PlannedRun, record: dict[str, Any]) -> None:
        record["ranks"][0]["host_facts"]["kernel"] = f"7.{run.spec.repeat}"

    (only,) = found(written(config_of(), tmp_path, upgrade), tmp_path).values()
    assert (only.kind, only.severity) == ("environments", LIMITED)
    assert "kernel: cluster" in only.text


def test_runs_that_do_not_count_are_counted_by_status(tmp_path: Path) -> None:
    planned = written(config_of(), tmp_path)
    for number, run in enumerate(planned.runs[-3:]):
        (tmp_path / run.spec.path / "run.json").unlink()
        if number:
            write_failure(tmp_path, run)
    by_kind = found(planned, tmp_path)
    assert list(by_kind) == ["not_valid", "few_runs"]
    out, few = by_kind.values()
    assert (out.severity, out.runs, nodes_of(out)) == (LIMITED, 3, [2])
    assert "1 missing" in out.text and "2 failed" in out.text
    assert (few.severity, few.runs, nodes_of(few)) == (LIMITED, 3, [2])


def test_points_with_few_runs_are_counted_once_for_all(tmp_path: Path) -> None:
    planned = written(config_of(nodes=[1, 2, 3, 4], repeats=5), tmp_path)
    (only,) = found(planned, tmp_path).values()
    assert (only.kind, only.runs, nodes_of(only)) == ("few_runs", 20, [1, 2, 3, 4])
    assert "all 4 " in only.text and "4 of 4" not in only.text


def test_what_runs_warn_of_themselves_is_said_once_for_all_of_them(tmp_path: Path) -> None:
    comparison, runs = frames(written(config_of(), tmp_path), tmp_path)
    runs["warnings"] = ["one thing; another"] * 6 + [None] * 6
    first, second = data_warnings.find_warnings(comparison, runs)
    assert ("one thing" in first.text, "another" in second.text) == (True, True)
    assert [warning.runs for warning in (first, second)] == [6, 6]


@pytest.mark.parametrize(("recipes", "differ"), [("same", True), ("other", False)])
def test_points_that_are_compared_must_be_of_the_same_data(
    tmp_path: Path, recipes: str, differ: bool
) -> None:
    """Points of other recipes are never compared: they may have data of their own."""
    comparison, runs = frames(written(config_of(), tmp_path), tmp_path)
    is_second = runs["nodes"] == 2
    runs["dataset_sha256"] = is_second.map({False: "a" * 64, True: "b" * 64})
    if recipes == "other":
        runs.loc[is_second, "recipe"] = "other"
    found = {w.kind: w for w in data_warnings.find_warnings(comparison, runs)}
    assert ("other_data" in found) == differ
    if differ:
        assert (found["other_data"].severity, found["other_data"].runs) == (SERIOUS, 12)


def test_serious_warnings_come_first_and_only_a_few_before_the_table(tmp_path: Path) -> None:
    made = [
        DataWarning(str(number), severity, f"Text {number}.", "", (), 1)
        for number, severity in enumerate([LIMITED] * 3 + [SERIOUS] * 3)
    ]
    texts = [warning.text for warning in made]
    before, after = texts[:4], texts[4:]
    page = display.insert_warnings("# Heading\n\nThe table.\n", texts)
    places = [page.index(text) for text in ("# Heading", *before, "The table.", *after)]
    assert places == sorted(places)
    assert display.insert_warnings("# Heading\n\nThe table.\n", []) == "# Heading\n\nThe table.\n"


def test_the_list_is_the_same_after_it_went_through_its_file(tmp_path: Path) -> None:
    config = config_of("laptop", gpus_per_node=[0, 2])
    planned = written(config, tmp_path, on_one_machine)
    comparison, runs = frames(planned, tmp_path)
    comparison.to_csv(tmp_path / "comparison.csv", index=False)
    runs.to_csv(tmp_path / "runs.csv", index=False)
    read = [table_files.read_table(tmp_path / f"{name}.csv") for name in ("comparison", "runs")]
    warnings = data_warnings.find_warnings(comparison, runs)
    assert data_warnings.find_warnings(read[0], read[1]) == warnings
    data_warnings.write_warnings(tmp_path / "warnings.json", warnings)
    assert data_warnings.read_warnings(tmp_path / "warnings.json") == warnings


def test_warnings_of_another_version_are_named(tmp_path: Path) -> None:
    path = tmp_path / "warnings.json"
    path.write_text('{"schema_version": 1, "warnings": []}')
    with pytest.raises(ValueError, match=r"warnings\.json: .*schema_version"):
        data_warnings.read_warnings(path)


def outputs(folder: Path) -> dict[str, str]:
    """Everything that people read of a data set: path → text."""
    endings = {".md", ".html", ".svg"}
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.suffix in endings
    }


def made(config: Config, folder: Path, *changes: Change) -> dict[str, str]:
    """All outputs about these runs."""
    written(config, folder / "runs", *changes)
    study = study_folder(folder / "out", replace(config, export=("markdown", "svg")))
    for stage in write_page.STAGES:
        stage(study)
    return outputs(folder / "out")


@pytest.fixture(scope="module")
def warned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder and all outputs of a data set on a laptop and a cluster that is one machine."""

    def at_the_same_time(run: PlannedRun, record: dict[str, Any]) -> None:
        record["environment"]["started"] = "2026-01-01T00:00:00Z"

    folder = tmp_path_factory.mktemp("warned")
    config = config_of(["laptop", "cluster"], 2, gpus_per_node=[0, 2])  # type: ignore[arg-type]
    return folder / "out", made(config, folder, on_one_machine, at_the_same_time)


def squeezed(text: str) -> str:
    """Text as it is read, without what line breaks and escapes make of it."""
    plain = html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\\", "").replace("--", "–")
    return re.sub(r"\s+", "", plain)


def test_every_output_has_every_warning_about_its_data(warned: tuple[Path, dict[str, str]]) -> None:
    folder, texts = warned
    warnings = data_warnings.read_warnings(folder / "details/warnings.json")
    assert [warning.kind for warning in warnings] == [
        "logical_devices", "one_machine", "shared_machine", "of_runs", "few_runs",
    ]  # fmt: skip
    assert {Path(name).name for name in texts} >= {
        "comparison.md", "decision.md", "findings.md", "report.html",
        *(f"{name}.svg" for name in DRAWN),
    }  # fmt: skip
    for name, text in texts.items():
        path, said = Path(name), squeezed(text)
        if path.stem == "console":  # the console prints it above the headline
            continue
        for warning in warnings:
            is_short = path.suffix == ".svg" or path.stem == "headline"
            planned = warning.short if is_short else warning.text
            if path.stem == "headline" and warning.severity != SERIOUS:
                continue
            assert squeezed(planned) in said, f"{name}: {warning.kind}"


def test_the_order_of_a_few_runs_is_no_warning(tmp_path: Path) -> None:
    comparison, runs = frames(written(config_of(), tmp_path, in_order_of_nodes), tmp_path)
    few = runs[runs["repeat"] <= 3]
    assert "ordered_starts" not in {
        each.kind for each in data_warnings.find_warnings(comparison, few)
    }


@pytest.mark.parametrize(("nodes", "is_rare"), [([1, 2], True), ([1], False)])
def test_starts_in_order_are_a_warning_if_they_are_rare_over_all_repeats(
    nodes: list[int], is_rare: bool, tmp_path: Path
) -> None:
    """Orders of four runs and of two are both rising, or both falling, by chance once in 24."""
    config = config_of(repeats=2, nodes=[1, 2, 4, 8])
    comparison, runs = frames(written(config, tmp_path, in_order_of_nodes), tmp_path)
    some = runs[(runs["repeat"] == 1) | runs["nodes"].isin(nodes)]
    found = {each.kind for each in data_warnings.find_warnings(comparison, some)}
    assert ("ordered_starts" in found) == is_rare


def test_runs_that_diverged_are_a_serious_warning(tmp_path: Path) -> None:
    planned = written(config_of(), tmp_path)
    comparison, runs = frames(planned, tmp_path)
    assert "diverged" not in {
        warning.kind for warning in data_warnings.find_warnings(comparison, runs)
    }
    runs.loc[(runs["nodes"] == 2) & (runs["repeat"] < 3), "status"] = "diverged"
    found = data_warnings.find_warnings(comparison_table(runs, planned), runs)
    (warning,) = [warning for warning in found if warning.kind == "diverged"]
    assert "not_valid" not in {warning.kind for warning in found}
    assert (warning.severity, warning.runs) == (SERIOUS, 2)
    assert [point.nodes for point in warning.points] == [2]
    assert warning.short in data_warnings.make_footnotes(found)[0]


def test_configurations_that_may_mislead_are_serious_warnings(tmp_path: Path) -> None:
    """Missed targets, more failed attempts than valid runs, and a scatter above 20 %."""
    planned = written(config_of(), tmp_path)
    comparison, runs = frames(planned, tmp_path)
    kinds = ("missed_targets", "failed_attempts", "wide_scatter")
    assert not {each.kind for each in data_warnings.find_warnings(comparison, runs)} & {*kinds}
    two = runs["nodes"] == 2
    runs.loc[two, "failed_attempts"] = 1
    runs["execution_time_s"] /= 1000  # runs of milliseconds scatter as well
    runs.loc[two, "execution_time_s"] *= runs["repeat"]
    runs.loc[runs.index[~two][0], "execution_time_s"] = 0.0  # it has no logarithm
    comparison["runs_at_target"] = comparison["runs"] - 2 * (comparison["nodes"] == 2)
    found = {each.kind: each for each in data_warnings.find_warnings(comparison, runs)}
    for kind, number in zip(kinds, (2, 6, 6), strict=True):
        assert (found[kind].severity, found[kind].runs) == (SERIOUS, number)
        assert nodes_of(found[kind]) == [2]


def test_a_slow_node_is_named_with_the_configurations_that_had_it(tmp_path: Path) -> None:
    def on_four_nodes(run: PlannedRun, record: dict[str, Any]) -> None:
        first = run.spec.repeat + run.spec.point.nodes
        for rank in record["ranks"]:
            rank["host"] = f"node{(first + rank['rank']) % 4}"
        factor = 2 if "node3" in {rank["host"] for rank in record["ranks"]} else 1
        times = record["phases"]
        for name in ("train_time_s", "execution_time_s"):
            times[name] *= factor

    planned = written(config_of(repeats=8), tmp_path, on_four_nodes)
    warning = found(planned, tmp_path)["slow_nodes"]
    assert "node3" in warning.text and "node2" not in warning.text
    assert nodes_of(warning) == [1, 2]
    healthy_s, median_s = map(float, re.findall(r"([\d.]+) s", warning.text)[-2:])
    assert median_s / healthy_s == pytest.approx(1.5, rel=0.02)  # half of the runs had it


def test_as_many_machines_as_nodes_are_no_warning(tmp_path: Path) -> None:
    """Each node of a run is another machine, with fewer CPUs than the plan has for it."""

    def on_two(run: PlannedRun, record: dict[str, Any]) -> None:
        on_one_machine(run, record)
        for rank in record["ranks"]:
            rank["host_facts"]["machine"] = f"m{rank['rank'] % run.spec.point.nodes}"

    read = frames(written(config_of(), tmp_path, on_two), tmp_path)
    runs = [run for run in table_files.to_rows(RunRow, read[1]) if run.nodes > 1]
    assert {len(str(run.machines).split()) for run in runs} == {2}
    kinds = [
        w.kind for w in data_warnings.find_warnings(*read, dict.fromkeys(read[1]["platform"], 9))
    ]
    assert "one_machine" not in kinds
