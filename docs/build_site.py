#!/usr/bin/env python3
"""Build the documentation as a site in .site/html; any warning, as a dead link, is an error.

INPUTS   the Markdown files of the repository and what they link to; mkdocs.yml; .site/examples
OUTPUTS  .site/source, those files in their folders; .site/html, the site
"""

import os
import re
import shutil
import subprocess
import sys

import documents

SOURCE = documents.REPOSITORY / ".site/source"
#: Complete pages of results, from docs/screenshots/make.py.
EXAMPLES = documents.REPOSITORY / ".site/examples"


#: A quotation that GitHub shows as an alert.
_ALERT = re.compile(r"^> \[!(\w+)\]\n((?:>.*\n?)+)", re.MULTILINE)


def with_admonitions(text: str) -> str:
    """Return the page with GitHub's alerts as admonitions of Material."""
    return _ALERT.sub(
        lambda found: f"!!! {found[1].lower()}\n\n" + re.sub("^> ?", "    ", found[2], flags=re.M),
        text,
    )


def main() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    pages = documents.pages()
    linked = {file for page in pages for file in documents.local_files(page).values()}
    for file in {*pages, *(file for file in linked if file.is_file())}:
        target = SOURCE / file.relative_to(documents.REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    for page in pages:
        target = SOURCE / page.relative_to(documents.REPOSITORY)
        target.write_text(with_admonitions(page.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(EXAMPLES, SOURCE / "examples", dirs_exist_ok=True)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=documents.REPOSITORY, env=environ, check=False)
    if done.returncode == 0:
        print(documents.REPOSITORY / ".site/html/index.html")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
