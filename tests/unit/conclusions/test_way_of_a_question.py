"""One question through the code: few functions, and no table is read after the evidence."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from builders import SCRIPTS, manifest_of, study_folder
from random_studies import random_config, write_runs
from tfscaling.conclusions import campaign, headline, projection
from tfscaling.conclusions.answers.answer import answer_questions
from tfscaling.conclusions.evidence import Study
from tfscaling.stages import write_tables

#: Most functions of the conclusions that find the answer to a question by one goal; and where a
#: campaign gives the values of a goal or limit.
FUNCTIONS_MAX, CAMPAIGN_FUNCTIONS_MAX = 15, 20
#: Most visits of functions between the text of a headline and its answer.
VISITS_MAX = 6
#: Modules with the types and cells of rows: all that an answer uses of the tables.
ROWS = {"row_types", "row_values"}
#: Modules of the tables that a headline uses: rows, the words of values, and data frames.
WORDS = {*ROWS, "display", "table_files"}
#: The package of the answers, and its modules that have what an answer is, not how it is found.
ANSWERS = "conclusions/answers/"
TYPES = {"answer_types", "candidate_types", "details", "goals", "limits"}


class Call(NamedTuple):
    """A call of a function of the library, by the function or property that is nearest above."""

    module: str
    name: str
    caller: str


def calls_during(action: Callable[[], object]) -> list[Call]:
    """Return the calls of the library's functions during an action, in their order.

    Lambdas, comprehensions and what a template compiles to are not counted.
    """
    library, found = f"{SCRIPTS / 'tfscaling'}/", list[Call]()

    def module_of(frame: FrameType) -> str:
        return frame.f_code.co_filename.removeprefix(library).removesuffix(".py")

    def callers(frame: FrameType) -> Iterator[str]:
        above = frame.f_back
        while above is not None:
            if above.f_code.co_filename.startswith(library):
                yield module_of(above)
            above = above.f_back

    def enter(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(library) and code.co_filename.endswith(".py")
        if event == "call" and is_ours and not code.co_name.startswith("<"):
            caller = next((each for each in callers(frame) if each.startswith(ANSWERS)), "")
            found.append(Call(module_of(frame), code.co_qualname, caller))

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        action()
    finally:
        sys.setprofile(before)
    return found


def is_function(call: Call) -> bool:
    """Whether a call is of a function, or of a function in a function, and of no method."""
    return "." not in call.name or "<locals>" in call.name


def ways(study: Study) -> list[set[tuple[str, str]]]:
    """Return the functions, as (module, name), that find each answer of a study by one goal.

    Properties are not counted. What is read once for all questions is read before.
    """
    assert study.tasks
    assert study.run_rows
    projection.projection_intervals(study)
    campaign.campaign_values(study)
    found = [set[tuple[str, str]]()]
    for call in filter(is_function, calls_during(lambda: answer_questions(study))):
        if call.name == "_answer_by_goal":
            found.append({*found[0]})
        found[-1].add((call.module, call.name))
    return found


def measured_study(seed: int, folder: Path) -> Study:
    """The evidence of a random study."""
    dice = random.Random(seed)
    config = random_config(dice)
    planned = manifest_of(config)
    write_runs(planned, folder / "runs", dice)
    study = study_folder(folder / "study", config, planned)
    write_tables.collect(study)
    write_tables.compare(study)
    return write_tables.load_evidence(study)


@pytest.mark.parametrize("seed", range(300, 308))
def test_an_answer_and_its_headline_take_few_functions(seed: int, tmp_path: Path) -> None:
    study = measured_study(seed, tmp_path)
    for way in ways(study):
        modules = {module for module, _ in way}
        tables = {m.removeprefix("tables/") for m in modules if m.startswith("tables/")}
        own = {name for module, name in way if module.startswith("conclusions/")}
        is_by_campaign = "add_campaigns" in own
        assert tables <= (WORDS if is_by_campaign else ROWS), tables
        most = CAMPAIGN_FUNCTIONS_MAX if is_by_campaign else FUNCTIONS_MAX
        assert len(own) <= most, sorted(own)
    check_headlines(study)


def check_headlines(study: Study) -> None:
    """From the texts of a headline to the answer there are few visits, and none decides again."""
    answer_questions(study)
    rows = len(headline.table(study))  # templates are read once
    calls = calls_during(lambda: headline.page(headline.table(study), study))
    modules = {call.module for call in calls}
    tables = {m.removeprefix("tables/") for m in modules if m.startswith("tables/")}
    assert tables <= WORDS, tables
    inside = {m.removeprefix(ANSWERS) for m in modules if m.startswith(ANSWERS)}
    assert inside <= TYPES, inside
    # what an answer does to return its attributes is not on the way to the answer, revisions have
    # separate headlines, and the sentence about a campaign is in the module of campaigns
    visits = [call for call in calls if call.module.startswith("conclusions/") and not call.caller]
    others = (ANSWERS, "conclusions/regressions", "conclusions/campaign")
    visits = [call for call in visits if not call.module.startswith(others)]
    ends = [call for call in visits if call.name in ("table", "page")]  # all headlines share them
    assert [call.name for call in ends] == ["table", "page"]
    most = len(ends) + (VISITS_MAX - len(ends)) * rows
    assert len(visits) <= most, [call.name for call in visits]
    assert rows == 1 or study.tasks[1:]
