"""The pages of kept studies in a browser: the answer is on the first screen, and readable."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import chromium
import make as screenshots
import pytest
from builders import REPOSITORY

pytestmark = chromium.MARKS

#: The checker of accessibility, from the package axe-core of npm.
AXE = REPOSITORY / ".tools" / "axe-core" / "package" / "axe.min.js"
#: Width of a screen → its colours: together they show each rule of the style.
SCHEMES = {1300: "light", 400: "dark"}
#: What the page looks like with everything unfolded: of text in plots the height on the screen
#: counts. Then which rules of accessibility its elements violate.
PROBE = """<script type="module">
const root = document.documentElement;
const box = (selector) => document.querySelector(selector)?.getBoundingClientRect().bottom;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
for (const details of document.querySelectorAll("details")) details.open = true;
const isActive = () => root.dataset.tables === "active" || !document.querySelector(".interactive");
for (let i = 0; i < 200 && !isActive(); i++) await sleep(50);
const heights = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || element.closest("script, style, svg title")) continue;
  const svg = element.closest("svg");
  const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
  heights.push(scale * parseFloat(getComputedStyle(element).fontSize));
}
const found = {
  name: window.name, width: root.clientWidth, needed: root.scrollWidth,
  smallest: Math.min(...heights), headline: box(".headline"), plot: box(".hero .plot svg"),
  tips: document.querySelectorAll("svg .tip title").length,
  tables: [...document.querySelectorAll("#comparison ~ .table .dt-layout-table")].map(
    (scroller) => scroller.scrollWidth - scroller.clientWidth),
  isDark: matchMedia("(prefers-color-scheme: dark)").matches,
};
const { violations } = await axe.run({ resultTypes: ["violations"] });
found.violations = violations.map(
  ({ id, nodes }) => [id, ...nodes.map((node) => node.target.join(" "))]);
parent.postMessage(found, "*");
</script>"""
#: A page with two violations: a picture without words, and pale text.
BROKEN = """<!DOCTYPE html><html lang="en"><head><title>Broken</title></head><body>
<main><h1>Broken</h1><img src="data:,"><p style="color: #999; background: #fff">Pale</p></main>
</body></html>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Path]:
    """The pages of the kept studies; no library warns of what they are made with."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {
            name: screenshots.make(screenshots.PAGES[name], folder / name)
            for name in screenshots.PAGES
        }


@pytest.fixture(scope="module")
def seen(folder: Path, pages: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """What the probe finds in each page on each screen, by `<page>-<width>`: one start for all."""
    assert AXE.exists(), f"{AXE} is missing: `make tools`"
    probe = f"<script>{AXE.read_text()}</script>{PROBE}</body>"
    texts = {name: page.read_text() for name, page in pages.items()} | {"broken": BROKEN}
    frames = []
    for name, text in texts.items():
        # a page allows its own script alone
        text = re.sub(r"script-src '[^']+'", "script-src 'unsafe-inline'", text)
        (folder / f"{name}.html").write_text(text.replace("</body>", probe))
        frames += [
            f'<iframe name="{name}-{width}" src="{name}.html" style="width: {width}px; border: 0; '
            f'height: {height}px; color-scheme: {SCHEMES[width]}"></iframe>'
            for width, height in screenshots.SCREENS.items()
        ]
    listen = f"""<script>
    const found = [];
    addEventListener("message", ({{ data }}) => {{
      if (found.push(data) === {len(frames)}) document.title = JSON.stringify(found);
    }});
    </script>"""
    (folder / "frames.html").write_text(f"<!DOCTYPE html><title></title>{listen}{''.join(frames)}")
    flags = ("--virtual-time-budget=60000", "--window-size=1400,8000")
    every = chromium.read_title_json(folder / "frames.html", *flags)
    return {found["name"]: found for found in every}


@pytest.mark.parametrize("name", screenshots.PAGES)
@pytest.mark.parametrize(("width", "height"), screenshots.SCREENS.items())
def test_the_answer_is_on_the_first_screen_and_readable(
    seen: dict[str, dict[str, Any]], name: str, width: int, height: int
) -> None:
    found = seen[f"{name}-{width}"]
    assert found["needed"] <= found["width"] <= width  # never sideways, with everything unfolded
    assert len(found["tables"]) == 1 and (found["tables"] == [0] or width < 1300)
    assert found["smallest"] >= 9
    assert found["headline"] < found["plot"] <= height
    assert found["tips"] > 0


@pytest.mark.parametrize("name", screenshots.PAGES)
@pytest.mark.parametrize("width", screenshots.SCREENS)
def test_no_rule_of_accessibility_is_violated(
    seen: dict[str, dict[str, Any]], name: str, width: int
) -> None:
    found = seen[f"{name}-{width}"]
    assert found["isDark"] == (SCHEMES[width] == "dark")
    assert found["violations"] == []


def test_violations_are_found(seen: dict[str, dict[str, Any]]) -> None:
    for width in screenshots.SCREENS:
        found = seen[f"broken-{width}"]["violations"]
        assert sorted(found) == [["color-contrast", "p"], ["image-alt", "img"]]
