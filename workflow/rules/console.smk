"""The console: what Snakemake prints while a sweep runs, in few lines.

INPUTS   Snakemake's log, the events of the runs that are being made, the records of finished runs
OUTPUTS  CONSOLE, or None where Snakemake's own lines are printed
"""

CONSOLE = console_setup.install(logger, CONFIG, STUDY, JOBS)
