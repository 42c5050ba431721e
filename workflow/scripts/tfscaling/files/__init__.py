"""Helpers for files that know nothing of their content's meaning.

Files that are complete or absent, strict JSON, texts from outside, checksums of Python code,
descriptions of fields, and errors of input files.
"""

#: Modules that other packages may import.
__all__ = [
    "atomic",
    "descriptions",
    "log_files",
    "outside_text",
    "program_errors",
    "python_code",
    "strict_json",
]
