"""The `perfmodel` program: finds the commands, runs one, and turns errors into messages and exit codes.

A command is a module of this package, or of the entry-point group ``perfmodel.commands``, with a function ``command``
or, for a group of commands, a typer program ``app``. The name of the module is the name of the command.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import gc
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Annotated

import typer

from perfmodel import __version__
from perfmodel.cli._output import INTERRUPTED, abandon_stdout, remember_words
from perfmodel.cli._renamed import with_new_names, with_scheduler
from perfmodel.cli._stdin import told, with_stdin
from perfmodel.cli._unfit import unfit_value
from perfmodel.errors import InputFileError, PerfModelError, UnavailableError, UsageError
from perfmodel.plugins import load_module, module_names, warn_of_plugin

EXIT_INTERNAL = 70
#: exit code of a run that SIGTERM ended, by the convention of shells; what was done is reported as on Ctrl-C
TERMINATED = 128 + signal.SIGTERM
_EXIT_CODES: dict[type[PerfModelError], int] = {UsageError: 2, InputFileError: 3, UnavailableError: 4}
#: modules of this package that hold no command
_NO_COMMANDS = ("app", "extension")
#: options that print help
_HELP = ("-h", "--help")
#: how the parser begins to say that a command has no such option
_NO_OPTION = "No such option: "
_NO_COMMAND = re.compile(r"No such command '([^']+)'")
#: name of `_escape` among the ways of Python to treat what a stream cannot encode
_ESCAPED = "perfmodel_escape"
#: options of the program itself, allowed anywhere on the command line
_ANYWHERE = ("--debug", "--no-color")


def command_modules() -> Mapping[str, str]:
    """Return name -> module of every command, without importing them."""
    return module_names("perfmodel.cli", "commands", _NO_COMMANDS)


def build_app(only: str = "", *, helps: bool = False, boxes: bool = True) -> typer.Typer:
    """Return the program with all commands, or with one, so that the others are not imported.

    With ``helps`` the help of a command ends with what its module's function ``epilog`` returns. ``boxes`` are drawn
    round the options.
    """
    app = _new_app(boxes=boxes)
    app.callback()(_program)
    modules = command_modules()
    for name in [only] if only else sorted(modules):
        module = load_module(name, modules)
        own = modules[name].startswith("perfmodel.")
        fault = "" if own or module is None else _fault_of(name, module)
        if fault:
            warn_of_plugin(name, modules[name], fault)
        elif module is not None:
            _add(app, name, module, helps=helps)
    if sys.flags.optimize < 2:
        return app
    from perfmodel.cli._help import with_purposes

    return with_purposes(app)


def _new_app(*, boxes: bool = True) -> typer.Typer:
    return typer.Typer(
        name="perfmodel",
        help="The physical bound of a GPU operator, its predicted and its measured time, and what to optimise first.",
        no_args_is_help=True,
        rich_markup_mode="markdown" if boxes else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(_HELP)},
    )


def _add(app: typer.Typer, name: str, module: ModuleType, *, helps: bool = False) -> None:
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name.replace("_", "-"))
    else:
        epilog = module.epilog() if helps and hasattr(module, "epilog") else None
        app.command(name=name.replace("_", "-"), epilog=epilog)(module.command)


def _fault_of(name: str, module: ModuleType) -> str:
    """Return why a plugin's module cannot be a command, or "" if it can."""
    if not hasattr(module, "app") and not hasattr(module, "command"):
        return "it has neither a function command nor a typer program app"
    trial = _new_app()
    try:
        _add(trial, name, module)
        typer.main.get_command(trial)
    except Exception as error:  # noqa: BLE001 -- perfmodel works without a broken plugin
        return f"{type(error).__name__}: {error}"
    return ""


def _show_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"perfmodel {__version__}\n")
        raise typer.Exit(0)


