"""What a command of another distribution needs: the options that perfmodel's commands share, and where results go.

    from perfmodel.cli.extension import Destination, FormatOption, OutputOption, context

    def command(format_: FormatOption = None, output: OutputOption = None) -> None:
        destination = Destination.of("my_command", format_, output)  # checks both before the work begins
        ...
        destination.write(Report("my_command", columns, rows, context()))

An option has the name and the meaning that it has in perfmodel's own commands. A name of this module that changes keeps
its old spelling for one release; other modules of ``perfmodel.cli`` with a leading underscore may change at any time.
"""

from perfmodel.cli._options import (
    CacheOption,
    FormatOption,
    LibraryOption,
    MachineOption,
    MachinesOption,
    OutputOption,
    PlotOption,
    TimingOption,
    WideOption,
    format_option,
    fraction_option,
    only_machine,
)
from perfmodel.cli._output import BAD_FINDING, Destination, check_plot, context, save_plot, status

__all__ = [
    "BAD_FINDING",
    "CacheOption",
    "Destination",
    "FormatOption",
    "LibraryOption",
    "MachineOption",
    "MachinesOption",
    "OutputOption",
    "PlotOption",
    "TimingOption",
    "WideOption",
    "check_plot",
    "context",
    "format_option",
    "fraction_option",
    "only_machine",
    "save_plot",
    "status",
]
