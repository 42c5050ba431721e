"""What is printed while a sweep runs and at its end.

It is only shown: no measurement, plan or table depends on it.
"""

#: Modules that other packages may import.
__all__ = ["dry_run", "sweep_outcome", "sweep_progress", "text_lines"]