def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Print without colours, as with NO_COLOR=1.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del version, no_color, debug  # declared for --help and the parser; `run` handles them anywhere on the line


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; messages go to stderr.

    0 done; 1 done, with a negative result; 2 wrong usage; 3 a wrong input file; 4 a missing device or optional
    dependency; 70 a fault in perfmodel itself; 130 interrupted (`main`: 143 if by SIGTERM).
    """
    arguments = _hoist(arguments)
    debug = "--debug" in arguments[:2]
    if "--no-color" in arguments[:2]:
        os.environ["NO_COLOR"] = "1"
    try:
        arguments = with_stdin(with_scheduler(with_new_names(arguments)))
        remember_words(arguments)
        named = _named_command(arguments)
        asks = named and any(word in _HELP for word in arguments)
        app = _helping(named, arguments) if asks else build_app(named)
        code = _exit_code(app, arguments)
        sys.stdout.flush()  # here, so that a full disk or a closed stdout is an error of this run
        return _interrupted() if code == INTERRUPTED else code
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except (BrokenPipeError, SystemExit):
        # The reader closed the pipe (`| head`); typer turns that into SystemExit while it prints help.
        abandon_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 -- users see tracebacks only with --debug
        if debug:
            import traceback

            traceback.print_exception(error)
        return _explain(error, arguments)


def _helping(named: str, arguments: Sequence[str]) -> typer.Typer:
    """Return the program with a command whose help is asked for, without boxes where they would cut its options."""
    from perfmodel.cli._help import fits_boxes, with_opposites_in_words

    app = build_app(named, helps=True)
    boxed = fits_boxes(app, arguments)
    return with_opposites_in_words(app) if boxed else build_app(named, helps=True, boxes=False)


def _exit_code(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; typer reports Ctrl-C as `INTERRUPTED`."""
    try:
        code = app(args=arguments, prog_name="perfmodel", standalone_mode=False)
    except typer.Exit as finished:
        return finished.exit_code
    return code if isinstance(code, int) else 0


def _named_command(arguments: Sequence[str]) -> str:
    """Return the command of a command line, or "" for help, completion and misspelt names."""
    first = next((word for word in arguments if word not in _ANYWHERE), "").replace("-", "_")
    return first if first in command_modules() else ""


def _interrupted() -> int:
    _complain("interrupted.")
    return INTERRUPTED


def _with_remedy(error: typer.TyperException, message: str) -> str:
    """Return a message about a command line, with a remedy for a shape without quotes or another tool's option."""
    end = "" if message.endswith((".", "?", "!")) else "."
    if message.startswith("Got unexpected extra") and re.search(r"\b(layers|hidden|heads|vocab)=", message):
        return f"{message}{end} A model's shape is one argument: 'layers=32 hidden=4096 heads=32', in quotes."
    if message.startswith(_NO_OPTION):
        from perfmodel.cli._other_words import meant

        option, where = message.removeprefix(_NO_OPTION).partition(" ")[0].rstrip("."), getattr(error, "ctx", None)
        offered = {name for param in where.command.params for name in param.opts} if where else set()
        if remedy := meant(option, offered):
            return f"{_NO_OPTION}{option}. {remedy.rstrip()}"
    if (found := _NO_COMMAND.match(message)) and _is_machine(error, found[1]):
        return f"{message}{end} To see a machine: perfmodel hardware show {found[1]}."
    return f"{message}{end}"


def _is_machine(error: typer.TyperException, word: str) -> bool:
    """Return whether a word that is no command of `perfmodel hardware` is the name of a machine."""
    where = getattr(error, "ctx", None)
    if where is None or where.info_name != "hardware":
        return False
    from perfmodel.hardware_catalog import hardware

    try:
        hardware(word)
    except PerfModelError:
        return False
    return True


