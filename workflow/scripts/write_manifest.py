#!/usr/bin/env python3
"""Write the run manifest.

OUTPUTS  manifest.json (--output): every run with its parameters, every excluded point
"""

import argparse
from pathlib import Path

import msgspec
from tfscaling.datasets.catalogue import TRAIN_EXAMPLES
from tfscaling.study import grid
from tfscaling.study.config import Config
from tfscaling.study.manifest import Manifest
from tfscaling.study.registries import Registries
from tfscaling.training.models import MODELS
from tfscaling.training.strategies import STRATEGIES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, help="validated, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    config = msgspec.json.decode(args.config, type=Config)
    registries = Registries(MODELS, STRATEGIES, TRAIN_EXAMPLES)
    manifest = Manifest.of(config, grid.expand(config, registries), STRATEGIES)
    manifest.write(args.output)
    print(f"{len(manifest.runs)} runs, {len(manifest.excluded)} excluded points")


if __name__ == "__main__":
    main()
