#!/usr/bin/env python3
"""Print what is wrong with the first configuration file that cannot be read, with its line.

Snakemake reads the files of --configfile before the workflow, and its errors name no line: the
logger plugin runs this program in their place.

INPUTS   configuration files
OUTPUTS  one line, and exit status 1; nothing if all files can be read
"""

import argparse
from pathlib import Path

from tfscaling.files import program_errors
from tfscaling.study import config_files


def main() -> None:
    """Read the configuration files on the command line, up to the first wrong one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    for file in parser.parse_args().files:
        config_files.read_config_file(file)


if __name__ == "__main__":
    program_errors.exit_on_input_error(main)
