#!/usr/bin/env python3
"""Make pages from kept or published runs, pictures of their first screens, and console samples.

With --examples: the live examples of the documentation, and no picture. With --samples: the last
lines of the console in README and tutorials, made by the workflow from kept runs, and no picture.
With --measure NAME: the runs themselves, which are kept next to this file, and the samples.

INPUTS   runs.csv, epochs.csv and config.yaml of kept pages, in folders next to this file, the
         demo's as `make demo` wrote them; studies/repeats/runs.csv;
         config/; studies/; Chromium
OUTPUTS  <page>/report.html, tables and plots below --folder; <page>-<width>.png next to this file;
         or <page>.html in the folder of --examples; with --samples the pages of SAMPLES
"""

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

import msgspec  # noqa: E402
import pandas as pd  # noqa: E402
from snakemake_logger_plugin_sweep import WIDTH, wrap_text  # noqa: E402
from tfscaling.console import sweep_outcome  # noqa: E402
from tfscaling.datasets.catalogue import DATASETS  # noqa: E402
from tfscaling.page.plot_registry import PLOTS  # noqa: E402
from tfscaling.search import study_searches  # noqa: E402
from tfscaling.stages import write_page  # noqa: E402
from tfscaling.stages import write_tables as stages  # noqa: E402
from tfscaling.stages.study_folder import StudyFolder  # noqa: E402
from tfscaling.study import acceptance, config_files, config_validation  # noqa: E402
from tfscaling.study.registries import Registries  # noqa: E402
from tfscaling.tables import runs_table, table_files, timings  # noqa: E402
from tfscaling.tables.row_types import RunRow  # noqa: E402
from tfscaling.tables.row_values import point_of  # noqa: E402
from tfscaling.train.models import MODELS  # noqa: E402
from tfscaling.train.strategies import STRATEGIES  # noqa: E402

#: The runs of studies/repeats/config.yaml.
REPEATS = ROOT / "studies/repeats/runs.csv"
#: Width → height of a first screen, in pixels.
SCREENS = {1300: 850, 400: 800}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-sync", "--disable-background-networking", "--disable-component-update"),
    "--virtual-time-budget=6000",
)
#: Chromium's windows are not narrower than this, so that a phone is a frame in one.
_WINDOW_MIN = 500


class Example(NamedTuple):
    """A study whose page is made here, with `changes` of keys at the top level of its overlay.

    `runs` returns the study's table of runs; before, the table has all runs as missing, or those of
    its file of timings. `epochs` is a kept table of epochs. `base` is a file before the overlay.
    """

    overlay: Path
    changes: dict[str, Any]
    runs: Callable[[StudyFolder], pd.DataFrame] | None = None
    epochs: Path | None = None
    #: The folder in which custom models are found.
    project: Path = ROOT
    base: Path | None = None


def kept_runs(path: Path) -> Callable[[StudyFolder], pd.DataFrame]:
    """Return a reader of a kept table of runs; columns that are newer than the file are empty."""

    def kept(study: StudyFolder) -> pd.DataFrame:
        texts = pd.read_csv(path, dtype=str, keep_default_na=False)
        columns = list(runs_table.RUN_COLUMNS)
        texts.reindex(columns=columns).to_csv(study.table_path("runs"), index=False)
        return study.read_table("runs")

    return kept


def searched_runs(study: StudyFolder) -> pd.DataFrame:
    """Return the runs of the repeats study that a search makes, round after round."""
    manifest, runs = study.manifest, kept_runs(REPEATS)(study)
    names = [(point_of(row), int(row.repeat)) for row in table_files.to_rows(RunRow, runs)]
    wanted, made = {(run.spec.point, 1) for run in manifest.runs}, set()
    while wanted:
        made |= wanted
        found = runs[[name in made for name in names]]
        searches = study_searches.decide_searches(manifest, found)
        wanted = {each for search in searches for each in search.needed_runs()} - made
    return found


def kept_page(name: str, overlay: Path | None = None, project: Path = ROOT) -> Example:
    """Return a page with runs, epochs and, without `overlay`, configuration from a folder here."""
    folder = HERE / name
    runs = kept_runs(folder / "runs.csv")
    return Example(overlay or folder / "config.yaml", {}, runs, folder / "epochs.csv", project)


