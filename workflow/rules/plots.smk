"""Plots, one SVG each.

INPUTS   results/{study}/tables/{comparison,epochs,published}.csv and warnings.json beside them
OUTPUTS  results/{study}/plots/{plot}.svg    the plots that the configuration names
"""


rule plot:
    input:
        comparison=rules.compare.output.csv,
        epochs=rules.collect.output.epochs,
        warnings=rules.compare.output.warnings,
        published=rules.analyse.output.published,
        code=CODE,
    output:
        svg=report(
            [f"{RESULTS}/plots/{plot}.svg" for plot in CONFIG.plots],
            category="Plots",
            caption="../report/plot.rst",
        ),
    log:
        f"{RESULTS}/logs/plot.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        titles=list(titles(msgspec.to_builtins(CONFIG.plots)).values()),
    message:
        "draw the plots"
    shell:
        "plot.py"
        " --comparison {input.comparison}"
        " --epochs {input.epochs}"
        " --warnings {input.warnings}"
        " --published {input.published}"
        " --titles {params.titles:q}"
        " --outputs {output.svg}"
        " >{log} 2>&1"
