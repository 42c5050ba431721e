"""Pages in a real browser, for tests: what a page's own script finds there."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import make as screenshots
import pytest

#: For modules whose tests need the browser; they are part of `make test-full`.
MARKS = [
    pytest.mark.full,
    pytest.mark.skipif(screenshots.CHROMIUM is None, reason="there is no chromium"),
]


def read_title_json(page: Path, *flags: str) -> Any:
    """Open a page and return the JSON that its script has written into the title."""
    profile = page.with_suffix(".profile")
    command = [str(screenshots.CHROMIUM), *screenshots.FLAGS, *flags, f"--user-data-dir={profile}"]
    command += ["--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    title = re.search(r"<title>([\[{].*?)</title>", done.stdout, re.DOTALL)
    assert title, done.stderr
    return json.loads(html.unescape(title[1]))
