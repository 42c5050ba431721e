"""The console: the progress of a sweep by the logger plugin `sweep`, and the answer at its end.

INPUTS   Snakemake's events, the events and records of runs, the tables of the study
OUTPUTS  OUTCOME; CONSOLE, the state that the plugin prints; say
"""

OUTCOME = SweepOutcome(Path(STUDY), sys.argv)
CONSOLE = SweepProgress(CONFIG, Path(ROOT, "runs"), OUTCOME.lines)


def say(lines):
    """Print lines by Snakemake's log; the plugin prints them as they are."""
    for line in lines:
        logger.info(line, extra={"sweep": CONSOLE})


def begin_console():
    """Say what is to do, and what is missing to follow it."""
    CONSOLE.is_remote = JOBS.leave_this_machine
    CONSOLE.gives_up = START.follows_jobs
    CONSOLE.retries = workflow.execution_settings.retries
    said = CONSOLE.begin(JOBS.specs, JOBS.records_to_do(), JOBS.may_repeat())
    if said and "sweep" not in workflow.output_settings.log_handler_settings:
        said += "; to follow its runs, add --logger sweep, which make setup installs"
    say([said] if said else [])


# The plugin shortens what follows. In a module the console is that of the outer workflow.
if workflow.is_main_process and not workflow.modifier.namespace:
    say([""])
