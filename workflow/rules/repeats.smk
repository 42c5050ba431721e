"""Repeat further the points whose interval is too wide (`repeat_until`), round by round.

INPUTS   results/{study}/manifest.json, results/runs/**/run.json of the rounds before
OUTPUTS  results/{study}/repeats/round={round}.json   the further runs to make; none ends the rounds
"""


checkpoint assess_repeats:
    input:
        grid=rules.write_manifest.output.grid,
        records=records_before_round,
        previous=round_before,
    output:
        wanted=f"{RESULTS}/repeats/round={{round}}.json",
    log:
        f"{RESULTS}/logs/assess_repeats/round={{round}}.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        previous=previous_flag,
        runs_dir=f"{ROOT}/runs",
    message:
        "round {wildcards.round}: which points need extra repeats"
    shell:
        "assess_repeats.py"
        " --grid {input.grid}"
        " --runs-dir {params.runs_dir:q}"
        " --round {wildcards.round}"
        " {params.previous}"
        " --output {output.wanted}"
        " >{log} 2>&1"
