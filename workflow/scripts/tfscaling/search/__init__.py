"""A search that stops when the question is decided: which candidate is the best for a goal.

All candidates are run a few times, those that cannot be the best leave, the others are run
again, until one is shown to be within an indifference of the best or the runs are used up:

- A look follows when each survivor has LOOKS runs. Runs are made in blocks, one of each
  survivor in random order, so that a drift affects all survivors equally.
- Locations are those of `tables.estimates`, means of logarithms without the effects of blocks,
  with moderated variances. Isolated slow runs are clipped, a second mode is not.
- The error is shared by the looks (SHARES) and by the rivals (Bonferroni). The best leaves, or the
  bound is wrong, only if the best itself looks worse than it is against some rival at some look.
- A gap seen in two to four runs is believed only from EARLY_GAPS on: so few runs may all be of a
  slow mode, and cannot show that a candidate scatters more than its rivals.
- A candidate with a run that missed its target or limit leaves. Those that left behind it run
  again. Where runs may miss one, a candidate is named from KEPT_RUNS on.

A candidate that left is *not the best*. That it is worse than another by some amount is a claim
of its own, made from CLAIM_RUNS runs on, and all claims hold together.

A decision is a function of the runs alone: they are looked at again from the start, so a search
goes on after any interruption, and another indifference needs no other runs.

No theorem covers the whole; benchmarks/race.py simulates it.

`looks.decide` says what the runs show, `study_searches` makes it of the runs of a study.
"""

#: Modules that other packages may import.
__all__ = ["expected_runs", "study_searches", "terms"]
