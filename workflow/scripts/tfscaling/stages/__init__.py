"""The stages of a study, one per rule: each reads files of the study's folder and writes others.

`cli` runs them. `study_results` reads what they wrote, for other programs.
"""

__all__ = ["study_folder", "study_results"]
