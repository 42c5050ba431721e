"""The page: one self-contained HTML file that works offline, the answer first.

INPUTS   results/{study}/manifest.json, results/{study}/tables/{*.csv,warnings.json},
         results/{study}/plots/*.svg
OUTPUTS  results/{study}/report.html; removes results/{study}/partial and plots that are no longer
         configured
"""


rule write_report:
    """Write the page of the study."""
    input:
        **{name: f"{RESULTS}/tables/{name}.csv" for name in CONCLUSIONS},
        manifest=f"{RESULTS}/manifest.json",
        runs=f"{RESULTS}/tables/runs.csv",
        comparison=f"{RESULTS}/tables/comparison.csv",
        warnings=f"{RESULTS}/tables/warnings.json",
        plots=expand(f"{RESULTS}/plots/{{plot}}.svg", plot=TITLES),
        code=code_of("write_report.py"),
        template=page_files(),
    output:
        html=f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/write_report.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        title=CONFIG["comparison"]["title"],
        columns=CONFIG["comparison"]["columns"],
    shell:
        r"""
        python3 "$SCRIPTS/write_report.py" \
            --grid {input.manifest:q} \
            --runs {input.runs:q} \
            --comparison {input.comparison:q} \
            --columns {params.columns:q} \
            --decision {input.decision:q} \
            --findings {input.findings:q} \
            --warnings {input.warnings:q} \
            --clouds {input.clouds:q} \
            --published {input.published:q} \
            --scaling {input.scaling:q} \
            --communication {input.communication:q} \
            --methodology {input.methodology:q} \
            --plots {input.plots:q} \
            --title {params.title:q} \
            --output {output.html:q} \
            --remove-earlier \
            >{log:q} 2>&1
        """
