"""The page: one self-contained HTML file that works offline, the answer first.

INPUTS   results/{study}/{config,manifest}.json, results/{study}/tables/{*.csv,warnings.json},
         results/{study}/plots/*.svg
OUTPUTS  results/{study}/report.html; removes results/{study}/partial and plots that are no longer
         configured
"""


rule write_report:
    """Write the page of the study."""
    input:
        manifest=f"{RESULTS}/manifest.json",
        config=f"{RESULTS}/config.json",
        runs=f"{RESULTS}/tables/runs.csv",
        comparison=f"{RESULTS}/tables/comparison.csv",
        warnings=f"{RESULTS}/tables/warnings.json",
        conclusions=expand(f"{RESULTS}/tables/{{name}}.csv", name=CONCLUSIONS),
        plots=expand(f"{RESULTS}/plots/{{plot}}.svg", plot=TITLES),
        code=code_of("write_page"),
        template=page_files(),
    output:
        html=report(
            f"{RESULTS}/report.html",
            category="Page",
            caption="../report/page.rst",
            labels=verbatim({"page": CONFIG.comparison.title}),
        ),
    log:
        f"{RESULTS}/logs/write_report.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, parent=True),
        # without a valid run each start writes the page, and so ends with status 1 again
        valid=lambda wildcards: OUTCOME.has_result() or time.time(),
    message:  # Snakemake would list all input files
        "write the page"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" report --study {params.study:q} >{log:q} 2>&1
        """
