"""How large a global batch pays: the interval of the noise scale, and the sentence of a point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import manifest_of, valid_config, write_record
from records.test_gradient_noise import measured, true_scale
from tfscaling.analysis import findings, noise_scale
from tfscaling.analysis.evidence import Study
from tfscaling.records.rank_report import GradientNorms
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import comparison_table

KEY = ("recipes", "weak", "gradient_noise_scale")


def test_intervals_hold_the_scale_of_the_problem_as_often_as_they_say() -> None:
    found = [noise_scale.noise_scale([measured(seed)]) for seed in range(100)]
    held = [each.low <= true_scale() <= each.high for each in found]
    assert np.mean(held) > 0.88  # of 95 %, with forty steps
    assert all(each.low <= each.examples <= each.high for each in found)


def found_for(folder: Path, norms: GradientNorms, is_asked: bool = True) -> list[tuple[str, str]]:
    """(sentence, support) of the findings about batches."""
    planned = manifest_of(valid_config((KEY, is_asked)))
    for run in planned.runs:
        write_record(folder, run, gradient_norms=(norms,))
    runs, _ = runs_table.run_tables(planned.runs, folder)
    comparison = comparison_table(runs, planned)
    found = findings.find(Study(comparison, runs, planned))
    own = found[found["topic"] == "batch"]
    if is_asked:
        is_known = comparison["gradient_noise_scale"].notna().all()
        assert is_known == (own["support"] == "supported").all()
    return list(zip(own["text"], own["support"], strict=True))


def test_a_point_says_beyond_which_batch_more_nodes_do_not_help(tmp_path: Path) -> None:
    norms = measured(0, steps=400)
    scale = noise_scale.noise_scale([norms])
    for text, support in found_for(tmp_path, norms):
        assert support == "supported"
        assert f"beyond a global batch of about {scale.examples:.0f} examples (" in text


def test_noise_that_hides_the_gradient_gives_no_limit(tmp_path: Path) -> None:
    hidden = GradientNorms(
        epoch=1, part_examples=8, whole_examples=16, parts=(2.0,) * 9, whole=(1.0,) * 9
    )
    (first, *_) = found_for(tmp_path, hidden)
    assert first[1] == "inconclusive"
    assert "at least" in first[0]


def test_recipes_that_do_not_ask_have_no_sentence(tmp_path: Path) -> None:
    assert found_for(tmp_path, measured(0, steps=400), is_asked=False) == []
