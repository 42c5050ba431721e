"""The page in a browser: it sorts, filters, fits the screen and asks nothing of the network."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import random
import re
from pathlib import Path
from typing import Any

import chromium
import pandas as pd
import pytest
from plotted import point, tables_of
from report_inputs import COLUMNS, TITLE, results, study
from tfscaling.page import plot_figure
from tfscaling.page.html_page import Plot, render
from tfscaling.page.plot_registry import PLOTS

pytestmark = chromium.MARKS

WATCH = """<script>
window.blocked = [];
addEventListener("securitypolicyviolation", (event) => blocked.push(event.blockedURI));
</script>"""
#: What the page looks like from inside, after a click on a column and a choice of a status.
PROBE = """<script type="module">
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const root = document.documentElement;
for (const details of document.querySelectorAll("details")) details.open = true;
for (let i = 0; i < 100 && root.dataset.tables !== "active"; i++) await sleep(50);
const region = document.querySelector(".interactive");
const headers = [...region.querySelectorAll("thead th")];
const at = headers.findIndex((cell) => cell.textContent.trim() === "execution_time_s");
const rows = () => [...region.querySelectorAll("tbody tr")];
const times = () => rows().map((row) => row.cells[at].dataset.order);
headers[at].click();
await sleep(200);
const up = times();
headers[at].click();
await sleep(200);
const down = times();
const labels = [...region.querySelectorAll(".choosers label")];
const select = labels.find((label) => label.textContent.startsWith("status")).lastChild;
select.value = "failed";
select.dispatchEvent(new Event("change"));
await sleep(200);
const found = { hostile: window.hostile ?? 0, up, down, failed: times().length, blocked,
  width: root.clientWidth, needed: root.scrollWidth,
  active: document.querySelectorAll(".active").length,
  records: document.querySelectorAll("a[href$='run.json']").length };
if (parent === window) document.title = JSON.stringify(found);
else parent.postMessage(found, "*");
</script>"""
#: Whether a line is displayed: at first, after a click on its legend, on its box, and the summary.
LINES_PROBE = """<script type="module">
const root = document.documentElement;
for (let i = 0; i < 100 && root.dataset.tables !== "active"; i++) {
  await new Promise((done) => setTimeout(done, 50));
}
const figure = document.querySelector("figure.plot");
const entry = figure.querySelector("[data-entry='b']");
const isShown = () => [...figure.querySelectorAll("[data-line='b']")].every(
  (part) => part.getAttribute("display") !== "none");
const found = [isShown()];
entry.dispatchEvent(new MouseEvent("click"));
found.push(isShown(), entry.classList.contains("off"), figure.querySelector("summary").textContent);
[...figure.querySelectorAll(".picker label")].find((l) => l.textContent === "b").click();
found.push(isShown());
document.title = JSON.stringify(found);
</script>"""
#: Rows of the folded table of runs, and its links, before it is opened, and what it has then.
LONG_PROBE = """<script type="module">
const root = document.documentElement;
const until = async (holds) => {
  for (let i = 0; i < 100 && !holds(); i++) await new Promise((done) => setTimeout(done, 50));
};
await until(() => root.dataset.tables === "active");
const fold = document.getElementById("runs").closest("details");
const count = (what) => fold.querySelectorAll(what).length;
const found = [count("tr"), count("a")];
fold.open = true;
await until(() => count(".active") === 1);
found.push(fold.querySelector(".dt-info").textContent, count("tbody tr"), count("a") > 0);
document.title = JSON.stringify(found);
</script>"""
#: What the page does not know, and so does not allow.
HOSTILE = "<script>window.hostile = 1;</script><img alt='' src='data:,' onerror='hostile = 2'>"
PHONE = """<!DOCTYPE html><title></title><script>
addEventListener("message", (event) => { document.title = JSON.stringify(event.data); });
</script><iframe src="report.html" style="width: 390px; height: 800px; border: 0"></iframe>"""


def checksum(script: str) -> str:
    """Of the text of an element, as policies have it."""
    text = re.sub(r"^<script[^>]*>|</script>$", "", script)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the probe finds in the page, in its copy outside of the study, and in a narrow frame."""
    folder = tmp_path_factory.mktemp("page")
    text = render(results(study(folder / "runs")), TITLE, COLUMNS, folder)
    allowed = " ".join(f"'sha256-{checksum(script)}'" for script in (WATCH, PROBE))
    text = text.replace("script-src ", f"script-src {allowed} ")
    text = text.replace("<style>", WATCH + "<style>").replace(
        "</body>", HOSTILE + PROBE + "</body>"
    )
    (folder / "report.html").write_text(text)
    (folder / "sent.html").write_text(text)
    (folder / "phone.html").write_text(PHONE)
    return {
        name: chromium.read_title_json(folder / f"{name}.html", "--window-size=1280,900")
        for name in ("report", "sent", "phone")
    }


