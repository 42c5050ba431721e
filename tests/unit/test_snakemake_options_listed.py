"""docs/command-line.md lists each option of the pinned Snakemake, in one of three lists."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from types import ModuleType

import pytest
from project import REPOSITORY

SCRIPT = REPOSITORY / "docs/snakemake_options.py"
#: Options of plugins, which the plugins' own texts describe.
PLUGINS = re.compile(r"--(slurm|report-html|scheduler-(greedy|ilp))-")


@pytest.fixture(scope="module")
def lists() -> ModuleType:
    spec = importlib.util.spec_from_file_location("snakemake_options", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def options() -> list[set[str]]:
    """The options of `snakemake --help`, each with its other names."""
    words = [sys.executable, "-m", "snakemake", "--help"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    body = text[text.index("\noptions:") :]
    found = []
    for line in re.findall(r"^  (-\S.*)$", body, re.MULTILINE):
        names = set(re.findall(r"(?:^|, )(--?[A-Za-z][\w-]*)", re.split(r"  +", line)[0]))
        if names and not any(PLUGINS.match(name) for name in names):
            found.append(names)
    assert len(found) > 100
    return found


def test_each_option_is_in_exactly_one_list(lists: ModuleType, options: list[set[str]]) -> None:
    tables = (lists.WORKS, lists.REFUSED, lists.NO_EFFECT)
    listed = Counter(option for table in tables for option in lists.options_of(table))
    missing = [sorted(names) for names in options if sum(listed[name] for name in names) != 1]
    assert not missing
    known = set().union(*options)
    assert not [option for option in listed if option not in known]


def test_the_page_has_the_lists(lists: ModuleType) -> None:
    text = (REPOSITORY / "docs/command-line.md").read_text()
    assert lists.page() == text and lists.rendered() in text
