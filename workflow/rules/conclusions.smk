"""Conclusions from the comparison: findings, clouds against each other, published against measured, …

INPUTS   results/{study}/{config,manifest}.json,
         results/{study}/tables/{comparison.csv,runs.csv,warnings.json}, published results if
         configured, results/all_reduce/**/all_reduce.json if enabled
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
            --output-dir {params.output_dir:q} \
            >{log:q} 2>&1
        """
