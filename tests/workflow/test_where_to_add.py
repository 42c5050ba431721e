"""Each row of "Where to add" in docs/extending.md: one of each is added to a copy, and is used."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import snakemake_server
import yaml
from project import REPOSITORY

LIBRARY = "workflow/scripts/tfscaling"
pytestmark = pytest.mark.full


class Addition(NamedTuple):
    """`entry` becomes the last one of a registry; `code` is the function that it names.

    A registry is a mapping, or a class with fields. The code is in the file of the registry; a new
    module that it needs has `module_code`.
    """

    file: str
    registry: str
    entry: str
    code: str = ""
    module: str = ""
    module_code: str = ""


ADDITIONS = {
    "model": Addition(
        f"{LIBRARY}/train/models.py",
        "MODELS",
        '"linear": Model("One layer.", "stripes", _linear),',
        """
        def _linear() -> Any:
            import keras

            return keras.Sequential(
                [keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(2)]
            )
        """,
    ),
    "dataset": Addition(
        f"{LIBRARY}/datasets/catalogue.py",
        "DATASETS",
        '"stripes": Dataset("Bright halves.", None, 128, formats.read_npz, function=_stripes),',
        """
        def _stripes() -> dict[str, np.ndarray]:
            def part(examples: int) -> tuple[np.ndarray, np.ndarray]:
                labels = np.arange(examples, dtype=np.int32) % 2
                images = np.zeros((examples, 8, 8), np.uint8)
                images[labels == 0, :4] = images[labels == 1, 4:] = 255
                return images, labels

            (x_train, y_train), (x_test, y_test) = part(128), part(32)
            return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
        """,
    ),
    "strategy": Addition(
        f"{LIBRARY}/train/strategies.py",
        "STRATEGIES",
        '"first_device": Strategy("One device.", _first_device, one_task_only=True),',
        """
        def _first_device(devices: Sequence[str], communication: str) -> Any:
            import tensorflow as tf

            return tf.distribute.OneDeviceStrategy(devices[0])
        """,
    ),
    "launcher": Addition(
        f"{LIBRARY}/launch/launchers.py",
        "LAUNCHERS",
        '"alone": alone,',
        """
        def alone(request: Request) -> list[Command]:
            env = {**request.env, "STARTED_BY": "alone"}
            return [Command(tuple(request.command), env, rank_log(request.folder, 0), 0)]
        """,
    ),
    "metric": Addition(
        f"{LIBRARY}/record/metrics.py",
        "RunMetrics",
        'train_share: Annotated[Share, Metric("share of the training", "", "higher", 4,'
        ' _train_share)] = NAN\n    """train_time_s over execution_time_s."""',
        """
        def _train_share(record: RunRecord) -> float | None:
            train_time_s = record.phases.train_time_s
            return None if train_time_s is None else train_time_s / record.phases.execution_time_s
        """,
    ),
    "limit": Addition(
        f"{LIBRARY}/study/config_types.py", "LIMITABLE_METRICS", '"train_share": "higher",'
    ),
    "plot": Addition(
        f"{LIBRARY}/page/plot_registry.py",
        "PLOTS",
        '"share": Plot("Share of it", "plot_scaling.metric_over_nodes", metric="train_share"),',
    ),
    "conclusion": Addition(
        f"{LIBRARY}/conclusions/base.py",
        "CONCLUSIONS",
        '"slowest": Conclusion("The slowest point", "Where a run takes longest.", _slowest),',
        """
        def _slowest() -> ConclusionFunctions:
            from tfscaling.conclusions import slowest

            return ConclusionFunctions(slowest.COLUMNS, slowest.table, as_text=slowest.as_text)
        """,
        f"{LIBRARY}/conclusions/slowest.py",
        """
        import pandas as pd

        from tfscaling.conclusions.evidence import Study
        from tfscaling.tables.display import TextTable


        COLUMNS = ("platform", "nodes")


        def table(study: Study) -> pd.DataFrame:
            return study.comparison.nlargest(1, "execution_time_s")[["platform", "nodes"]]


        def as_text(table: pd.DataFrame) -> TextTable:
            return TextTable("The slowest point", table.astype(str))
        """,
    ),
}
PLATFORM = """
  attic:
    title: "The attic"
    launcher: alone
    nodes_max: 1
    cpus_per_node: 1
    licenses: "tf:1"
