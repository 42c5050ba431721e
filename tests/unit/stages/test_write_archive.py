"""The archive of a study: an RO-Crate that has its results and none of its secrets."""

from __future__ import annotations

import json
import os
import random
import secrets
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import changed, manifest_of, raw_config, study_folder, write_failure, write_record
from tfscaling.files.program_errors import InputError
from tfscaling.stages import write_archive, write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study import config_validation
from tfscaling.tables.data_warnings import write_warnings
from tools_of_tests import validate_crate

SECRETS = [secrets.token_hex(12) for _ in range(4)]
WALL_S = 19.75  # of the builders' records


@pytest.fixture
def starts() -> list[datetime]:
    """When the runs started."""
    first = datetime.fromisoformat("2026-03-01T10:00:00+00:00")
    return [first + timedelta(seconds=random.randrange(10**6)) for _ in range(4)]


@pytest.fixture
def study(tmp_path: Path, starts: list[datetime], monkeypatch: pytest.MonkeyPatch) -> StudyFolder:
    """Five runs on up to two nodes, one of them failed; the working folder is empty."""
    monkeypatch.chdir(tmp_path)
    raw = raw_config(
        (("grid", 0, "repeats"), 3),
        (("grid", 0, "nodes"), [1, 2]),
        (("platforms", "cluster", "env"), {"TOKEN": SECRETS[0]}),
        (("platforms", "cluster", "setup"), ["module load cuda", f"export KEY={SECRETS[1]}"]),
        (
            ("recipes", "script"),
            {
                "program": ["python", "train.py", f"--key={SECRETS[2]}", SECRETS[3]],
                "per_replica_batch_size": 8,
                "epochs": 1,
            },
        ),
        (("comparison",), {"title": "A title with <b>tags</b> & *stars*"}),
    )
    config = config_validation.convert_to_types(raw)
    planned = manifest_of(config)
    moments = iter(starts)
    for number, run in enumerate(planned.runs):
        if number == 4:
            write_failure(tmp_path / "results/runs", run)
        elif number < 4:
            with changed(write_record(tmp_path / "results/runs", run)) as record:
                record["environment"]["started"] = next(moments).isoformat()
    study = study_folder(tmp_path / "results/main", config, planned)
    for stage in (write_tables.collect, write_tables.compare, write_tables.analyse):
        stage(study)
    write_warnings(study.details / "warnings.json", [])
    (study.folder / "report.html").write_text("<html></html>")
    return study


def archive_of(study: StudyFolder) -> zipfile.ZipFile:
    write_archive.run(study)
    return zipfile.ZipFile(study.folder / "archive/main.zip")


def graph_of(archive: zipfile.ZipFile) -> dict[str, dict[str, Any]]:
    """Address → entity."""
    entities = json.loads(archive.read("ro-crate-metadata.json"))["@graph"]
    found = {each["@id"]: each for each in entities}
    assert len(found) == len(entities)
    return found


def references(value: Any) -> set[str]:
    """Addresses that an entity refers to."""
    values = value if isinstance(value, list) else [value]
    return {each["@id"] for each in values if isinstance(each, dict)}


def test_each_file_is_described_and_each_description_has_its_file(study: StudyFolder) -> None:
    archive = archive_of(study)
    graph, names = graph_of(archive), set(archive.namelist())
    files = {name for name, each in graph.items() if "File" in each["@type"]}
    assert files <= names
    outside = {name for name in names - files if not name.startswith("tfscaling/")}
    assert outside == {"ro-crate-metadata.json"}
    inside = {name.partition("/")[2] for name in names if name.startswith("tfscaling/")}
    assert {"Snakefile", "LICENSE", "CITATION.cff", "workflow/rules/train.smk"} <= inside
    assert "workflow/scripts/tfscaling/cli.py" in inside
    for entity in graph.values():
        for key, value in entity.items():
            local = {each for each in references(value) if not each.startswith("https://")}
            assert local <= graph.keys(), key
    assert archive.read("runs.csv") == (study.folder / "runs.csv").read_bytes()


