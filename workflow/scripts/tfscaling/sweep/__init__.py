"""What to run next: the plan with its cost, the budget, extra repeats, what is made again."""

#: Modules that other packages may import.
__all__ = [
    "costed_plan",
    "extra_repeats",
    "gpu_libraries",
    "lasting_failures",
    "preflight",
    "queue_watch",
    "reruns",
    "submission",
]
