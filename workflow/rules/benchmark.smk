"""The all-reduce benchmark: all-reduces timed alone, one job per point, if it is enabled.

INPUTS   none: the model's shapes, the strategy and the cluster are those of the point's runs
OUTPUTS  results/all_reduce/platform={platform}/.../tasks_per_node={tasks_per_node}/
             all_reduce.json   the slowest rank's times, written last and only if all checks passed
         and beside it, not declared as with the runs: all_reduce.csv (the times of every rank),
         attempt=<n>/ (the ranks' logs), failure.json (a failure's cause)
"""

BENCHMARK_DIR = (
    "results/all_reduce/platform={platform}/model={model}/strategy={strategy}/recipe={recipe}/"
    "nodes={nodes}/gpus_per_node={gpus_per_node}/tasks_per_node={tasks_per_node}"
)


rule benchmark_all_reduce:
    output:
        record=f"{BENCHMARK_DIR}/all_reduce.json",
    log:
        f"{BENCHMARK_DIR}/launch.log",
    conda:
        "../envs/environment.yaml"
    resources:
        **RESOURCES,  # those of the point's runs
        training_runs=1,  # nothing else on this machine's cores meanwhile
    params:
        arguments=benchmark_arguments,
    message:
        "time all-reduces of {wildcards.model} by {wildcards.strategy} on {wildcards.platform}: "
        "nodes={wildcards.nodes} gpus_per_node={wildcards.gpus_per_node} "
        "tasks_per_node={wildcards.tasks_per_node} recipe={wildcards.recipe}"
    shell:
        "benchmark_all_reduce.py"
        " --record {output.record}"
        " --stall-timeout-s {resources.stall_timeout_s}"
        " --latency-wait-s {resources.latency_wait_s}"
        " {params.arguments}"
        " >{log} 2>&1"