def _missing_last(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """Return the metavar of the last argument of a command if it is what is missing, and not the first, else "".

    The parser gives a single word to the last argument, as if the list of words before it were missing: of PROFILE...
    SCENARIO one word is the profile all the same.
    """
    missing, where = getattr(error, "param", None), getattr(error, "ctx", None)
    if where is None or getattr(missing, "nargs", 1) != -1 or not error.format_message().startswith("Missing argument"):
        return ""
    words = list(arguments)
    for name in where.command_path.split()[1:]:
        words = words[words.index(name) + 1 :]
    given, _, _ = where.command.make_parser(where).parse_args(words)
    last = [param for param in where.command.params if param.param_type_name == "argument"][-1]
    return "" if last is missing or given.get(last.name) is None else str(last.metavar or last.name)


def _explain(error: Exception, arguments: Sequence[str]) -> int:
    """Print one message for an error and return the exit code."""
    if isinstance(error, typer.TyperException):
        # Without a message typer has printed the help instead.
        if error.format_message():
            last = _missing_last(error, arguments)
            text = f"Missing argument '{last}'" if last else unfit_value(error) or error.format_message()
            message = " ".join(text.replace("Value error, ", "").split())
            where = getattr(error, "ctx", None)
            command = where.command_path if where else f"perfmodel {_named_command(arguments)}".rstrip()
            _complain(f"{_with_remedy(error, message)} See: {command} --help")
        return 2
    if isinstance(error, PerfModelError):
        error.place = _as_option(error.place, arguments)
        _complain(str(error))
        return next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 2)
    if isinstance(error, OSError):
        abandon_stdout()
        is_closed = error.errno == errno.EBADF  # see `_replace_closed_streams`
        _complain("stdout is closed." if is_closed else f"the operating system reports: {error.strerror or error}.")
        return 2
    _complain(f"fault in perfmodel: {type(error).__name__}: {error}. Run again with --debug and report it.")
    return EXIT_INTERNAL


def _as_option(place: str, arguments: Sequence[str]) -> str:
    """Return the place of an error as the command line has it: the option of this name, where it has one.

    Python's users give the parameter ``workers`` that is ``--workers`` here.
    """
    name, space, rest = place.partition(" ")
    option = f"--{name.replace('_', '-')}"
    given = name.isidentifier() and any(word.partition("=")[0] == option for word in arguments)
    return f"{option}{space}{rest}" if given else place


def _hoist(arguments: Sequence[str]) -> list[str]:
    """Move the options of the program itself to the front."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    before, after = list(arguments[:end]), list(arguments[end:])
    front = [option for option in _ANYWHERE if option in before]
    return [*front, *(word for word in before if word not in _ANYWHERE), *after]


def _complain(message: str) -> None:
    """Print a message on stderr; where it cannot be written, the exit code tells all the same."""
    try:
        sys.stderr.write(f"perfmodel: {told(message.strip())}\n")
        sys.stderr.flush()
    except OSError:
        with contextlib.suppress(OSError):  # the interpreter flushes stderr again at exit, which would fail
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _replace_closed_streams() -> None:
    """Replace streams that the caller closed (``>&-``): writing a result fails, messages are dropped."""
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115 -- until the exit
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 -- until the exit


def _escape(error: UnicodeError) -> tuple[str, int]:
    r"""Return what a stream cannot encode as JSON escapes it, so that JSON remains JSON in any encoding.

    >>> _escape(UnicodeEncodeError("ascii", "\xe9\U0001f600.", 0, 2, ""))
    ('\\u00e9\\ud83d\\ude00', 2)
    """
    import json

    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def main() -> None:
    """Run the command line of this process."""
    _replace_closed_streams()
    codecs.register_error(_ESCAPED, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)
    with _sigterm_as_ctrl_c() as terminated:
        code = run(sys.argv[1:])
    if terminated and code == INTERRUPTED:
        code = TERMINATED
    # Python ends `-m` by SIGINT where Ctrl-C came within an exec, as of a dataclass, unless another one follows.
    exec("")  # noqa: S102
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends what runs at exit, without a traceback
    if _left_a_thread_behind():
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    if "torch" not in sys.modules:  # whose bindings would report what is left as leaks
        gc.freeze()  # else the interpreter searches all objects for garbage at its exit, a twentieth of a short command
    sys.exit(code)


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM end the work as Ctrl-C does, so that what is done is reported; yield what is not empty once it came.

    Batch systems and `timeout` send it, to the process and to its group: what comes after the first is ignored. A rank
    of a job, which may wait in a library for others, ends at once.
    """
    terminated: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        terminated.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL or _is_rank():
        yield terminated
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield terminated
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_rank() -> bool:
    """Return whether torchrun or srun started this process beside others."""
    from perfmodel.kernels.distributed.job import job_rank

    try:
        return job_rank() is not None
    except UsageError:  # which the command that joins them reports
        return True


def _left_a_thread_behind() -> bool:
    """Return whether a thread waits on a GPU for ever, as `perfmodel.kernels.distributed.errand` may leave one.

    A command that has not imported that module has left none.
    """
    errand = sys.modules.get("perfmodel.kernels.distributed.errand")
    return errand is not None and bool(errand.is_stuck())
