"""The badge and the table for a model's README: to how many nodes its training scales.

INPUTS   config.json, manifest.json, the tables, warnings.json
OUTPUTS  badge/scaling.svg, badge/scaling.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfscaling.conclusions import rendering
from tfscaling.conclusions.evidence import task_name
from tfscaling.conclusions.scaling_range import EFFICIENCY_MIN, ScalingRange, find_scaling_ranges
from tfscaling.files import atomic
from tfscaling.page.badge import badge_svg
from tfscaling.stages import write_tables
from tfscaling.stages.study_folder import StudyFolder
from tfscaling.study.config_types import LINE_AXES
from tfscaling.tables import display
from tfscaling.tables.data_warnings import read_warnings
from tfscaling.tables.display import TextTable, count_text, format_cell
from tfscaling.tables.row_values import is_projected

#: Column of the table → its heading.
COLUMNS = {
    "nodes": "nodes",
    "runs": "runs",
    "execution_time_s": "time (s)",
    "speedup": "speed-up",
    "scaling_efficiency": "efficiency",
}


def run(study: StudyFolder) -> None:
    """Write the badge and the table, and print their paths."""
    evidence = write_tables.load_own_evidence(study)
    warnings = read_warnings(study.details / "warnings.json")
    ranges = find_scaling_ranges(evidence, warnings)
    best = max(ranges, key=lambda each: each.nodes_max or 0, default=None)
    message = describe_range(best)
    claim = f"{study.config.study}: {_describe_claim(best)}."
    folder = study.folder / "badge"
    folder.mkdir(exist_ok=True)
    is_supported = best is not None and best.nodes_max is not None
    svg = badge_svg("scaling", message, claim, is_supported=is_supported)
    text = rendering.render(
        "scaling_badge",
        claim=display.escape_markdown(claim),
        tables=[*_scaling_tables(ranges)],
        efficiency=EFFICIENCY_MIN,
        has_projected=any(map(is_projected, evidence.points)),
    )
    for name, content in (("scaling.svg", svg), ("scaling.md", f"{text}\n")):
        atomic.write_text(folder / name, content)
        print(folder / name)


def describe_range(found: ScalingRange | None) -> str:
    """Return the message of the badge, such as `to 4 nodes (95 %)`, where 95 % is the confidence.

    It is `not shown` if the runs support no range of nodes.
    """
    if found is None or found.nodes_max is None:
        return "not shown"
    return f"{_describe_nodes(found)} (95 %)"


def _describe_nodes(found: ScalingRange) -> str:
    """Return the nodes over which a training scales: `from 2 to 16 nodes`, or `to 16 nodes`."""
    base = found.efficient_configurations[-1].baseline
    assert base is not None, "a range that is shown has a baseline"
    first = f"from {base.nodes} " if base.nodes > 1 else ""
    return f"{first}to {count_text(found.nodes_max or 0, 'node')}"


def _describe_claim(found: ScalingRange | None) -> str:
    """Return what the badge claims, as a sentence without its full stop."""
    if found is None or found.nodes_max is None:
        return f"no efficiency of at least {EFFICIENCY_MIN:g} is shown on more nodes"
    row = found.efficient_configurations[-1].row
    return (
        f"{task_name(row, LINE_AXES)} scales {_describe_nodes(found)} with 95 % confidence; the "
        f"efficiency is at least {EFFICIENCY_MIN:g}, compared with {row.baseline}"
    )


def _scaling_tables(ranges: Sequence[ScalingRange]) -> Iterator[str]:
    """Yield a Markdown table for each group of configurations that differ only in nodes."""
    for each in ranges:
        name = task_name(each.configurations[0].row, LINE_AXES)
        title = f"{name}: {describe_range(each)}"
        cells = [
            [*(format_cell(column, own.row) for column in COLUMNS), own.reason or "yes"]
            for own in each.configurations
        ]
        columns = [*COLUMNS.values(), f"at least {EFFICIENCY_MIN:g}"]
        yield display.to_markdown(TextTable.from_rows(title, columns, cells), level=2)
