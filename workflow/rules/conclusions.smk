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
        code=code_of("analyse"),
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
        study=subpath(input.manifest, parent=True),
        captions={each.title: each.caption for each in CONCLUSIONS.values()},
    message:  # Snakemake would list all input files
        "draw the conclusions"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" analyse --study {params.study:q} >{log:q} 2>&1
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
    params:
        study=subpath(input.page, parent=True),
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" regressions --study {params.study:q} 2>&1 | tee {log:q}
        """
