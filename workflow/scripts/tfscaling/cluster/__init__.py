"""From the environment of a process to its cluster.

Slurm's programs, node lists, the layout of tasks on nodes, the GPUs of a task, `TF_CONFIG`, and how
MPI's ranks on one machine find each other. Nothing here knows of runs, records or this workflow:
`resolver` alone serves any TensorFlow training.
"""

#: Modules that other packages may import.
__all__ = [
    "gpu_allocation",
    "nodelist",
    "process_management",
    "resolver",
    "slurm_client",
    "slurm_environment",
]
