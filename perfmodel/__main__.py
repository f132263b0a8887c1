"""The entry of the program, also as ``python -m perfmodel``: light, so that Ctrl-C during start-up is caught too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process."""
    try:
        from perfmodel.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
