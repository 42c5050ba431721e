"""On how many nodes, with how many GPUs, on which platform should this training run?"""

from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/config_files.smk"


# a study given by --configfile is complete in itself
if not INVOCATION.study_files:

    configfile: "config/config.yaml"


configfile: "config/platforms.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/globals.smk"
include: "workflow/rules/inputs.smk"
include: "workflow/rules/study.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/page.smk"
include: "workflow/rules/tools.smk"


rule all:
    """Train all runs; make the tables, the conclusions, the plots and the page."""
    default_target: True
    input:
        rules.write_config.output.stamp,
        rules.write_manifest.output.stamp,
        records_of_runs,
        problems_again,
        rules.compare.output,
        rules.write_report.output,
    localrule: True


onsuccess:
    CONSOLE.is_over = True
    if INVOCATION.is_main_process and not INVOCATION.touches:
        say(OUTCOME.lines() if OUTCOME.has_output() else [])
        has_problems = OUTCOME.has_output() and not OUTCOME.has_result()
        broken = runs_to_do().unreadable if OUTCOME.has_output() else {}
        OUTCOME.remove_problems_file()
        if broken:
            say(
                [
                    *broken.values(),
                    "Delete these records: the same command then reruns the runs.",
                ]
            )
        if OUTCOME.is_plan_refused() or has_problems or broken:
            sys.exit(1)


onerror:
    CONSOLE.is_over = True
    # not in the snakemake of a job, which ends no sweep, and not after a plan
    if INVOCATION.is_main_process and (unfinished := JOBS.outputs_to_do()):
        # remove the tables of an earlier sweep
        OUTCOME.remove_study_outputs(unfinished)
        say(CONSOLE.other_failures)
        try:
            OUTCOME.make_partial(SCRIPTS / "tfscaling", CONFIG_TEXT, MANIFEST)
            say(OUTCOME.lines(is_partial=True))
        except (OSError, subprocess.CalledProcessError) as error:  # as when the disk is full
            say([f"no tables of the finished runs: {OUTCOME.study / 'partial'}: {error}"])
