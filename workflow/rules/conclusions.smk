"""Conclusions from the comparison: findings, clouds against each other, published against measured, …

INPUTS   results/{study}/{config,manifest}.json,
         results/{study}/tables/{comparison.csv,runs.csv,warnings.json}, published results if
         configured, results/all_reduce/**/all_reduce.json if enabled, the study of `compare_with`
OUTPUTS  results/{study}/tables/{conclusion}.{csv,md}   every conclusion of CONCLUSIONS
"""


rule analyse:
    """Draw every conclusion that the comparison supports."""
    input:
        comparison=f"{RESULTS}/tables/comparison.csv",
        runs=f"{RESULTS}/tables/runs.csv",
        manifest=f"{RESULTS}/manifest.json",
        config=f"{RESULTS}/config.json",
        warnings=f"{RESULTS}/tables/warnings.json",
        published=PUBLISHED,
        reference=REFERENCE,
        benchmarks=records_of_benchmarks,
        lost=force_if_lost(records_of_benchmarks, "decision.csv"),  # no file
        code=code_of("analyse.py"),
    output:
        **{name: f"{RESULTS}/tables/{name}.csv" for name in CONCLUSIONS},
        pages=[
            report(
                f"{RESULTS}/tables/{name}.md",
                category=conclusion.category,
                caption="../report/conclusion.rst",
                labels={"table": conclusion.title, "format": "Markdown"},
            )
            for name, conclusion in CONCLUSIONS.items()
        ],
    log:
        f"{RESULTS}/logs/analyse.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        tolerance=CONFIG.published.tolerance,
        indifference=CONFIG.comparison.indifference,
        benchmarks_dir=f"{ROOT}/all_reduce",
        reference=CONFIG.compare_with or [],
        forecast_nodes=list(CONFIG.forecast.nodes),
        decision_time=CONFIG.comparison.time,
        output_dir=subpath(output.decision, parent=True),
        captions={each.title: each.caption for each in CONCLUSIONS.values()},
    message:  # Snakemake would list all input files
        "draw the conclusions"
    shell:
        r"""
        python3 "$SCRIPTS/analyse.py" \
            --comparison {input.comparison:q} \
            --runs {input.runs:q} \
            --manifest {input.manifest:q} \
            --warnings {input.warnings:q} \
            --published {input.published:q} \
            --tolerance {params.tolerance} \
            --indifference {params.indifference} \
            --benchmarks-dir {params.benchmarks_dir:q} \
            --reference {params.reference:q} \
            --forecast-nodes {params.forecast_nodes} \
            --decision-time {params.decision_time} \
            --output-dir {params.output_dir:q} \
            >{log:q} 2>&1
        """


rule regressions:
    """Print what is slower than in the study of `compare_with`; end with status 1 if a point is."""
    input:
        table=table_of_regressions,
        page=f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/regressions.log",
    retries: 0
    localrule: True
    conda:
        "../envs/environment.yaml"
    shell:
        r"""
        python3 "$SCRIPTS/regressions.py" --table {input.table:q} 2>&1 | tee {log:q}
        """
