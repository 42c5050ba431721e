"""Expand the grid: what the tables expect to find.

INPUTS   the grid, recipes and platforms of the configuration
OUTPUTS  results/{study}/manifest.json   every run with its parameters and their hash, every
                                     excluded point
         ROOT, STUDY   the folders results and results/{study} as snakemake sees them
"""


rule write_manifest:
    input:
        code=CODE,
    output:
        grid=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/write_manifest.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        config=grid_config,
    message:
        "expand the grid"
    shell:
        "write_manifest.py" " --config {params.config:q}" " --output {output.grid}" " >{log} 2>&1"


# In a module with a `prefix`, which Snakemake sets before outputs but not before other texts, these
# have it too: what is named by them is in the same results as the outputs.
STUDY = os.path.dirname(rules.write_manifest.output.grid)
ROOT = os.path.dirname(STUDY)
