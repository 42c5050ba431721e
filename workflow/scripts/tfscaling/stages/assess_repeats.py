"""Decide which configurations need extra repeats: wide intervals, and searches without a result.

INPUTS   manifest.json, the run records, repeats/round=<n-1>.json (none for the first round)
OUTPUTS  repeats/round=<n>.json: the extra repeats to run, how wide each interval is, and the state
         of each search
"""

from __future__ import annotations

from pathlib import Path

from tfscaling.plan import extra_repeats
from tfscaling.record import run_record
from tfscaling.stages.study_folder import StudyFolder


def run(study: StudyFolder) -> None:
    """Write the file of the round and print what it decides."""
    number = study.round
    previous = extra_repeats.read(file_of_round(study, number - 1)) if number > 1 else None
    before = previous.runs if previous else ()
    made = extra_repeats.next_round(study.manifest, study.runs_dir, before, number)
    for point in made.points:
        width = point.relative_interval
        shown = "no interval" if width is None else f"interval {width:.1%} of the median"
        axes = f"platform {point.platform}, recipe {point.recipe}, nodes {point.nodes}"
        diverged = f", {point.diverged} diverged" if point.diverged else ""
        print(f"{axes}: {point.repeats} runs{diverged}, {shown}: {point.verdict}")
    for search in made.searches:
        more = (
            f", {len(search.wanted)} are run {search.runs_next} times each" if search.wanted else ""
        )
        ended = "decided" if search.is_decided else "undecided"
        print(
            f"search, {search.model}, {search.recipe}: {len(search.left)} of {search.points} "
            f"points have left{more or f'; {ended}'}"
        )
    print(f"round {number}: {made.added} extra repeats")
    run_record.write_json(file_of_round(study, number), made)


def file_of_round(study: StudyFolder, number: int) -> Path:
    return study.folder / "repeats" / f"round={number}.json"
