"""Tables and plots from whatever has finished, while a sweep runs or after it failed.

INPUTS   the validated configuration, results/runs/** as it is now; no run is started or waited for
OUTPUTS  results/{study}/partial/**: config.json, manifest.json, tables, plots, report.html; nothing
         else changes
"""


rule partial:
    """Make tables, plots and the page of the runs that have finished."""
    log:
        f"{RESULTS}/logs/partial.log",
    localrule: True
    run:
        partial_tables.make(SCRIPTS / "tfscaling", Path(STUDY), CONFIG_TEXT, MANIFEST, str(log))
