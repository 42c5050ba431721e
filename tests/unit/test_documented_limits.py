"""The numbers in docs/faults.md and docs/security.md equal the constants of the code."""

from __future__ import annotations

import re

import pytest
from project import REPOSITORY
from snakemake_executor_plugin_slurm_sweep import LIMIT_PERIOD_S, LOST_NUMBER_S, queue
from tfscaling.cluster import slurm_client
from tfscaling.files import outside_text
from tfscaling.launch import heartbeat, link, rank_messages, rank_process, supervisor
from tfscaling.study import config_files, grid_checks, recipes

#: File → sentence with the form of its numbers → the numbers.
SENTENCES: dict[str, dict[str, list[float]]] = {
    "faults.md": {
        r"(\d+) s in training and programs": [heartbeat.SILENT_S],
        r"(\d+) s in training, else": [heartbeat.IDLE_S],
        r"(\d+) s at the start, (\d+) s later": [link._CONNECT_S, link._LOST_S],
        r"(\d+) s after loading TensorFlow": [rank_process._DEFERRED_S],
        r"asked again for (\d+) s": [sum(rank_process._RESOLUTION_PAUSES_S)],
        r"a heartbeat every (\d+) s, and": [heartbeat.INTERVAL_S],
        r"a heartbeat every (\d+) s to `rank": [heartbeat.FILES_INTERVAL_S],
        r"reads this file every (\d+) s": [heartbeat.FILES_INTERVAL_S],
        # twice the longest pause between its heartbeats, as the launcher sees them
        r"found silent after (\d+) s": [2 * 2 * heartbeat.FILES_INTERVAL_S],
        r"delays each start by (\d+) s": [link._CONNECT_S],
        r"SIGTERM after (ten) seconds and SIGKILL after (ten) more": [supervisor.GRACE_S] * 2,
        r"after (\d+), (\d+), (\d+), (\d+), then (\d+) s": [*slurm_client.PAUSES_S],
        r"does not answer for (\d+) s": [slurm_client.TIMEOUT_S],
        r"when one of the sweep ends, or after (\d+) s": [LIMIT_PERIOD_S],
        r"does not list it for (\d+) s": [LOST_NUMBER_S],
        r"a second time after (\d+) s": [queue.PAUSE_S],
        r"(three) answers in at least (\d+) s": [queue.ABSENT_ANSWERS, queue.ABSENT_S],
    },
    "security.md": {
        r"at most ([\d,]+) characters of a cause": [outside_text.LENGTH_MAX],
        r"At most (\d+) unproven connections are open at once, for (\d+) s": [
            rank_messages._STRANGERS_MAX, rank_messages._STRANGER_S,
        ],
        r"Grids beyond ([\d,]+) runs or configurations": [grid_checks.RUNS_MAX],
        r"recipes beyond ([\d,]+) variants": [recipes.VARIANTS_MAX],
        r"files beyond (\d+) MB or with more than (\d+) lists": [
            config_files.BYTES_MAX / 1e6, config_files.DEPTH_MAX,
        ],
    },
}  # fmt: skip
WORDS = {"three": 3, "ten": 10}


def number(text: str) -> float:
    return WORDS[text] if text in WORDS else float(text.replace(",", ""))


@pytest.mark.parametrize(
    ("file", "form", "expected"),
    [(file, form, found) for file, forms in SENTENCES.items() for form, found in forms.items()],
)
def test_a_documented_number_is_that_of_the_code(
    file: str, form: str, expected: list[float]
) -> None:
    (found,) = re.finditer(form, (REPOSITORY / "docs" / file).read_text())
    assert [number(each) for each in found.groups()] == expected
