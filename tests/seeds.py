"""The seed of what tests draw at random."""

from __future__ import annotations

import os
import random


def drawn_seed() -> int:
    """A new seed for each module or test; TEST_SEED repeats one that a failed test has printed."""
    return int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(2**32))
