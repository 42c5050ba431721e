"""Plots, one SVG each.

INPUTS   results/{study}/tables/{comparison.csv,epochs.csv,published.csv,search.csv,warnings.json},
         results/{study}/{config,manifest}.json
OUTPUTS  results/{study}/plots/{plot}.svg    the plots that the configuration names
"""


rule plot:
    """Draw all plots, in one process."""
    input:
        comparison=f"{RESULTS}/tables/comparison.csv",
        epochs=f"{RESULTS}/tables/epochs.csv",
        warnings=f"{RESULTS}/tables/warnings.json",
        published=f"{RESULTS}/tables/published.csv",
        search=f"{RESULTS}/tables/search.csv",
        config=f"{RESULTS}/config.json",
        manifest=f"{RESULTS}/manifest.json",
        code=code_of("draw_plots"),
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
        r"""
        python3 "$SCRIPTS/tfscaling" plot --study {params.study:q} >{log:q} 2>&1
        """
