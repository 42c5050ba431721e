"""Every plot is drawn from the tables' files, whatever has failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import plot
import pytest
from builders import SCRIPTS, raw_config, run_python, write_record
from tfscaling.plots import plot_style
from tfscaling.plots.plot_registry import PLOTS
from tfscaling.records import run_record
from tfscaling.study import configuration, manifest
from tfscaling.tables import comparison, data_warnings, runs_table

FILES = ("comparison.csv", "epochs.csv", "warnings.json")
TIMES = {1: 60.0, 2: 40.0, 4: 20.0}


def write_tables(folder: Path, times: dict[int, float], **block: Any) -> tuple[Path, ...]:
    """Files of tables and warnings of a grid whose node counts in `times` were measured."""
    usual = {"platform": "cluster", "model": "mnist_cnn", "recipe": "weak", "nodes": [4, 1, 2, 9]}
    raw = raw_config((("grid",), [{**usual, **block}]))
    expected = manifest.expected_runs(configuration.validate(raw))
    for entry in expected["runs"]:
        if entry["axes"]["nodes"] in times:
            write_record(folder, entry, times[entry["axes"]["nodes"]] + entry["axes"]["repeat"])
    runs, epochs = runs_table.run_tables(expected, folder)
    table = comparison.comparison_table(runs, expected)
    paths = tuple(folder / name for name in FILES)
    table.to_csv(paths[0], index=False)
    epochs.to_csv(paths[1], index=False)
    run_record.write_json(paths[2], data_warnings.to_json(data_warnings.find(table, runs)))
    return paths


def test_the_plots_have_this_order_and_titles() -> None:
    assert list(PLOTS) == [
        "execution_time",
        "speedup",
        "scaling_efficiency",
        "time_split",
        "loss_accuracy",
        "accuracy_time",
        "cost_time",
        "epochs",
    ]
    assert len({entry.title for entry in PLOTS.values()}) == len(PLOTS)


@pytest.mark.parametrize("times", [{}, {4: 20.0}, TIMES], ids=["nothing", "no_baseline", "all"])
def test_every_plot_is_written_as_svg_whatever_is_missing(
    tmp_path: Path, times: dict[int, float], recwarn: pytest.WarningsRecorder
) -> None:
    outputs = [tmp_path / f"{name}.svg" for name in PLOTS]
    plot.plot({}, *write_tables(tmp_path, times), None, outputs)
    for path in outputs:
        text = path.read_text()
        assert text.rstrip().endswith("</svg>")
        assert f">{PLOTS[path.stem].title}</text>" in text
        assert (plot_style.NOTHING in text) == (not times)
        number = len({4, 1, 2, 9} - times.keys())
        assert f"{number} point{'s' if number > 1 else ''} {plot_style.ABSENT}" in text
    assert [str(warning.message) for warning in recwarn] == []


def test_every_plot_can_be_drawn_from_tables_without_rows(tmp_path: Path) -> None:
    for name, columns in (("c", comparison.COLUMNS), ("e", runs_table.EPOCH_COLUMNS)):
        pd.DataFrame(columns=list(columns)).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "p.csv").write_text("\n")
    run_record.write_json(tmp_path / "w.json", data_warnings.to_json([]))
    outputs = [tmp_path / f"{name}.svg" for name in PLOTS]
    plot.plot({}, *(tmp_path / name for name in ("c.csv", "e.csv", "w.json", "p.csv")), outputs)
    assert all(plot_style.NOTHING in path.read_text() for path in outputs)


def test_a_measured_sweep_says_what_its_points_are(tmp_path: Path) -> None:
    paths = write_tables(tmp_path, TIMES, gpus_per_node=[0, 2], repeats=2)
    outputs = [tmp_path / "execution_time.svg", tmp_path / "time_split.svg"]
    plot.plot({}, *paths, None, outputs)
    lines, bars = (path.read_text() for path in outputs)
    assert "cluster, CPU" in lines and "cluster, 2 GPUs per node" in lines
    assert "4 nodes, 2 GPUs per node" in bars


def script(folder: Path, titles: Any, *outputs: str) -> Any:
    paths = [folder / name for name in FILES]
    code = "import runpy, sys; sys.path.insert(0, sys.argv[1]); sys.argv = sys.argv[2:]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    arguments = ["--plots", json.dumps(titles), "--comparison", str(paths[0])]
    arguments += [
        "--epochs",
        str(paths[1]),
        "--warnings",
        str(paths[2]),
        "--outputs",
        *(str(folder / o) for o in outputs),
    ]
    return run_python(code, str(SCRIPTS), str(SCRIPTS / "plot.py"), *arguments)


def test_the_script_draws_all_outputs_with_their_titles(tmp_path: Path) -> None:
    paths = write_tables(tmp_path, TIMES)
    done = script(tmp_path, {"speedup": "Mine", "epochs": None}, "speedup.svg", "epochs.svg")
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "speedup.svg").read_bytes()
    assert b">Mine</text>" in first
    assert f">{PLOTS['epochs'].title}</text>" in (tmp_path / "epochs.svg").read_text()
    plot.plot({"speedup": "Mine"}, *paths, None, [tmp_path / "speedup.svg"])
    assert (tmp_path / "speedup.svg").read_bytes() == first  # in another process


def test_the_script_names_the_known_plots_if_one_is_unknown(tmp_path: Path) -> None:
    done = script(tmp_path, {"speedup": None}, "speeedup.svg")
    assert done.returncode == 2
    assert "unknown plots: speeedup; known: execution_time, speedup" in done.stderr
