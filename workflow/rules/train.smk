"""The training jobs, one per run. A job writes its record last, after all checks.

Undeclared files in the folder of a job, which stay after a failure: attempt=<n>/ with the logs of
the ranks and the attempt's record, events.jsonl, steps.csv, request.json, failure.json.
"""


rule train:
    """Train one run on all nodes of its job."""
    input:
        requested=request_run,  # no file
        # the record carries the dataset's name and recipe; fetching it again must not cost runs
        dataset=prepared_dataset,
    output:
        record=f"results/runs/{RUN}/run.json",
    log:
        f"results/runs/{RUN}/launch.log",
    priority: run_priority
    conda:
        "../envs/environment.yaml"
    resources:
        **RESOURCES,
        training_runs=1,  # on this machine one at a time: see limit_runs_on_this_machine
    # No params: what is to be made is in the run's folder, request.json, for its owner alone. Every user
    # of the machine can read the words of a command. And no edit of the configuration is a change that
    # Snakemake remembers.
    shell:
        strict_shell(r"""
        python3 "$SCRIPTS/train.py" \
            --record {output.record:q} \
            --dataset-file {input.dataset:q} \
            --stall-timeout-s {resources.stall_timeout_s} \
            --latency-wait-s {resources.latency_wait_s} \
            >{log:q} 2>&1
        """)
