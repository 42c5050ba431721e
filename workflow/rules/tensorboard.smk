"""TensorBoard: the epochs of the runs that have finished, from their records.

INPUTS   results/{study}/manifest.json, results/runs/** as it is now; no run is started or waited for
OUTPUTS  results/{study}/tensorboard/platform=.../.../repeat=.../events.out.tfevents.*, of each run
         not declared, because they are made anew each time
"""


rule tensorboard:
    """Write the scalars of each finished run for TensorBoard."""
    input:
        manifest=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/tensorboard.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, parent=True),
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" tensorboard --study {params.study:q} 2>{log:q}
        """
