"""The library of the scripts: from a configuration to runs, records, tables and conclusions.

Packages with one-way arrows; the docstring of each says what belongs in it, its `__all__` which of
its modules others may import, and `tests/unit/test_packages.py` which packages it may import.
"""

import atexit
import gc

#: Raised when a change of the trainer makes earlier measurements incomparable: its runs rerun.
TRAINER_VERSION = 8
#: Version of the measurement of programs, which a change of the trainer does not affect.
PROGRAM_VERSION = 4

# msgspec 0.21 and 0.22 may free the description of a type twice when Python ends (msgspec#717):
# what is frozen is not freed
atexit.register(gc.freeze)
