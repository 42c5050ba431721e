#!/usr/bin/env python3
"""How accurate large batches are compared with batch 64 of the published recipe.

large_batch.py RUNS [--choice RUNS] [--page FILE]: the runs.csv of studies/large-batch/config.yaml,
and of studies/large-batch/choice.yaml. Prints as Markdown when and where they ran, and for each
model the accuracy of each recipe and global batch in the last epoch of training and on the test
data, mean and range over the seeds, with the distance of the latter from batch 64 and the 95 %
interval of that difference of means (Welch's t): a recipe is below or above batch 64 if all of the
interval is, and diverges if a run of it does. Of the choice: the accuracy of each candidate on
examples held out of the training data. With --page it writes all this between the markers of that
page instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

import pandas as pd
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measured_page
from tfscaling.record.run_states import RunState
from tfscaling.tables import table_files

#: What all recipes are compared with: batch 64 as published, and with the other schedule.
PUBLISHED, SAME_SCHEDULE = "published-64", "large-batch-64"
QUALITY, IN_TRAINING = "test_accuracy", "accuracy"
HEADER = (
    "recipe",
    "global batch",
    "runs",
    "accuracy in training",
    "test accuracy",
    f"minus {PUBLISHED}",
    f"compared with {PUBLISHED}",
    f"minus {SAME_SCHEDULE}",
)
CANDIDATES = ("candidate", "runs", "accuracy on held-out examples")
#: Of the machine and the packages, as runs.csv has them: column → what the page calls it.
PLACE = {
    "cpu_model": "processor",
    **{name: name for name in ("python", "tensorflow", "keras")},
    "git_commit": "commit",
}


def accuracies(runs: pd.DataFrame, metric: str = QUALITY) -> dict[str, list[float]]:
    """Recipe → the accuracy of each valid run, in the order of the table."""
    names = dict.fromkeys(runs["recipe"])
    valid = runs[runs["status"] == "ok"]
    return {name: valid.loc[valid["recipe"] == name, metric].tolist() for name in names}


def difference(own: Sequence[float], other: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the difference of the means with its interval.

    None with fewer than two runs of each, and where all of each are equal: nothing tells how far
    others would scatter.
    """
    if min(len(own), len(other)) < 2 or len({*own}) == len({*other}) == 1:
        return None
    interval = stats.ttest_ind(own, other, equal_var=False).confidence_interval(0.95)
    return mean(own) - mean(other), float(interval.low), float(interval.high)


def rows(runs: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts for each recipe of a model's runs."""
    found, in_training = accuracies(runs), accuracies(runs, IN_TRAINING)
    made, diverged = runs["recipe"].value_counts(), diverged_runs(runs)
    batches = runs.drop_duplicates("recipe").set_index("recipe")["global_batch_size"]
    for name, own in found.items():
        published = difference(own, found.get(PUBLISHED, []))
        same = difference(own, found.get(SAME_SCHEDULE, []))
        is_itself = name == PUBLISHED
        yield (
            name,
            f"{int(batches[name]):,}",
            counted(own, made[name], diverged[name]),
            ranged(in_training[name]),
            ranged(own),
            "" if is_itself else signed(published),
            "" if is_itself else verdict(published, diverged[name]),
            "" if name == SAME_SCHEDULE else signed(same),
        )


def diverged_runs(runs: pd.DataFrame) -> dict[str, int]:
    """Recipe → how many of its runs diverged."""
    names, of = runs["recipe"], runs["status"] == RunState.DIVERGED
    return {name: int(of[names == name].sum()) for name in dict.fromkeys(names)}


def counted(valid: Sequence[float], made: int, diverged: int) -> str:
    """Return how many runs count, and how many have no accuracy because they diverged."""
    return f"{len(valid)} of {made}" + (f", {diverged} diverged" if diverged else "")


def verdict(found: tuple[float, float, float] | None, diverged: int) -> str:
    """Return below, above or not significant by a difference's interval; "" without one."""
    if diverged:
        return "diverges"
    if found is None:
        return ""
    _, low, high = found
    return "below" if high < 0 else ("above" if low > 0 else "not significant")


def ranged(values: Sequence[float]) -> str:
    """Format the mean with the smallest and largest value."""
    if not values:
        return "no valid run"
    return f"{mean(values):.4f} ({min(values):.4f}–{max(values):.4f})"


def signed(found: tuple[float, float, float] | None) -> str:
    """Format a difference with its interval."""
    return "" if found is None else "{:+.4f} ({:+.4f} to {:+.4f})".format(*found)


def tables(runs: pd.DataFrame, choice: pd.DataFrame | None) -> str:
    """All of it: place, a table for each model, and those of the candidates."""
    parts = [measured_page.place(runs, PLACE)]
    for model, own in runs.groupby("model", sort=False):
        parts.append(f"### {model}\n\n{measured_page.table(HEADER, rows(own))}")
    if choice is not None:
        parts.append(f"### The choice\n\n{measured_page.place(choice, PLACE)}")
        for model, own in choice.groupby("model", sort=False):
            made, diverged = own["recipe"].value_counts(), diverged_runs(own)
            body = [
                (name, counted(values, made[name], diverged[name]), ranged(values))
                for name, values in accuracies(own).items()
            ]
            parts.append(f"{model}:\n\n{measured_page.table(CANDIDATES, body)}")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="runs.csv of studies/large-batch/config.yaml")
    parser.add_argument("--choice", type=Path, help="runs.csv of studies/large-batch/choice.yaml")
    parser.add_argument("--page", type=Path, help="write between the markers of this page")
    args = parser.parse_args()
    choice = None if args.choice is None else table_files.read_table(args.choice)
    measured_page.show(tables(table_files.read_table(args.runs), choice), args.page)


if __name__ == "__main__":
    main()
