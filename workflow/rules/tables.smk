"""Tables: every run a row, every point a row of the comparison.

INPUTS   results/grid.json, results/runs/**/run.json (and failure.json of failed runs)
OUTPUTS  results/tables/runs.{csv,parquet}              one row per run, failed ones included
         results/tables/epochs.csv                      one row per epoch of each valid run
         results/tables/comparison.{csv,md,tex,html}    one row per point
         results/tables/{platform}.md                   nodes, time, loss, accuracy
         results/tables/warnings.json                   what must be known before any number is read
"""


rule collect:
    input:
        grid=rules.expand.output.grid,
        records=wanted_records,
        code=CODE,
    output:
        csv="results/tables/runs.csv",
        parquet="results/tables/runs.parquet",
        epochs="results/tables/epochs.csv",
    log:
        "results/logs/collect.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    message:
        "collect the run records"
    shell:
        "collect.py"
        " --grid {input.grid}"
        " --runs-dir results/runs"
        " --csv {output.csv}"
        " --parquet {output.parquet}"
        " --epochs {output.epochs}"
        " >{log} 2>&1"


rule compare:
    input:
        runs=rules.collect.output.csv,
        code=CODE,
        grid=rules.expand.output.grid,
        published=CONFIG["published"]["path"] or [],
    output:
        csv="results/tables/comparison.csv",
        md=report(
            "results/tables/comparison.md", category="Tables", caption="../report/comparison.rst"
        ),
        tex="results/tables/comparison.tex",
        html=report(
            "results/tables/comparison.html", category="Tables", caption="../report/comparison.rst"
        ),
        warnings="results/tables/warnings.json",
        platforms=expand("results/tables/{platform}.md", platform=PLATFORMS),
    log:
        "results/logs/compare.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        comparison=CONFIG["comparison"],
        baseline=json.dumps(CONFIG["comparison"]["baseline"]),
        published=published_flag,
    message:
        "compare the points of the grid"
    shell:
        "compare.py"
        " --runs {input.runs}"
        " --grid {input.grid}"
        " --title {params.comparison[title]:q}"
        " --columns {params.comparison[columns]}"
        " --baseline {params.baseline:q}"
        " {params.published}"
        " --csv {output.csv}"
        " --md {output.md}"
        " --tex {output.tex}"
        " --html {output.html}"
        " --warnings {output.warnings}"
        " --platforms {output.platforms}"
        " >{log} 2>&1"
