"""Train: one job per run. The job starts the trainer on all its nodes and leaves a run record.

INPUTS   results/datasets/{dataset}.npz
OUTPUTS  results/runs/platform={platform}/.../repeat={repeat}/
             run.json      the run record, written only if the run passed every check
             steps.csv     raw step times of every rank
             events.jsonl  time-stamped phases of every rank
         and besides, attempt=<n>/ with the ranks' logs, failure.json after a failure
"""

RUN_DIR = "/".join(["results/runs", *(f"{axis}={{{axis}}}" for axis in grid.AXES)])


rule train:
    message:
        "train {wildcards.model} by {wildcards.strategy} on {wildcards.platform}: "
        "nodes={wildcards.nodes} gpus_per_node={wildcards.gpus_per_node} "
        "tasks_per_node={wildcards.tasks_per_node} recipe={wildcards.recipe} "
        "repeat={wildcards.repeat}"
    input:
        # the record carries the dataset's name and recipe; fetching it again must not cost runs
        dataset=ancient(prepared_dataset),
    output:
        record=f"{RUN_DIR}/run.json",
        steps=f"{RUN_DIR}/steps.csv",
        events=f"{RUN_DIR}/events.jsonl",
    log:
        f"{RUN_DIR}/launch.log",
    conda:
        "../envs/environment.yaml"
    params:
        arguments=run_arguments,
    resources:
        nodes=resource("nodes"),
        tasks=resource("tasks"),
        tasks_per_gpu=resource("tasks_per_gpu"),
        cpus_per_task=resource("cpus_per_task"),
        mpi=resource("mpi"),
        gres=resource("gres"),
        mem_mb=resource("mem_mb"),
        runtime=resource("runtime"),
        slurm_partition=resource("slurm_partition"),
        slurm_account=resource("slurm_account"),
        slurm_extra=resource("slurm_extra"),
        clusters=resource("clusters"),
        local_runs=resource("local_runs"),
        stall_timeout_s=resource("stall_timeout_s"),
    shell:
        "launch.py"
        " --dataset-file {input.dataset}"
        " --record {output.record}"
        " --stall-timeout-s {resources.stall_timeout_s}"
        " {params.arguments}"
        " >{log} 2>&1"
