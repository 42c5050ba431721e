"""Cases of the oracle, trained in all ways and compared with Keras's `fit` on one device.

Where a result depends on how a batch is split among replicas, `fit` cannot be the measure: batch
normalization is over each replica's own part, each replica has separate dropout masks, a loss
that a layer adds is a mean over its part, and padding takes part in these (it weighs nothing in
all else). There the measure is plain Keras with copies of the model, one per replica, written
without any strategy; and one replica with whole batches is still compared with `fit`.

Each group of cases has its own file, tests/unit/test_oracle_*.py: pytest-xdist gives whole files
to its workers, and a group takes minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracle_rank
from oracle_cases import Case
from ranks import Found, ranks_of
from tfscaling.study.geometry import Geometry

#: A deadlock is a failure, also of many trainings.
LIMIT_S = 7200.0
#: Case → way of training → what each rank found.
Trained = dict[str, dict[str, list[Found]]]


def trained(folder: Path, words: str, replicas: int = 4, with_servers: bool = False) -> Trained:
    """Train the cases of these words, see oracle_rank.py, at once on up to `replicas` replicas."""
    with ranks_of(oracle_rank) as ranks:
        for devices in range(2, replicas + 1, 2):
            ranks.start(folder / f"{devices}.json", words, str(devices))
        jobs = {"workers": {"worker": replicas}}
        if with_servers:
            jobs["servers"] = {"chief": 1, "ps": 1, "worker": 2}
        for name, job in jobs.items():
            (folder / name).mkdir()
            geometry = Geometry(sum(job.values()), 1, 0)
            ranks.start_job(folder / name, geometry, job, words, "1")
        entries: list[Any] = [entry for of_rank in ranks.found(LIMIT_S) for entry in of_rank]
    found: Trained = {}
    for entry in entries:
        found.setdefault(entry["case"], {}).setdefault(entry["way"], []).append(entry)
    return found


def deviation(found: Found, expected: Found, case: Case) -> float:
    """The largest difference of losses and metrics, relative but for accuracies."""

    def flat(of: Found) -> dict[str, float]:
        # of few examples roundings of float16 grow with each step of batch normalization
        same = 3 if case.is_by_hand and case.precision == "mixed_float16" else case.epochs
        numbered = {f"loss {n}": value for n, value in enumerate(of["loss"][:same])}
        for n, metrics in enumerate([*of.get("metrics", []), of.get("test", {})]):
            compared = {k: v for k, v in metrics.items() if not k.endswith(case.not_compared)}
            numbered |= {f"{name} {n}": value for name, value in compared.items()}
        return numbered

    own, other = flat(found), flat(expected)
    differences = [
        abs(own[name] - value)
        if "accuracy" in name
        else abs(own[name] - value) / max(abs(value), 1e-3)
        for name, value in other.items()
        if value is not None
    ]
    return float(np.max(differences))  # not a number if one of them is none


class DifferenceError(AssertionError):
    """Losses or metrics differ from the reference by more than is allowed."""


def check(name: str, case: Case, ways: dict[str, list[Found]]) -> dict[str, float]:
    """Compare all ways with their reference; the deviation of each. A failure names the case.

    Raises:
        DifferenceError: A deviation is above the tolerance.
        AssertionError: Ranks have different weights, or other examples were trained.
    """
    deviations: dict[str, float] = {}
    for way, ranks in ways.items():
        if way.startswith(("fit", "by hand")):
            continue
        replicas = way.rpartition(" ")[2]
        is_whole = replicas == "1" and "fit" in ways
        (expected,) = ways[f"by hand {replicas}" if case.is_by_hand and not is_whole else "fit"]
        where = f"{name}, {way}"
        assert len({found["sha256"] for found in ranks}) == 1, f"{where}: ranks have other weights"
        for found in ranks:
            assert found["examples"] == case.epochs * case.arrays.train_examples, where
            differs = deviation(found, expected, case)
            deviations[way] = max(deviations.get(way, 0.0), differs)
            if not differs <= case.tolerance:
                raise DifferenceError(f"{where}: {found} and not {expected}")
    return deviations


ALL_WAYS = {
    *("fit", "single 1", "mirrored 1", "multi_worker_mirrored 1", "mpi_all_reduce 1"),
    *("mirrored 2", "multi_worker_mirrored 2", "mpi_all_reduce 2"),
    *("mirrored 4", "multi_worker_mirrored 4", "mpi_all_reduce 4"),
    "mpi_all_reduce of two nodes 4",
}
