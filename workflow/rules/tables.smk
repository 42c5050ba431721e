"""Tables and conclusions of the study."""


rule collect:
    """Collect every planned run into one row: valid, failed, stale and missing ones too."""
    input:
        manifest=f"{RESULTS}/manifest.json",
        records=records_of_runs,
        code=CODE,
        user_code=USER_CODE,  # runs of other code are stale
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
        study=subpath(input.manifest, parent=True),
    message:  # Snakemake would list all input files
        "collect the run records"
    shell:
        'python3 "$SCRIPTS/tfscaling" collect --study {params.study:q} >{log:q} 2>&1'


rule compare:
    """Compare the points of the grid with the baseline; draw the conclusions that this supports."""
    input:
        runs=f"{RESULTS}/tables/runs.csv",
        manifest=f"{RESULTS}/manifest.json",
        config=f"{RESULTS}/config.json",
        published=PUBLISHED,
        reference=REFERENCE,
        code=CODE,
    output:
        **{name: f"{RESULTS}/tables/{name}.csv" for name in ("comparison", *CONCLUSIONS)},
        md=report(
            f"{RESULTS}/tables/comparison.md",
            category="Tables",
            caption="../report/comparison.rst",
            labels=verbatim({"table": CONFIG.comparison.title, "format": "md"}),
        ),
        warnings=f"{RESULTS}/tables/warnings.json",
        platforms=expand(f"{RESULTS}/tables/platforms/{{platform}}.md", platform=PLATFORMS),
        pages=[
            report(
                f"{RESULTS}/tables/{name}.md",
                category=conclusion.category,
                caption="../report/conclusion.rst",
                labels={"table": conclusion.title, "format": "md"},
            )
            for name, conclusion in CONCLUSIONS.items()
        ],
    log:
        f"{RESULTS}/logs/compare.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, parent=True),
        captions={each.title: each.caption for each in CONCLUSIONS.values()},
    message:  # Snakemake would list all input files
        "compare the points of the grid"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" compare --study {params.study:q} >{log:q} 2>&1
        python3 "$SCRIPTS/tfscaling" analyse --study {params.study:q} >>{log:q} 2>&1
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
        'python3 "$SCRIPTS/tfscaling" regressions --study {params.study:q} 2>&1 | tee {log:q}'
