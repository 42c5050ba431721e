"""No study writes into shared folders."""

from __future__ import annotations

import re

import pytest
import yaml
from builders import REPOSITORY, valid_config
from tfscaling.study import config_validation
from tfscaling.study.config_validation import SHARED_FOLDERS, ConfigError

RULES = REPOSITORY / "workflow" / "rules"
PROFILES = REPOSITORY / "profiles"
OVERLAYS = [
    path
    for pattern in ("config/*.yaml", "studies/*/*.yaml")
    for path in sorted(REPOSITORY.glob(pattern))
    if path.stem != "platforms"
]


@pytest.mark.parametrize("study", [*SHARED_FOLDERS, "Runs"])
def test_a_shared_folder_is_no_study(study: str) -> None:
    config = valid_config((["study"], study))
    sources = [("config.yaml", {}), ("overlay.yaml", {"study": study})]
    with pytest.raises(ConfigError) as caught, config_validation.add_file_to_errors(sources):
        config_validation.check_folders(config)
    file, key, text = str(caught.value).split(": ", 2)
    assert (file, key) == ("overlay.yaml", "study") and f'"{study}"' in text


def test_the_shared_folders_are_those_that_rules_and_profiles_name() -> None:
    text = "".join(path.read_text() for path in [*RULES.glob("*.smk"), *PROFILES.glob("*/*.yaml")])
    assert set(re.findall(r"results/([\w-]+)(?![\w.-])", text)) == set(SHARED_FOLDERS)


def test_each_configuration_of_the_repository_is_a_study_of_its_own() -> None:
    studies = [yaml.safe_load(path.read_text())["study"] for path in OVERLAYS]
    assert len(studies) == len(set(studies)) > 1
