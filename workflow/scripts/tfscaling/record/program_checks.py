"""Checks of what a user's program reported: the ranks agree, and none reports what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tfscaling.record import program_results
from tfscaling.record.agreement import disagreement
from tfscaling.record.rank_report import ProgramReport
from tfscaling.spec.run_spec import RunSpec


class ProgramCheck(NamedTuple):
    """`description` says what holds where `problem` finds nothing wrong with a program's ranks."""

    description: str
    problem: Callable[[RunSpec, Sequence[ProgramReport]], str | None]


def _report(spec: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    way = spec.recipe.observe
    if way == "nothing" or any(map(program_results.tells, reports)):
        return None
    return f"observe: {way}, but the program ended without a report of steps or epochs"


def _steps(_: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    return disagreement("their steps", _observed(reports, "steps"))


def _reported_epochs(spec: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    epochs = {rank: len(found) for rank, found in _observed(reports, "epochs").items()}
    if wrong := disagreement("their epochs", epochs):
        return wrong
    many = {rank: count for rank, count in epochs.items() if count > spec.recipe.epochs}
    return f"requested {spec.recipe.epochs} epochs, reported {many}" if many else None


def _reported_examples(spec: RunSpec, reports: Sequence[ProgramReport]) -> str | None:
    """An epoch may end with a batch that is filled up: its examples are counted as whole batches.

    Only where the recipe says how many examples an epoch has.
    """
    of_epoch, reported = spec.recipe.train_examples, program_results.examples(reports)
    if of_epoch is None or reported is None:
        return None
    most = -(-of_epoch // spec.global_batch_size) * spec.global_batch_size * spec.recipe.epochs
    if reported <= most:
        return None
    asked = f"{spec.recipe.epochs} epochs of {of_epoch} examples are at most {most}"
    return f"the program reported {reported} examples trained, {asked}"


def _observed(reports: Sequence[ProgramReport], name: str) -> dict[int, Any]:
    """Rank → what it reports under this name, of those that report it."""
    found = {r.rank: getattr(r.observed, name) for r in reports if r.observed is not None}
    return {rank: value for rank, value in found.items() if value}


#: Those that a program must pass besides the checks of its place, by name.
CHECKS: dict[str, ProgramCheck] = {
    "report": ProgramCheck("The program reported in the way that `observe` names.", _report),
    "reported_steps": ProgramCheck("All ranks that report steps made as many.", _steps),
    "reported_epochs": ProgramCheck(
        "All ranks that report epochs finished as many, and none more than the recipe's.",
        _reported_epochs,
    ),
    "reported_examples": ProgramCheck(
        "No more examples were reported than the recipe's epochs have, if it says how many.",
        _reported_examples,
    ),
}


def violations(spec: RunSpec, reports: Sequence[ProgramReport]) -> list[str]:
    """What is wrong with the reports of a program's ranks; empty if nothing is."""
    found = (check.problem(spec, reports) for check in CHECKS.values())
    return [text for text in found if text]
