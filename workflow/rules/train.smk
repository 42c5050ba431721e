"""One job per run. A job leaves its record last, after all checks.

Undeclared files in the folder of a job, which stay after a failure: attempt=<n>/ with the logs of
the ranks and the attempt's record, events.jsonl, steps.csv, specification.json, failure.json, and earlier.run.json
while the run is repeated.
"""


rule train:
    """Train one run on all nodes of its job."""
    input:
        settled=settle,  # no file; before the next input, which depends on it
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
    params:
        # The specification, with `env`, `setup` and `program`, is in a file that SweepStart writes:
        # every user of the machine can read the words of a command.
        folder=subpath(output.record, parent=True),
        spec_sha256=checksum_of_specification,
    shell:
        r"""
        python3 "$SCRIPTS/train.py" \
            --spec {params.folder:q}/specification.json \
            --spec-sha256 {params.spec_sha256} \
            --dataset-file {input.dataset:q} \
            --record {output.record:q} \
            --stall-timeout-s {resources.stall_timeout_s} \
            --latency-wait-s {resources.latency_wait_s} \
            >{log:q} 2>&1
        """
