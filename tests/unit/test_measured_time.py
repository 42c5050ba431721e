"""The check of assertions that judge measured times: what it finds, and what it leaves alone."""

from __future__ import annotations

import textwrap

import pytest
from measured_time import judged

#: Of the tests that failed on a busy machine: the answer follows from the pace of processes.
BAD = {
    "support": """
        def test_the_right_configuration_is_named(asked: Project, overlay: str) -> None:
            study, goal, recipe, nodes = ANSWERS[overlay]
            rows = asked.table(f"results/{study}/details/conclusions/decision.csv")
            chosen = [row for row in rows if row["goal"] == goal and row["recipe"] == recipe]
            assert [(row["nodes"], row["support"]) for row in chosen] == [(nodes, "supported")]
    """,
    "order of an answer": """
        def test_a_search(project: Project) -> None:
            best, other = project.table("results/main/details/conclusions/search.csv")
            assert best["nodes"] == "2"
    """,
    "a bound of a duration": """
        def test_waiting(project: Project) -> None:
            phases = project.records()[0]["phases"]
            assert phases["queue_time_s"] >= WAIT_S - 1
    """,
    "two durations": """
        def test_waits(project: Project) -> None:
            waits_s = [rank["input_wait_s"] for rank in project.records()[0]["ranks"]]
            assert waits_s[1] > waits_s[0]
    """,
    "a clock": """
        def test_speed() -> None:
            begun = time.monotonic()
            subprocess.run(["true"], check=True)
            assert time.monotonic() - begun < 2
    """,
    "a helper starts the process": """
        def begin(folder):
            return Project(folder)

        def test_rate(tmp_path) -> None:
            for name in ("throughput_examples_per_s", "speedup"):
                assert all(float(row[name]) > 1.5 for row in begin(tmp_path).table())
    """,
    "attributes": """
        def test_bound(project: Project) -> None:
            record = run_record.read_record(project.folder / "run.json")
            assert (record.status, record.phases.execution_time_s) == ("ok", approx(3.0, rel=0.5))
    """,
}  # fmt: skip
GOOD = {
    "presence": """
        def test_rows(project: Project) -> None:
            (row,) = project.table()
            assert float(row["execution_time_s"]) > 0 and row["speedup"] == row["loss"] == ""
            assert (row["status"], row["time_to_target_s"]) == ("failed", "")
            assert [(r["status"], r["cost_usd"]) for r in project.table()] == [("ok", "")]
            assert "execution_time_s" in row and len(row["execution_time_s"]) < 20
    """,
    "the table has the record's time": """
        def test_table(project: Project) -> None:
            (row,), (record,) = project.table(), project.records()
            assert float(row["execution_time_s"]) == approx(record["phases"]["execution_time_s"])
            before = [row["execution_time_s"] for row in project.table()]
            assert [row["execution_time_s"] for row in project.table()] == before
    """,
    "known times": """
        def test_answer(project: Project) -> None:
            timed_runs.make(project, time_s)
            assert project.table("details/conclusions/decision.csv")[0]["support"] == "supported"
    """,
    "no process": """
        def test_estimate() -> None:
            assert estimate([3.0]).execution_time_s == 3.0
    """,
    "a reason": """
        def test_hang(project: Project) -> None:
            # not by time: it hangs
            assert time.monotonic() < deadline
    """,
}


@pytest.mark.parametrize("case", BAD)
def test_an_assertion_that_judges_measured_times_is_found(case: str) -> None:
    text = textwrap.dedent(BAD[case])
    (line,) = judged(text)
    assert text.splitlines()[line - 1].lstrip().startswith("assert ")


@pytest.mark.parametrize("case", GOOD)
def test_other_assertions_are_left_alone(case: str) -> None:
    assert judged(textwrap.dedent(GOOD[case])) == []
