"""Tables and plots from whatever has finished, while a sweep runs or after it failed.

INPUTS   results/runs/** as it is now; nothing is run, nothing waited for
OUTPUTS  results/partial/**: grid.json, tables, plots, report.html; results/tables is left alone
"""

PARTIAL_COMMAND = (
    (
        "partial.py"
        f" --config {shlex.quote(json.dumps(CONFIG))}"
        " --runs-dir results/runs"
        " --output-dir results/partial"
    )
    .replace("{", "{{")
    .replace("}", "}}")
)  # the shell directive would format braces


rule partial:
    log:
        "results/logs/partial.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    message:
        "tables and plots of the runs that have finished"
    shell:
        PARTIAL_COMMAND + " 2>&1 | tee {log}"
