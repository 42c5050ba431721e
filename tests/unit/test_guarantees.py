"""Each claim about error rates and coverage names what simulates it, with the same rate."""

from __future__ import annotations

import ast
import csv
import math
import re
from collections.abc import Iterator
from functools import cache

import all_trainings
import pytest
import regressions
from project import REPOSITORY
from race import CELLS, MODES
from scipy.stats import binom
from tfscaling.conclusions.regressions import is_failing

NOT_CLAIMED = "not claimed"


def rows(page: str, header: str) -> list[list[str]]:
    """The rows of the page's table whose first heading is `header`."""
    lines = iter((REPOSITORY / page).read_text().splitlines())
    next(line for line in lines if line.startswith(f"| {header} |"))
    next(lines)
    table = []
    for line in lines:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


CLAIMS = rows("docs/evidence.md", "claim")


@cache
def functions() -> dict[str, set[float]]:
    """Return the numbers of each test, with those of its module's definitions that it uses."""
    found = {}
    claimed = {name for *_, tests in CLAIMS for name in re.findall(r"`(\w+)`", tests)}
    for path in (REPOSITORY / "tests/unit").rglob("test_*.py"):
        text = path.read_text()
        if not claimed.intersection(re.findall(r"^def (\w+)", text, re.MULTILINE)):
            continue
        definitions: dict[str, ast.stmt] = {}
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.FunctionDef):
                definitions[statement.name] = statement
            elif isinstance(statement, ast.Assign):
                targets = [node for target in statement.targets for node in ast.walk(target)]
                names = [node.id for node in targets if isinstance(node, ast.Name)]
                definitions |= dict.fromkeys(names, statement)
        for name in definitions:
            used = [name]
            for each in used:  # grows
                nodes = ast.walk(definitions[each])
                named = {node.id for node in nodes if isinstance(node, ast.Name)}
                used += sorted((named & definitions.keys()) - {*used})
            found[name] = {number for each in used for number in numbers(definitions[each])}
    return found


def numbers(tree: ast.AST) -> Iterator[float]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield float(node.value)


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row[0][:60])
def test_a_claim_has_tests_with_its_rate(row: list[str]) -> None:
    _, rate, tests = row
    names = re.findall(r"`(\w+)`", tests)
    assert names
    for name in names:
        assert float(rate[2:]) in functions()[name], name


def test_the_cells_of_searches_that_are_claimed_have_requirements() -> None:
    """Rows of variants, which must fail, have their names before the cell."""
    with (REPOSITORY / "studies/search/cells.csv").open(newline="") as file:
        simulated = {row["cell"]: row for row in csv.DictReader(file)}
    claimed = {name: row["claimed"] for name, row in simulated.items() if ": " not in name
               or name in CELLS}  # fmt: skip
    assert claimed == {name: "yes" if each.limits.texts() else "no" for name, each in CELLS.items()}
    for name, wrong, infeasible, *others, said in rows("docs/evidence.md", "cell | wrong (95 %)"):
        row = simulated[name]
        interval = f"{row['wrong']} ({row['wrong_low']}–{row['wrong_high']})"
        shown = [row[key] for key in ("infeasible", "decided", "holds", "node_hours", "rounds")]
        assert [wrong, infeasible, *others, said] == [interval, *shown, row["claimed"]], name


def test_the_page_claims_the_two_modes_that_are_required() -> None:
    def range_text(place: int, *where: str) -> str:
        """The range of a number of the claimed entries: per cent of runs (1), or slower by (2)."""
        numbers = [each[place] for each in MODES if each[0] in where and each[3]]
        return " to ".join(str(number) for number in dict.fromkeys((min(numbers), max(numbers))))

    said = (
        f"- two modes: {range_text(1, 'best')} % of the best configuration's runs are "
        f"{range_text(2, 'best')} % slower; {range_text(1, 'tenth')} % for a tenth of the "
        f"configurations, {range_text(1, 'all')} % for all\n"
    )
    assert said in (REPOSITORY / "docs/evidence.md").read_text()


def test_the_totals_of_all_trainings_are_those_of_the_page() -> None:
    """In every simulated cell the total is at most the lower one of the others."""
    with (REPOSITORY / "studies/search/all_trainings.csv").open(newline="") as file:
        found = {(row["cell"], row["trainings"]): row for row in csv.DictReader(file)}
    names = [name for name, cell in CELLS.items() if cell.procedures[0] in all_trainings.PROCEDURES]
    assert found.keys() == {(name, str(n)) for name in names for n in all_trainings.TRAININGS}
    columns = ("total", "unknown", "six_of_each", "ended", "wrong", "stated")
    for row in found.values():
        assert float(row["total"]) <= min(float(row["unknown"]), float(row["six_of_each"]))
    cell = ""
    for name, trainings, *values in rows("docs/evidence.md", "simulated cell"):
        cell = name or cell
        row = found[cell, trainings.replace(",", "")]
        assert values == [row[column] or "–" for column in columns]
    for trainings, *values in rows("docs/evidence.md", "planned trainings"):
        number = trainings.replace(",", "")
        for column, value in zip(columns[:3], values, strict=True):
            own = [float(found[name, number][column]) for name in names]
            assert float(value) == pytest.approx(sum(own) / len(own), abs=0.01)
        most = all_trainings.MEAN_MAX.get(int(number), math.inf)
        assert float(values[0]) <= most


def test_the_cells_of_pairs_of_sweeps_are_those_of_the_page() -> None:
    """All rows keep what is required of them, and the summary has their extremes."""
    summary = {row[0]: row[1:] for row in rows("docs/two-sweeps.md", "noise of a run")}
    found: dict[str, list[list[float]]] = {name: [] for name in regressions.NOISES}
    sensitivity: dict[str, list[str]] = {name: [] for name in regressions.NOISES}
    with (REPOSITORY / "studies/two-sweeps/simulation.csv").open(newline="") as file:
        simulated = list(csv.reader(file))[1:]
    for name, points, runs, *values, remark in simulated:
        *rates, detected = map(float, values)
        claimed = regressions.is_claimed(name, int(points), int(runs))
        assert (remark == NOT_CLAIMED) is not claimed
        if claimed:
            assert max(rates[:3]) <= regressions.ERROR and rates[3] >= regressions.HOLD_MIN
            found[name].append(rates)
        if points == "8":
            sensitivity[name].append(f"{detected:.3f}")
    assert summary.keys() == found.keys()
    for name, own in found.items():
        expected = [NOT_CLAIMED, "", ""]
        if own:
            highest, lowest = max(max(r[:3]) for r in own), min(r[3] for r in own)
            expected = [f"{highest:.3f}", f"{lowest:.3f}", ", ".join(sensitivity[name])]
        assert summary[name] == expected, name


def test_random_failures_call_as_few_configurations_failing_as_the_page_says() -> None:
    shares = {"one run in ten": 0.1, "one run in five": 0.2}
    for share, *said in rows("docs/two-sweeps.md", "failure rate in both sweeps"):
        for runs, text in zip((6, 4), said, strict=True):
            ends = range(runs + 1)
            chances = binom.pmf(range(runs + 1), runs, shares[share])
            rate = sum(
                chances[here] * chances[there]
                for here in ends for there in ends if is_failing(here, runs, there, runs)
            )  # fmt: skip
            assert float(text.split()[-1]) == pytest.approx(1 / rate, rel=0.02)
