"""The stages of a study: each module reads files of its folder and writes others there."""

__all__ = ["study_folder"]
