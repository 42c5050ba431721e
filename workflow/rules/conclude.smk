"""What the comparison says: findings, clouds against each other, published against measured.

INPUTS   results/tables/{comparison,runs}.csv, results/tables/warnings.json, results/grid.json,
         published results if configured, results/yardsticks/**/all_reduce.json if enabled
OUTPUTS  results/tables/findings.{csv,md}     sentences, each with what supports it
         results/tables/decision.{csv,md}     which point to take for which goal, and what is open
         results/tables/clouds.{csv,md}       one row per point and metric of two clouds
         results/tables/published.{csv,md}    one row per published point
         results/tables/method.{csv,md}       one row per rule of good measurement, pass or fail
         results/tables/scaling.{csv,md}      one row per line of points and scaling law
         results/tables/communication.{csv,md}  one row per point: a step, its bound, the yardstick
"""


rule conclude:
    input:
        comparison=rules.compare.output.csv,
        runs=rules.collect.output.csv,
        grid=rules.expand.output.grid,
        warnings=rules.compare.output.warnings,
        published=CONFIG["published"]["path"] or [],
        yardsticks=wanted_yardsticks,
        code=CODE,
    output:
        findings="results/tables/findings.csv",
        findings_md=report(
            "results/tables/findings.md", category="Findings", caption="../report/findings.rst"
        ),
        decision="results/tables/decision.csv",
        decision_md=report(
            "results/tables/decision.md", category="Findings", caption="../report/decision.rst"
        ),
        clouds="results/tables/clouds.csv",
        clouds_md=report(
            "results/tables/clouds.md", category="Tables", caption="../report/clouds.rst"
        ),
        published="results/tables/published.csv",
        published_md=report(
            "results/tables/published.md", category="Tables", caption="../report/published.rst"
        ),
        method="results/tables/method.csv",
        method_md=report(
            "results/tables/method.md", category="Method", caption="../report/method.rst"
        ),
        scaling="results/tables/scaling.csv",
        scaling_md=report(
            "results/tables/scaling.md", category="Tables", caption="../report/scaling.rst"
        ),
        communication="results/tables/communication.csv",
        communication_md=report(
            "results/tables/communication.md",
            category="Tables",
            caption="../report/communication.rst",
        ),
    log:
        "results/logs/conclude.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        tolerance=CONFIG["published"]["tolerance"],
        published=published_flag,
    message:
        "say what the comparison supports"
    shell:
        "conclude.py"
        " --comparison {input.comparison}"
        " --runs {input.runs}"
        " --grid {input.grid}"
        " --warnings {input.warnings}"
        " --tolerance {params.tolerance}"
        " {params.published}"
        " --yardsticks-dir results/yardsticks"
        " --output-dir results/tables"
        " >{log} 2>&1"
