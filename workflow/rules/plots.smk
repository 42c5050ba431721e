"""Plots of the comparison, one SVG each.

INPUTS   results/tables/comparison.csv
OUTPUTS  results/plots/{plot}.svg
"""


rule plot:
    input:
        comparison=rules.compare.output.csv,
        code=CODE,
    output:
        svg="results/plots/{plot}.svg",
    log:
        "results/logs/plot/{plot}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        title=plot_title,
    message:
        "plot {wildcards.plot}"
    shell:
        "plot.py"
        " --plot {wildcards.plot}"
        " --title {params.title:q}"
        " --comparison {input.comparison}"
        " --output {output.svg}"
        " >{log} 2>&1"
