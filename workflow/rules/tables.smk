"""Tables: every run a row, every point a row of the comparison.

INPUTS   results/{study}/manifest.json, results/runs/**/run.json (and failure.json of failed runs)
OUTPUTS  below results/{study}/tables:
         runs.{csv,parquet}              one row per run, failed ones included
         epochs.csv                      one row per epoch of each valid run
         comparison.{csv,md,tex,html}    one row per point
         platforms/{platform}.md         nodes, time, loss, accuracy; a folder of their own, so that
                                         a platform may have the name of a table; those of platforms
                                         that the grid no longer has are removed
         warnings.json                   what must be known before any number is read
"""


rule collect:
    input:
        grid=rules.write_manifest.output.grid,
        records=wanted_records,
        code=CODE,
    output:
        csv=f"{RESULTS}/tables/runs.csv",
        parquet=f"{RESULTS}/tables/runs.parquet",
        epochs=f"{RESULTS}/tables/epochs.csv",
    log:
        f"{RESULTS}/logs/collect.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        runs_dir=f"{ROOT}/runs",
    message:
        "collect the run records"
    shell:
        "collect.py"
        " --grid {input.grid}"
        " --runs-dir {params.runs_dir:q}"
        " --csv {output.csv}"
        " --parquet {output.parquet}"
        " --epochs {output.epochs}"
        " >{log} 2>&1"


rule compare:
    input:
        runs=rules.collect.output.csv,
        code=CODE,
        grid=rules.write_manifest.output.grid,
        published=PUBLISHED,
    output:
        csv=f"{RESULTS}/tables/comparison.csv",
        md=report(
            f"{RESULTS}/tables/comparison.md",
            category="Tables",
            caption="../report/comparison.rst",
        ),
        tex=f"{RESULTS}/tables/comparison.tex",
        html=report(
            f"{RESULTS}/tables/comparison.html",
            category="Tables",
            caption="../report/comparison.rst",
        ),
        warnings=f"{RESULTS}/tables/warnings.json",
        platforms=[f"{RESULTS}/tables/platforms/{platform}.md" for platform in PLATFORMS],
    log:
        f"{RESULTS}/logs/compare.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        comparison=msgspec.to_builtins(CONFIG.comparison),
        baseline=json.dumps(CONFIG.comparison.baseline.axes),
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
        " --remove-earlier"
        " >{log} 2>&1"
