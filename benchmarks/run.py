"""Run every benchmark of this folder, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Return the number of benchmarks that missed what they claim."""
    missed = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name != "run.py":
            print(f"== {path.stem}", flush=True)
            missed += subprocess.run([sys.executable, str(path)], check=False).returncode != 0
    return missed


if __name__ == "__main__":
    sys.exit(main())
