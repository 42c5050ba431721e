"""The seed of what tests draw at random."""

from __future__ import annotations

import os
import random


def drawn_seed() -> int:
    """Return a new seed for a module or a test; the variable TEST_SEED sets it."""
    return int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(2**32))
