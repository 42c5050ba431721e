"""The report: one self-contained page that works offline, the answer first.

INPUTS   results/{study}/manifest.json, results/{study}/tables/{*.csv,warnings.json},
         results/{study}/plots/*.svg
OUTPUTS  results/{study}/report.html; removes results/{study}/partial and plots that are no longer
         configured
"""


rule write_report:
    input:
        grid=rules.write_manifest.output.grid,
        runs=rules.collect.output.csv,
        comparison=rules.compare.output.csv,
        decision=rules.analyse.output.decision,
        findings=rules.analyse.output.findings,
        warnings=rules.compare.output.warnings,
        clouds=rules.analyse.output.clouds,
        published=rules.analyse.output.published,
        scaling=rules.analyse.output.scaling,
        communication=rules.analyse.output.communication,
        methodology=rules.analyse.output.methodology,
        plots=rules.plot.output.svg,
        code=[*CODE, *PAGE],
    output:
        html=f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/write_report.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        comparison=msgspec.to_builtins(CONFIG.comparison),
    message:
        "write the report"
    shell:
        "write_report.py"
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
        " --methodology {input.methodology}"
        " --plots {input.plots}"
        " --title {params.comparison[title]:q}"
        " --output {output.html}"
        " --remove-earlier"
        " >{log} 2>&1"
