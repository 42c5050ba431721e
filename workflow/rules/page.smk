"""Plots and the page; tables, plots and page of the finished runs alone."""


rule write_report:
    """Draw all plots, and write the page of the study."""
    input:
        manifest=f"{RESULTS}/manifest.json",
        config=f"{RESULTS}/config.json",
        runs=rules.collect.output,
        comparison=rules.compare.output,
        code=CODE,
    output:
        html=report(
            f"{RESULTS}/report.html",
            category="Page",
            caption="../report/page.rst",
            labels=verbatim({"page": CONFIG.comparison.title}),
        ),
        svg=[
            report(
                f"{RESULTS}/plots/{plot}.svg",
                category="Plots",
                caption="../report/plot.rst",
                labels=verbatim({"plot": title}),
            )
            for plot, title in TITLES.items()
        ],
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
        python3 "$SCRIPTS/tfscaling" plot --study {params.study:q} >{log:q} 2>&1
        python3 "$SCRIPTS/tfscaling" report --study {params.study:q} >>{log:q} 2>&1
        """


rule proposal:
    """Write the scaling evidence for an application for compute time."""
    input:
        page=f"{RESULTS}/report.html",  # all tables exist
    log:
        f"{RESULTS}/logs/proposal.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.page, parent=True),
    shell:
        'python3 "$SCRIPTS/tfscaling" proposal --study {params.study:q} 2>&1 | tee {log:q}'


rule partial:
    """Make tables, plots and the page of the runs that have finished."""
    log:
        f"{RESULTS}/logs/partial.log",
    localrule: True
    run:
        OUTCOME.make_partial(SCRIPTS / "tfscaling", CONFIG_TEXT, MANIFEST, str(log))
