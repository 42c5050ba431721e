"""What to run next: plan with cost, budget, extra repeats, what is made again, merges."""

#: Modules that other packages may import.
__all__ = [
    "costed_plan",
    "extra_repeats",
    "gpu_libraries",
    "lasting_failures",
    "merging",
    "preflight",
    "queue_watch",
    "reruns",
    "submission",
]
