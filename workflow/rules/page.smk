"""The page with its plots; tables, plots and page of only the finished runs."""


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
        strict_shell(r"""
        python3 "$SCRIPTS/tfscaling" report --study {params.study:q} >{log:q} 2>&1
        """)


rule note_problems:
    """Have a start without any run report again that no run counts or a record is broken."""
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
        strict_shell("touch {output.note:q} 2>{log:q}")


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
        strict_shell(
            'python3 "$SCRIPTS/tfscaling" proposal --study {params.study:q} 2>&1 | tee {log:q}'
        )


rule scaling_badge:
    """Write badge and table for a model's README: to how many nodes its training scales."""
    input:
        page=f"{RESULTS}/report.html",  # all tables exist
        config_stamp=rules.write_config.output.stamp,
        manifest_stamp=rules.write_manifest.output.stamp,
    log:
        f"{LOGS}/scaling_badge.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.page, parent=True),
    shell:
        strict_shell(
            'python3 "$SCRIPTS/tfscaling" scaling-badge --study {params.study:q} 2>&1 | tee {log:q}'
        )


rule archive:
    """Write the study as an RO-Crate for an archive, without secrets."""
    input:
        page=f"{RESULTS}/report.html",  # all tables exist
        config_stamp=rules.write_config.output.stamp,
        manifest_stamp=rules.write_manifest.output.stamp,
    log:
        f"{LOGS}/archive.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.page, parent=True),
    shell:
        strict_shell(
            'python3 "$SCRIPTS/tfscaling" archive --study {params.study:q} 2>&1 | tee {log:q}'
        )


rule clean_runs:
    """List the runs that no study of this folder requests; --config clean=remove removes them."""
    input:
        alone,  # no file
    log:
        f"{LOGS}/clean_runs.log",
    localrule: True
    run:
        clean_runs_without_study(str(log))


rule partial:
    """Make tables, plots and page of the runs that have finished, in the folder `partial`."""
    input:
        alone,  # no file
    log:
        f"{LOGS}/partial.log",
    localrule: True
    run:
        OUTCOME.make_partial(SCRIPTS / "tfscaling", CONFIG_TEXT, MANIFEST, str(log))
