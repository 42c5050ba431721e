"""Tables: every run a row, every point a row of the comparison.

INPUTS   results/{study}/{config,manifest}.json, results/runs/**/run.json (and failure.json of failed
         runs), the user's source files
OUTPUTS  below results/{study}/tables:
         runs.{csv,parquet}              one row per run, failed ones included
         epochs.csv                      one row per epoch of each valid run
         datapackage.json                what the columns of runs, epochs and comparison mean
         comparison.{csv,md,tex,html}    one row per point
         platforms/{platform}.md         nodes, time, loss, accuracy; a folder of their own, so that
                                         a platform may have the name of a table; those of platforms
                                         that the grid no longer has are removed
         warnings.json                   what must be known before any number is read
"""


rule collect:
    """Collect every planned run into one row: valid, failed, stale and missing ones too."""
    input:
        manifest=f"{RESULTS}/manifest.json",
        records=records_of_runs,
        lost=force_if_lost(records_of_runs, "runs.csv"),  # no file
        merged=merged_records,
        code=code_of("collect"),
        user_code=user_code,  # runs of other code are stale
    output:
        csv=f"{RESULTS}/tables/runs.csv",
        parquet=f"{RESULTS}/tables/runs.parquet",
        epochs=f"{RESULTS}/tables/epochs.csv",
        data_package=f"{RESULTS}/tables/datapackage.json",
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
        r"""
        python3 "$SCRIPTS/tfscaling" collect --study {params.study:q} >{log:q} 2>&1
        """


rule compare:
    """Compare the points of the grid with the baseline, in all formats."""
    input:
        runs=f"{RESULTS}/tables/runs.csv",
        manifest=f"{RESULTS}/manifest.json",
        config=f"{RESULTS}/config.json",
        published=PUBLISHED,
        code=code_of("compare"),
    output:
        csv=f"{RESULTS}/tables/comparison.csv",
        md=report(
            f"{RESULTS}/tables/comparison.md",
            category="Tables",
            caption="../report/comparison.rst",
            labels=verbatim({"table": CONFIG.comparison.title, "format": "Markdown"}),
        ),
        tex=f"{RESULTS}/tables/comparison.tex",
        html=report(
            f"{RESULTS}/tables/comparison.html",
            category="Tables",
            caption="../report/comparison.rst",
            labels=verbatim({"table": CONFIG.comparison.title, "format": "HTML"}),
        ),
        warnings=f"{RESULTS}/tables/warnings.json",
        platforms=expand(f"{RESULTS}/tables/platforms/{{platform}}.md", platform=PLATFORMS),
    log:
        f"{RESULTS}/logs/compare.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, parent=True),
    message:  # Snakemake would list all input files
        "compare the points of the grid"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" compare --study {params.study:q} >{log:q} 2>&1
        """
