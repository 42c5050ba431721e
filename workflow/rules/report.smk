"""The report: one self-contained page that works offline, the answer first.

INPUTS   results/{study}/manifest.json, results/{study}/tables/{*.csv,warnings.json},
         results/{study}/plots/*.svg
OUTPUTS  results/{study}/report.html; removes results/{study}/partial and plots that are no longer
         configured
"""


rule write_report:
    input:
        manifest=rules.write_manifest.output.grid,
        runs=rules.collect.output.csv,
        comparison=rules.compare.output.csv,
        warnings=rules.compare.output.warnings,
        conclusions=expand(f"{RESULTS}/tables/{{name}}.csv", name=CONCLUSIONS),
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
        title=CONFIG.comparison.title,
        columns=list(CONFIG.comparison.columns),
        plot_titles=list(titles(msgspec.to_builtins(CONFIG.plots)).values()),
    message:
        "write the report"
    shell:
        "write_report.py"
        " --manifest {input.manifest}"
        " --runs {input.runs}"
        " --comparison {input.comparison}"
        " --warnings {input.warnings}"
        " --conclusions {input.conclusions}"
        " --plots {input.plots}"
        " --plot-titles {params.plot_titles:q}"
        " --title {params.title:q}"
        " --columns {params.columns}"
        " --output {output.html}"
        " --remove-earlier"
        " >{log} 2>&1"
