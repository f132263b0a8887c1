"""The `perfmodel` program: finds the commands, runs one, and turns errors into messages and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

import perfmodel.cli
from perfmodel import __version__
from perfmodel.errors import InputFileError, PerfModelError, UnavailableError, UsageError

EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
_EXIT_CODES: dict[type[PerfModelError], int] = {UsageError: 2, InputFileError: 3, UnavailableError: 4}
#: options of the program itself that may stand anywhere on the command line
_ANYWHERE = ("--debug", "--no-color")


def build_app() -> typer.Typer:
    """Return the program with every command of this package: one module each, named after the command."""
    app = typer.Typer(
        name="perfmodel",
        help="The physical limit of a GPU operator, the time to expect, the time it takes, and what to optimise first.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_program)
    for found in pkgutil.iter_modules(perfmodel.cli.__path__):
        if found.name.startswith("_") or found.name == "app":
            continue
        module = importlib.import_module(f"perfmodel.cli.{found.name}")
        name = found.name.replace("_", "-")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name=name)(module.command)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"perfmodel {__version__}\n")
        raise typer.Exit(0)


def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours, as with NO_COLOR=1.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del version, no_color, debug  # declared for --help and the parser; `run` acts on them wherever they stand


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; messages go to stderr.

    0 done; 1 done, and the finding is bad; 2 wrong usage; 3 an input file is wrong; 4 a device or optional
    dependency is missing; 70 a fault of perfmodel itself; 130 interrupted.
    """
    arguments = _hoist(arguments)
    debug = "--debug" in arguments[:2]
    if "--no-color" in arguments[:2]:
        os.environ["NO_COLOR"] = "1"
    try:
        code = build_app()(args=arguments, prog_name="perfmodel", standalone_mode=False)
        sys.stdout.flush()
        if code == EXIT_INTERRUPTED:  # typer's own answer to Ctrl-C
            return _interrupted()
        return code if isinstance(code, int) else 0
    except typer.Exit as finished:
        return _interrupted() if finished.exit_code == EXIT_INTERRUPTED else finished.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except (BrokenPipeError, SystemExit):
        # The reader has what it wanted (`| head`); typer turns that into SystemExit while it prints help.
        _abandon_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 -- no traceback reaches a user who did not ask for one
        if debug:
            traceback.print_exception(error)
        return _explain(error, arguments)


def _interrupted() -> int:
    _complain("interrupted.")
    return EXIT_INTERRUPTED


def _explain(error: Exception, arguments: Sequence[str]) -> int:
    """Print the one message for an error and return the exit code: no traceback reaches a user."""
    if isinstance(error, typer.TyperException):
        # Without a message typer has printed the help instead.
        if error.format_message():
            said = " ".join(error.format_message().replace("Value error, ", "").split())
            unknown = said.startswith("No such command")
            command = "" if unknown else next((f" {word}" for word in arguments if not word.startswith("-")), "")
            _complain(f"{said} See: perfmodel{command} --help")
        return 2
    if isinstance(error, PerfModelError):
        _complain(str(error))
        return next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 2)
    if isinstance(error, OSError):
        _abandon_stdout()
        _complain(f"the system refuses: {error.strerror or error}.")
        return 2
    _complain(f"fault in perfmodel: {type(error).__name__}: {error}. Run again with --debug and report it.")
    return EXIT_INTERNAL


def _abandon_stdout() -> None:
    """Point stdout away from what cannot be written: the interpreter flushes it once more at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _hoist(arguments: Sequence[str]) -> list[str]:
    """Move the options that may stand anywhere to the front, where the program's own options stand."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    before, after = list(arguments[:end]), list(arguments[end:])
    front = [option for option in _ANYWHERE if option in before]
    return [*front, *(word for word in before if word not in _ANYWHERE), *after]


def _complain(message: str) -> None:
    sys.stderr.write(f"perfmodel: {message.strip()}\n")


def main() -> None:
    """Run the command line of this process."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller (`>&-`)
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 -- as long as the process
        else:
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would show a traceback of what runs at exit
    sys.exit(code)
