#!/usr/bin/env python3
"""Make the pages of three kept studies, and pictures of their first screens at 1300 and 400 pixels.

With --examples: the live examples of the documentation instead.

INPUTS   <page>/runs.csv, <page>/epochs.csv and the overlay of each page, beside this file; the
         configuration in config/; Chromium, for the pictures
OUTPUTS  <page>/report.html, tables and plots below --folder; <page>-<width>.png beside this file
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

import msgspec  # noqa: E402
import pandas as pd  # noqa: E402
from snakemake.utils import update_config  # noqa: E402
from tfscaling.datasets.catalogue import TRAIN_EXAMPLES  # noqa: E402
from tfscaling.spec import config_files, configuration, grid  # noqa: E402
from tfscaling.spec.registries import Registries  # noqa: E402
from tfscaling.stages import write_page  # noqa: E402
from tfscaling.stages import write_tables as stages  # noqa: E402
from tfscaling.stages.study_folder import StudyFolder  # noqa: E402
from tfscaling.tables import runs_table  # noqa: E402
from tfscaling.train.models import MODELS  # noqa: E402
from tfscaling.train.strategies import STRATEGIES  # noqa: E402

#: Page → the overlay of its study.
PAGES = {
    "demo": HERE / "demo" / "config.yaml",
    "sweep": HERE / "sweep" / "config.yaml",
    "failures": HERE / "failures" / "config.yaml",
}
#: Live example of the documentation → the overlay of its study, and its title.
EXAMPLES = {
    "published": (ROOT / "config/published.yaml", "Published data, nothing measured here"),
    "worked-example": (ROOT / "config/repeats-study.yaml", "Worked example"),
}
#: Tables of runs that live examples have.
RUNS = {"worked-example": ROOT / "docs/repeats-study/runs.csv"}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="pages stay here; else only pictures are made")
    parser.add_argument("--examples", type=Path, help="write the live examples here, no picture")
    args = parser.parse_args()
    if args.examples:
        for name in EXAMPLES:
            write_example(name, args.examples)
        return
    if CHROMIUM is None:
        parser.error("there is no chromium")
    with tempfile.TemporaryDirectory() as temporary:
        for name in PAGES:
            page = make(name, (args.folder or Path(temporary)) / name)
            for width, height in SCREENS.items():
                picture = HERE / f"{name}-{width}.png"
                take(page, picture, width, height)
                print(picture.relative_to(ROOT))


def write_example(name: str, folder: Path) -> None:
    """Write <name>.html of a live example."""
    overlay, title = EXAMPLES[name]
    with tempfile.TemporaryDirectory() as temporary:
        study = planned(overlay, Path(temporary) / name, {"title": title})
        stages.collect(study)  # no run has a record: all are missing
        if name in RUNS:
            columns = list(runs_table.RUN_COLUMNS)
            texts = pd.read_csv(RUNS[name], dtype=str, keep_default_na=False)
            texts.reindex(columns=columns).to_csv(study.table("runs"), index=False)
        for stage in (stages.compare, stages.analyse, write_page.page):
            stage(study)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(study.folder / "report.html", folder / f"{name}.html")


def planned(overlay: Path, folder: Path, comparison: dict[str, object]) -> StudyFolder:
    """The folder of a study with its configuration and manifest."""
    raw: dict[str, object] = {}
    for path in (ROOT / "config/config.yaml", ROOT / "config/platforms.yaml", overlay):
        update_config(raw, config_files.read(path))
    raw["grid"] = config_files.read(overlay)["grid"]
    update_config(raw, {"comparison": comparison})
    config = configuration.validate(raw)
    manifest = grid.expand(config, Registries(MODELS, STRATEGIES, TRAIN_EXAMPLES))
    study = StudyFolder(folder)
    study.details.mkdir(parents=True, exist_ok=True)
    (study.details / "config.json").write_bytes(msgspec.json.encode(config))
    manifest.write(study.details / "manifest.json")
    return study


def make(name: str, folder: Path) -> Path:
    """Tables, plots and page of a kept study; returns the page."""
    study = planned(PAGES[name], folder, {})
    kept = {"runs": runs_table.RUN_COLUMNS, "epochs": runs_table.EPOCH_COLUMNS}
    for table, columns in kept.items():  # columns that are newer than the file are empty
        texts = pd.read_csv(HERE / name / f"{table}.csv", dtype=str, keep_default_na=False)
        texts.reindex(columns=list(columns)).to_csv(study.table(table), index=False)
    for stage in (stages.compare, stages.analyse, write_page.page):
        stage(study)
    return folder / "report.html"


def take(page: Path, picture: Path, width: int, height: int) -> None:
    """A picture of the first screen of the page, in a frame of this size in pixels."""
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
