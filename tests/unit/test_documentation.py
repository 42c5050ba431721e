"""Links and anchors of the documentation, and that its commands can be typed as they stand."""

from __future__ import annotations

import re

import documents
import pytest
import yaml
from project import REPOSITORY

PAGES = [str(path.relative_to(REPOSITORY)) for path in documents.pages()]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_to_a_heading(page: str) -> None:
    path = REPOSITORY / page
    text = path.read_text()
    for target, file in documents.local_files(path).items():
        assert file.exists(), target
        anchor = target.partition("#")[2]
        if anchor and file.suffix == ".md":
            assert anchor in documents.anchors(file.read_text()), target
    own = {link[1:] for link in documents.links(text) if link.startswith("#")}
    assert own <= documents.anchors(text)


def test_links_and_headings_are_found_as_a_reader_sees_them() -> None:
    text = "# A `b`: c, d\n\n[x](y.md#z) `[no](no.md)` ![p](q.svg)\n\n"
    text += "```bash\n# [no](n.md)\n```\n# A\n# A\n"
    assert list(documents.links(text)) == ["y.md#z", "q.svg"]
    assert documents.anchors(text) == {"a-b-c-d", "a", "a-1"}
    assert documents.fences(text) == [documents.Fence("bash", "# [no](n.md)\n")]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    nav = re.findall(r"[\w./-]+\.md", (REPOSITORY / "mkdocs.yml").read_text())
    studies = [page for page in PAGES if re.match(r"docs/[\w-]+-study/", page)]
    assert sorted(nav) == sorted(set(PAGES) - set(studies))


@pytest.mark.parametrize("page", PAGES)
def test_a_bare_snakemake_stands_below_the_activation(page: str) -> None:
    active = False
    for fence in documents.fences((REPOSITORY / page).read_text()):
        for line in fence.text.splitlines():
            active = active or line.strip() == "source .venv/bin/activate"
            if fence.language in ("bash", "sh") and re.match(r" *snakemake\b", line):
                assert active, line


def test_yaml_in_the_pages_is_valid() -> None:
    for page in PAGES:
        for fence in documents.fences((REPOSITORY / page).read_text()):
            if fence.language == "yaml":
                assert yaml.safe_load(fence.text), page


def test_no_page_is_left_out() -> None:
    """A page of a new folder would be in neither the site nor these tests."""
    linked = {
        file
        for page in documents.pages()
        for file in documents.local_files(page).values()
        if file.suffix == ".md"
    }
    assert linked <= set(documents.pages())
