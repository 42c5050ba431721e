"""What the comparison says: findings, clouds against each other, published against measured.

INPUTS   results/{study}/manifest.json, results/{study}/tables/{comparison,runs}.csv and warnings.json
         beside them, published results if configured, results/all_reduce/**/all_reduce.json if
         enabled
OUTPUTS  below results/{study}/tables:
         findings.{csv,md}       sentences, each with what supports it
         decision.{csv,md}       which point to take for which goal, and what is open
         clouds.{csv,md}         one row per point and metric of two clouds
         published.{csv,md}      one row per published point
         methodology.{csv,md}    one row per rule of good measurement, pass or fail
         scaling.{csv,md}        one row per line of points and scaling law
         communication.{csv,md}  one row per point: a step, its bound, the benchmark
"""


rule analyse:
    input:
        comparison=rules.compare.output.csv,
        runs=rules.collect.output.csv,
        grid=rules.write_manifest.output.grid,
        warnings=rules.compare.output.warnings,
        published=PUBLISHED,
        benchmarks=benchmark_records,
        code=CODE,
    output:
        findings=f"{RESULTS}/tables/findings.csv",
        findings_md=report(
            f"{RESULTS}/tables/findings.md", category="Findings", caption="../report/findings.rst"
        ),
        decision=f"{RESULTS}/tables/decision.csv",
        decision_md=report(
            f"{RESULTS}/tables/decision.md", category="Findings", caption="../report/decision.rst"
        ),
        clouds=f"{RESULTS}/tables/clouds.csv",
        clouds_md=report(
            f"{RESULTS}/tables/clouds.md", category="Tables", caption="../report/clouds.rst"
        ),
        published=f"{RESULTS}/tables/published.csv",
        published_md=report(
            f"{RESULTS}/tables/published.md", category="Tables", caption="../report/published.rst"
        ),
        methodology=f"{RESULTS}/tables/methodology.csv",
        methodology_md=report(
            f"{RESULTS}/tables/methodology.md",
            category="Method",
            caption="../report/methodology.rst",
        ),
        scaling=f"{RESULTS}/tables/scaling.csv",
        scaling_md=report(
            f"{RESULTS}/tables/scaling.md", category="Tables", caption="../report/scaling.rst"
        ),
        communication=f"{RESULTS}/tables/communication.csv",
        communication_md=report(
            f"{RESULTS}/tables/communication.md",
            category="Tables",
            caption="../report/communication.rst",
        ),
    log:
        f"{RESULTS}/logs/analyse.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        tolerance=CONFIG.published.tolerance,
        indifference=CONFIG.comparison.indifference,
        published=published_flag,
        benchmarks_dir=f"{ROOT}/benchmarks",
        output_dir=tables_folder,
    message:
        "say what the comparison supports"
    shell:
        "analyse.py"
        " --comparison {input.comparison}"
        " --runs {input.runs}"
        " --grid {input.grid}"
        " --warnings {input.warnings}"
        " --tolerance {params.tolerance}"
        " --indifference {params.indifference}"
        " {params.published}"
        " --benchmarks-dir {params.benchmarks_dir:q}"
        " --output-dir {params.output_dir:q}"
        " >{log} 2>&1"
