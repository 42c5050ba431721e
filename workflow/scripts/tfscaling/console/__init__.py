"""The lines that are printed in a dry-run, while a sweep runs, and at its end.

They are only shown: no measurement, plan or table depends on them.
"""

#: Modules that other packages may import.
__all__ = ["dry_run", "sweep_outcome", "sweep_progress", "text_lines"]
