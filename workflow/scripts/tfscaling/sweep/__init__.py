"""What to run next: plan with cost, budget, extra repeats, what is made again, merges."""

#: Modules that other packages may import.
__all__ = [
    "costed_plan",
    "drivers",
    "extra_repeats",
    "gpu_libraries",
    "merging",
    "partial_tables",
    "preflight",
    "reruns",
    "submission",
    "sweep_jobs",
    "sweep_start",
]
