"""How large a global batch pays: the interval of the noise scale, and the sentence of a point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import manifest_of, valid_config, write_record
from record.test_step_estimates import measured, true_scale
from tfscaling.conclusions import findings, noise_scale
from tfscaling.conclusions.evidence import Study
from tfscaling.record.rank_report import GradientNorms
from tfscaling.tables import runs_table
from tfscaling.tables.comparison import comparison_table

KEY = ("recipes", "weak", "gradient_noise_scale")


def test_intervals_hold_the_scale_of_the_problem_as_often_as_they_say() -> None:
    found = [noise_scale.noise_scale([measured(seed)]) for seed in range(100)]
    held = [each.low <= true_scale() <= each.high for each in found]
    assert np.mean(held) > 0.88  # of 95 %, with forty steps
    assert all(each.low <= each.examples <= each.high for each in found)


def around(epoch: int, signal: float, noise: float, seed: int = 0) -> GradientNorms:
    """Norms of 200 steps of which |G|^2 and tr(S) are known, with a scatter of 0.1 %."""
    parts, whole = np.random.default_rng(seed).normal(1.0, 0.001, (2, 200))
    return GradientNorms(
        epoch=epoch,
        part_examples=8,
        whole_examples=16,
        parts=tuple((signal + noise / 8 * parts).tolist()),
        whole=tuple((signal + noise / 16 * whole).tolist()),
    )


def found_for(
    folder: Path, *norms: GradientNorms, is_asked: bool = True, comparisons: int = 2
) -> list[tuple[str, str]]:
    """(sentence, support) of the findings about batches, of two points with these norms."""
    planned = manifest_of(valid_config((KEY, is_asked)))
    for run in planned.runs:
        write_record(folder, run, gradient_norms=norms)
    runs, _ = runs_table.run_tables(planned.runs, folder)
    comparison = comparison_table(runs, planned)
    found = findings.table(Study(comparison, runs, planned))
    own = found[found["topic"] == "batch"]
    if is_asked:
        is_known = comparison["gradient_noise_scale"].notna().all()
        assert is_known == (own["support"] == "supported").all()
        assert set(own["comparisons"]) == {comparisons}
    return list(zip(own["text"], own["support"], strict=True))


def test_a_point_says_beyond_which_batch_more_nodes_do_not_help(tmp_path: Path) -> None:
    norms = measured(0, steps=400)
    scale = noise_scale.noise_scale([norms])
    for text, support in found_for(tmp_path, norms):
        assert support == "supported"
        assert f"beyond a global batch of about {scale.examples:.0f} examples (" in text


def test_the_sentence_is_of_the_last_evaluation_and_tells_the_first(tmp_path: Path) -> None:
    first, last = around(1, 1.0, 50.0), around(8, 0.001, 5.0)
    scales = [noise_scale.noise_scale([norms], comparisons=4) for norms in (first, last)]
    assert [scale.examples for scale in scales] == pytest.approx([50.0, 5000.0], rel=0.1)
    for text, support in found_for(tmp_path, last, first, comparisons=4):
        assert support == "supported"
        assert f" {scales[1].text} " in text
        assert "after epoch 8," in text
        assert text.endswith(f"it grew to that from {scales[0].text} after epoch 1")


@pytest.mark.parametrize(("signal", "verb"), [(1.0, ""), (0.1, "fell"), (10.0, "grew")])
def test_a_change_is_told_only_where_it_is_shown(signal: float, verb: str, tmp_path: Path) -> None:
    first, last = around(1, signal, 50.0, seed=1), around(2, 1.0, 50.0)
    for text, _ in found_for(tmp_path, first, last, comparisons=4):
        assert "after epoch 2," in text
        assert ("after epoch 1" in text) == bool(verb)
        assert f"it {verb} to that" in text or not verb


def test_the_scale_may_grow_beyond_what_was_measured(tmp_path: Path) -> None:
    hidden = around(8, -0.001, 50.0)
    for text, support in found_for(tmp_path, around(1, 1.0, 50.0), hidden, comparisons=4):
        assert support == "inconclusive"
        assert "at least" in text and "it grew to that from 50 examples" in text


def test_intervals_that_hold_together_are_wider() -> None:
    norms = measured(0, steps=400)
    one, ten = (noise_scale.noise_scale([norms], comparisons) for comparisons in (1, 10))
    assert ten.low < one.low < one.examples == ten.examples < one.high < ten.high


def test_noise_that_hides_the_gradient_gives_no_limit(tmp_path: Path) -> None:
    hidden = GradientNorms(
        epoch=1, part_examples=8, whole_examples=16, parts=(2.0,) * 9, whole=(1.0,) * 9
    )
    (first, *_) = found_for(tmp_path, hidden)
    assert first[1] == "inconclusive"
    assert "at least" in first[0]


def test_recipes_that_do_not_ask_have_no_sentence(tmp_path: Path) -> None:
    assert found_for(tmp_path, measured(0, steps=400), is_asked=False) == []
