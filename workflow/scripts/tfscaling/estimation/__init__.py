"""Statistics of runs: intervals, estimates of configurations, and how many runs decide.

Nothing here reads a table or writes a sentence: `tables` and `conclusions` do. `samples.Samples`
has the values of all runs, `samples.Difference` how much worse one configuration is than another.
"""

#: Modules that other packages may import.
__all__ = ["campaigns", "estimates", "finish_times", "intervals", "run_counts", "samples"]
