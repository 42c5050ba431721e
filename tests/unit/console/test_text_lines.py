"""Lines of the console."""

from __future__ import annotations

import random
import re
import time

import pytest
from builders import manifest_of, valid_config
from tfscaling.console import text_lines


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3599, "59 min 59 s"), (3600, "1 h 0 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert text_lines.format_duration(seconds) == text


def test_a_moment_of_another_day_has_its_date() -> None:
    noon_s = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))
    assert text_lines.format_time(noon_s, noon_s + 60) == "12:00"
    assert text_lines.format_time(noon_s + 86400, noon_s) == "2026-11-23 12:00"


def test_of_many_records_forty_are_listed_and_all_are_summed() -> None:
    number = random.randint(1, 100)
    hours = [random.uniform(1, 5) for _ in range(number)]
    names = [f"record-{n}.json" for n in range(number)]
    first, *rows = text_lines.list_kept_records([*zip(names, hours, strict=True)], "deleted")
    assert text_lines.format_node_hours(sum(hours)) in first
    listed = [row.rpartition(" ")[2] for row in rows if row.endswith(".json")]
    assert listed == names[:40]
    more = [] if number <= 40 else [str(number - 40)]
    assert [re.sub(r"\D", "", row) for row in rows[len(listed) :]] == more


def test_a_name_has_the_axes_that_distinguish_runs() -> None:
    block = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [1, 2]}
    config = valid_config((["grid"], [{**block, "repeats": 2, "gpus_per_node": [0, 2]}]))
    runs = [run.spec.axes for run in manifest_of(config).runs]
    assert text_lines.axes_to_show(runs) == ("platform", "nodes", "gpus_per_node", "repeat")
    name = text_lines.run_name(runs[0], text_lines.axes_to_show(runs[:1]))
    assert name == "cluster nodes=1"
