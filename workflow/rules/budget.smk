"""The start: what a sweep cannot do ends it before anything is submitted; no plan, no partial tables.

INPUTS   the configuration, results/runs/** and results/datasets/*.json as they are now, Slurm
OUTPUTS  the reason and exit code 1 if runs still to do exceed the budget, or a batch its dataset,
         if finished runs would be made again for a dataset that is missing, if GPUs are asked for
         without their libraries, if Slurm refuses what a job asks for, or if a model of the user's
         cannot be built (results/built_models.json has those that were); results/queue.json has
         what Slurm says of runs that it refuses, or that wait in its queue
"""

START = SweepStart(CONFIG, MANIFEST, SOURCES, JOBS, RERUNS, rules.train.rule.name)

# Snakemake is about to refuse a locked folder, and does not know who has locked it.
if workflow.is_main_process and not workflow.output_settings.dryrun and "--unlock" not in sys.argv:
    if about_the_lock := drivers.about_the_lock(sys.argv[1:]):
        print(about_the_lock, file=sys.stderr)

# A dry-run has no start: what is asked for is not known yet, so that a dry-run of `plan` ends, too.
if workflow.output_settings.dryrun and (refusal := START.beyond_budget()):
    sys.exit(refusal)


onstart:
    if workflow.is_main_process:
        drivers.enter()
    if JOBS.starts_runs():
        START.begin(logger)
    if workflow.is_main_process:
        START.keep_earlier()
        begin_console()
