"""Files that are whole or not there, and JSON as the standard has it.

Nothing here knows what the files are about.
"""

#: Modules that other packages may import.
__all__ = [
    "atomic",
    "strict_json",
]
