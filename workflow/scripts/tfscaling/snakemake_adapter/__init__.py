"""Snakemake as the workflow uses it: its options, its jobs, and how they are submitted.

The rules use it. No other module of the library uses Snakemake and its Slurm plugin beyond their
documented interfaces; tests/unit/test_private_uses.py lists what is used here.
"""

#: Modules that other packages may import.
__all__ = ["invocation", "submission", "sweep_jobs"]
