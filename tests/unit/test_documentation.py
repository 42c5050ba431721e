"""Links and anchors of the documentation, and that its commands can be typed as they stand."""

from __future__ import annotations

import csv
import functools
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import documents
import make as screenshots
import pandas as pd
import pytest
import stages
import yaml
from jsonschema import Draft202012Validator
from project import REPOSITORY
from snakemake_executor_plugin_slurm_sweep import queue
from tfscaling.cluster import slurm_client
from tfscaling.conclusions import forecast
from tfscaling.estimation import intervals
from tfscaling.estimation.run_counts import KEPT_RUNS, RULE
from tfscaling.launch import heartbeat, supervisor
from tfscaling.stages import write_page
from tfscaling.study import grid_checks
from tfscaling.study.config_types import Comparison

PAGES = [str(path.relative_to(REPOSITORY)) for path in documents.pages()]


@functools.cache
def overlay_validator() -> Draft202012Validator:
    """Return the validator of overlays; the schema takes most of a second to read."""
    text = (REPOSITORY / "workflow/schemas/overlay.schema.yaml").read_text()
    return Draft202012Validator(yaml.safe_load(text))


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


@pytest.mark.parametrize("page", PAGES)
def test_yaml_in_the_pages_is_a_part_of_a_configuration(page: str) -> None:
    for fence in documents.fences((REPOSITORY / page).read_text()):
        if fence.language == "yaml":
            errors = overlay_validator().iter_errors(yaml.safe_load(fence.text))
            assert [error.message for error in errors] == [], fence.text


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
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    # changes of a package go with the package
    apart = re.compile("tests/|(plugins|provision)/.*/CHANGELOG.md")
    found = {REPOSITORY / name for name in names.splitlines() if not apart.match(name)}
    assert {path for path in found if path.exists()} == set(documents.pages())


