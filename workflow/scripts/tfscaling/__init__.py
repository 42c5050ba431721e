"""The library beside the scripts: from a configuration to runs, records, tables and conclusions.

Packages with one-way arrows; the docstring of each says what belongs in it, its `__all__` which of
its modules others may import, and `tests/unit/test_packages.py` which packages it may import.
"""

#: Raised when a change of the trainer makes earlier measurements incomparable: its runs rerun.
TRAINER_VERSION = 7
#: The same of users' programs, on which a change of the trainer has no influence.
PROGRAM_VERSION = 4
#: Raised when a change of the benchmark makes earlier ones incomparable: every one is made again.
BENCHMARK_VERSION = 1
