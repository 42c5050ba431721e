"""The check of the nodes before a run: what its ranks are told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from builders import local_spec
from tfscaling.launch import check_step
from tfscaling.launch.attempt import Attempt, Limits
from tfscaling.record.attempts import Cause


@pytest.mark.parametrize("stall_timeout_s", [20.0, 600.0])
def test_ranks_wait_for_one_another_about_as_long_as_the_training_would(
    stall_timeout_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = local_spec()
    spec = msgspec.structs.replace(
        spec,
        point=msgspec.structs.replace(spec.point, nodes=2),
        measured=msgspec.structs.replace(spec.measured, node_check="flag"),
    )
    told: list[str] = []

    def run_ranks(_: Attempt, __: Path, arguments: Sequence[str], *___: object) -> Cause:
        told.extend(arguments)
        return Cause(kind="cancelled", message="enough")

    monkeypatch.setattr(Attempt, "run_ranks", run_ranks)
    found = check_step.run(Attempt.begin(tmp_path), Path("r"), spec, Limits(stall_timeout_s, 1.0))
    assert isinstance(found, Cause) and told[0] == "--meet-s"
    # less, so that a rank says which one it misses before all are ended
    assert 0.8 * stall_timeout_s < float(told[1]) < stall_timeout_s
