"""Links and anchors of the documentation, and that its commands can be typed as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import documents
import pytest
import stages
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


def test_the_picture_of_the_stages_has_rules_of_the_workflow() -> None:
    texts = [file.read_text() for file in (REPOSITORY / "workflow/rules").glob("*.smk")]
    rules = set(re.findall(r"^(?:rule|checkpoint) (\w+):", "\n".join(texts), re.MULTILINE))
    assert set(stages.STAGES) <= rules
    assert {name for arrow in stages.ARROWS for name in arrow[:2]} == set(stages.STAGES)


def test_yaml_in_the_pages_is_valid() -> None:
    for page in PAGES:
        for fence in documents.fences((REPOSITORY / page).read_text()):
            if fence.language == "yaml":
                assert yaml.safe_load(fence.text), page


#: Names that an excerpt takes from the file to which it is added (docs/extending.md).
OF_THE_FILE = ["Any", "Figure", "RunRecord", "Tables", "plot_scaling"]


def test_python_in_the_pages_compiles_and_defines_its_names(tmp_path: Path) -> None:
    for page in PAGES:
        for number, fence in enumerate(documents.fences((REPOSITORY / page).read_text())):
            if fence.language == "python":
                name = page.replace("/", "-")
                (tmp_path / f"{name}-{number}.py").write_text(textwrap.dedent(fence.text))
    assert any(tmp_path.iterdir())
    words = ["check", "--isolated", "--no-cache", "--select", "F821,F822,F823"]
    words += ["--config", f"builtins = {OF_THE_FILE}", "--output-format", "concise", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_page_is_left_out() -> None:
    """A page of a new folder would be in neither the site nor these tests."""
    linked = {
        file
        for page in documents.pages()
        for file in documents.local_files(page).values()
        if file.suffix == ".md"
    }
    assert linked <= set(documents.pages())


def test_every_page_is_at_most_two_clicks_from_the_start() -> None:
    reached = {REPOSITORY / "README.md"}
    for _ in range(2):
        reached |= {file for page in reached if page.suffix == ".md" and page.exists()
                    for file in documents.local_files(page).values()}  # fmt: skip
    assert {page for page in documents.pages() if page not in reached} == set()


def test_quoted_defaults_targets_and_minutes_are_those_of_the_files() -> None:
    def text(name: str) -> str:
        return (REPOSITORY / name).read_text()

    profile = yaml.safe_load(text("profiles/slurm/config.yaml"))
    quoted = dict(re.findall(r"^\| `([\w-]+): (\S+)` \|", text("profiles/README.md"), re.MULTILINE))
    assert quoted == {name: str(profile[name]) for name in quoted} and len(quoted) > 3
    targets = re.findall(r"^([a-z-]+):[^#\n]*## ", text("Makefile"), re.MULTILINE)
    listed = re.findall(r"^\| `make ([a-z]+)", text("docs/command-line.md"), re.MULTILINE)
    assert sorted(listed) == sorted(targets)
    (minutes,) = re.findall(r"^demo:.*; (\d+) minutes", text("Makefile"), re.MULTILINE)
    for name, words in {
        "README.md": "the demo takes {} minutes",
        "mkdocs.yml": "Demo, {} minutes",
        "docs/closed-network.md": "[{} minutes](first-steps.md)",
    }.items():
        assert words.format(minutes) in text(name), name


def test_the_overview_of_the_configuration_has_few_keys() -> None:
    basic = (REPOSITORY / "config/README.md").read_text().split("## Advanced top-level keys")[0]
    assert 30 < len(re.findall(r"^\| `\w+`( \*)? \|", basic, re.MULTILINE)) <= 45
