"""Where the public measurements lie that scripts read: ``$PERFMODEL_DATA``, by default ``../shared/data``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"


def path_of(*names: str) -> Path:
    """Return the path of a file or folder of the data; it need not exist."""
    return Path(os.environ.get("PERFMODEL_DATA", _DEFAULT)).joinpath(*names)


def missing(path: Path) -> int:
    """Say on stderr that a file or folder is not there, and return the exit code for it."""
    sys.stderr.write(f"{path}: no such file or folder. Set PERFMODEL_DATA.\n")
    return 3
