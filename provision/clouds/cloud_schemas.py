"""What the clouds' own tools say of the definitions, each from its environment in .tools/."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = REPOSITORY / ".tools"
#: Read by ParallelCluster's Python.
_PARALLELCLUSTER = """
import sys, yaml
from marshmallow.exceptions import ValidationError
from pcluster.schemas.cluster_schema import ClusterSchema
status = 0
for path in sys.argv[1:]:
    try:
        ClusterSchema(cluster_name="scaling").load(yaml.safe_load(open(path)))
    except ValidationError as error:
        status = 1
        print(path, error.messages, sep=": ")
sys.exit(status)
"""


def _failed_output(*command: str) -> list[str]:
    """Run a program; return the lines that it printed if it failed, else []."""
    environ = {**os.environ, "AWS_DEFAULT_REGION": "eu-central-1"}  # nothing is asked there
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    return (done.stdout + done.stderr).splitlines() if done.returncode else []


def check_parallelcluster(*paths: Path) -> list[str]:
    """Return the errors that ParallelCluster's schema finds in configurations; [] without errors.

    The schema does not check names of instance types and regions.
    """
    python = TOOLS / "aws-parallelcluster/bin/python"
    return _failed_output(str(python), "-c", _PARALLELCLUSTER, *map(str, paths))


def check_cloudformation(*paths: Path) -> list[str]:
    """Return the errors that cfn-lint finds in CloudFormation templates; [] without errors."""
    lint = TOOLS / "cfn-lint/bin/cfn-lint"
    options = ("--regions", "eu-central-1", "--format", "parseable")
    return _failed_output(str(lint), *options, "--", *map(str, paths))
