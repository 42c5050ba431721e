"""A search that stops when the question is decided: which candidate is the best for a goal.

All candidates run a few times, those that cannot be the best are eliminated, the others run again,
until one is shown to be within an indifference of the best or the runs are used up:

- An interim analysis follows when each survivor has LOOKS runs. Runs are made in blocks, one of
  each survivor in random order, so that a drift affects all survivors equally.
- Locations come from `tables.estimates`: means of logarithms without the effects of blocks, with
  moderated variances. Isolated slow runs are clipped, a second mode is not.
- The analyses share the error (SHARES), and so do the rivals (Bonferroni). The best is eliminated,
  or the bound is wrong, only if the best looks worse than it is against a rival at an analysis.
- A gap in two to four runs counts only from EARLY_GAPS on: so few runs may all be of a slow mode,
  and cannot show that a candidate scatters more than its rivals.
- A candidate with a run that missed its target or a limit is eliminated. Candidates eliminated
  behind it run again. With a target or limits, a candidate is named from KEPT_RUNS on.

An eliminated candidate is *not the best*. That it is worse than another by some amount is a
separate claim, from CLAIM_RUNS runs on; all claims hold together.

A decision is a function of the runs alone: every interim analysis is repeated from the start, so a
search resumes after any interruption, and another indifference needs no other runs.

No theorem covers the whole; benchmarks/race.py simulates it.

`interim.decide` says what the runs show, `study_searches` applies it to the runs of a study.
"""

#: Modules that other packages may import.
__all__ = ["interim", "study_searches"]