_REPEATS = ROOT / "studies/repeats/config.yaml"
PUBLISHED = Example(
    ROOT / "studies/published/timings.yaml", {}, base=ROOT / "studies/published/config.yaml"
)
#: Page → its study. Pictures are made of them.
PAGES = {
    "published": PUBLISHED,
    "sweep": kept_page("sweep"),
    "failures": kept_page("failures"),
    "demo": kept_page("demo", ROOT / "config/demo.yaml"),
    "waiting": kept_page("waiting"),
}
#: Page of the documentation → the study whose last lines of the console it shows.
SAMPLES = {
    "README.md": PAGES["waiting"],
    "docs/first-steps.md": PAGES["demo"],
    "docs/own-training.md": kept_page(
        "own", ROOT / "resources/own/config.yaml", ROOT / "resources"
    ),
}
#: A block of text that ends with the path of the page, as the console's last lines do.
SAMPLE = re.compile(r"(?<=```text\n)(?:(?!```).)*?page: results/[\w-]+/report\.html\n", re.DOTALL)
#: Study that --measure runs → its configuration.
MEASURED = {
    "waiting": HERE / "waiting/config.yaml",
    "demo": ROOT / "config/demo.yaml",
    "own": ROOT / "own/config.yaml",  # after `make own`
}
#: Live example of the documentation → its study.
EXAMPLES = {
    "published": PUBLISHED,
    "worked-example": Example(
        _REPEATS, {"comparison": {"title": "Worked example"}}, kept_runs(REPEATS)
    ),
    "search": Example(
        _REPEATS,
        {
            "search": {},
            "question": {},
            "comparison": {"title": "A search over the 36 kept runs of the worked example"},
        },
        searched_runs,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="pages stay here; else only pictures are made")
    parser.add_argument("--examples", type=Path, help="write the live examples here, no picture")
    parser.add_argument("--samples", action="store_true", help="write samples of the console")
    parser.add_argument("--measure", choices=MEASURED, help="run this study, and keep its tables")
    args = parser.parse_args()
    if args.measure:
        measure(args.measure)
    if args.samples or args.measure:
        for name, example in SAMPLES.items():
            text = (ROOT / name).read_text()
            (ROOT / name).write_text(text.replace(SAMPLE.findall(text)[0], sample_of(example)))
        return
    if not args.examples and CHROMIUM is None:
        parser.error("there is no chromium")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        for name, example in (EXAMPLES if args.examples else PAGES).items():
            page = make(example, folder / name)
            if args.examples:
                args.examples.mkdir(parents=True, exist_ok=True)
                shutil.copy(page, args.examples / f"{name}.html")
                continue
            for width, height in SCREENS.items():
                picture = HERE / f"{name}-{width}.png"
                take(page, picture, width, height)
                print(picture.relative_to(ROOT))


def measure(name: str) -> None:
    """Run a study on this machine, and keep its tables of runs and epochs."""
    config = str(MEASURED[name].relative_to(ROOT))
    words = ["--profile", "profiles/local", "--configfile", config]
    subprocess.run([Path(sys.executable).with_name("snakemake"), *words], cwd=ROOT, check=True)
    (HERE / name).mkdir(exist_ok=True)
    for table in (f"results/{name}/runs.csv", f"results/{name}/details/epochs.csv"):
        shutil.copy(ROOT / table, HERE / name)


def sample_of(example: Example) -> str:
    """Return the last lines of the console at the end of a study, on a terminal of 100 columns."""
    without_plots = example._replace(changes={**example.changes, "plots": dict.fromkeys(PLOTS)})
    with tempfile.TemporaryDirectory() as temporary:
        name = str(config_files.read_config_file(example.overlay)["study"])
        folder = make(without_plots, Path(temporary, "results", name)).parent
        lines = sweep_outcome.SweepOutcome(folder).lines(columns=WIDTH)
    text = "\n".join(lines).replace(f"{temporary}/", "")
    return "\n".join([*wrap_text(text, WIDTH), ""])


def make(example: Example, folder: Path) -> Path:
    """Make tables, plots and page of a study, and return the page."""
    absolute = folder.absolute()
    with contextlib.chdir(example.project):
        return _make(example, absolute)


def _make(example: Example, folder: Path) -> Path:
    platforms = ("config/platforms.yaml", "provision/clouds/platforms.yaml")
    studies = filter(None, (example.base, example.overlay))
    files = (*(ROOT / file for file in platforms), *studies)
    raw = config_files.merge_configurations(
        [(str(path), config_files.read_config_file(path)) for path in files]
    )
    config = config_validation.convert_to_types(
        timings.add_grid_of_timings({**raw, **example.changes})
    )
    manifest = acceptance.plan_grid(config, Registries(MODELS, STRATEGIES, DATASETS))
    study = StudyFolder(folder)
    study.details.mkdir(parents=True, exist_ok=True)
    (study.details / "config.json").write_bytes(msgspec.json.encode(config))
    manifest.write(study.details / "manifest.json")
    stages.collect(study)  # no run has a record: without a file of timings all are missing
    if example.epochs:
        texts = pd.read_csv(example.epochs, dtype=str, keep_default_na=False)
        texts.reindex(columns=list(runs_table.EPOCH_COLUMNS)).to_csv(
            study.table_path("epochs"), index=False
        )
    if example.runs:
        table_files.write_csv(example.runs(study), study.table_path("runs"))
    for stage in (stages.compare, stages.analyse, write_page.write_page):
        stage(study)
    return folder / "report.html"


def take(page: Path, picture: Path, width: int, height: int) -> None:
    """Take a picture of the first screen of the page; width and height are in pixels."""
    from PIL import Image

    shown = page.with_name("frame.html")
    style = f"width: {width}px; height: {height}px; border: 0"
    frame = f'<iframe src="{page.name}" style="{style}"></iframe>'
    shown.write_text(f'<!DOCTYPE html><title></title><body style="margin: 0">{frame}</body>')
    with tempfile.TemporaryDirectory() as profile:
        size = f"--window-size={max(width, _WINDOW_MIN)},{height}"
        command = [str(CHROMIUM), *FLAGS, size, f"--user-data-dir={profile}"]
        command += [f"--screenshot={picture}", shown.resolve().as_uri()]
        subprocess.run(command, capture_output=True, timeout=120, check=True)
    with Image.open(picture) as image:
        cropped = image.convert("RGB").crop((0, 0, width, height))
    cropped.quantize(64, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main()
