"""Plan: what a sweep would still do, how it is submitted and what it costs. Nothing is submitted.

INPUTS   results/{study}/{config,manifest}.json, results/runs/** as it is now; the executor of the profile
OUTPUTS  results/{study}/plan.csv   one row per run still to do and per excluded point
         results/{study}/plan.md    the same to read (it is printed), with sbatch lines, sums
                                   and budget
         not declared, because a plan is made anew each time
         Snakemake ends with exit status 1 if a point is refused: by Slurm, or without CUDA libraries
"""


rule plan:
    """Plan the runs that are still to do, with their cost."""
    input:
        config=f"{RESULTS}/config.json",
        manifest=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/plan.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        submission=plan_submission,
        study=subpath(input.manifest, parent=True),
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" plan --study {params.study:q} \
            <<<{params.submission:q} 2>&1 | tee {log:q}
        """
