"""On how many nodes, with how many GPUs, on which platform should this training run?"""

from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"
configfile: "config/platforms.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/functions.smk"
include: "workflow/rules/wanted.smk"
include: "workflow/rules/expand.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/repeats.smk"
include: "workflow/rules/communication.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/conclude.smk"
include: "workflow/rules/plots.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/partial.smk"


rule all:
    default_target: True
    input:
        rules.compare.output,
        rules.conclude.output,
        rules.plot.output,
        rules.report.output,
    localrule: True


onerror:
    # not in the snakemake of a job, which ends no sweep, and not after a plan
    if workflow.is_main_process and (unfinished := unfinished_outputs()):
        # the tables of an earlier sweep are not those of this one
        remove_outdated(unfinished)
        # a failed sweep still gets its tables, with the failed runs as rows that say why
        shell(PARTIAL_COMMAND)
