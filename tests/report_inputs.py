"""A small study for the tests of the page: valid, failed, missing and excluded runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generator
import pandas as pd
from builders import manifest_of, raw_config, write_failure
from tfscaling.page.html_page import Plot, Results
from tfscaling.study import config_validation
from tfscaling.study.manifest import Manifest
from tfscaling.tables import data_warnings, runs_table
from tfscaling.tables.comparison import comparison_table

TITLE = "A <study> & more"
COLUMNS = ["execution_time_s", "speedup", "accuracy"]
NASTY = "first </script><script>alert(1)</script>\nsecond & last"
SVG = (
    '<?xml version="1.0"?><svg width="4pt" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 3">'
    '<defs><path id="mark" d="M0 0L4 3"/></defs><use href="#mark"/></svg>'
)
FINDINGS = [
    ("quality", "cluster", "The fastest errs more.", "too few runs"),
    ("scaling", "cluster", "More nodes pay.", "inconclusive"),
    ("scaling", "laptop", "More nodes do not pay.", "supported"),
]
DECISION = [
    ("mnist_cnn, weak", "execution_time_s", "Shortest time", "Too few runs.", "too few runs"),
    ("mnist_cnn, weak", "cost_usd", "Lowest cost", "Use 1 node.", "supported"),
]


@dataclass(frozen=True)
class Study:
    planned: Manifest
    runs: pd.DataFrame
    comparison: pd.DataFrame


def study(runs_dir: Path, fails: bool = True) -> Study:
    """1, 2, 4 nodes and laptop valid; with `fails` 8 nodes fail, one run is missing, 9 excluded."""
    nodes = [1, 2, 4, 8, 9] if fails else [1, 2, 4]
    usual = {"model": "mnist_cnn", "recipe": "weak", "repeats": 2}
    blocks = [
        {**usual, "platform": "cluster", "nodes": nodes},
        {**usual, "platform": "laptop", "nodes": [1], "gpus_per_node": 2},
    ]
    price = {"usd_per_node_hour": 3.5, "price_date": "2026-01", "price_source": "a list"}
    raw = raw_config((("grid",), blocks))
    raw["platforms"]["cluster"] |= {"title": "My cluster", "instance_type": "big-8", **price}
    planned = manifest_of(config_validation.convert_to_types(raw))
    for run in planned.runs:
        point, repeat = run.spec.point, run.spec.repeat
        if point.nodes == 8:
            write_failure(runs_dir, run, message=NASTY)
        elif not (fails and point.nodes == 4 and repeat == 2):
            generator.write_records([run], runs_dir)
    runs, _ = runs_table.run_tables(planned.runs, runs_dir)
    return Study(planned, runs, comparison_table(runs, planned))


def results(made: Study, **changes: Any) -> Results:
    """What the page shows of the study: two plots, and the conclusions that tests look at."""
    usual: dict[str, Any] = {
        "manifest": made.planned,
        "runs": made.runs,
        "comparison": made.comparison,
        "warnings": data_warnings.find_warnings(made.comparison, made.runs),
        "conclusions": {
            "headline": headline(),
            "decision": decision(),
            "findings": findings(),
            "next_steps": next_steps(),
            "clouds": clouds(),
            "published": published(),
        },
        "plots": [
            Plot("execution_time", "Mine & yours", SVG),
            Plot("speedup", "Speed-up against nodes", SVG),
        ],
    }
    return Results(**{**usual, **changes})


def decision(*rows: tuple[str, str, str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows or DECISION, columns=["question", "goal", "title", "text", "support"])


def headline() -> pd.DataFrame:
    said = {"text": "Fastest so far: 1 node.", "sure": "One run each: too few to be sure."}
    return pd.DataFrame([{"question": None, **said, "badge": "too few runs"}])


def next_steps() -> pd.DataFrame:
    return pd.DataFrame({"text": ["`repeats: 6` in the grid: 30 more runs, <b>."]})


def findings(*rows: tuple[str, str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows or FINDINGS, columns=["topic", "subject", "text", "support"])


def clouds() -> pd.DataFrame:
    """Two metrics of one point, one of them with an interval."""
    usual = {
        "platform_a": "big", "cloud_a": "gcp", "platform_b": "small", "cloud_b": "aws",
        "model": "mnist_cnn", "strategy": "single", "recipe": "weak", "nodes": 1,
        "gpus_per_node": 0, "tasks_per_node": "1", "devices": "CPU", "source": "measured",
        "margin_kind": "ratio", "comparisons": 2,
    }  # fmt: skip
    time = {
        "metric": "execution_time_s", "value_a": 20.0, "value_b": 30.0, "winner": "gcp",
        "margin": 1.5, "low": 1.4, "high": 1.6, "verdict": "supported",
    }  # fmt: skip
    loss = {
        "metric": "loss", "value_a": 0.2, "value_b": 0.1, "winner": "aws",
        "margin": 2.0, "low": None, "high": None, "verdict": "too few runs",
    }  # fmt: skip
    return pd.DataFrame([{**usual, **time}, {**usual, **loss}])


def published() -> pd.DataFrame:
    """One point within, one not measured, as `published.table` makes them."""
    usual = {
        "platform": "big", "model": "mnist_cnn", "strategy": "single", "gpus_per_node": 0,
        "tasks_per_node": "1", "cloud": "gcp", "published_execution_time_s": 25.0,
        "published_loss": 0.3, "published_accuracy": 0.9, "remark": "", "source": "a paper",
    }  # fmt: skip
    there = {
        "nodes": 1, "global_batch_size": 64, "status": "measured", "runs": 2,
        "execution_time_s": 20.0, "execution_time_ratio": 0.8, "training_runs": 4,
        "loss_median": 0.31, "loss_min": 0.3, "loss_max": 0.32, "loss_low": None,
        "loss_high": None, "loss_verdict": "within", "accuracy_median": 0.95,
        "accuracy_min": 0.94, "accuracy_max": 0.96, "accuracy_low": None, "accuracy_high": None,
        "accuracy_verdict": "outside",
    }  # fmt: skip
    absent = {
        "nodes": 2, "global_batch_size": 128, "status": "not measured", "runs": 0,
        "training_runs": 0, "loss_verdict": "not measured", "accuracy_verdict": "not measured",
    }  # fmt: skip
    return pd.DataFrame([{**usual, **there}, {**usual, **absent}])
