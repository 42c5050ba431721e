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
try:
    ClusterSchema(cluster_name="scaling").load(yaml.safe_load(open(sys.argv[1])))
except ValidationError as error:
    sys.exit(str(error.messages))
"""


def _output(*command: str) -> list[str]:
    """The lines that a program printed if it failed, none if it did not."""
    environ = {**os.environ, "AWS_DEFAULT_REGION": "eu-central-1"}  # nothing is asked there
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    return (done.stdout + done.stderr).split("\n") if done.returncode else []


def parallelcluster(path: Path) -> list[str]:
    """What ParallelCluster's schema refuses; it knows no instance types and no regions."""
    python = TOOLS / "aws-parallelcluster/bin/python"
    return _output(str(python), "-c", _PARALLELCLUSTER, str(path))


def cloudformation(*paths: Path) -> list[str]:
    """What cfn-lint refuses, by the resource types' own schemas."""
    lint = TOOLS / "cfn-lint/bin/cfn-lint"
    return _output(str(lint), "--regions", "eu-central-1", "--", *map(str, paths))
