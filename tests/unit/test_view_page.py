"""`make view`: which page is opened, and what is printed where no browser is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import view_page


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the pages of two studies; that of `late` is the newer one."""
    monkeypatch.chdir(tmp_path)
    for age_s, name in enumerate(("late", "early")):
        page = tmp_path / f"results/{name}/report.html"
        page.parent.mkdir(parents=True)
        page.touch()
        os.utime(page, (1e9 - age_s, 1e9 - age_s))
    return tmp_path


def test_the_newest_page_or_that_of_the_study() -> None:
    assert view_page.page_of("") == Path("results/late/report.html")
    assert view_page.page_of("early") == Path("results/early/report.html")
    assert view_page.page_of("other") is None


def test_the_browser_gets_the_page_and_the_path_is_printed(folder: Path) -> None:
    opened: list[str] = []

    def browser(uri: str) -> bool:
        opened.append(uri)
        return True

    page = folder / "results/early/report.html"
    assert view_page.shown(Path("results/early/report.html"), browser) == str(page)
    assert opened == [page.as_uri()]


def test_without_a_browser_the_path_is_printed_and_what_to_do(folder: Path) -> None:
    first, *rest = view_page.shown(Path("results/late/report.html"), lambda _: False).splitlines()
    assert first == str(folder / "results/late/report.html")
    assert rest
