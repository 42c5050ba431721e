"""What a job does around its ranks: start, watch, end and explain them.

Launchers, attempts, heartbeats, failures, ports, and what Slurm and the hosts say of the job.
"""

#: Modules that other packages may import.
__all__ = [
    "attempt",
    "checkpoint_folder",
    "failures",
    "forked_ranks",
    "launchers",
    "provenance",
    "rank_files",
    "rank_process",
    "signs",
    "slurm_job",
    "user_program",
]
