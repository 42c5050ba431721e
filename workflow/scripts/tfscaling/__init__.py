"""The library behind the workflow's rules: from configuration to runs, tables and conclusions.

Imports between its packages go one way. The docstring of a package says what belongs in it, its
`__all__` lists the modules that other packages may import, and `tests/unit/test_packages.py` has
the packages that it may import itself.
"""

import atexit
import gc

#: Version of the built-in trainer. It increases when a change makes earlier measurements
#: incomparable; runs of older versions are then rerun.
TRAINER_VERSION = 8
#: Version of the measurement of user programs, which does not change with the trainer.
PROGRAM_VERSION = 4

# msgspec 0.21 and 0.22 may free the description of a type twice when Python ends (msgspec#717):
# what is frozen is not freed
atexit.register(gc.freeze)