def test_no_secret_is_in_it(study: StudyFolder) -> None:
    archive = archive_of(study)
    config = json.loads(archive.read("config.json"))
    assert config["platforms"]["cluster"]["env"] == {"TOKEN": "***"}
    assert config["platforms"]["cluster"]["setup"] == ["***", "***"]
    assert config["recipes"]["script"]["program"] == ["python", "***", "***", "***"]
    assert config["recipes"]["weak"]["learning_rate"] == 0.1
    # the configuration of the study has them: they were there to find
    original = (study.details / "config.json").read_text()
    assert all(secret in original for secret in SECRETS)
    for name in archive.namelist():
        content = archive.read(name).decode()
        assert not [secret for secret in SECRETS if secret in content], name


def test_versions_data_and_times_are_those_of_the_runs(
    study: StudyFolder, starts: list[datetime]
) -> None:
    graph = graph_of(archive_of(study))
    versions = {
        each["name"]: each["softwareVersion"]
        for each in graph.values()
        if each["@type"] == "SoftwareApplication"
    }
    assert versions["tensorflow"] == "2.21.0" and "python" in versions
    sweep = graph["#sweep"]
    assert datetime.fromisoformat(sweep["startTime"]) == min(starts)
    # not by time: the records' own
    ended = datetime.fromisoformat(sweep["endTime"])
    assert timedelta(0) <= max(starts) + timedelta(seconds=WALL_S) - ended < timedelta(seconds=1)
    data = [graph[each]["value"] for each in references(sweep["object"]) if each.startswith("#")]
    assert data == [f"SHA-256 {'d' * 64}"]


@pytest.mark.parametrize("orcid", ["https://orcid.org/0000-0002-1825-0097", None])
def test_authors_and_licence_are_those_of_the_project_folder(
    study: StudyFolder, orcid: str | None
) -> None:
    person = {"given-names": "Ada", "family-names": "Lovelace", "affiliation": "A centre"}
    citation = {
        "title": "t",
        "license": "CC-BY-4.0",
        "authors": [person | ({"orcid": orcid} if orcid else {}), {"name": "A group"}],
    }
    Path("STUDY.cff").write_text(yaml.safe_dump(citation))
    graph = graph_of(archive_of(study))
    ada = graph[orcid or "#Ada-Lovelace"]
    assert (ada["@type"], ada["name"], ada["affiliation"]) == (
        "Person",
        "Ada Lovelace",
        "A centre",
    )
    assert references(graph["./"]["author"]) == {ada["@id"], "#A-group"}
    assert graph["./"]["license"] == {"@id": "https://spdx.org/licenses/CC-BY-4.0"}
    assert graph["runs.csv"]["license"] == graph["./"]["license"]
    # the workflow keeps its own
    assert graph["tfscaling/Snakefile"]["license"] == {"@id": "https://spdx.org/licenses/MIT"}
    assert not references(graph["tfscaling/"]["author"]) & {ada["@id"], "#A-group"}


@pytest.mark.parametrize("text", ["a: [", "title: t\nauthors: []\n", "authors: [{}]\n", "- a\n"])
def test_a_wrong_citation_is_named(study: StudyFolder, text: str) -> None:
    Path("STUDY.cff").write_text(text)
    with pytest.raises(InputError, match=r"STUDY\.cff"):
        write_archive.run(study)
    assert not [*study.folder.glob("archive/*.zip")]


@pytest.mark.full
@pytest.mark.parametrize("fault", ["none", "licence", "main entity", "missing file"])
def test_roc_validator_accepts_it_and_refuses_a_damaged_one(
    study: StudyFolder, fault: str, tmp_path: Path
) -> None:
    archive = archive_of(study)
    crate = json.loads(archive.read("ro-crate-metadata.json"))
    path = tmp_path / "crate.zip"
    with zipfile.ZipFile(path, "w") as copy:
        root = next(each for each in crate["@graph"] if each["@id"] == "./")
        if fault == "licence":
            del root["license"]
        elif fault == "main entity":
            del root["mainEntity"]
        for name in archive.namelist():
            if name == "ro-crate-metadata.json":
                copy.writestr(name, json.dumps(crate))
            elif not (fault == "missing file" and name == "runs.csv"):
                copy.writestr(name, archive.read(name))
    found = validate_crate(path, tmp_path / "cache")
    assert (found == "") is (fault == "none"), found
    assert os.path.getsize(path) < 10**7
