"""Plots and the page; tables, plots and page of the finished runs alone."""


rule write_report:
    """Write the page of the study, with its plots."""
    input:
        manifest=f"{DETAILS}/manifest.json",
        config=f"{DETAILS}/config.json",
        runs=rules.collect.output,
        comparison=rules.compare.output,
    output:
        **exported("svg", {"plots": directory(f"{DETAILS}/plots")}),
        html=report(
            f"{RESULTS}/report.html",
            category="Page",
            caption="../report/page.rst",
            labels=verbatim({"page": CONFIG.comparison.title}),
        ),
    log:
        f"{LOGS}/write_report.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, ancestor=2),
        code=code_of_tables,
        # Without a valid run, or with a broken record, each start writes the page, and so ends
        # with status 1 again.
        valid=lambda wildcards: (OUTCOME.has_result() and not UNREADABLE) or time.time(),
    message:  # Snakemake would list all input files
        "write the page"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" report --study {params.study:q} >{log:q} 2>&1
        """


rule proposal:
    """Write the scaling evidence for an application for compute time."""
    input:
        page=f"{RESULTS}/report.html",  # all tables exist
    log:
        f"{LOGS}/proposal.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.page, parent=True),
    shell:
        'python3 "$SCRIPTS/tfscaling" proposal --study {params.study:q} 2>&1 | tee {log:q}'


rule partial:
    """Make tables, plots and the page of the runs that have finished."""
    input:
        alone,  # no file
    log:
        f"{LOGS}/partial.log",
    localrule: True
    run:
        OUTCOME.make_partial(SCRIPTS / "tfscaling", CONFIG_TEXT, MANIFEST, str(log))
