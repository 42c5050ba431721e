"""The study as one file for an archive: an RO-Crate by the profile Workflow Run Crate.

INPUTS   config.json, the tables, the page, STUDY.cff if it exists, the files of the workflow
OUTPUTS  archive/<study>.zip

Records, manifest and logs have the values of `env`, `setup` and `program`: they are not archived.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tfscaling.files import atomic
from tfscaling.files.program_errors import InputError
from tfscaling.record.rank_report import PROGRAM_PACKAGES
from tfscaling.stages import write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study.config_types import Config
from tfscaling.tables import display
from tfscaling.tables.row_types import RunRow

#: An entity of the crate's JSON-LD.
Entity = dict[str, Any]

CITATION = "CITATION.cff"
#: File in the folder of the sweep with title, authors and licence of the study.
STUDY_CITATION = "STUDY.cff"
#: The folder of the workflow: it has the Snakefile, the licence and CITATION.cff.
WORKFLOW = Path(__file__).resolve().parents[4]
#: Files of the workflow, which are in the crate's folder of this name.
WORKFLOW_PREFIX = "tfscaling"
WORKFLOW_FILES = ("Snakefile", "LICENSE", CITATION)
#: Results in the folder of the study → what they are.
RESULTS = {
    "report.html": "The page: answer, tables and plots",
    "runs.csv": "One row for each run",
    "comparison.csv": "One row for each configuration, with medians and intervals",
    "details/epochs.csv": "One row for each epoch",
    "details/comparison.md": "The main columns of the comparison, with warnings",
    "details/warnings.json": "Limitations of the numbers",
}
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
SNAKEMAKE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
FORMATS = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".md": "text/markdown",
}
#: Replaces a value that may be secret.
WITHHELD = "***"


@dataclass(frozen=True)
class Citation:
    """Title, version, licence and authors of a work, from its CITATION.cff.

    Attributes:
        title: The title.
        version: The version; "" without one.
        licence: Address of the licence on spdx.org.
        authors: An RO-Crate entity for each author, of type Person or Organization.
    """

    title: str
    version: str
    licence: str
    authors: Sequence[Entity]

    @classmethod
    def read(cls, path: Path) -> Citation:
        """Read a CITATION.cff.

        Raises:
            InputError: The file is no YAML, or has no title, author or licence.
            OSError: The file cannot be read.
        """
        try:
            content = yaml.safe_load(path.read_text())
            authors = tuple(map(_author, content["authors"]))
            licence = f"https://spdx.org/licenses/{content['license']}"
            title, version = str(content["title"]), str(content.get("version") or "")
        except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path}: no citation of a study ({error}); expected title, license and authors, "
                "each with name, or given-names and family-names"
            ) from error
        return cls(title, version, licence, authors)


def _version_of(distribution: str) -> dict[str, str]:
    """Return {"version": the version of a package}; {} if it is not installed."""
    try:
        return {"version": metadata.version(distribution)}
    except metadata.PackageNotFoundError:
        return {}


def _author(author: dict[str, str]) -> Entity:
    """Return the RO-Crate entity of an author in CITATION.cff.

    Raises:
        KeyError: Neither `name` nor `family-names` is given.
    """
    if "name" in author:
        kind, name = "Organization", author["name"]
    else:
        kind = "Person"
        name = " ".join([author.get("given-names", ""), author["family-names"]]).strip()
    address = author.get("orcid") or author.get("website") or "#" + "-".join(name.split())
    entity = {"@id": address, "@type": kind, "name": name}
    return entity | ({"affiliation": author["affiliation"]} if "affiliation" in author else {})


def run(study: StudyFolder) -> None:
    """Write the archive of a study; print its path, and the file with its authors and licence."""
    source = Path(STUDY_CITATION) if Path(STUDY_CITATION).exists() else WORKFLOW / CITATION
    citation, workflow_citation = Citation.read(source), Citation.read(WORKFLOW / CITATION)
    config = msgspec.json.encode(withhold_secrets(study.config))
    names = [name for name in RESULTS if (study.folder / name).exists()]
    names += [
        str(path.relative_to(study.folder))
        for path in sorted(study.details.glob("conclusions/*.csv"))
    ]
    crate = describe_crate(study, names, citation, workflow_citation)
    folder = study.folder / "archive"
    folder.mkdir(exist_ok=True)
    path = folder / f"{study.config.study}.zip"
    with atomic.replacement(path) as temporary, zipfile.ZipFile(
        temporary, "w", zipfile.ZIP_DEFLATED
    ) as archive:  # fmt: skip
        archive.writestr("ro-crate-metadata.json", json.dumps(crate, indent=2) + "\n")
        archive.writestr("README.md", _describe_contents(study, citation, workflow_citation))
        archive.writestr("config.json", msgspec.json.format(config, indent=1) + b"\n")
        for name in names:
            archive.write(study.folder / name, name)
        for file in workflow_files():
            archive.write(file, f"{WORKFLOW_PREFIX}/{file.relative_to(WORKFLOW)}")
    print(path)
    print(f"authors and licence of the study: {source}")


def workflow_files() -> Iterator[Path]:
    """Yield the files of the workflow: Snakefile, rules, library, licence."""
    yield from (WORKFLOW / name for name in WORKFLOW_FILES)
    for path in sorted((WORKFLOW / "workflow").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def withhold_secrets(config: Config) -> Config:
    """Return the configuration with `***` for values that may be secret.

    These are values of `env`, lines of `setup`, and the words of a program after its first.
    """
    platforms = {
        name: msgspec.structs.replace(
            platform,
            env=dict.fromkeys(platform.env, WITHHELD),
            setup=(WITHHELD,) * len(platform.setup),
        )
        for name, platform in config.platforms.items()
    }
    recipes = {
        name: msgspec.structs.replace(
            recipe, program=(*recipe.program[:1], *(WITHHELD,) * len(recipe.program[1:]))
        )
        for name, recipe in config.recipes.items()
    }
    return msgspec.structs.replace(config, platforms=platforms, recipes=recipes)


def describe_crate(
    study: StudyFolder, names: Sequence[str], citation: Citation, workflow_citation: Citation
) -> Entity:
    """Return the content of ro-crate-metadata.json.

    Args:
        study: The folder of the study.
        names: Paths of the files of results in the archive.
        citation: Authors and licence of the study.
        workflow_citation: Title, version, authors and licence of the workflow.
    """
    rows = write_tables.load_own_evidence(study).run_rows
    parameters = {"config.json": "configuration", **{name: _parameter(name) for name in names}}
    main = f"{WORKFLOW_PREFIX}/Snakefile"
    software = describe_software(rows)
    data = describe_data(rows)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"{study.config.comparison.title} ({study.config.study})",
        "description": f"Measured training runs of the study {study.config.study}: configuration, "
        "runs, comparison, conclusions, page, and the workflow that made them",
        "datePublished": datetime.now(UTC).date().isoformat(),
        "license": _id(citation.licence),
        "author": _ids(citation.authors),
        "conformsTo": [_id(profile) for profile in PROFILES],
        "mainEntity": _id(main),
        "mentions": _id("#sweep"),
        "hasPart": [_id(each) for each in ["README.md", main, f"{WORKFLOW_PREFIX}/", *parameters]],
    }
    snakefile = {
        "@id": main,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
        "name": workflow_citation.title,
        "version": workflow_citation.version,
        "programmingLanguage": _id(SNAKEMAKE),
        "license": _id(workflow_citation.licence),
        "author": _ids(workflow_citation.authors),
        "conformsTo": _id("https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"),
        "softwareRequirements": _ids(software),
        "input": _id("#configuration"),
        "output": _compact([_id(f"#{parameters[name]}") for name in names]),
    }
    folder = {
        "@id": f"{WORKFLOW_PREFIX}/",
        "@type": "Dataset",
        "name": "The workflow: Snakefile, rules and library",
        "description": describe_commits(rows),
        "license": _id(workflow_citation.licence),
        "author": _ids(workflow_citation.authors),
    }
    readme = {
        "@id": "README.md",
        "@type": "File",
        "name": "What this archive has",
        "about": _id("./"),
        "encodingFormat": FORMATS[".md"],
    }
    sweep = {
        "@id": "#sweep",
        "@type": "CreateAction",
        "name": f"Sweep of the study {study.config.study}",
        "description": f"{len(rows)} runs, {sum(row.status == 'ok' for row in rows)} of them valid",
        "instrument": _id(main),
        "object": _ids([_id("config.json"), *data]),
        "result": _compact([_id(name) for name in names]),
        **describe_time(rows),
    }
    licences = {
        each.licence: {
            "@id": each.licence,
            "@type": "CreativeWork",
            "name": each.licence.rpartition("/")[2],
        }
        for each in (citation, workflow_citation)
    }
    people = {each["@id"]: each for each in [*workflow_citation.authors, *citation.authors]}
    descriptor = {
        "@id": "ro-crate-metadata.json",
        "@type": "CreativeWork",
        "about": _id("./"),
        "conformsTo": [
            _id("https://w3id.org/ro/crate/1.1"),
            _id("https://w3id.org/workflowhub/workflow-ro-crate/1.0"),
        ],
    }
    language = {
        "@id": SNAKEMAKE,
        "@type": "ComputerLanguage",
        "name": "Snakemake",
        "identifier": _id("https://doi.org/10.1093/bioinformatics/bts480"),
        "url": _id("https://snakemake.readthedocs.io"),
        **_version_of("snakemake"),
    }
    profiles = [
        {"@id": address, "@type": "CreativeWork", "name": name, "version": version}
        for address, (name, version) in PROFILES.items()
    ]
    files = [
        each
        for path, parameter in parameters.items()
        for each in _describe_file(path, parameter, citation.licence)
    ]
    graph = [descriptor, root, readme, snakefile, folder, sweep, language, *profiles, *files]
    graph += [*software, *data, *licences.values(), *people.values()]
    return {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}


def _describe_contents(study: StudyFolder, citation: Citation, workflow_citation: Citation) -> str:
    """Return the README.md of the archive: answer, files, licences, and what is withheld.

    Args:
        study: The folder of the study.
        citation: Authors and licence of the study.
        workflow_citation: Authors and licence of the workflow.
    """
    headline = study.details / "conclusions/headline.md"
    answer = [headline.read_text().strip(), ""] if headline.exists() else []
    files = [f"- `{name}`: {text}" for name, text in RESULTS.items()]
    return "\n".join([
        f"# {display.escape_markdown(study.config.comparison.title)}",
        "",
        *answer,
        *files,
        "- `details/conclusions/`: the conclusions, as tables",
        f"- `config.json`: the configuration; `{WITHHELD}` replaces `env`, `setup` and `program`",
        f"- `{WORKFLOW_PREFIX}/`: the workflow",
        "- `ro-crate-metadata.json`: this list for programs, with versions, data and dates",
        "",
        f"Licence of configuration and results: {citation.licence}",
        "",
        f"Licence of the workflow: {workflow_citation.licence}",
        "",
        "Records, manifest and logs of the runs are not included: they have the values of `env`, "
        "`setup` and `program`.",
        "",
    ])  # fmt: skip


def _describe_file(path: str, parameter: str, licence: str) -> Iterator[Entity]:
    """Yield two entities: a file, and the input or output of the workflow that it contains.

    Args:
        path: Path of the file in the archive.
        parameter: Name of the input or output.
        licence: Address of the licence of the study.
    """
    withheld = f"The configuration of the study; {WITHHELD} replaces env, setup and program"
    about = RESULTS.get(path, withheld if parameter == "configuration" else f"Table {parameter}")
    yield {
        "@id": path,
        "@type": "File",
        "name": path,
        "description": about,
        "encodingFormat": FORMATS[Path(path).suffix],
        "license": _id(licence),
        "exampleOfWork": _id(f"#{parameter}"),
    }
    yield {
        "@id": f"#{parameter}",
        "@type": "FormalParameter",
        "additionalType": "File",
        "name": parameter,
        "conformsTo": _id("https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"),
        "workExample": _id(path),
    }


def describe_software(rows: Sequence[RunRow]) -> list[Entity]:
    """Return an entity for each version of Python and packages that the runs used."""
    names = ("python", *PROGRAM_PACKAGES)
    versions = {
        (name, version): None
        for row in rows
        for name in names
        for version in (row[name] or "").split("; ")
        if version
    }
    return [
        {
            # a package URL, the usual name of a version of a package
            "@id": f"pkg:generic/python@{version}"
            if name == "python"
            else f"pkg:pypi/{name.replace('_', '-')}@{version}",
            "@type": "SoftwareApplication",
            "name": name,
            "softwareVersion": version,
        }
        for name, version in sorted(versions)
    ]


def describe_data(rows: Sequence[RunRow]) -> list[Entity]:
    """Return an entity with the checksum for each dataset that the runs read."""
    checksums = {(row.dataset, row.dataset_sha256): None for row in rows if row.dataset}
    return [
        {
            "@id": f"#dataset-{name}-{(checksum or 'unknown')[:12]}",
            "@type": "PropertyValue",
            "name": f"dataset {name}",
            "value": f"SHA-256 {checksum}",
        }
        for name, checksum in checksums
    ]


def describe_commits(rows: Sequence[RunRow]) -> str:
    """Return a sentence that names the commits of the workflow with which the runs were made."""
    commits = sorted({row.git_commit for row in rows if row.git_commit})
    return f"The runs were made with {', '.join(commits) or 'an unknown commit'}"


def describe_time(rows: Sequence[RunRow]) -> Entity:
    """Return `startTime` of the first run and `endTime` of the last one; {} without records."""
    starts = [(datetime.fromisoformat(row.started), row.wall_time_s) for row in rows if row.started]
    if not starts:
        return {}
    ends = [start + timedelta(seconds=s if s > 0 else 0) for start, s in starts]
    times = {"startTime": min(start for start, _ in starts), "endTime": max(ends)}
    return {
        name: moment.astimezone(UTC).isoformat(timespec="seconds") for name, moment in times.items()
    }


def _parameter(name: str) -> str:
    """Return the archive's name for the output in a file of results: `runs` for runs.csv."""
    path = Path(name)
    return path.stem if path.suffix == ".csv" else path.name.replace(".", "-")


def _id(address: str) -> Entity:
    """Return a reference to an entity of the archive's metadata, in JSON-LD."""
    return {"@id": address}


def _ids(entities: Sequence[Entity]) -> Entity | list[Entity]:
    """Return a list of references to entities; a single reference is returned without a list."""
    return _compact([_id(each["@id"]) for each in entities])


def _compact(values: Sequence[Entity]) -> Entity | list[Entity]:
    """Return the values as a list; a single value is returned without a list."""
    return values[0] if len(values) == 1 else list(values)
