"""Further options of sbatch (`extra` of a platform): which of them the workflow sets itself.

The Slurm executor plugin puts the text into a shell line behind its own options, so
a duplicate option would override what the run's record says was requested.
"""

from __future__ import annotations

import shlex

_GRID = "use the grid's"
_KEY = "use the platform's key"
_PLUGIN = "the executor plugin sets it"
_GPUS = f"{_GRID} gpus_per_node and the platform's gpu_gres"
#: Long option → (short option, what to use instead). What begins like one is one: sbatch takes
#: shortened options.
MANAGED: dict[str, tuple[str, str]] = {
    "nodes": ("N", f"{_GRID} nodes"),
    "ntasks": ("n", f"{_GRID} nodes and tasks_per_node"),
    "ntasks-per-node": ("", f"{_GRID} tasks_per_node"),
    "ntasks-per-gpu": ("", f"{_GRID} tasks_per_node and gpus_per_node"),
    "cpus-per-task": ("c", f"{_KEY} cpus_per_node"),
    "cpus-per-gpu": ("", f"{_KEY} cpus_per_node"),
    "gres": ("", _GPUS),
    "gpus": ("G", _GPUS),
    "gpus-per-node": ("", _GPUS),
    "gpus-per-socket": ("", _GPUS),
    "gpus-per-task": ("", _GPUS),
    "tres-per-task": ("", _GPUS),
    "mem": ("", f"{_KEY} mem_mb"),
    "mem-per-cpu": ("", f"{_KEY} mem_mb"),
    "mem-per-gpu": ("", f"{_KEY} mem_mb"),
    "time": ("t", f"{_KEY} runtime_min"),
    "partition": ("p", f"{_KEY} partition"),
    "account": ("A", f"{_KEY} account"),
    "qos": ("q", f"{_KEY} qos"),
    "constraint": ("C", f"{_KEY} constraint"),
    "reservation": ("", f"{_KEY} reservation"),
    "clusters": ("M", f"{_KEY}s cluster and multi_cluster"),
    "wrap": ("", _PLUGIN),
    "job-name": ("J", _PLUGIN),
    "output": ("o", _PLUGIN),
    "error": ("e", _PLUGIN),
    "input": ("i", _PLUGIN),
    "export": ("", f"{_PLUGIN}; use the platform's key env"),
    "export-file": ("", f"{_PLUGIN}; use the platform's key env"),
    "comment": ("", _PLUGIN),
    "parsable": ("", _PLUGIN),
    "chdir": ("D", _PLUGIN),
    "array": ("a", "each run is a job of its own"),
    "wait": ("W", "the executor plugin waits for the job"),
    "test-only": ("", "nothing would be submitted"),
    "help": ("h", "nothing would be submitted"),
    "usage": ("", "nothing would be submitted"),
    "version": ("V", "nothing would be submitted"),
}
_SHORT = {short: name for name, (short, _) in MANAGED.items() if short}
#: Short options of sbatch without a value: others may follow in the same word.
_SHORT_FLAGS = frozenset("HIkKOQsuvXhVW")
#: What ends a command of the shell.
_SHELL = frozenset(";&|<>()")


def problem(extra: str) -> str | None:
    """What is wrong with the text as further options of sbatch, or None."""
    lexer = shlex.shlex(extra, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        return f"allowed: options as in a shell line; {str(error).lower()}"
    for word in words:
        if set(word) <= _SHELL or word.startswith("#") or "`" in word or "$(" in extra:
            return f"allowed: options of sbatch; the shell would interpret {word}"
        if (name := _managed(word)) is not None:
            return f"allowed: options that the workflow does not set; {word}: {MANAGED[name][1]}"
    if not words[0].startswith("-"):
        return f"allowed: options of sbatch, such as --nice=5; {words[0]} is no option"
    return None


def _managed(word: str) -> str | None:
    """The option of MANAGED that this word of a command line is, or None."""
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        if name in MANAGED:
            return name
        return next((option for option in MANAGED if name and option.startswith(name)), None)
    if not word.startswith("-"):
        return None
    for letter in word[1:]:
        if letter in _SHORT:
            return _SHORT[letter]
        if letter not in _SHORT_FLAGS:
            return None  # what follows is its value
    return None
