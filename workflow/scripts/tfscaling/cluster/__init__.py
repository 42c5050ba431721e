"""The cluster that a process belongs to, as its environment and Slurm describe it.

Node lists, the layout of tasks on nodes, the GPUs of a task, `TF_CONFIG`, calls of Slurm's
programs, and a server by which MPI's ranks on one machine find each other. No module here knows
runs, records or this workflow; `resolver` works for any TensorFlow training.
"""

#: Modules that other packages may import.
__all__ = [
    "gpu_allocation",
    "gpu_drivers",
    "nodelist",
    "process_management",
    "resolver",
    "slurm_client",
    "slurm_environment",
]
