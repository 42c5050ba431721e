"""The stages of a study, one per rule: each reads files of the study's folder and writes others.

`cli` runs them.
"""

__all__ = ["study_folder"]
