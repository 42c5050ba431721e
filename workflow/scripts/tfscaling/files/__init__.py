"""Files that are whole or not there, errors of files, JSON as the standard has it, the
checksum of code, descriptions of fields in the source.

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
