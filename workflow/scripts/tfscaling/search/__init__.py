"""A search that stops when the question is decided: which candidate is the best for a goal.

docs/search.md, "What it does", has the rules. `scaling_model` fits all runs by a Gaussian process
over nodes, and `interim.decide` returns what they show: each analysis judges all runs again, from
the first analysis on, so that a decision is a function of the runs, and a search resumes after any
interruption. `study_searches` applies it to the runs of a study. No theorem covers the whole;
benchmarks/race.py simulates it.
"""

#: Modules that other packages may import.
__all__ = ["interim", "study_searches"]
