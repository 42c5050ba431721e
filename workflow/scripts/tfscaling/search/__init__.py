"""A search that stops when the question is decided: which candidate is the best for a goal.

docs/search.md, "What it does", has the rules. A `ScalingSearch` has two methods: `propose` returns
the runs that a state needs next (module `proposals`), `observe` the state after these runs (module
`interim`, with the Gaussian process over nodes of `scaling_model`). A state is a value. `decide`
repeats both from the first round on, so that a decision is a function of the runs, and a search
resumes after any interruption. With a number of trainings it ends, too, when further runs are not
worth their price (module `further_runs`). `study_searches` applies it to the runs of a study. No
theorem covers the whole; benchmarks/race.py and benchmarks/all_trainings.py simulate it.
"""

#: Modules that other packages may import.
__all__ = ["search_costs", "search_state", "search_types", "study_searches"]
