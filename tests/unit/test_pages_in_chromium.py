"""The pages of kept studies in a browser: the answer is on the first screen, and readable."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "docs" / "screenshots"))

import make as screenshots

pytestmark = pytest.mark.skipif(screenshots.CHROMIUM is None, reason="there is no chromium")

#: What the page looks like: of text in plots the height on the screen counts.
PROBE = """<script type="module">
const root = document.documentElement;
const box = (selector) => document.querySelector(selector).getBoundingClientRect();
for (const details of document.querySelectorAll("details")) details.open = true;
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
  width: root.clientWidth, needed: root.scrollWidth, smallest: Math.min(...heights),
  headline: box(".headline").bottom, plot: box(".hero .plot").bottom,
  tips: document.querySelectorAll("svg .tip title").length,
};
if (parent === window) document.title = JSON.stringify(found);
else parent.postMessage(found, "*");
</script>"""
LISTEN = """<script>
addEventListener("message", (event) => { document.title = JSON.stringify(event.data); });
</script>"""


#: Pairs of pictures, one of which shows the whole page twice.
TRIES = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def page_of(folder: Path, name: str) -> Path:
    """The page of a kept study, made once."""
    page = folder / name / "report.html"
    return page if page.exists() else screenshots.make(name, page.parent)


@pytest.mark.parametrize("name", screenshots.PAGES)
@pytest.mark.parametrize(("width", "height"), screenshots.SCREENS.items())
def test_the_answer_is_on_the_first_screen_and_readable(
    folder: Path, name: str, width: int, height: int, tmp_path: Path
) -> None:
    found = seen(page_of(folder, name), width, height, tmp_path)
    assert found["needed"] <= found["width"] <= width  # never sideways, with everything unfolded
    assert found["smallest"] >= 9
    assert found["headline"] < found["plot"] <= height
    assert found["tips"] > 0


def test_the_first_screen_is_the_same_without_javascript(folder: Path, tmp_path: Path) -> None:
    def picture(has_scripts: bool) -> bytes:
        file = tmp_path / "picture.png"
        screenshots.take(page_of(folder, "sweep"), file, 1300, 700, has_scripts)
        return file.read_bytes()

    # on a busy machine Chromium takes some pictures before all of the page is there
    assert any(picture(True) == picture(False) for _ in range(TRIES))


def seen(page: Path, width: int, height: int, folder: Path) -> dict[str, Any]:
    """What the probe finds in a frame of this size."""
    probed = folder / "page.html"
    probed.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    style = f"width: {width}px; height: {height}px; border: 0"
    frame = (
        f'<!DOCTYPE html><title></title>{LISTEN}<iframe src="page.html" style="{style}"></iframe>'
    )
    (folder / "frame.html").write_text(frame)
    command = [str(screenshots.CHROMIUM), *screenshots.FLAGS, f"--user-data-dir={folder}/profile"]
    command += ["--dump-dom", (folder / "frame.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title and title[1].startswith("{"), done.stderr
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    return found