#: Languages of blocks whose content is tested, and languages of blocks that are only shown.
TESTED = {"bash", "csv", "python", "yaml"}
SHOWN = {"", "diff", "json", "snakemake", "sql", "text"}
#: How a line begins that a reader would type.
TYPED = re.compile(
    r"^ *(\$ |snakemake |make |source |sbatch |python3? |pip |git |provision/)", re.M
)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_found_and_has_a_language_with_a_test(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    fences = documents.fences(text)
    assert len(re.findall(r"^ *(?:```|~~~)", text, re.MULTILINE)) == 2 * len(fences)
    for fence in fences:
        assert fence.language in TESTED | SHOWN, fence.text
        assert fence.language in TESTED or not TYPED.search(fence.text), fence.text


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
    for name in ("README.md", "mkdocs.yml", "docs/closed-network.md"):
        assert f"{minutes} minutes" in text(name), name


def test_the_overview_of_the_configuration_has_few_keys() -> None:
    basic = (REPOSITORY / "config/README.md").read_text().split("## Advanced top-level keys")[0]
    assert 30 < len(re.findall(r"^\| `\w+`( \*)? \|", basic, re.MULTILINE)) <= 45


#: How-to → the file of tests that goes its way; `make examples` runs tests/examples, `make test`
#: or `make test-full` all others. Commands and files of the page are
#: planned by test_documented_commands.py.
HOW_TO = {
    "Add my partition": "slurm/test_preflight_on_slurm.py",
    "Use the packages my training needs": "workflow/test_make_targets.py",
    "Run my PyTorch, Hugging Face or Horovod script": "examples/test_examples.py",
    "Measure FSDP, DeepSpeed, Lightning or an LLM fine-tuning": "unit/study/test_programs.py",
    "Use another network of the nodes": "unit/launch/test_host_names.py",
    "Bind ranks to CPUs and GPUs": "slurm/test_strategies_on_slurm.py",
    "Use a container": "slurm/test_strategies_on_slurm.py",
    "Wait once for the whole sweep": "slurm/test_allocation_on_slurm.py",
    "Compare two GPU types by time and dollars": "workflow/test_questions.py",
    "Propose prices of a cloud": "unit/test_proposed_prices.py",
    "Get a first price": "workflow/test_plan_and_budget.py",
    "Decide when the page is not sure": "unit/conclusions/test_decision.py",
    "Stay within a budget": "workflow/test_plan_and_budget.py",
    "Find the best batch size": "workflow/test_does_not_fit.py",
    "Run on spot or preemptible nodes": "slurm/test_faults_on_slurm.py",
    "Run the sweep from a job": "slurm/test_driver_on_slurm.py",
    "Use several clusters": "slurm/test_two_clusters.py",
    "Estimate a three-day training in an hour": "workflow/test_projected_sweep.py",
    "Predict the time on more nodes": "unit/conclusions/test_forecast.py",
    "Spend fewer node-hours": "workflow/test_search.py",
    "Name recipes and studies": "workflow/test_runs_by_parameters.py",
    "Run a single configuration, platform or repeat": "unit/test_documented_yaml.py",
    "Upgrade, and share an installation": "workflow/test_reruns.py",
    "Find out what is not supported": "unit/test_documentation.py",
    "Show the result to my boss": "unit/test_report_in_chromium.py",
    "Read the results in pandas": "unit/test_documentation.py",
    "Apply for compute time": "workflow/test_proposal.py",
    "Catch a slowdown in CI": "workflow/test_regression_status.py",
    "Rerun after a code change": "workflow/test_users_model.py",
    "Clean up and archive": "workflow/test_reruns.py",
    "Publish a study in an archive": "workflow/test_archive.py",
}


def test_every_how_to_has_a_test() -> None:
    text = (REPOSITORY / "docs/how-to.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(HOW_TO)
    assert [name for name in HOW_TO.values() if not (REPOSITORY / "tests" / name).exists()] == []


#: Numbers up to six are words in prose.
WORDS = ["no", "one", "two", "three", "four", "five", "six"]
PAUSES = ", ".join(f"{pause_s:.0f}" for pause_s in slurm_client.PAUSES_S[:-1])
RUNS = WORDS[intervals.RUNS_FOR_INTERVAL]
SILENT_S, IDLE_S = f"{heartbeat.SILENT_S:.0f} s", f"{heartbeat.IDLE_S:.0f} s"
#: (page, what it states with a constant of the code in it)
FACTS = [
    ("README.md", f"From {RUNS} runs on, medians have a 95 % interval"),
    ("README.md", "Snakemake {snakemake}"),
    ("README.md", "TensorFlow {tensorflow}"),
    ("docs/how-to.md", f"fewer than {RUNS} runs"),
    ("docs/how-to.md", f"at least {WORDS[forecast.POINTS_MIN]} numbers of replicas"),
    ("docs/first-steps.md", f"intervals need {RUNS} runs"),
    ("docs/faults.md", f"| {SILENT_S} in training and programs"),
    ("docs/faults.md", f"| {IDLE_S} in training"),
    ("docs/configuration/platforms.md", f"is found within {SILENT_S}"),
    ("docs/configuration/platforms.md", f"are found within {IDLE_S}"),
    ("docs/checkpoints.md", f"They have {supervisor.CHECKPOINT_GRACE_S:.0f} seconds"),
    ("docs/faults.md", f"after {PAUSES}, then {slurm_client.PAUSES_S[-1]:.0f} s"),
    ("docs/faults.md", f"{WORDS[queue.ABSENT_ANSWERS]} answers in at least {queue.ABSENT_S:.0f} s"),
    ("docs/troubleshooting.md", f"allowed: {grid_checks.RUNS_MAX:,}"),
    ("docs/troubleshooting.md", f"takes longer than {slurm_client.TIMEOUT_S:.0f} s"),
]


#: Words of the symptoms in docs/troubleshooting.md that other programs print.
FOREIGN_WORDS = {
    *("command not found", "IncompleteFilesException", "unrecognized arguments", "--slurm-"),
    *("invalid choice", "'sweep'", "'slurm-sweep'", "No module named 'msgspec'", "'tfscaling'"),
    *("No space left on device", "Disk quota exceeded", "File too large", "Read-only file system"),
    *("request not begin with 'cmd='", "Endpoint timeout", "Shared memory error"),
}


def test_symptoms_of_the_troubleshooting_are_messages_of_the_code() -> None:
    files = [REPOSITORY / "provision/find-python"]
    for folder in ("workflow", "plugins", "profiles"):
        tree = (REPOSITORY / folder).rglob("*")
        files += [file for file in tree if file.suffix in {".py", ".smk", ".yaml"}]
    source = "\n".join(file.read_text() for file in files)
    # texts over several lines of code become one
    source = re.sub(r"\s+", " ", re.sub(r'"\n\s*f?"', "", source))
    page = (REPOSITORY / "docs/troubleshooting.md").read_text()
    symptoms = re.findall(r"^\| (.+?) \|", page, flags=re.MULTILINE)
    quotes = [quote for symptom in symptoms for quote in re.findall(r"`([^`]+)`", symptom)]
    assert len(quotes) > 30
    # numbers, and names with numbers, are values of one case
    words = {part.strip(" :,") for q in quotes for part in re.split(r"…|[:;] |\w*\d[\d,.]*", q)}
    words = {word for word in words if len(word) > 3}
    assert {word for word in words if word not in source} <= FOREIGN_WORDS


@pytest.mark.parametrize("page", ["docs/method.md", "docs/glossary.md"])
def test_how_many_runs_decide_what_is_the_same_everywhere(page: str) -> None:
    assert RULE in (REPOSITORY / page).read_text()


@pytest.mark.parametrize(("page", "statement"), FACTS)
def test_stated_numbers_are_those_of_the_code(page: str, statement: str) -> None:
    locks = [(REPOSITORY / f"requirements{part}.txt").read_text() for part in ("", "-trainer")]
    locked = re.findall(r"^(snakemake|tensorflow)==(\d+\.\d+)", "\n".join(locks), re.M)
    assert statement.format(**dict(locked)) in (REPOSITORY / page).read_text()


@pytest.mark.parametrize(
    ("page", "config"),
    [
        ("docs/first-steps.md", "config/demo.yaml"),
        ("docs/own-training.md", "resources/own/config.yaml"),
        ("docs/cluster.md", None),
    ],
)
def test_sample_tables_have_columns_that_the_console_shows(page: str, config: str | None) -> None:
    content = yaml.safe_load((REPOSITORY / config).read_text()) if config else {}
    shown = content.get("comparison", {}).get("columns", Comparison().columns)
    tables = [
        fence.text.splitlines()
        for fence in documents.fences((REPOSITORY / page).read_text())
        if fence.language == "text" and "execution_time_s" in fence.text
    ]
    assert tables
    for lines in tables:
        named = [cell.strip() for cell in lines[0].strip("|").split("|")]
        order = [name for name in named if name not in ("nodes", "runs", "status")]
        assert order == [name for name in shown if name in order], named


@pytest.mark.parametrize("page", screenshots.SAMPLES)
def test_samples_of_the_console_are_made_from_kept_runs(page: str) -> None:
    """Table and headline come from one program: `docs/screenshots/make.py --samples`."""
    (sample,) = screenshots.SAMPLE.findall((REPOSITORY / page).read_text())
    assert sample == screenshots.sample_of(screenshots.SAMPLES[page])


def test_the_readme_begins_with_ratios_of_the_published_results() -> None:
    rows = csv.DictReader((REPOSITORY / "resources/published_results.csv").open())
    time_s = {
        int(row["nodes"]): float(row["execution_time_s"])
        for row in rows
        if (row["platform"], row["gpus_per_node"]) == ("gcp-n1-v100", "1")
    }
    ratio = time_s[8] / time_s[1]  # the price of a node-hour is the same
    said = f"{WORDS[round(ratio)]} times as long as one, and cost {8 * ratio:.0f} times as much"
    assert said in (REPOSITORY / "README.md").read_text()


def test_every_overlay_is_in_a_page() -> None:
    text = "\n".join((REPOSITORY / page).read_text() for page in PAGES)
    overlays = [*REPOSITORY.glob("config/*.yaml"), *REPOSITORY.glob("studies/*/*.yaml")]
    names = [str(path.relative_to(REPOSITORY)) for path in overlays]
    assert len(names) > 10 and [name for name in names if name not in text] == []


def test_the_citation_has_the_newest_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    found = re.findall(r"^## ([\d.]+) - (\S+)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)
    assert (citation["version"], str(citation["date-released"])) == found[0]
    described = json.loads((REPOSITORY / "codemeta.json").read_text())
    assert (described["version"], described["datePublished"]) == found[0]
    assert described["license"].endswith(f"/{citation['license']}")
    names = [{"@type": "Organization", **each} for each in citation["authors"]]
    assert described["author"] == names


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw none of the plots of a page, which take most of its CPU time."""
    monkeypatch.setattr(write_page, "draw_plots", lambda *_: [])


@pytest.mark.usefixtures("without_plots")
def test_a_search_saves_what_the_pages_state(tmp_path: Path) -> None:
    """Replayed on the kept runs of the worked example, whose fastest configuration it names."""
    screenshots.make(screenshots.EXAMPLES["search"], tmp_path)
    found = pd.read_csv(tmp_path / "details/conclusions/search.csv")
    (answer,) = found[found["place"] == "the answer"].itertuples()
    assert (answer.platform, answer.nodes, answer.is_decided) == ("virtual-cpu", 1, True)
    saved = 1 - found["node_hours"].sum() / found["full_node_hours"].sum()
    for page in ("README.md", "docs/worked-example.md"):
        stated = (REPOSITORY / page).read_text()
        assert f"needs {found['runs'].sum()}" in stated, page
        assert f"{100 * saved:.0f} % fewer" in stated, page


@pytest.mark.usefixtures("without_plots")
def test_the_worked_example_states_what_its_runs_exclude(tmp_path: Path) -> None:
    """The share of runs that may miss the target is the share of the kept study's page."""
    screenshots.make(screenshots.EXAMPLES["worked-example"], tmp_path)
    found = pd.read_csv(tmp_path / "details/conclusions/decision.csv")
    (answer,) = found[found["goal"] == "time_to_target_s"].itertuples()
    (share,) = re.findall(r"fewer than (\d+)% of its runs miss it", str(answer.text))
    page = (REPOSITORY / "docs/worked-example.md").read_text()
    sentences = re.findall(r"[^.]*\bmiss it\b[^.]*\.", page)
    assert [f"fewer than {share} % of its runs" in each for each in sentences] == [True]
    assert f"needs [{KEPT_RUNS} runs]" in page and f"`repeats: {KEPT_RUNS}`" in page


@pytest.mark.usefixtures("without_plots")
def test_the_pandas_of_the_how_to_reads_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = (
        fence.text
        for fence in documents.fences((REPOSITORY / "docs/how-to.md").read_text())
        if fence.language == "python"
    )
    demo = screenshots.make(screenshots.PAGES["demo"], tmp_path / "results/demo")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert demo.exists() and "execution_time_s_low" in capsys.readouterr().out
