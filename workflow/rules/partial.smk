"""Tables and plots from whatever has finished, while a sweep runs or after it failed.

INPUTS   results/{study}/config.json, results/runs/** as it is now; nothing is run, nothing waited for
OUTPUTS  results/{study}/partial/**: manifest.json, tables, plots, report.html; nothing else changes
"""


rule partial:
    """Make tables, plots and the page of the runs that have finished."""
    input:
        config=f"{RESULTS}/config.json",
        manifest=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/partial.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        runs_dir=f"{ROOT}/runs",
        output_dir=f"{STUDY}/partial",
    shell:
        r"""
        python3 "$SCRIPTS/partial.py" \
            --config {input.config:q} \
            --manifest {input.manifest:q} \
            --runs-dir {params.runs_dir:q} \
            --output-dir {params.output_dir:q} \
            2>&1 | tee {log:q}
        """
