"""``python -m perfmodel``: the same as the ``perfmodel`` program."""

from perfmodel.cli.app import main

if __name__ == "__main__":
    main()
