"""Searches: find the best configuration with fewer runs than the full grid.

docs/search.md, "What it does", has the rules. `scaling_model` fits all runs by a Gaussian process
over nodes, and `interim.decide` returns what they show. Each decision repeats all interim analyses
from the first one: so it is a function of the runs, and a search resumes after any interruption.
`study_searches` applies it to the runs of a study. No theorem covers all of it; benchmarks/race.py
simulates it.
"""

#: Modules that other packages may import.
__all__ = ["interim", "study_searches"]
