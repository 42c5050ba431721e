"""The report: one self-contained page that works offline, the answer first.

INPUTS   results/{study}/grid.json, results/{study}/tables/{*.csv,warnings.json},
         results/{study}/plots/*.svg
OUTPUTS  results/{study}/report.html; removes results/{study}/partial and plots that are no longer
         configured
"""


rule report:
    input:
        grid=rules.expand.output.grid,
        runs=rules.collect.output.csv,
        comparison=rules.compare.output.csv,
        decision=rules.conclude.output.decision,
        findings=rules.conclude.output.findings,
        warnings=rules.compare.output.warnings,
        clouds=rules.conclude.output.clouds,
        published=rules.conclude.output.published,
        scaling=rules.conclude.output.scaling,
        communication=rules.conclude.output.communication,
        method=rules.conclude.output.method,
        plots=rules.plot.output.svg,
        code=[*CODE, *PAGE],
    output:
        html=f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        comparison=CONFIG["comparison"],
    message:
        "write the report"
    shell:
        "report.py"
        " --grid {input.grid}"
        " --runs {input.runs}"
        " --comparison {input.comparison}"
        " --columns {params.comparison[columns]}"
        " --decision {input.decision}"
        " --findings {input.findings}"
        " --warnings {input.warnings}"
        " --clouds {input.clouds}"
        " --published {input.published}"
        " --scaling {input.scaling}"
        " --communication {input.communication}"
        " --method {input.method}"
        " --plots {input.plots}"
        " --title {params.comparison[title]:q}"
        " --output {output.html}"
        " --remove-earlier"
        " >{log} 2>&1"
