"""The all-reduce benchmark: all-reduces timed alone, one job per point, if it is enabled.

INPUTS   none: the model's shapes, the strategy and the cluster are those of the point's runs
OUTPUTS  results/all_reduce/platform={platform}/.../tasks_per_node={tasks_per_node}/
             all_reduce.json   the slowest rank's times, written last and only if all checks passed
         and in the same folder, not declared as with the runs: all_reduce.csv (the times of every rank),
         attempt=<n>/ (the ranks' logs), failure.json (a failure's cause)
"""


rule benchmark_all_reduce:
    """Time the all-reduces of one point on all nodes of its job."""
    input:
        force_if_stale_benchmark,  # no file
    output:
        record=f"results/all_reduce/{POINT}/all_reduce.json",
    log:
        f"results/all_reduce/{POINT}/launch.log",
    conda:
        "../envs/environment.yaml"
    resources:
        **RESOURCES,
        training_runs=1,  # nothing else on this machine's cores meanwhile
    params:
        spec=specification_of_benchmark,
    message:
        "time all-reduces of {wildcards.model} by {wildcards.strategy} on {wildcards.platform}: "
        "nodes={wildcards.nodes} gpus_per_node={wildcards.gpus_per_node} "
        "tasks_per_node={wildcards.tasks_per_node} recipe={wildcards.recipe}"
    shell:
        r"""
        python3 "$SCRIPTS/benchmark_all_reduce.py" \
            --spec /dev/stdin \
            --record {output.record:q} \
            --stall-timeout-s {resources.stall_timeout_s} \
            --latency-wait-s {resources.latency_wait_s} \
            <<<{params.spec:q} >{log:q} 2>&1
        """
