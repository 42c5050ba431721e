"""Plan: what a sweep would still do, how it is submitted and what it costs. Nothing is submitted.

INPUTS   results/runs/** as it is now; the configuration; the executor of the profile
OUTPUTS  results/{study}/plan.csv   one row per run still to do and per excluded point
         results/{study}/plan.md    the same to read (it is printed), with sbatch lines, sums
                                   and budget
         not declared, because a plan is made anew each time
"""


rule plan:
    log:
        f"{RESULTS}/logs/plan.log",
    localrule: True
    conda:
        "../envs/environment.yaml"
    params:
        config=msgspec.json.encode(CONFIG).decode(),
        submission=plan_submission,
        runs_dir=f"{ROOT}/runs",
        csv=f"{STUDY}/plan.csv",
        md=f"{STUDY}/plan.md",
    message:
        "plan the runs that are still to do"
    shell:
        "plan.py"
        " --config {params.config:q}"
        " --submission {params.submission:q}"
        " --runs-dir {params.runs_dir:q}"
        " --csv {params.csv:q}"
        " --md {params.md:q}"
        " 2>&1 | tee {log}"
