"""Files that are complete or absent, strict JSON, checksums of code, descriptions of fields.

Nothing here knows what the files are about.
"""

#: Modules that other packages may import.
__all__ = [
    "atomic",
    "descriptions",
    "program_errors",
    "python_code",
    "strict_json",
]
