"""A search in the configuration: which runs and points it plans, and what it refuses."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from builders import manifest_of, raw_config, refused
from measured import PRICE
from tfscaling.study import config_validation, variants
from tfscaling.study.config_types import SHORT_RUNS_MAX, Question
from tfscaling.study.config_validation import ConfigError
from tfscaling.study.manifest import Manifest, PlannedSearch

USUAL = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2]}
RECIPE = {"per_replica_batch_size": 64, "learning_rate": 0.1, "epochs": 2}
RECIPES = {"weak": RECIPE, "long": {**RECIPE, "epochs": 4}}


def planned_of(*blocks: dict[str, Any], **keys: Any) -> Manifest:
    raw = raw_config((("grid",), [{**USUAL, **block} for block in blocks or ({},)]))
    raw["platforms"]["cluster"] |= keys.pop("priced", {})
    return manifest_of(config_validation.convert_to_types({**raw, **keys}))


def test_a_point_has_up_to_repeats_max_runs_and_the_first_is_made_always() -> None:
    planned = planned_of({"repeats": 6}, search={"repeats_max": 7})
    repeats = [(run.spec.repeat, run.extra_repeat) for run in planned.runs[:7]]
    assert repeats == [(n, n > 1) for n in range(1, 8)]
    (search,) = planned.searches
    assert (search.question, search.goal, search.limits) == (
        "mnist_cnn, weak",
        "execution_time_s",
        {},
    )
    assert [(each.point.nodes, each.repeats) for each in search.points] == [(1, 6), (2, 6)]


def test_a_search_changes_no_run() -> None:
    with_search, without = planned_of(search={}), planned_of({"repeats": 20})
    assert [run.spec for run in with_search.runs] == [run.spec for run in without.runs]
    assert without.searches == ()


def test_blocks_take_the_search_of_the_grid_unless_they_say_otherwise() -> None:
    far = {"nodes": 4}
    planned = planned_of({}, {**far, "search": None}, search={})
    assert [len(search.points) for search in planned.searches] == [2]
    assert sum(run.spec.point.nodes == 4 for run in planned.runs) == 1
    own = planned_of({"search": {"repeats_max": 9}}, {**far, "search": {"repeats_max": 9}})
    assert [len(search.points) for search in own.searches] == [3]


def test_each_recipe_is_searched_by_itself() -> None:
    planned = planned_of({"recipe": ["weak", "long"]}, search={}, recipes=RECIPES)
    assert [search.question for search in planned.searches] == [
        "mnist_cnn, weak",
        "mnist_cnn, long",
    ]


def test_a_search_has_the_goal_the_limits_and_the_axes_of_the_question() -> None:
    """Recipes compete where they may be chosen; a target is no limit."""
    limits = {"test_accuracy": {"at_least": 0.9}, "execution_time_s": {"at_most": "1 h"}}

    def search(**question: Any) -> PlannedSearch:
        blocks = {"recipe": ["weak", "long"], "nodes": 2}
        asked = {"choose": ["recipe"], "limits": limits, **question}
        (found,) = planned_of(blocks, search={}, recipes=RECIPES, question=asked).searches
        return found

    found = search()
    assert [each.point.recipe for each in found.points] == ["weak", "long"]
    assert {name: limit.value for name, limit in found.limits.items()} == {
        "quality": 0.9, "execution_time_s": 3600.0,
    }  # fmt: skip
    found = search(goal="time_to_target_s")
    assert (found.goal, [*found.limits]) == ("time_to_target_s", ["execution_time_s"])
    found = search(limits={"test_accuracy": None})
    assert Question(limits={"test_accuracy": None}).ignored_qualities == {"test_accuracy"}
    assert ([each.point.recipe for each in found.points], found.limits) == (["weak", "long"], {})


USUAL_RECIPE = {"per_replica_batch_size": 64, "epochs": 9}
OF_PROGRAM = {"program": ["true", "{epochs}"], "observe": "events"}
STEPS, ITSELF = {"stop_after_steps": 100}, {"stop_after_steps": "auto"}
FEWER = {"stop_after_epochs": 3}


@pytest.mark.parametrize(
    ("search", "recipe", "name", "epochs"),
    [
        (STEPS, {"learning_rate": 0.1}, "weak+stop_after_steps=100", (9, None)),
        (ITSELF, {"learning_rate": 0.1}, "weak+stop_after_steps=auto", (9, None)),
        (FEWER, OF_PROGRAM, "weak+epochs=3", (3, 9)),
    ],
)
@pytest.mark.parametrize("question", [{}, {"whole_training": {"epochs": 9}}])
def test_short_runs_are_runs_of_the_same_training(
    search: dict[str, Any],
    recipe: dict[str, Any],
    name: str,
    epochs: tuple[int, int | None],
    question: dict[str, Any],
) -> None:
    """All complete runs are made only if the search needs them."""
    block = {"strategy": "own"} if "program" in recipe else {}
    keys = {"recipes": {"weak": {**USUAL_RECIPE, **recipe}}, "question": question}
    planned = planned_of(block, search={**search, "repeats_max": 3}, **keys)
    each = planned.searches[0].points[0]
    assert each.short is not None and each.short.recipe == name
    shorts = [run for run in planned.runs if run.spec.point == each.short]
    complete = [run for run in planned.runs if run.spec.point == each.point]
    assert {(run.spec.recipe.epochs, run.whole_epochs) for run in shorts} == {epochs}
    assert [run.extra_repeat for run in shorts] == [n > 1 for n in range(1, SHORT_RUNS_MAX + 1)]
    assert [run.extra_repeat for run in complete] == [True] * 3
    wholes = variants.complete_runs_by_point(planned.runs)
    assert wholes[each.short].point == each.point
    usual = planned_of(block, search={"repeats_max": 3}, **keys).runs
    assert [run.spec for run in usual if run.spec.point == each.point] == [
        run.spec for run in complete
    ]


def test_recipes_with_short_runs_may_be_chosen() -> None:
    asked = {"choose": ["recipe", "nodes"], "limits": {"test_accuracy": {"at_least": 0.9}}}
    search = {"stop_after_steps": 100}
    found = planned_of({"recipe": [*RECIPES]}, search=search, recipes=RECIPES, question=asked)
    assert [len(each.points) for each in found.searches] == [4]


@pytest.mark.parametrize(
    ("search", "recipe", "words"),
    [
        (STEPS, {"steps_per_execution": 10}, "200 or more"),
        (STEPS, {"checkpoint_every_epochs": 1}, "checkpoint_every_epochs 1"),
        (STEPS, {"stop_after_steps": 50}, "already"),
        (STEPS, OF_PROGRAM, "search.stop_after_epochs"),
        (FEWER, {**OF_PROGRAM, "epochs": 3}, "all 3 epochs"),
        (FEWER, {**OF_PROGRAM, "program": ["true", "{{epochs}}"]}, "does not get {epochs}"),
        (FEWER, {**OF_PROGRAM, "observe": "nothing"}, "allowed: fit, events"),
        (FEWER, {"checkpoint_every_s": 60}, "checkpoints"),
        (FEWER, {"warmup_epochs": 4}, "warmup_epochs 4"),
        ({**STEPS, **FEWER}, {}, "no stop_after_steps"),
    ],
)
def test_recipes_without_short_runs_are_one_clear_error(
    search: dict[str, Any], recipe: dict[str, Any], words: str
) -> None:
    block = {"strategy": "own"} if "program" in recipe else {}
    own = {} if "program" in recipe else {"learning_rate": 0.1}
    recipes = {"weak": {**USUAL_RECIPE, **own, **recipe}}
    line = refused(planned_of, block, search=search, recipes=recipes)
    assert f"search.{[*search][-1]}" in line and words in line


TARGET = {"test_accuracy": {"at_least": 0.9}}
REFUSED: list[tuple[list[dict[str, Any]], dict[str, Any], str, str]] = [
    ([{}], {"search": {"repeats_max": 1}}, "search.repeats_max", "2 to 20"),
    ([{}, {"nodes": 4, "search": {"repeats_max": 9}}], {}, "grid[1].search", "the same"),
    ([{}], {"search": {"basis": "linear"}}, "search.basis", "lines are smooth"),
    ([], {"question": {"goal": "quality"}}, "question.goal", "execution_time_s"),
    ([], {"question": {"limits": TARGET}, "search": {"repeats_max": 10}},
     "search.repeats_max", "11 to 20"),
    ([], {"question": {"goal": "time_to_target_s", "limits": TARGET}, "search": {"repeats_max": 9}},
     "search.repeats_max", "11 to 20"),
    ([], {"question": {"choose": ["platform"]}}, "search", "only configuration"),
    ([], {"question": {"goal": "time_to_target_s", "limits": TARGET},
          "search": {"stop_after_steps": 100}}, "question.goal", "not projected"),
]  # fmt: skip


@pytest.mark.parametrize(("blocks", "keys", "key", "words"), REFUSED)
def test_what_no_search_answers_is_one_clear_error(
    blocks: list[dict[str, Any]], keys: dict[str, Any], key: str, words: str
) -> None:
    line = refused(planned_of, *blocks, **{"search": {}, **keys})
    assert key in line and words in line


PROGRAM = {"per_replica_batch_size": 8, "epochs": 2, "program": ["true"]}


def of_program(goal: str, **recipe: Any) -> Manifest:
    """Points of a program, which has a target."""
    return planned_of(
        {"recipe": "script", "strategy": "own"},
        question={"goal": goal, "limits": TARGET},
        recipes={"script": {**PROGRAM, **recipe}},
        priced={"usd_per_node_hour": 1.0, **PRICE},
    )


@pytest.mark.parametrize("goal", ["time_to_target_s", "cost_to_target_usd"])
@pytest.mark.parametrize(
    "recipe", [{}, {"observe": "output", "patterns": {"test_accuracy": "acc (.+)"}}]
)
def test_a_program_without_times_of_epochs_has_no_time_to_a_target(
    goal: str, recipe: dict[str, Any]
) -> None:
    line = refused(of_program, goal, **recipe)
    assert "question.goal" in line and goal in line
    assert "allowed: execution_time_s, cost_usd" in line
    assert of_program(goal, observe="events").runs
    is_reported = nullcontext() if recipe else pytest.raises(ConfigError, match="test_accuracy")
    with is_reported:
        of_program("execution_time_s", **recipe)


def test_smooth_lines_begin_with_their_ends() -> None:
    blocks: list[dict[str, Any]] = [{"nodes": [2, 4, 8]}, {"nodes": 1}]
    planned = planned_of(*blocks, search={"basis": "lines are smooth"})
    first = [run.spec for run in planned.runs if not run.extra_repeat]
    assert sorted((spec.point.nodes, spec.repeat) for spec in first) == [(1, 1), (8, 1)]
