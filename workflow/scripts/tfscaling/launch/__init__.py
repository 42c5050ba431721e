"""What a job does around its ranks: start, watch, end and explain them.

Launchers, attempts, heartbeats, failures, ports, and facts about the job from Slurm and the hosts.
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
    "rank_messages",
    "rank_process",
    "slurm_job",
    "user_program",
]
