"""Files that are whole or not there, JSON as the standard has it, the source files of a script.

Nothing here knows what the files are about.
"""

#: Modules that other packages may import.
__all__ = [
    "atomic",
    "source_files",
    "strict_json",
]
