"""A limit of the energy compares energies of the same parts only."""

from __future__ import annotations

import pytest
from measured import around, measured
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.answers.candidate_types import State
from tfscaling.conclusions.evidence import Study
from tfscaling.study.config_types import Limit, Question
from tfscaling.tables.comparison import comparison_table

CPUS, GPUS, BOTH = "processors", "GPUs", "GPUs and processors"


@pytest.mark.parametrize(
    ("parts", "limit_kwh", "kept", "excluded", "lacking"),
    [
        ((CPUS, BOTH, BOTH), 10.0, [2, 4], [], {1: GPUS}),
        ((GPUS, CPUS, GPUS), 10.0, [], [], {1: CPUS, 2: GPUS, 4: CPUS}),
        ((GPUS, GPUS, GPUS), 10.0, [1, 2, 4], [], {}),
        # what is beyond the limit without some parts is beyond it with them
        ((CPUS, BOTH, CPUS), 1e-6, [], [1, 2, 4], {1: GPUS, 4: GPUS}),
    ],
)
def test_a_limit_of_the_energy_is_kept_only_with_all_parts(
    parts: tuple[str, ...],
    limit_kwh: float,
    kept: list[int],
    excluded: list[int],
    lacking: dict[int, str],
) -> None:
    _, runs, planned = measured({("east", n): around(30.0) for n in (1, 2, 4)})
    runs["energy_kwh"] = runs["execution_time_s"] / 30.0
    runs["energy_of"] = runs["nodes"].map(dict(zip((1, 2, 4), parts, strict=True)))
    question = Question(limits={"energy_kwh": Limit(at_most=limit_kwh)})
    table = comparison_table(runs, planned)
    study = Study(table, runs, planned, question=question)
    (found,) = answer_questions(study)
    states = {each.point.nodes: each.state for each in found.candidates}
    assert sorted(n for n, state in states.items() if state == State.COMPARED) == kept
    assert sorted(each.point.nodes for each in found.candidates if each.missed) == excluded
    reasons = {each.point.nodes: each.reason for each in found.not_covered}
    for nodes, words in reasons.items():
        own = lacking.get(nodes)
        assert (f"without {own}" in words) if own else ("without" not in words)
