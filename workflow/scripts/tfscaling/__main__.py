"""`python -m tfscaling STAGE... --study DIR`, or `python FOLDER/tfscaling` with the same words."""

import sys
from pathlib import Path

if not __package__:  # run as a folder: Python has put that folder itself on the path
    sys.path[0] = str(Path(__file__).parent.parent)

from tfscaling import cli

cli.main()
