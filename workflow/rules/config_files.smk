"""The configuration files, before Snakemake reads them: it says neither which one nor where.

INPUTS   config/config.yaml, config/platforms.yaml, if they are there
OUTPUTS  one line and exit code 1 if one of them is no YAML
"""

import os
import sys

import yaml

if not workflow.modifier.skip_configfile:  # a module has its configuration from another workflow
    for name in filter(os.path.isfile, ("config/config.yaml", "config/platforms.yaml")):
        with open(name, encoding="utf-8") as file:
            try:
                yaml.compose(file, Loader=yaml.CSafeLoader)
            except yaml.MarkedYAMLError as error:
                line = error.problem_mark.line + 1
                sys.exit(f"{name}: line {line}: not valid YAML: {error.problem}")
