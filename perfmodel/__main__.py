"""The entry of the program, also as ``python -m perfmodel``: light, so that Ctrl-C during start-up is caught too."""

from __future__ import annotations

import gc
import sys

#: new objects after which Python looks for garbage: imports make up to a hundred thousand that stay, and to search
#: these takes up to a tenth of the time of a short command
_COLLECT_AFTER = 150_000


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(_COLLECT_AFTER)
    try:
        from perfmodel.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
