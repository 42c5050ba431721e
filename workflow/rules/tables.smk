"""Tables and conclusions of the study, and its regressions."""


rule collect:
    """Write a row for every planned run, whether valid, failed, stale or missing."""
    input:
        manifest=f"{DETAILS}/manifest.json",
        manifest_stamp=rules.write_manifest.output.stamp,
        config=ancient(f"{DETAILS}/config.json"),  # of its keys only `export` and `timings` count
        # a different file of timings may be older than the tables
        config_stamp=rules.write_config.output.stamp if CONFIG.timings else [],
        records=records_of_runs,
        timings=TIMINGS,
        user_code=USER_CODE,  # runs of other code are stale
    output:
        **exported("parquet", {"parquet": f"{DETAILS}/runs.parquet"}),
        csv=f"{RESULTS}/runs.csv",
        epochs=f"{DETAILS}/epochs.csv",
    log:
        f"{LOGS}/collect.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, ancestor=2),
        code=code_of_tables,
    message:  # Snakemake would list all input files
        "collect the run records"
    shell:
        strict_shell('python3 "$SCRIPTS/tfscaling" collect --study {params.study:q} >{log:q} 2>&1')


rule compare:
    """Compare the points of the grid with the baseline; draw the conclusions that this supports."""
    input:
        runs=f"{RESULTS}/runs.csv",
        manifest=f"{DETAILS}/manifest.json",
        manifest_stamp=rules.write_manifest.output.stamp,
        config=f"{DETAILS}/config.json",
        config_stamp=rules.write_config.output.stamp,
        published=PUBLISHED,
        reference=REFERENCE,
    output:
        csv=f"{RESULTS}/comparison.csv",
        md=report(
            f"{DETAILS}/comparison.md",
            category="Tables",
            caption="../report/comparison.rst",
            labels=verbatim({"table": CONFIG.comparison.title, "format": "md"}),
        ),
        warnings=f"{DETAILS}/warnings.json",
        conclusions=directory(f"{DETAILS}/conclusions"),  # a file for each that has rows
    log:
        f"{LOGS}/compare.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, ancestor=2),
        code=code_of_tables,
    message:  # Snakemake would list all input files
        "compare the points of the grid"
    shell:
        strict_shell(
            'python3 "$SCRIPTS/tfscaling" compare analyse --study {params.study:q} >{log:q} 2>&1'
        )


rule regressions:
    """Print which configurations are slower than in their reference; status 1 if one is."""
    input:
        conclusions=compared_conclusions,
        page=f"{RESULTS}/report.html",
        config_stamp=rules.write_config.output.stamp,
        manifest_stamp=rules.write_manifest.output.stamp,
    log:
        f"{LOGS}/regressions.log",
    retries: 0
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.page, parent=True),
    shell:
        strict_shell(
            'python3 "$SCRIPTS/tfscaling" regressions --study {params.study:q} 2>&1 | tee {log:q}'
        )