@pytest.mark.parametrize(("name", "width"), [("report", 1280), ("phone", 390)])
def test_it_sorts_filters_fits_and_asks_for_nothing(
    seen: dict[str, dict[str, Any]], name: str, width: int
) -> None:
    found = seen[name]
    assert found["blocked"] == ["inline", "inline"] and found["hostile"] == 0
    assert width - 20 <= found["width"] <= width
    assert found["needed"] <= found["width"]  # the page never scrolls sideways
    assert found["active"] == 6
    numbers = [float(value) for value in found["up"] if value]
    assert len(numbers) == 4 and numbers == sorted(numbers)
    assert [float(value) for value in found["down"] if value] == numbers[::-1]
    assert found["up"][-2:] == found["down"][-2:] == ["", ""]  # what is missing stands last
    assert found["failed"] == 1


def test_a_page_links_records_only_in_the_folder_of_its_study(
    seen: dict[str, dict[str, Any]],
) -> None:
    assert (seen["report"]["records"], seen["sent"]["records"]) == (7, 0)


@pytest.mark.parametrize("name", ["report", "sent"])
def test_a_long_folded_table_is_built_when_it_is_opened(name: str, tmp_path: Path) -> None:
    made, page = results(study(tmp_path / "runs")), tmp_path / f"{name}.html"
    times = random.randint(40, 60)
    rows = times * len(made.runs)
    made = dataclasses.replace(made, runs=pd.concat([made.runs] * times, ignore_index=True))
    text = render(made, TITLE, COLUMNS, tmp_path)
    (held,) = re.findall(r"<noscript>(<table.*?</table>)</noscript>", text, re.DOTALL)
    assert held.count("<tr>") == rows + 1  # what a browser shows that runs no script
    text = text.replace("script-src ", f"script-src 'sha256-{checksum(LONG_PROBE)}' ")
    page.write_text(text.replace("</body>", LONG_PROBE + "</body>"))
    found = chromium.read_title_json(page, "--window-size=1280,900")
    assert found == [0, 0, f"{rows} of {rows} rows", 50, name == "report"]


def test_a_line_is_shown_and_hidden_by_its_legend_and_by_its_box(tmp_path: Path) -> None:
    tables = tables_of(*(point(n, recipe=recipe) for recipe in ("a", "b", "c") for n in (1, 2)))
    svg = plot_figure.to_svg(PLOTS["execution_time"].draw(tables, "T"))
    made = results(study(tmp_path / "runs"), plots=[Plot("execution_time", "T", svg)])
    text = render(made, TITLE, COLUMNS, tmp_path)
    text = text.replace("script-src ", f"script-src 'sha256-{checksum(LINES_PROBE)}' ")
    (tmp_path / "report.html").write_text(text.replace("</body>", LINES_PROBE + "</body>"))
    found = chromium.read_title_json(tmp_path / "report.html", "--window-size=1280,900")
    assert found == [True, False, True, "Lines: 2 of 3", True]
