"""The arithmetic intensity of operators beside the ridge point of a machine."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.extension import Destination, FormatOption, OutputOption, context


def command(
    operators: Annotated[list[str], typer.Argument(metavar="OPS...", help="Operators with their dimensions.")],
    on: Annotated[str, typer.Option("--on", metavar="HW", help="Machine: a catalog name, alias or spec file.")],
    format_: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Compare the arithmetic intensity of operators with the ridge point of a machine.

    Example: perfmodel balance channel_norm n=8 c=256 spatial=4096 groups=32 --on imaginary-gpu
    """
    import perfmodel as pm
    from perfmodel.core.report import Column, Report

    destination = Destination.of("balance", format_, output)
    machine = pm.hardware(on)
    bandwidth = machine.main_memory.bandwidth_bytes_per_s
    rows = []
    for op in pm.parse_operators(operators):
        work = op.work()
        ridge = pm.ridge_point(machine.best_peak(op.dtype).flop_per_s, bandwidth)
        intensity = pm.arithmetic_intensity(work.flop, work.bytes)
        rows.append(
            {"op": op.op, "intensity": intensity, "ridge": ridge, "bound": "compute" if intensity > ridge else "hbm"}
        )
    columns = (
        Column("op"),
        Column("intensity", "arithmetic intensity", "FLOP/B"),
        Column("ridge", "ridge point", "FLOP/B"),
        Column("bound"),
    )
    destination.write(Report("balance", columns, rows, context(hardware=[machine.name])))
