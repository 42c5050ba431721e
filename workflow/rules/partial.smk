"""Tables and plots from whatever has finished, while a sweep runs or after it failed.

INPUTS   results/runs/** as it is now; nothing is run, nothing waited for
OUTPUTS  results/{study}/partial/**: manifest.json, tables, plots, report.html; nothing else changes
"""

PARTIAL_COMMAND = (
    (
        "partial.py"
        f" --config {shlex.quote(msgspec.json.encode(CONFIG).decode())}"
        f" --runs-dir {shlex.quote(ROOT)}/runs"
        f" --output-dir {shlex.quote(STUDY)}/partial"
    )
    .replace("{", "{{")
    .replace("}", "}}")
)  # the shell directive would format braces


rule partial:
    log:
        f"{RESULTS}/logs/partial.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    message:
        "tables and plots of the runs that have finished"
    shell:
        PARTIAL_COMMAND + " 2>&1 | tee {log}"
