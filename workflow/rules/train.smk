"""Train: one job per run. The job starts the trainer on all its nodes and leaves a run record.

INPUTS   results/datasets/{dataset}.npz; none for a program that has its own data
OUTPUTS  results/runs/platform={platform}/.../repeat={repeat}/
             run.json      the run record, written last and only if the run passed every check
         and in the same folder, not declared because grids have thousands of runs and the files of
         a failed attempt must stay: steps.csv (raw step times of every rank), events.jsonl (phases
         of every rank with their times), attempt=<n>/ (the ranks' logs, and as record.json the record
         that this attempt has made), failure.json (a failure's cause), earlier.run.json (the record
         that the run replaces, until run.json is there again)
"""


rule train:
    """Train one run on all nodes of its job."""
    input:
        # the record carries the dataset's name and recipe; fetching it again must not cost runs
        dataset=prepared_dataset,
        stale=force_if_stale if CONFIG.rerun == "stale" else [],  # no file
    output:
        record=f"results/runs/{RUN}/run.json",
    log:
        f"results/runs/{RUN}/launch.log",
    priority: run_priority
    conda:
        "../envs/environment.yaml"
    resources:
        **RESOURCES,
        training_runs=1,  # profiles/local allows one at a time: two would share this machine's cores
    params:
        # on standard input, not among the words of the command
        spec=specification_of_run,
    message:
        "train {wildcards.model} by {wildcards.strategy} on {wildcards.platform}: "
        "nodes={wildcards.nodes} gpus_per_node={wildcards.gpus_per_node} "
        "tasks_per_node={wildcards.tasks_per_node} recipe={wildcards.recipe} "
        "repeat={wildcards.repeat}"
    shell:
        r"""
        python3 "$SCRIPTS/train.py" \
            --spec /dev/stdin \
            --dataset-file {input.dataset:q} \
            --record {output.record:q} \
            --stall-timeout-s {resources.stall_timeout_s} \
            --latency-wait-s {resources.latency_wait_s} \
            <<<{params.spec:q} >{log:q} 2>&1
        """
