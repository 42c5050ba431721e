"""On how many nodes, with how many GPUs, on which platform should this training run?"""

from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"
configfile: "config/platforms.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/functions.smk"
include: "workflow/rules/targets.smk"
include: "workflow/rules/manifest.smk"
include: "workflow/rules/dataset.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/repeats.smk"
include: "workflow/rules/benchmark.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/analyse.smk"
include: "workflow/rules/plots.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/partial.smk"


rule all:
    default_target: True
    input:
        rules.compare.output,
        rules.analyse.output,
        rules.plot.output,
        rules.write_report.output,
    localrule: True


onerror:
    # not in the snakemake of a job, which ends no sweep, and not after a plan
    if workflow.is_main_process and (unfinished := unfinished_outputs()):
        # the tables of an earlier sweep are not those of this one
        remove_outdated(unfinished)
        # a failed sweep still gets its tables, with the failed runs as rows that say why
        shell(PARTIAL_COMMAND)
