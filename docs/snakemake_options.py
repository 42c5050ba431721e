#!/usr/bin/env python3
"""Write the lists of Snakemake's options into docs/command-line.md; --check compares them.

Each option of the pinned Snakemake is in one list. tests/unit/test_snakemake_options_listed.py
reads `snakemake --help`, so that a new version with other options fails there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("command-line.md")
BEGIN = "<!-- written by docs/snakemake_options.py -->"
END = "<!-- end -->"

#: Options that do what Snakemake's documentation says → what to know about them here.
WORKS = {
    "--dry-run --printshellcmds --verbose --quiet --nocolor --debug-dag": (
        "a dry-run lists configurations; with one of the others Snakemake's own lines are printed"
    ),
    "--profile --workflow-profile --executor": (
        "any profile measures the same; [ours](../profiles/README.md) set the executor and waits"
    ),
    "--snakefile --directory --configfile --config --replace-workflow-config": (
        "`--replace-workflow-config` takes nothing from `config/`, not even the platforms"
    ),
    "--cores --jobs --local-cores --max-jobs-per-timespan --max-jobs-per-second": (
        "on this machine runs are made one at a time, whatever the number is"
    ),
    "--resources": (
        "`training_runs=2` allows two at a time; their times are then not compared; a limit below "
        "the request of a run is refused"
    ),
    "--set-resources --default-resources": (
        "of rule `train` they change keys of the platforms: `runtime`, `slurm_partition`, "
        "`slurm_account`, `qos`, `constraint`, `mem_mb`, `mem_mb_per_cpu` (the first only by "
        "`--set-resources`, as a default limits no memory and no time); others below"
    ),
    "--set-resource-scopes --prioritize --envvars": "",
    "--touch --forcerun --force --forceall --rerun-incomplete --rerun-triggers": (
        "a record of the requested parameters counts; `--forcerun RECORD`, `--force RECORD` repeat"
    ),
    "--keep-going --retries --batch --until --omit-from --allowed-rules": "",
    "--consider-ancient --strict-dag-evaluation --trust-io-cache --max-checksum-file-size": "",
    "--max-inventory-time --latency-wait --wait-for-files --wait-for-files-file": "",
    "--queue-input-wait-time --ignore-incomplete --keep-incomplete --drop-metadata": "",
    "--scheduler --scheduler-greediness --scheduler-subsample --scheduler-solver-path": (
        "`greedy` takes the least time of the CPU"
    ),
    "--report --report-after-run --report-stylesheet --report-metadata --reporter": "",
    "--lint --list-rules --list-target-rules --summary --detailed-summary --version --help": "",
    "--dag --rulegraph --filegraph --d3dag": (
        "[pictures](first-steps.md#see-the-graph); `--dag` names the axes that vary"
    ),
    "--list-changes --list-input-changes --list-params-changes": (
        "what Snakemake remembers; records decide"
    ),
    "--list-untracked --cleanup-metadata --cleanup-shadow --unlock --nolock": "",
    "--delete-all-output --delete-temp-output": (
        "no finished run; a record named as target is deleted and listed, and its attempt keeps it"
    ),
    "--no-hooks": "no start checks except the budget, no progress, no answer at the end",
    "--logger --print-compilation --debug --runtime-profile": "",
    "--software-deployment-method --use-conda --conda-prefix --conda-frontend": (
        "an environment for each rule, which needs conda; the project's `.venv` has all packages"
    ),
    "--conda-base-path --conda-cleanup-envs --conda-cleanup-pkgs --conda-create-envs-only": "",
    "--list-conda-envs --conda-not-block-search-path-envvars": "",
    "--use-apptainer --apptainer-prefix --apptainer-args --container-image": (
        "for rules; containers of ranks are [keys of the platform](configuration/platforms.md)"
    ),
    "--use-envmodules --container-cleanup-images": "for rules; ranks: `setup` of the platform",
    "--shared-fs-usage": "with `input-output`, `persistence` and `sources`; else refused",
    "--runtime-source-cache-path --persistence-backend --persistence-backend-db-url": "",
    "--seconds-between-status-checks --max-status-checks-per-second --jobname --precommand": "",
    "--force-use-threads --allow-ambiguity --wrapper-prefix --omit-flags --attempt": "",
    "--target-files-omit-workdir-adjustment": "",
}
#: Options that end a start before its first run → what to do instead.
REFUSED = {
    "--set-threads": "of rule `train`: `cpus_per_node` of the platform",
    "--groups --group-components": (
        "of rule `train`: runs of a group would share a job; `profiles/allocation` makes all runs "
        "in one allocation"
    ),
    "--default-storage-provider --default-storage-prefix": (
        "ranks write to one folder: start in a folder that the nodes share"
    ),
    "--all-temp": "it would delete records when they have been read",
    "--immediate-submit": "the executor follows the runs and retries them",
    "--archive --containerize": "by Snakemake itself, unless conda is installed",
}
#: Options that change nothing here → why.
NO_EFFECT = {
    "--cache --shadow-prefix --set-scatter --max-threads --notemp --unneeded-temp-files": (
        "no rule uses such a feature"
    ),
    "--preemptible-rules --preemptible-retries --jobscript --job-deploy-sources": (
        "for other executors"
    ),
    "--keep-storage-local-copies --not-retrieve-storage --wait-for-free-local-storage": (
        "storage is refused"
    ),
    "--local-storage-prefix --remote-job-local-storage-prefix --local-groupid": (
        "storage and groups are refused"
    ),
    "--draft-notebook --edit-notebook --notebook-listen --skip-script-cleanup": (
        "no rule has a notebook or a script"
    ),
    "--no-subworkflows --benchmark-extended": "there are none",
    "--show-failed-logs": "the console has the last line and the path of a failed run's log",
    "--generate-unit-tests --export-cwl": (
        "of no use: unit tests of rules fail, `--export-cwl` runs the workflow (Snakemake #2889)"
    ),
    "--deploy-sources --target-jobs --mode": "Snakemake's own, for jobs",
}
LISTS = {
    "These options work": (WORKS, "options", "here"),
    "These are refused before the first run": (REFUSED, "options", "instead"),
    "These have no effect here": (NO_EFFECT, "options", "because"),
}


def options_of(table: dict[str, str]) -> list[str]:
    """Return all options of a list."""
    return [option for names in table for option in names.split()]


def rendered() -> str:
    """Return the lists as Markdown."""
    parts = []
    for title, (table, *names) in LISTS.items():
        rows = [f"| {names[0]} | {names[1]} |", "|---|---|"]
        rows += [
            f"| {' '.join(f'`{option}`' for option in options.split())} | {remark} |"
            for options, remark in table.items()
        ]
        parts.append(f"{title}:\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def page() -> str:
    """Return the page with the present lists."""
    text = PAGE.read_text(encoding="utf-8")
    place = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return place.sub(lambda _: f"{BEGIN}\n\n{rendered()}\n\n{END}", text)


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(page() != PAGE.read_text(encoding="utf-8") and f"{PAGE.name}: out of date")
    PAGE.write_text(page(), encoding="utf-8")
