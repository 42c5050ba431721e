"""The budget: a sweep beyond it ends before anything is submitted, plan and partial tables do not.

INPUTS   the configuration, results/runs/** and results/datasets/*.json as they are now
OUTPUTS  one line and exit code 1 if runs still to do exceed the budget, or a batch its dataset, or
         if finished runs would be made again for a dataset that is missing
"""

# A dry-run has no start: what is asked for is not known yet, so that a dry-run of `plan` ends, too.
if workflow.output_settings.dryrun:
    refuse_beyond_budget()


onstart:
    if starts_runs():
        refuse_beyond_budget()
        refuse_to_repeat_finished()
