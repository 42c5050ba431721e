"""What Snakemake prints while a sweep runs: its jobs in words, and the handler of its log.

What is read here is only shown: nothing that is measured, planned or tabulated depends on it.
"""

#: Modules that other packages may import.
__all__ = ["console_setup", "sweep_outcome", "text_lines"]
