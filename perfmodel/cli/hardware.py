"""The commands `hardware list`, `show`, `lint` and `detect`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from perfmodel import storage
from perfmodel.cli._options import FormatOption, OutputOption, WideOption
from perfmodel.cli._output import BAD_FINDING, Destination, check_writable, context, status, wrote
from perfmodel.errors import UsageError, unknown_name
from perfmodel.render import format_names
from perfmodel.storage.spool import is_stream

#: format of a specification file, which only `hardware show` writes
_TEMPLATE = "toml"

app = typer.Typer(help="Machines: list the catalog, show one, check spec files, or detect this machine.")


@app.callback(invoke_without_command=True)
def hardware_group(
    ctx: typer.Context, format_: FormatOption = None, output: OutputOption = None, wide: WideOption = False
) -> None:
    """Machines: list the catalog (also without a command), show one, lint spec files, detect this machine.

    Example: perfmodel hardware list
    """
    if ctx.invoked_subcommand is None:
        _write_catalog(Destination.of("hardware list", format_, output, wide=wide))
    elif format_ or output or wide:
        raise UsageError(
            "--format, --output and --wide belong after the command.",
            remedy=f"Write: perfmodel hardware {ctx.invoked_subcommand} ... --format json",
        )


@app.command("list")
def list_(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD", help="Parts of a name, vendor or architecture: rtx, ada, amd.", show_default=False
        ),
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """List the machines of the catalog: memory, bandwidth [B/s], dense peaks [FLOP/s] and ridge points [FLOP/B].

    Example: perfmodel hardware list --format json

    Example: perfmodel hardware list geforce ada
    """
    _write_catalog(Destination.of("hardware list", format_, output, wide=wide), words or ())


def _show_format(text: str) -> str:
    """Return a format of ``hardware show``.

    Raises
    ------
    UsageError
        When the command has no such format.
    """
    allowed = (*format_names("hardware show"), _TEMPLATE)
    if text not in allowed:
        raise unknown_name("format", text, allowed, place="--format")
    return text


@app.command()
def show(
    machine: Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="Catalog name, alias, or a spec file.")],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"Output format: {', '.join(format_names('hardware show'))}, or {_TEMPLATE}: a spec file, as a "
            "template for another machine. Default: table, or by the suffix of --output.",
            parser=_show_format,
            show_default=False,
        ),
    ] = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Show every figure of a machine with its source, datasheet beside sustained.

    Example: perfmodel hardware show a100-sxm4-80gb

    Example: perfmodel hardware show l40s --format toml -o my_gpu.toml
    """
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.figures import machine_figures

    by_suffix = format_ is None and output is not None and storage.suffix_of(output) == f".{_TEMPLATE}"
    if by_suffix or format_ == _TEMPLATE:
        _write_template(machine, output)
        return
    destination = Destination.of("hardware show", format_, output, wide=wide)
    destination.write(report(machine_figures(hardware(machine)), context=context()))


def _write_template(machine: str, output: str | None) -> None:
    """Write a machine's specification, as a template for another one, to a file or stdout."""
    from perfmodel.files import write_atomic
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.write import template_text

    place = "-" if output is None else output
    if place != "-":
        check_writable(place)
    text, left_out = template_text(hardware(machine).path)
    if left_out:
        status(f"note: {left_out}.")
    if place == "-":
        write_atomic("-", text)
        return
    if storage.suffix_of(place) != f".{_TEMPLATE}":
        status(f"warning: {place} is written as {_TEMPLATE} because of --format; specifications end in .{_TEMPLATE}.")
    write_atomic(place, text)
    wrote(place)


@app.command()
def lint(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE...", help="Spec files, or names of the catalog. Default: the whole catalog."),
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> int:
    """Check spec files: arithmetic, dense against sparse, units, known products, sources. Exit code 1: errors.

    Example: perfmodel hardware lint my_gpu.toml
    """
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog.lint import lint_catalog, lint_files

    destination = Destination.of("hardware lint", format_, output, wide=wide)
    named = storage.expand([_spec_file(file) for file in files or ()])
    result = lint_files(named) if named else lint_catalog()
    destination.write(report(result, context=context()))
    return BAD_FINDING if result.num_errors else 0


def _spec_file(text: str) -> str:
    """Return the file of a word that is a path, or the name of a machine."""
    from perfmodel.hardware_catalog import hardware
    from perfmodel.hardware_catalog.spec_folders import spec_files

    if storage.suffix_of(text) or os.sep in text or is_stream(text) or os.path.exists(text):
        return text
    return str(spec_files().get(text) or hardware(text).path)  # a broken file of the catalog is no machine


@app.command()
def detect(format_: FormatOption = None, output: OutputOption = None, wide: WideOption = False) -> None:
    """Detect this machine: its GPUs by their vendors' libraries, its CPU by the operating system, and their specs.

    Example: perfmodel hardware detect
    """
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog import detect as devices

    destination = Destination.of("hardware detect", format_, output, wide=wide)
    detection = devices.detect()
    if not detection.gpus:
        status(
            "no GPU found: neither NVML (package nvidia-ml-py) nor the CUDA driver reports one, nor torch, the module "
            "amdsmi, amd-smi or rocm-smi."
        )
    destination.write(report(detection, context=context()))


def _write_catalog(destination: Destination, words: Sequence[str] = ()) -> None:
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog.find import load_catalog

    destination.write(report(load_catalog(words), context=context()))
