"""Expand the grid: what the tables expect to find.

INPUTS   the grid, recipes and platforms of the configuration
OUTPUTS  results/{study}/grid.json   every run with its parameters and their hash, every
                                     excluded point
"""


rule expand:
    input:
        code=CODE,
    output:
        grid=f"{RESULTS}/grid.json",
    log:
        f"{RESULTS}/logs/expand.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        config=grid_config,
    message:
        "expand the grid"
    shell:
        "expand.py" " --config {params.config:q}" " --output {output.grid}" " >{log} 2>&1"
