"""The start: what a sweep cannot do ends it before anything is submitted; no plan, no partial tables.

INPUTS   the configuration, results/runs/** and results/datasets/*.json as they are now, Slurm
OUTPUTS  the reason and exit code 1 if runs still to do exceed the budget, or a batch its dataset,
         if finished runs would be made again for a dataset that is missing, if GPUs are asked for
         without their libraries, or if Slurm refuses what a job asks for; results/queue.json has
         what Slurm says of runs that it refuses, or that wait in its queue
"""

# A dry-run has no start: what is asked for is not known yet, so that a dry-run of `plan` ends, too.
if workflow.output_settings.dryrun:
    refuse_beyond_budget()


onstart:
    if starts_runs():
        refuse_beyond_budget()
        refuse_to_repeat_finished()
        refuse_without_gpu_libraries()
        refuse_what_slurm_refuses()
        watch_queue()
        retry_no_lasting_failures()
    if workflow.is_main_process:
        keep_earlier_records()
