"""The answer to each question: every configuration with its state, and the recommended one.

`answer.answer_questions` returns an `answer_types.Answer` for each question. `candidates` gives
each configuration its state, `choosing` (or `search_answers` after a search) the recommended one,
`settling` the number of runs that may settle what is open.
"""
