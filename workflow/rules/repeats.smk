"""Extra repeats, round by round: where an interval is too wide (`repeat_until`), or for a `search`.

INPUTS   results/{study}/manifest.json, results/runs/**/run.json of the rounds before
OUTPUTS  results/{study}/repeats/round={round}.json   the extra repeats to run; none ends the rounds
"""


checkpoint assess_repeats:
    """Decide which points need extra repeats in this round."""
    input:
        manifest=f"{RESULTS}/manifest.json",
        records=records_before_round,
        previous=round_before,
    output:
        runs=f"{RESULTS}/repeats/round={{round}}.json",
    log:
        f"{RESULTS}/logs/assess_repeats/round={{round}}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        study=subpath(input.manifest, parent=True),
    message:  # Snakemake would list all input files
        "round {wildcards.round}: which points need extra repeats"
    shell:
        r"""
        python3 "$SCRIPTS/tfscaling" assess-repeats --study {params.study:q} --round {wildcards.round} \
            >{log:q} 2>&1
        """
