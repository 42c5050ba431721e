"""A search that stops when the question is decided: which candidate is the best for a goal.

All candidates run once; those that may be better than the best one run again, until one is shown
to be within an indifference of the best, or the runs are used up:

- `scaling_model` fits all runs by a Gaussian process over nodes, which learns lines, and what a
  configuration deviates from its line.
- `interim` sums the chances that another candidate is better than the best by more than the
  indifference. It is decided when they add up to RISK_MAX, which is less than the error as the runs
  are analysed repeatedly.
- Few runs are not believed (EARLY_RATIOS): they may all be of a slow mode, and cannot show that a
  candidate scatters more than its rivals.
- A candidate with a run that missed its target or a limit is out. With a target or limits, a
  candidate is named from KEPT_RUNS on.
- Values of short runs are projected, with an error that a candidate's runs have in common. The best
  is named after a complete run. Complete runs that are not as projected make the error larger.
- If lines are taken to be smooth, candidates between the ends of a line may never run. Runs far
  from what the others predict end that: all candidates run.

Nothing is final before the end: each analysis judges all runs again. A decision is a function of
the runs: the analyses are repeated from the first, so a search resumes after any interruption.

No theorem covers the whole; benchmarks/race.py simulates it.

`interim.decide` says what the runs show, `study_searches` applies it to the runs of a study.
"""

#: Modules that other packages may import.
__all__ = ["interim", "study_searches"]
