#!/usr/bin/env python3
"""Print each use of a word that the project's texts avoid, with what to write instead.

Documentation, configuration, messages, docstrings and comments are searched, as lines of text.
A phrase is also found where a line break divides it. Exit with 1 after a hit.
"""

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SEARCHED = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "Snakefile", "docs/*.md"),
    *(
        "config",
        "studies",
        "examples/README.md",
        "profiles",
        "plugins",
        "workflow",
        "resources/own",
    ),
)
#: Data and pictures.
LEFT_OUT = re.compile(r"\.(png|svg|csv|json|html|npz)$")
#: Pattern → what to write instead. `_` is a space or a line break with its quotes or `#`.
#: Allowed: the CSS class "beside"; "so that of …"; "so long as".
INSTEAD = {
    r"made_(again|anew)": "rerun, regenerated",
    r"(go(es|ing)?|went)_on": "resume, continue, happen",
    r'(?<![."])beside': "next to, compared with",
    r"of_(its|their|the_user's|one's)_own|of_yours|of_the_user's": "custom, separate, your",
    r"anew": "again",
    r"stands?_for|stood_for": "simulates, represents, means",
    r"(takes?|took|taking)_(no_)?part": "is included, is excluded",
    r"(is|are|was|were)_there(?! (is|are|was|were)\b)": "exists",
    r"another_one": "a different one",
    r"dear(er|est)?": "expensive",
    r"of_(now|before)": "current, older",
    r"so_(many|long)(?! (as|that|the)\b)": "this many, n, for that long",
    r"told_apart": "distinguished, not significantly different",
    r"(?<=[\"*. \n])(Mind|Also):": "Warning:, Note:",
    r"genuine_MNIST": "MNIST",
    r"the_same_of": "repeat the noun",
    r"of_which": "whose, or a new sentence",
    r"those_of": "repeat the noun",
    r"stands?_(in|before|below|only|already|next)": "is, is listed, exists",
    r"says?_why": "give the reason",
    r"less_surely": "less certain",
    r"(?<!so )that_of": "repeat the noun",
}
#: Constructions that are searched in packages with rewritten texts only.
CONSTRUCTIONS = {
    r'(?:"""|#: )Of': "begin with the noun",
    r"as_(the_)?[\w']+_(has|have)_(it|them)": "as in, like",
    r"(is|are)_no_[\w-]+_that": "a positive sentence",
    r"likewise": "repeat the noun",
    r"the_same,_but": "what differs",
    r"those_(that|which|who)": "repeat the noun",
    r"tells?|told": "report, print, show",
}
#: Packages of the library with rewritten texts, but for single modules.
REWRITTEN = [
    *("cluster", "conclusions", "console", "datasets", "files", "launch", "page", "plan", "record"),
    *("search", "snakemake_adapter", "stages", "study", "tables", "train"),
]
NOT_YET: tuple[str, ...] = ()
_BREAK = r"(?:\s+|[\"']\s*\n\s*f?[\"']|\s*\n\s*(?:#:?|//|\*)\s*)"


def compile_all(replacements: dict[str, str]) -> dict[re.Pattern[str], str]:
    """Compile the patterns of a table, with what to write instead."""
    return {
        re.compile(r"(?<![\w-])(?:" + old.replace("_", _BREAK) + r")(?!\w)", re.IGNORECASE): new
        for old, new in replacements.items()
    }


def is_rewritten(name: str) -> bool:
    """Return whether a file of the library belongs to the packages with rewritten texts."""
    _, _, module = name.partition("workflow/scripts/tfscaling/")
    return module.split("/")[0] in REWRITTEN and module not in NOT_YET and name.endswith(".py")


def main() -> int:
    files = subprocess.check_output(["git", "ls-files", *SEARCHED], cwd=PROJECT, text=True)
    everywhere, constructions = compile_all(INSTEAD), compile_all(CONSTRUCTIONS)
    hits = 0
    for name in files.split():
        if LEFT_OUT.search(name) or (PROJECT / name).is_symlink():  # its target is searched
            continue
        text = (PROJECT / name).read_text(encoding="utf-8")
        patterns = everywhere | (constructions if is_rewritten(name) else {})
        for pattern, instead in patterns.items():
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                print(f'{name}:{line}: "{" ".join(found[0].split())}": {instead}')
                hits += 1
    print(f"{hits} words to replace: see tests/word_list.py" if hits else "no calques")
    return hits > 0


if __name__ == "__main__":
    sys.exit(main())