"""
PLATFORM_KEY = '''
    licenses: Annotated[OptionValue | None, sbatch_option("licenses")] = None
    """Licenses of a job."""
'''
CONFIG_KEY = '''
    remark: Line | None = None
    """What readers of the tables should know."""
'''
OVERLAY: dict[str, Any] = {
    "export": ["markdown", "svg"],
    "study": "added",
    "grid": [
        {
            "platform": "attic",
            "model": "linear",
            "strategy": "first_device",
            "recipe": "short",
            "nodes": [1],
            "gpus_per_node": [0],
            "repeats": 1,
        }
    ],
    "recipes": {
        "short": {
            "per_replica_batch_size": 32,
            "optimizer": "adam",
            "learning_rate": 0.01,
            "epochs": 2,
        }
    },
    "comparison": {
        "columns": ["execution_time_s", "accuracy", "train_share"],
        "remark": "Under the roof.",
    },
    "question": {"limits": {"train_share": {"at_least": 0.001}}},
    "plots": {"share": {"title": "How much of it is training"}},
}


def dedented(code: str) -> str:
    return "".join(line.removeprefix(" " * 8) + "\n" for line in code.strip("\n").split("\n"))


def add(folder: Path, addition: Addition) -> None:
    """Add the function and the entry to the registry's file."""
    path = folder / addition.file
    text = path.read_text()
    if (start := text.find(f"\n{addition.registry}: dict[")) >= 0:
        end = text.index("}\n", start)
    else:
        start = text.index(f"\nclass {addition.registry}(")
        end = text.index("\n\n\n", start + 1) + 1
    text = f"{text[:end]}    {addition.entry}\n{text[end:]}"
    # the comment above a registry stays with it
    while text[:start].rsplit("\n", 1)[1].startswith("#:"):
        start = text[:start].rindex("\n")
    if addition.module:
        (folder / addition.module).write_text(dedented(addition.module_code))
    path.write_text(f"{text[:start]}\n\n{dedented(addition.code)}\n{text[start:]}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with one more of everything, after a sweep that uses it."""
    folder = tmp_path_factory.mktemp("copy") / "repository"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file() and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    for addition in ADDITIONS.values():
        add(folder, addition)
    with (folder / "config/platforms.yaml").open("a") as file:
        file.write(PLATFORM)
    config = folder / LIBRARY / "study/config_types.py"
    text = config.read_text()
    after = text.index("class Comparison(")
    end = after + text[after:].index("\n\n\n")
    text = text[:end] + CONFIG_KEY + text[end:]
    start = text.index("    title: ", text.index("class Platform("))
    config.write_text(text[:start] + PLATFORM_KEY.lstrip("\n") + text[start:])
    (folder / "overlay.yaml").write_text(yaml.safe_dump(OVERLAY, sort_keys=False))
    snakemake(folder, "--profile", "profiles/local")
    return folder


def snakemake(folder: Path, *arguments: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(folder / "workflow/scripts")}
    words = ("--configfile", "overlay.yaml", *arguments)
    code, output = snakemake_server.call(words, folder, environ)
    logs = sorted(folder.glob("results/**/*.log"))
    assert code == 0, output + "\n".join(log.read_text()[-1500:] for log in logs)
    return output


def table(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"results/added/{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_a_row_for_each() -> None:
    section = (REPOSITORY / "docs/extending.md").read_text().split("## Where to add\n")[1]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    for what in (*ADDITIONS, "platform", "config key", "platform key that reaches sbatch"):
        assert any(row.startswith(f"a {what}") for row in rows), what
    for addition in ADDITIONS.values():
        assert addition.file.removeprefix(f"{LIBRARY}/") in section
        assert addition.registry in section


def test_the_run_used_all_of_them(folder: Path) -> None:
    (row,) = table(folder, "comparison")
    axes = ("platform", "model", "strategy", "platform_title", "status")
    assert [row[name] for name in axes] == ["attic", "linear", "first_device", "The attic", "ok"]
    (path,) = folder.glob("results/runs/**/run.json")
    parameters = json.loads(path.read_text())["parameters"]
    assert (parameters["dataset"], parameters["launcher"]) == ("stripes", "alone")
    assert 0.5 < float(row["accuracy"]) <= 1.0


def test_tables_have_the_metric_and_the_conclusion(folder: Path) -> None:
    (row,) = table(folder, "comparison")
    (path,) = folder.glob("results/runs/**/run.json")
    phases = json.loads(path.read_text())["phases"]
    expected = phases["train_time_s"] / phases["execution_time_s"]
    assert float(row["train_share"]) == pytest.approx(expected)
    details = folder / "results/added/details"
    assert " train_share |" in (details / "comparison.md").read_text()
    assert table(folder, "details/conclusions/slowest") == [{"platform": "attic", "nodes": "1"}]
    assert (details / "conclusions/slowest.md").read_text().startswith("# The slowest point\n")


def test_the_page_has_plot_conclusion_metric_and_platform(folder: Path) -> None:
    page = (folder / "results/added/report.html").read_text()
    assert '<figure class="plot">' in page and "How much of it is training" in page
    assert 'id="slowest"' in page and "The slowest point" in page
    assert "Where a run takes longest." in page
    assert "share of the training" in page  # among the definitions
    assert "The attic" in page
    plot = folder / "results/added/details/plots/share.svg"
    assert "How much of it is training" in plot.read_text()


def test_the_configuration_has_the_key(folder: Path) -> None:
    snakemake(folder, "--profile", "profiles/local", "results/added/details/config.json")
    config = json.loads((folder / "results/added/details/config.json").read_text())
    assert config["comparison"]["remark"] == "Under the roof."


def test_sbatch_gets_the_platform_key(folder: Path) -> None:
    code = """
        import msgspec
        from tfscaling.study import config_files, config_types, geometry, platforms

        raw = config_files.read_config_file("config/platforms.yaml")["platforms"]["attic"]
        attic = msgspec.convert(raw, config_types.Platform)
        print(platforms.slurm_resources(attic, geometry.Geometry(1, 1, 0))["slurm_extra"])
        print(platforms.extra_options_problem("--licenses=other:1"))
        """
    environ = {**os.environ, "PYTHONPATH": str(folder / "workflow/scripts")}
    command = [sys.executable, "-c", dedented(code)]
    done = subprocess.run(
        command, cwd=folder, env=environ, check=True, capture_output=True, text=True
    )
    options, problem = done.stdout.splitlines()
    assert "--licenses=tf:1" in options.split() and "--licenses=other:1" in problem


def test_one_run_does_not_show_that_the_limit_is_kept(folder: Path) -> None:
    conclusions = folder / "results/added/details/conclusions"
    texts = [(conclusions / f"{name}.md").read_text() for name in ("headline", "decision")]
    assert any("share of the training" in text for text in texts)


def test_make_schemas_writes_what_was_added_into_schemas_and_reference(folder: Path) -> None:
    generate = [sys.executable, str(folder / "workflow/schemas/generate.py")]
    subprocess.run(generate, check=True)
    schema = yaml.safe_load((folder / "workflow/schemas/comparison.schema.yaml").read_text())
    assert schema["properties"]["train_share"]["unit"] == ""
    pages = [folder / "config/README.md", *(folder / "docs/configuration").glob("*.md")]
    keys = "".join(page.read_text() for page in pages)
    for name in ("linear", "stripes", "first_device", "share", "remark", "licenses"):
        assert f"\n| `{name}` |" in keys
    assert "\n| `train_share` * |" in (folder / "docs/reference-tables.md").read_text()


def test_snakemake_finds_nothing_to_say_or_to_do(folder: Path) -> None:
    assert "in a good condition" in snakemake(folder, "--lint")
    assert "Nothing to be done" in snakemake(folder, "--profile", "profiles/local", "--dry-run")
