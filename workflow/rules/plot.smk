"""Plots, one SVG each.

INPUTS   results/{study}/tables/{comparison.csv,epochs.csv,published.csv,warnings.json},
         results/{study}/config.json
OUTPUTS  results/{study}/plots/{plot}.svg    the plots that the configuration names
"""


rule plot:
    """Draw all plots, in one process."""
    input:
        comparison=f"{RESULTS}/tables/comparison.csv",
        epochs=f"{RESULTS}/tables/epochs.csv",
        warnings=f"{RESULTS}/tables/warnings.json",
        published=f"{RESULTS}/tables/published.csv",
        config=f"{RESULTS}/config.json",
        code=code_of("plot.py"),
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
        titles=verbatim(list(TITLES.values())),
    message:  # Snakemake would list all input files
        "draw the plots"
    shell:
        r"""
        python3 "$SCRIPTS/plot.py" \
            --comparison {input.comparison:q} \
            --epochs {input.epochs:q} \
            --warnings {input.warnings:q} \
            --published {input.published:q} \
            --titles {params.titles:q} \
            --outputs {output.svg:q} \
            >{log:q} 2>&1
        """
