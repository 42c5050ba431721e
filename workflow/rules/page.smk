"""Plots and the page; tables, plots and page of the finished runs alone."""


rule plot:
    """Draw all plots, in one process."""
    input:
        comparison=f"{RESULTS}/tables/comparison.csv",
        epochs=f"{RESULTS}/tables/epochs.csv",
        warnings=f"{RESULTS}/tables/warnings.json",
        published=f"{RESULTS}/tables/published.csv",
        projection=f"{RESULTS}/tables/projection.csv",
        config=f"{RESULTS}/config.json",
        manifest=f"{RESULTS}/manifest.json",
        code=code_of("write_page"),
    output:
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
        f"{RESULTS}/logs/plot.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, parent=True),
    message:  # Snakemake would list all input files
        "draw the plots"
    shell:
        'python3 "$SCRIPTS/tfscaling" plot --study {params.study:q} >{log:q} 2>&1'


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
        'python3 "$SCRIPTS/tfscaling" report --study {params.study:q} >{log:q} 2>&1'


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
