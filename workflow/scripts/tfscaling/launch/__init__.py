"""What a job does around its ranks: start them, watch them, end them, and explain failures.

Launchers, attempts, the connection between ranks and launcher, heartbeats, checkpoint folders, and
facts about the job from Slurm and the hosts. The programs `train.py` and `rank.py` use it.
"""

#: Modules that other packages may import.
__all__ = [
    "attempt",
    "checkpoint_folder",
    "containers",
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
