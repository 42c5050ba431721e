"""Draw every conclusion of `base.CONCLUSIONS` from the comparison.

INPUTS   config.json, manifest.json, tables/{comparison,runs}.csv, tables/warnings.json, published
         results and another study if configured, the benchmark records
OUTPUTS  tables/<conclusion>.{csv,md} of each conclusion
"""

from __future__ import annotations

from pathlib import Path

from tfscaling.conclusions.base import CONCLUSIONS, tables
from tfscaling.conclusions.evidence import Reference, Study
from tfscaling.files import atomic
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.tables import data_warnings, published_results, table_rows


def run(study: StudyFolder) -> None:
    """Write each conclusion: its table, and its page, which begins with the warnings."""
    warnings = data_warnings.read(study.tables / "warnings.json")
    evidence = evidence_of(study)
    for name, table in tables(evidence):
        table_rows.write_csv(table, study.table(name))
        page = CONCLUSIONS[name].page(table, evidence, warnings)
        atomic.write_text(study.tables / f"{name}.md", page)


def evidence_of(study: StudyFolder) -> Study:
    """What the conclusions rest on."""
    config = study.config
    return Study(
        study.read("comparison"),
        study.read("runs"),
        study.manifest,
        published_results.read(config.published.path),
        config.published.tolerance,
        study.benchmarks_dir,
        Reference.read(Path(config.compare_with)) if config.compare_with else None,
        config.forecast.nodes,
        config.question,
    )
