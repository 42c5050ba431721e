"""What is marked supported is right: each kind of sentence in simulated sweeps of known truth.

At most FALSE_MAX of the sweeps may have a false one. The claims are those of the texts, so the
same tests run on every version of them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders import REPOSITORY
from claims import INDIFFERENCE, is_false, nodes_of
from measured import NOTHING_PLANNED
from simulated import NOISES, RUNS, Sweeps, line, noise, share
from tfscaling.conclusions import clouds, findings
from tfscaling.conclusions.answers.answer import answers_by_goal
from tfscaling.conclusions.answers.answer_types import Answer
from tfscaling.conclusions.evidence import Study
from tfscaling.estimation.samples import INCONCLUSIVE, SUPPORTED
from tfscaling.study.config_types import Limit, Question

FALSE_MAX = 0.05
#: A rule that is wrong in 15 % of the sweeps exceeds FALSE_MAX in 98 % of such tests.
TRIALS = 60
#: A rule that is always wrong shows it in a few sweeps with little noise.
FEW_TRIALS = 8
each_noise = pytest.mark.parametrize(
    ("kind", "trials"),
    [
        pytest.param(NOISES[0], FEW_TRIALS, id="few sweeps"),
        *(
            pytest.param(kind, TRIALS, id=f"{kind[0]} {kind[1]:g}", marks=pytest.mark.full)
            for kind in NOISES
        ),
    ],
)


def is_rare(false: Sequence[bool]) -> bool:
    """Whether false sentences are as rare as FALSE_MAX; one in few sweeps may be a coincidence."""
    return sum(false) <= max(1, FALSE_MAX * len(false))


def supported(
    comparison: pd.DataFrame, runs: pd.DataFrame, topic: str, *kinds: str
) -> list[dict[str, Any]]:
    """The supported findings of a topic, of these kinds or of all."""
    found = findings.table(Study(comparison, runs, NOTHING_PLANNED)).to_dict("records")
    own = [row for row in found if row["topic"] == topic and row["support"] == SUPPORTED]
    return [row for row in own if not kinds or row["kind"] in kinds]  # type: ignore[misc]


@each_noise
def test_more_nodes_are_slower_only_where_they_are(kind: tuple[str, float], trials: int) -> None:
    """Six lines of two equal points."""
    sweeps = Sweeps(line(nodes=(1, 2)), recipes=6)
    false = [
        bool(supported(*tables, "scaling", "slower"))
        for tables in sweeps.times([100.0] * 12, kind, trials)
    ]
    assert is_rare(false)


@each_noise
@pytest.mark.parametrize(
    "speedups", [(1, 1.15, 1.25, 1.3), (1, 1, 1, 1), (1, 1.0525, 1.0525, 1.0525)], ids=str
)
def test_more_nodes_do_not_pay_only_where_they_do_not(
    speedups: tuple[float, ...], kind: tuple[str, float], trials: int
) -> None:
    points = line()
    true_s = [100 / speedup for speedup in speedups]
    by_nodes = dict(zip((nodes for _, nodes in points), true_s, strict=True))
    false = [
        any(is_false(row, by_nodes) for row in supported(*tables, "scaling"))
        for tables in Sweeps(points).times(true_s, kind, trials)
    ]
    assert is_rare(false)


def test_where_more_nodes_stop_paying_is_found_where_the_runs_show_it() -> None:
    """A test of false claims alone would pass if nothing were ever claimed."""
    points = line(nodes=(1, 2, 4, 8, 16))
    found = [
        any(nodes_of(row) == [8] for row in supported(*tables, "scaling", "stops paying"))
        for tables in Sweeps(points).times([100, 60, 40, 30, 30.2], ("normal", 0.02), FEW_TRIALS)
    ]
    assert share(found) >= 0.8


@each_noise
def test_accuracy_is_lost_only_where_it_is(kind: tuple[str, float], trials: int) -> None:
    """Six lines of two points that err alike."""
    sweeps, dice = Sweeps(line(nodes=(1, 2)), recipes=6), np.random.default_rng(2)
    times = np.array([100.0, 50.0] * 6)[:, None] * np.ones((12, RUNS))
    false = []
    for _ in range(trials):
        accuracy = 1 - 0.02 * np.exp(noise(*kind, 12, dice))
        tables = sweeps.tables(execution_time_s=times, quality=accuracy)
        false.append(bool(supported(*tables, "quality")))
    assert is_rare(false)


@each_noise
def test_a_cloud_wins_only_where_it_does(kind: tuple[str, float], trials: int) -> None:
    """Four points of two clouds that take equally long."""
    sweeps = Sweeps(line("east") + line("west"))
    false = []
    for comparison, runs in sweeps.times([100.0] * 8, kind, trials):
        table = clouds.table(Study(comparison, runs, sweeps.planned))
        times = table[table["metric"] == "execution_time_s"]
        false.append(bool((times["verdict"] == SUPPORTED).any()))
    assert is_rare(false)


@pytest.mark.full
def test_a_rank_is_slow_only_where_it_is() -> None:
    """Six points of two ranks, of which in each run one or the other is disturbed."""
    sweeps, dice = Sweeps(line(nodes=(2,)), recipes=6), np.random.default_rng(3)
    false = []
    for _ in range(TRIALS):
        ratios = 1.4 + dice.random((6, RUNS)) / 5
        ranks = dice.integers(0, 2, (6, RUNS))
        tables = sweeps.tables(straggler_ratio=ratios, slowest_rank=ranks)
        false.append(bool(supported(*tables, "stragglers")))
    assert is_rare(false)


def published() -> tuple[list[tuple[str, int]], list[float]]:
    """(points, true times) of one published platform; its optimum is flat."""
    with (REPOSITORY / "resources/published_results.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["platform"] == "aws-c4-2xlarge"]
    return [("east", int(row["nodes"])) for row in rows], [
        float(row["execution_time_s"]) for row in rows
    ]


def choices(
    sweeps: Sweeps, true_s: list[float], kind: tuple[str, float], trials: int
) -> Iterator[tuple[Answer, float]]:
    """(choice for the time, by what fraction the point taken is worse than the best)."""
    places = {
        tuple(row[axis] for axis in ("recipe", "platform", "nodes")): place
        for row, place in zip(
            sweeps.comparison.to_dict("records"), sweeps.places.tolist(), strict=True
        )
    }
    for tables in sweeps.times(true_s, kind, trials):
        for choice in answers_by_goal(Study(*tables, NOTHING_PLANNED)):
            if choice.goal == "execution_time_s":
                point: Any = choice.point
                own = true_s[places[point.recipe, point.platform, point.nodes]]
                rivals = [true_s[place] for key, place in places.items() if key[0] == point.recipe]
                yield choice, own / min(rivals) - 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "near_min"),
    [(("normal", 0.05), 0.98), (("normal", 0.1), 0.95), (("normal", 0.2), 0.8),
     (("outliers", 0.05), 0.9)],
)  # fmt: skip
def test_a_point_is_taken_for_its_cost_only_if_it_is_near_the_best(
    kind: tuple[str, float], near_min: float
) -> None:
    points, true_s = published()
    found = list(choices(Sweeps(points), true_s, kind, 100))
    limit = INDIFFERENCE + 1e-9
    assert is_rare([c.support == SUPPORTED and loss > limit for c, loss in found])
    assert share([loss <= (c.bound or 0) + 1e-9 for c, loss in found]) >= 1 - FALSE_MAX
    # decided or not, the point is near the best in most sweeps
    assert share([loss <= limit for _, loss in found]) >= near_min
    assert all(c.bound is not None and c.comparisons == len(points) - 1 for c, _ in found)


@each_noise
def test_rivals_just_outside_the_indifference_are_not_taken_for_the_best(
    kind: tuple[str, float],
    trials: int,
) -> None:
    points, true_s = line(nodes=(1, 2, 3, 4, 6, 8, 10)), [105.25] * 3 + [100.0] + [105.25] * 3
    found = list(choices(Sweeps(points), true_s, kind, trials))
    assert is_rare([c.support == SUPPORTED and loss > 0.051 for c, loss in found])
    assert share([loss <= (c.bound or 0) + 1e-9 for c, loss in found]) >= 1 - FALSE_MAX


@each_noise
@pytest.mark.parametrize("points", [2, 4])
def test_every_other_point_is_worse_only_where_it_is(
    kind: tuple[str, float], trials: int, points: int
) -> None:
    """Of equal points none is the best."""
    sweeps = Sweeps(line(nodes=(1, 2, 4, 8)[:points]), recipes=2)
    true_s = [100.0] * 2 * points
    found = list(choices(sweeps, true_s, kind, trials))
    false = [c.is_best and c.support != INCONCLUSIVE for c, _ in found]
    assert is_rare(false)


def recommended(kind: tuple[str, float], trials: int, question: Question) -> list[int | None]:
    """Nodes of the configuration to take for the time, in sweeps with an error of 2 to 3.05 %."""
    sweeps, dice = Sweeps(line()), np.random.default_rng(4)
    true_s, errors = np.array([100.0, 60.0, 40.0, 30.0]), np.array([0.02, 0.028, 0.0303, 0.0305])
    found: list[int | None] = []
    for _ in range(trials):
        times = true_s[:, None] * np.exp(noise("normal", 0.05, 4, dice))
        accuracy = 1 - errors[:, None] * np.exp(noise(*kind, 4, dice))
        tables = sweeps.tables(execution_time_s=times, quality=accuracy, test_accuracy=accuracy)
        choices = answers_by_goal(Study(*tables, NOTHING_PLANNED, question=question))
        (choice,) = [each for each in choices if each.goal == "execution_time_s"]
        found.append(None if choice.point is None else choice.point.nodes)
    return found


@each_noise
def test_a_configuration_beyond_a_limit_is_not_recommended(
    kind: tuple[str, float], trials: int
) -> None:
    """Four and eight nodes are the fastest, and end with an error just above 3 %."""
    taken = recommended(kind, trials, Question(limits={"test_accuracy": Limit(at_least=0.97)}))
    assert is_rare([nodes in (4, 8) for nodes in taken])


def test_the_fastest_within_a_limit_is_recommended_where_the_runs_show_it() -> None:
    question = Question(limits={"test_accuracy": Limit(at_least=0.97)})
    assert (
        share([nodes == 2 for nodes in recommended(("normal", 0.02), FEW_TRIALS, question)]) >= 0.8
    )
    assert set(recommended(("normal", 0.02), FEW_TRIALS, Question())) == {8}
