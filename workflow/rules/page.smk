"""Plots and the page; tables, plots and page of the finished runs alone."""


rule write_report:
    """Write the page of the study, with its plots."""
    input:
        manifest=f"{DETAILS}/manifest.json",
        manifest_stamp=rules.write_manifest.output.stamp,
        config=f"{DETAILS}/config.json",
        config_stamp=rules.write_config.output.stamp,
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
    message:  # Snakemake would list all input files
        "write the page"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" report --study {params.study:q} >{log:q} 2>&1
        """


rule note_problems:
    """Let a start that has nothing to do report again that no run counts or a record is broken."""
    input:
        page=f"{RESULTS}/report.html",
    output:
        note=f"{DETAILS}/problems",
    log:
        f"{LOGS}/note_problems.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    message:
        "report the problems of the study again"
    shell:
        "touch {output.note:q} 2>{log:q}"


rule proposal:
    """Write the scaling evidence for an application for compute time."""
    input:
        page=f"{RESULTS}/report.html",  # all tables exist
        config_stamp=rules.write_config.output.stamp,
        manifest_stamp=rules.write_manifest.output.stamp,
    log:
        f"{LOGS}/proposal.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.page, parent=True),
    shell:
        'python3 "$SCRIPTS/tfscaling" proposal --study {params.study:q} 2>&1 | tee {log:q}'


rule clean_runs:
    """List the runs that no study of this folder asks for; --config clean=remove removes them."""
    input:
        alone,  # no file
    log:
        f"{LOGS}/clean_runs.log",
    localrule: True
    run:
        remove = CONFIG.clean == "remove"
        lines = unrequested_runs.clean(Path(ROOT), CONFIG.study, MANIFEST, remove=remove)
        Path(str(log)).write_text("\n".join(lines))
        say(lines)


rule partial:
    """Make tables, plots and the page of the runs that have finished."""
    input:
        alone,  # no file
    log:
        f"{LOGS}/partial.log",
    localrule: True
    run:
        OUTCOME.make_partial(SCRIPTS / "tfscaling", CONFIG_TEXT, MANIFEST, str(log))
