"""The console: what Snakemake prints while a sweep runs, in few lines, and what comes of it.

INPUTS   Snakemake's log, the events of the runs that are being made, the records of finished runs,
         the tables of the study
OUTPUTS  OUTCOME; CONSOLE, or None where Snakemake's own lines are printed
"""

OUTCOME = SweepOutcome(STUDY, JOBS, sys.argv)
CONSOLE = console_setup.install(logger, CONFIG, JOBS, OUTCOME)
