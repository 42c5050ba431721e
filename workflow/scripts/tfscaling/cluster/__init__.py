"""From the environment of a process to its cluster.

Node lists, the layout of tasks on nodes, the GPUs of a task, `TF_CONFIG`, and a resolver with
TensorFlow's interface. Products of their own: `tensorflow_resolver` for any TensorFlow training,
`tf_config_from_slurm` as a command. Nothing here knows of runs, records or this workflow.
"""

#: Modules that other packages may import.
__all__ = [
    "gpu_allocation",
    "nodelist",
    "nvidia_smi",
    "resolver",
    "slurm_environment",
    "task_layout",
    "tensorflow_resolver",
    "tf_config_from_slurm",
]
