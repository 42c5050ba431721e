"""The costed plan: what is still to do, its estimate, the budget, and the plugin's sbatch line."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import generator
import msgspec
import pytest
import searched
from builders import (
    REGISTRIES,
    changed,
    manifest_of,
    raw_config,
    record_of,
    write_failure,
    write_record,
)
from msgspec.structs import replace
from submitted import config_of, described, plan_of, planned_runs, refusal_of
from tfscaling.plan import budget, conditional_runs, costed_plan, preflight, run_durations
from tfscaling.record import attempts, run_record
from tfscaling.record.attempts import Cause, FailureReport
from tfscaling.record.phases import PHASES, WALL_PHASES
from tfscaling.record.run_record import RunRecord
from tfscaling.stages import write_plan as script
from tfscaling.study import acceptance, config_validation
from tfscaling.study.config_types import Budget, Config, Limit, Question
from tfscaling.study.manifest import PlannedRun
from tfscaling.study.run_spec import RunSpec

PRICE: dict[str, Any] = {"usd_per_node_hour": 3.6, "price_date": "2026", "price_source": "list"}
WALL_S = generator.phases().wall_time_s


def record_with(folder: Path, entry: PlannedRun, **phases: float) -> None:
    with changed(write_record(folder, entry)) as record:
        record["phases"].update(phases)


# --- what is still to do ---


def test_runs_without_a_record_are_to_do_and_excluded_points_have_their_reason(
    tmp_path: Path,
) -> None:
    made = plan_of(config_of(cpus_per_node=8), tmp_path)
    assert [(row.nodes, row.feasibility, row.reason) for row in made.rows] == [
        (1, "runs", "missing: not run yet"),
        (2, "runs", "missing: not run yet"),
        (9, "excluded", "9 nodes exceed nodes_max 8"),
    ]
    assert (len(made.runs), made.finished, made.on_other_clusters) == (2, 0, 0)
    assert made.rows[1].tasks == 2 and made.rows[1].cpus_per_task == 8
    assert made.rows[2].runs is None and made.rows[2].duration_s is None


def test_failed_attempts_are_counted_with_their_cost(tmp_path: Path) -> None:
    config = config_of(repeats=1)
    for run in planned_runs(config):
        write_failure(tmp_path, run)
        for attempt, wall_time_s in ((1, 1800.0), (2, None)):
            folder = attempts.attempt_folder(tmp_path / run.spec.path, attempt)
            folder.mkdir()
            cause = Cause(kind="stalled", message="x")
            failure = FailureReport(
                axes=run.spec.axes, attempt=attempt, cause=cause, wall_time_s=wall_time_s
            )
            attempts.write_failure(folder, failure)
    spent = plan_of(config, tmp_path).spent
    # on one and on two nodes
    assert (spent.failed_attempts, spent.lost_node_hours, spent.node_hours) == (4, 1.5, 1.5)


def test_failed_and_changed_runs_are_to_do_with_the_reason(tmp_path: Path) -> None:
    config = config_of(repeats=3)
    first, second, third = planned_runs(config)[:3]
    write_record(tmp_path, third)
    write_failure(tmp_path, first)
    of_two_nodes = next(run for run in planned_runs(config) if run.spec.point.nodes == 2)
    for run in (second, of_two_nodes):
        longer = replace(run.spec, recipe=replace(run.spec.recipe, epochs=7))
        write_record(tmp_path, replace(run, spec=longer))
    rows = plan_of(config, tmp_path).runs
    reasons = [row.reason for row in rows if row.nodes == 1]
    assert reasons[0].startswith("failed: rank_died: rank 1 on node1")
    assert reasons[1].startswith("missing: ") and reasons[1].endswith(": epochs: 7, now 2")
    assert len(reasons) == 2
    assert script.count_changed_parameters(rows) == {"epochs: 7, now 2": 2}


def test_only_the_chosen_cluster_is_planned(tmp_path: Path) -> None:
    raw = raw_config((("grid", 0, "platform"), ["cluster", "laptop"]))
    raw["grid"][0]["nodes"] = [1, 2, 5]
    raw["platforms"]["cluster"]["cluster"] = "gcp"
    raw["cluster"] = "gcp"
    made = plan_of(config_validation.convert_to_types(raw), tmp_path)
    assert {row.platform for row in made.rows} == {"cluster"}
    assert (len(made.runs), made.on_other_clusters) == (3, 2)


# --- how long and how dear ---


def test_without_a_measurement_the_time_limit_is_the_estimate(tmp_path: Path) -> None:
    row = plan_of(config_of(**PRICE), tmp_path).runs[1]
    assert (row.duration_s, row.duration_from) == (1800.0, "time limit")
    assert row.node_hours == pytest.approx(1.0)
    assert row.cost_usd == pytest.approx(3.6)


def test_the_estimate_is_the_median_wall_time_of_the_points_valid_runs(tmp_path: Path) -> None:
    config = config_of(repeats=4)
    for entry, extra in zip(planned_runs(config)[:3], (0.0, 100.0, 5.0), strict=True):
        record_with(tmp_path, entry, train_time_s=10.0 + extra, queue_time_s=999.0)
    of_one_node, *others = plan_of(config, tmp_path).runs
    assert of_one_node.runs == 1
    assert of_one_node.duration_s == pytest.approx(WALL_S + 5.0)
    assert of_one_node.duration_from == "measured, 3 runs"
    assert {row.duration_from for row in others} == {"time limit"}


def walls_s(spec: RunSpec, runs_dir: Path) -> list[float]:
    return [each.phases.wall_time_s for each in run_durations.find_valid_records(spec, runs_dir)]


def test_the_wall_time_is_every_phase_but_queue_boot_and_execution_time_which_overlaps(
    tmp_path: Path,
) -> None:
    (entry, _) = planned_runs(config_of())
    record_with(tmp_path, entry, **dict.fromkeys(set(PHASES) - set(WALL_PHASES), 999.0))
    assert walls_s(entry.spec, tmp_path) == pytest.approx([WALL_S])


def test_runs_of_another_seed_or_beyond_the_repeats_count_others_do_not(tmp_path: Path) -> None:
    old = replace(config_of(repeats=2), seed=50)
    write_record(tmp_path, planned_runs(old)[1])
    config = config_of()
    (entry, _) = planned_runs(config)
    assert walls_s(entry.spec, tmp_path) == pytest.approx([WALL_S])
    longer = replace(config.recipes["weak"], epochs=3)
    other = replace(config, recipes={"weak": longer})
    assert walls_s(planned_runs(other)[0].spec, tmp_path) == []
    with changed(tmp_path / planned_runs(old)[1].spec.path / "run.json") as record:
        record["axes"]["nodes"] = 2
    assert walls_s(entry.spec, tmp_path) == []


def test_runs_of_a_point_are_one_row_unless_their_reasons_differ(tmp_path: Path) -> None:
    config = config_of(repeats=3, **PRICE)
    write_failure(tmp_path, planned_runs(config)[1])
    rows = plan_of(config, tmp_path).rows
    assert [(row.nodes, row.runs, row.reason.split(":")[0]) for row in rows] == [
        (1, 2, "missing"), (1, 1, "failed"), (2, 3, "missing"),
        (9, None, "9 nodes exceed nodes_max 8"),
    ]  # fmt: skip
    assert (rows[2].duration_s, rows[2].node_hours) == (1800.0, pytest.approx(3.0))
    assert rows[2].cost_usd == pytest.approx(10.8)


# --- the budget ---


@pytest.mark.parametrize(
    ("budget", "key", "estimate"),
    [
        ({"usd": 5}, "budget.usd: 5", "5.40 US dollars"),
        ({"usd": 0}, "budget.usd: 0", "5.40 US dollars"),
        ({"node_hours": 1.25}, "budget.node_hours: 1.25", "1.50 node-hours"),
        ({"usd": 100, "node_hours": 1}, "budget.node_hours: 1", "1.50 node-hours"),
    ],
)
def test_beyond_the_budget(budget: dict[str, Any], key: str, estimate: str, tmp_path: Path) -> None:
    sources: list[tuple[str, dict[str, Any]]] = [
        ("base.yaml", {"grid": []}),
        ("overlay.yaml", {"budget": budget}),
    ]
    line = refusal_of(config_of(budget, **PRICE), tmp_path, sources)
    assert line is not None
    assert line.startswith(f"overlay.yaml: {key} ") and f"{estimate} (" in line
    assert f"{estimate.split()[0]} or more" in line


@pytest.mark.parametrize("budget", [{"usd": 5.4}, {"node_hours": 1.5}, {"usd": 9, "node_hours": 2}])
def test_within_the_budget(budget: dict[str, Any], tmp_path: Path) -> None:
    assert refusal_of(config_of(budget, **PRICE), tmp_path) is None


def test_finished_runs_leave_the_budget_to_the_others(tmp_path: Path) -> None:
    config = config_of({"usd": 2}, **PRICE)
    write_record(tmp_path, planned_runs(config)[1])
    assert refusal_of(config, tmp_path) is None
    write_record(tmp_path, planned_runs(config)[0])
    assert refusal_of(config_of({"usd": 0, "node_hours": 0}), tmp_path) is None


def test_dollars_need_the_price_of_every_platform_with_runs_to_do(tmp_path: Path) -> None:
    sources: list[tuple[str, dict[str, Any]]] = [
        ("platforms.yaml", {"platforms": {"cluster": {}}}),
        ("o.yaml", {"budget": {}}),
    ]
    line = refusal_of(config_of({"usd": 5}), tmp_path, sources)
    assert line is not None
    assert line.startswith("platforms.yaml: platforms.cluster.usd_per_node_hour: null ")
    assert "budget.usd 5" in line
    assert refusal_of(config_of({"node_hours": 5}), tmp_path) is None
    # whose costs are no estimate beyond the budget
    config = config_of({"usd": 0})
    assert len(budget.budget_problems(config, plan_of(config, tmp_path))) == 1


def page(config: Config, folder: Path, executor: str = "slurm") -> str:
    made = plan_of(config, folder)
    rows = costed_plan.add_submission(made.rows, config, described(executor))
    return script.plan_as_markdown(made, rows, config)


def table_rows(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines() if line.startswith("| ")
    ]  # fmt: skip


def test_the_page_has_every_row_one_line_for_each_geometry_and_the_sums(tmp_path: Path) -> None:
    text = page(config_of(repeats=2, **PRICE), tmp_path)
    header, *rows = table_rows(text)
    assert header[:5] == ["nodes", "runs", "tasks", "gpus", "cpus_per_task"]
    assert [row[-1] for row in rows[:3]] == ["sbatch 1", "sbatch 2", "–"]
    assert rows[1][1] == "2"
    assert rows[1][5:9] == ["0:30:00", "time limit", "2.000", "7.2000"]
    assert rows[2][-2] == "excluded (9 nodes exceed nodes_max 8)"
    assert text.count("\nsbatch --parsable") == 2
    assert "rule_train/<run>/%j.log" in text
    assert ["all", "4", "3.000", "10.80", "2:00:00"] in rows
    assert "\nAll: " in text and "model mnist_cnn" in text
    assert "- 0 of 4 runs" in text
    assert "assumption" not in text


@pytest.mark.parametrize("is_too_short", [True, False])
def test_a_deadline_below_the_measured_start_up_is_named(
    is_too_short: bool, tmp_path: Path
) -> None:
    config = config_of(repeats=2)
    record_with(tmp_path, planned_runs(config)[0])
    startup_s = plan_of(config, tmp_path).startup_s
    assert startup_s > 0
    limit = Limit(at_most=startup_s * (0.5 if is_too_short else 2))
    asked = replace(config, question=Question(limits={"execution_time_s": limit}))
    key = "question.limits.execution_time_s.at_most"
    assert (key in page(asked, tmp_path)) == is_too_short
    content = {"question": {"limits": {"execution_time_s": {"at_most": limit.at_most}}}}
    refusal = refusal_of(asked, tmp_path, [("late.yaml", content)])
    assert (refusal or "").startswith(f"late.yaml: {key}: {limit.at_most}") == is_too_short
    assert bool(refusal) == is_too_short
    for run in planned_runs(config)[1:]:  # a question about runs that are there is answered
        record_with(tmp_path, run)
    assert refusal_of(asked, tmp_path) is None


def test_an_allocation_has_the_nodes_of_the_largest_run_and_the_time_of_all(tmp_path: Path) -> None:
    config = config_of(repeats=3, launcher="srun", runtime_min=30)
    rows = plan_of(config, tmp_path).rows
    (line,) = script.allocation_lines(rows, config)
    # 3 x 1 + 3 x 2 nodes for half an hour each, on two nodes
    assert [float(number) for number in re.findall(r"[\d.]+", line)] == [2, 135, 4.5]


#: Shortest minutes of a wide job → whether a time limit of 30 minutes, and whether a measured time
#: of 119.75 s, are shorter.
SHORT = {1: (False, False), 2: (False, True), 30: (False, True), 31: (True, True)}


@pytest.mark.parametrize("minutes", SHORT)
def test_the_plan_warns_of_jobs_that_are_wide_and_short(minutes: int, tmp_path: Path) -> None:
    config = config_of(repeats=2, launcher="srun", wide_jobs={"nodes": 2, "minutes": minutes})
    on_two_nodes = next(run for run in planned_runs(config) if run.spec.point.nodes == 2)
    for time, is_short in zip(("30 min", "1.9 min"), SHORT[minutes], strict=True):
        if time != "30 min":
            record_with(tmp_path, on_two_nodes, train_time_s=110.0)
        rows = plan_of(config, tmp_path).rows
        submitted = costed_plan.add_submission(rows, config, described())
        lines = [*script.wide_job_lines(submitted, config)]
        assert len(lines) == is_short
        for line in lines:
            assert f"cluster, nodes 2: a run takes up to {time}; jobs on 2 nodes or more" in line
            assert f"at least {minutes} min" in line and "profiles/allocation" in line
        assert not [*script.wide_job_lines(rows, config)], "what is not submitted is no job"
        for other in ({"nodes": 3, "minutes": minutes}, None):
            without = config_of(repeats=2, launcher="srun", wide_jobs=other)
            assert not [*script.wide_job_lines(submitted, without)]


def test_an_allocation_of_a_sweep_is_no_wide_and_short_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object) -> None:
        raise preflight.NoSlurmError("no Slurm here")

    monkeypatch.setattr(preflight, "add_test_results", no_answer)
    config = config_of(launcher="srun", wide_jobs={"nodes": 1, "minutes": 60})
    made = plan_of(config, tmp_path)
    for executor in ("slurm-sweep", script.ALLOCATION):
        _, lines = script.add_slurm_answers(made, config, described(executor))
        is_found = any(
            line.startswith("Wide and short jobs: cluster, nodes 1, 2") for line in lines
        )
        assert is_found == (executor != script.ALLOCATION)


def test_what_slurm_refuses_comes_first_and_is_in_no_sum(tmp_path: Path) -> None:
    config = config_of(repeats=2, **PRICE)
    made = plan_of(config, tmp_path)
    one, two, excluded = costed_plan.add_submission(made.rows, config, described())
    refused = replace(two, starts=costed_plan.REFUSED, slurm="no node has it")
    text = script.plan_as_markdown(made, [one, refused, excluded], config)
    before, _, after = text.partition("# Plan of the runs")
    assert "- cluster, nodes 2: no node has it" in before and "nodes 1" not in before
    assert ["all", "2", "1.000", "3.60", "1:00:00"] in table_rows(after)
    assert "- Not in the sums: 2 of these runs" in after


def test_logical_devices_are_no_gpus_in_the_plan(tmp_path: Path) -> None:
    block = {"platform": "laptop", "model": "mnist_cnn", "recipe": "weak", "nodes": [2, 9],
             "gpus_per_node": [0, 2]}  # fmt: skip
    config = config_validation.convert_to_types(raw_config((("grid",), [block])))
    made = plan_of(config, tmp_path)
    assert [row.devices for row in made.rows] == ["CPU", "logical"] * 2
    header, *rows = table_rows(page(config, tmp_path, "local"))
    shown = [dict(zip(header, row, strict=True)) for row in rows[:4]]
    assert [(row["devices"], row["gpus"]) for row in shown] == [
        ("CPU", "0"), ("logical", "4 logical"), ("CPU", "–"), ("logical", "–"),
    ]  # fmt: skip


def test_a_run_that_diverged_is_done_and_tells_nothing_of_the_time(tmp_path: Path) -> None:
    config = config_of(repeats=2)
    write_record(tmp_path, planned_runs(config)[0], divergence="diverged: loss is NaN from epoch 2")
    made = plan_of(config, tmp_path)
    assert made.finished == 1
    assert [(row.nodes, row.runs) for row in made.runs] == [(1, 1), (2, 2)]
    assert {row.duration_from for row in made.runs} == {"time limit"}


def test_the_plan_says_when_short_runs_end_and_after_how_many_steps_they_did(
    tmp_path: Path,
) -> None:
    auto = ("recipes", "weak", "stop_after_steps"), "auto"
    config = config_validation.convert_to_types(raw_config(auto, (("grid", 0, "repeats"), 2)))
    assert "after 500 steps" in page(config, tmp_path, "local")
    assert "after 500 steps" not in page(config_of(), tmp_path, "local")
    short = planned_runs(config)[0]
    made = msgspec.convert(record_of(short), RunRecord)
    (tmp_path / short.spec.path).mkdir(parents=True)
    run_record.write_json(tmp_path / short.spec.path / "run.json", generator.shortened(made, 2000))
    row = plan_of(config, tmp_path).rows[0]
    assert row.duration_from == "measured, 1 run of up to 2,000 steps"


# --- searches ---


def test_a_search_costs_less_than_the_full_grid_and_needs_no_runs_of_points_that_left(
    tmp_path: Path,
) -> None:
    config = searched.config_of({})
    planned = manifest_of(config)
    before = costed_plan.make_plan(config, planned, tmp_path)
    needed = [row for row in before.runs if row.feasibility == costed_plan.IF_NEEDED]
    runs = [costed_plan.sum_rows(rows).runs for rows in (before.runs, needed)]
    assert runs == [6 * 20, 6 * 19]
    cost = before.searches[0].costs
    runs = [cost[kind].runs for kind in ("made", "least", "most", "full grid")]
    assert runs == [0, 6, 120, 36]
    assert 6 < cost["expected"].runs < 120
    hours = planned.runs[0].spec.point.nodes  # of the time limit
    assert cost["least"].node_hours == pytest.approx(2 * (1 + 2 + 4) * hours)
    assert cost["full grid"].cost_usd == pytest.approx(6 * cost["least"].cost_usd)

    searched.runs_of(planned, tmp_path, lambda run: run.spec.repeat <= 1)
    cost = costed_plan.make_plan(config, planned, tmp_path).searches[0].costs
    assert [cost["made"].runs, cost["least"].runs] == [6, 9]
    assert cost["least"].runs <= cost["expected"].runs < cost["most"].runs <= 120

    searched.runs_of(planned, tmp_path)
    done = costed_plan.make_plan(config, planned, tmp_path)
    assert done.runs == [] and done.finished == 32
    cost = done.searches[0].costs
    assert cost["made"] == cost["least"] == cost["expected"] == cost["most"]
    shown = script.searches_table(done.searches)
    assert len(shown.cells) == 5

    # forced runs are those with a record, whether the search still needs them or not
    all_forced = frozenset(run.spec.path for run in planned.runs)
    for forced in (all_forced, frozenset(random.sample(sorted(all_forced), 40))):
        made = sum((tmp_path / path / "run.json").exists() for path in forced)
        again = costed_plan.make_plan(config, planned, tmp_path, forced)
        assert costed_plan.sum_rows(again.runs).runs == again.searches[0].to_do.runs == made


def test_runs_that_a_search_gave_up_are_not_to_do(tmp_path: Path) -> None:
    """One of six configurations failed three times; the others are still to run."""
    config = searched.config_of({})
    planned = manifest_of(config)
    first = planned.runs[0]
    write_failure(tmp_path, first)
    for attempt in (1, 2, 3):
        folder = attempts.attempt_folder(tmp_path / first.spec.path, attempt)
        folder.mkdir()
        cause = Cause(kind="rank_died", message="exit code 3")
        attempts.write_failure(
            folder, FailureReport(axes=first.spec.axes, attempt=attempt, cause=cause)
        )
    assert attempts.failed_too_often(tmp_path / first.spec.path)
    made = costed_plan.make_plan(config, planned, tmp_path)
    at_once = {row.point: row.runs for row in made.runs if row.feasibility == costed_plan.RUNS}
    others = {run.spec.point for run in planned.runs} - {first.spec.point}
    assert at_once == dict.fromkeys(others, 1)
    assert made.searches[0].costs["least"].runs == len(others)


def test_a_search_that_is_not_worth_more_runs_costs_no_more(tmp_path: Path) -> None:
    config = searched.config_of({}, question={"trainings": 1})
    planned = manifest_of(config)
    before = costed_plan.make_plan(config, planned, tmp_path).searches[0]
    assert (before.costs["expected"].runs, before.end_verdict) == (6, "")
    searched.runs_of(planned, tmp_path, lambda run: run.spec.repeat <= 1)
    plan = costed_plan.make_plan(config, planned, tmp_path)
    assert plan.runs == []
    (cost,) = plan.searches
    assert cost.costs["made"] == cost.costs["expected"] == cost.costs["most"]
    assert any(cost.end_verdict in note for note in script.searches_table([cost]).notes)
    assert cost.end_verdict
    # the sweep has no further round, unless there are more trainings
    made = [run.spec.path for run in planned.runs if run.spec.repeat == 1]
    for trainings, is_due in ((1, False), (10**6, True), (None, True)):
        other = manifest_of(searched.config_of({}, question={"trainings": trainings}))
        after, _ = conditional_runs.next_round(other, tmp_path, made, 2)
        assert (after.added > 0) == is_due


def test_a_budget_holds_the_expected_runs_of_a_search(tmp_path: Path) -> None:
    config = searched.config_of({})
    planned = manifest_of(config)
    cost = costed_plan.make_plan(config, planned, tmp_path).searches[0].costs
    expected, most = cost["expected"].node_hours, cost["most"].node_hours
    assert expected < 0.9 * most
    for share, is_allowed in ((0.99, False), (1.01, True)):
        asked = replace(config, budget=Budget(node_hours=share * expected))
        reason = budget.find_excess(asked, planned, tmp_path)
        assert (reason is None) == is_allowed
        assert is_allowed or "expected" in str(reason)


@pytest.mark.parametrize("chosen", [None, "near", "far"])
@pytest.mark.parametrize("nodes", [[1, 2, 3, 4], list(range(1, 11))])
def test_a_budget_counts_what_a_search_still_needs_on_the_chosen_cluster(
    nodes: list[int], chosen: str | None, tmp_path: Path
) -> None:
    """A search may be unable to make all planned runs, and other runs need no search."""
    usual = {**searched.SHAPE, "nodes_max": 10, "runtime_min": 60}
    blocks: list[dict[str, Any]] = [
        {"platform": ["near", "far"], "model": "mnist_cnn", "recipe": "weak", "nodes": nodes},
        {"platform": ["near", "far"], "model": "mnist_cnn", "recipe": "alone", "nodes": 1,
         "search": None},
    ]  # fmt: skip
    raw = raw_config((("grid",), [{"repeats": 6, **block} for block in blocks]), (("search",), {}))
    raw["platforms"] = {n: {**usual, "title": n, "cluster": n} for n in ("near", "far")}
    raw["recipes"]["alone"] = {**raw["recipes"]["weak"], "epochs": 3}
    config = config_validation.convert_to_types({**raw, "cluster": chosen})
    planned = manifest_of(config)
    made = costed_plan.make_plan(config, planned, tmp_path)
    (search,) = made.searches
    platforms_chosen = 2 if chosen is None else 1
    alone_hours = platforms_chosen * 6.0
    if chosen is None:
        assert search.to_do.node_hours == pytest.approx(search.costs["expected"].node_hours)
    else:
        assert 0 < search.to_do.node_hours < search.costs["expected"].node_hours
    least = alone_hours + search.to_do.node_hours
    for share, problems in ((0.98, 1), (1.02, 0)):
        asked = replace(config, budget=Budget(node_hours=share * least))
        assert len(budget.budget_problems(asked, made)) == problems


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        ({"per_replica_batch_size": 64, "steps_per_epoch": 10}, ["weak"]),
        ({"per_replica_batch_size": 64}, []),
        ({"global_batch_size": 64, "steps_per_epoch": 10}, []),
    ],
)
def test_recipes_that_train_more_on_more_nodes_are_named(
    recipe: dict[str, Any], named: list[str]
) -> None:
    config = config_validation.convert_to_types(raw_config())
    sizes = {"per_replica_batch_size": None, **recipe}
    recipes = {"weak": replace(config.recipes["weak"], **sizes)}
    points: list[dict[str, Any]] = [
        {**run.spec.point.axes} for run in acceptance.plan_grid(config, REGISTRIES).runs
    ]
    rows = [
        costed_plan.PlanRow(**point, devices="CPU", feasibility="runs", reason="")
        for point in points
    ]
    assert costed_plan.recipes_with_different_examples(rows, recipes) == named
    assert costed_plan.recipes_with_different_examples(rows[:1], recipes) == []
