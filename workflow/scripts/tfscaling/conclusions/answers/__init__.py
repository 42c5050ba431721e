"""The answer to each question: every configuration with its state, and the one to take.

`answer.answer` returns an `answer_types.Answer` for each question. `candidates` gives each
configuration its state, `choosing` (or `search_answers`, where a search decided) the one to take,
`settling` the runs that may settle what is open.
"""
