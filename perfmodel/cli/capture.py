"""The command `capture`: the operators of a PyTorch module, by module, without running it."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import Annotated, Any

import typer

from perfmodel.cli._options import ExpectedMachineOption, FormatOption, OutputOption, WideOption, only_machine, option
from perfmodel.cli._output import Destination, check_writable, context, wrote
from perfmodel.errors import UsageError, not_installed

#: what to do about a module that is captured but does not run
_RAN = "Its inputs are random numbers, and 0 where they are whole; without --run it is counted all the same."


def command(
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A torch.nn.Module, its class, or a function that builds one, or one and its inputs: "
            "package.module:build. The current folder is searched first.",
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        option(
            "--input",
            "Input tensor: 8x1024:int64, 32x3x224x224:bf16, or mask=8x1024:bool for a keyword. May be repeated.",
            "SHAPE:DTYPE",
        ),
    ] = None,
    on: ExpectedMachineOption = None,
    backward: Annotated[bool, typer.Option("--backward", help="Include the gradients of all parameters.")] = False,
    optimizer: Annotated[
        str,
        option("--optimizer", "Include its step: adamw (foreach), adamw-fused, sgd, adam8bit.", "NAME"),
    ] = "",
    depth: Annotated[int, typer.Option("--depth", metavar="N", help="Levels of modules in the table.")] = 2,
    run: Annotated[
        bool, typer.Option("--run", help="Also run the module on this machine, and set measured beside expected times.")
    ] = False,
    operators: Annotated[
        str | None,
        option("--operators", "Write the operators to FILE (.json), which analyze reads.", "FILE"),
    ] = None,
    format_: FormatOption = None,
    output: OutputOption = None,
    wide: WideOption = False,
) -> None:
    """Count the operators, parameters and activation memory of a PyTorch module by module, without running it.

    Example: perfmodel capture torch.nn:Transformer --input 16x8x512 --input 16x8x512 --on h100 --backward
    """
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise not_installed("capturing needs torch", "bench")
    from perfmodel.core.report import report
    from perfmodel.hardware_catalog import hardware
    from perfmodel.module_capture.capture import capture
    from perfmodel.module_capture.spec import load_target, parse_inputs

    destination = Destination.of("capture", format_, output, wide=wide)
    if operators is not None:
        check_writable(operators, ".json")
    if depth < 0:
        raise UsageError(f"{depth} is below 0.", place="--depth", remedy="Give 0 or more.")
    named = only_machine(on)
    machine = hardware(named) if named else None
    # what a module's own code prints is none of the result, and what it warns of does not change its operators
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = load_target(module)
        captured = capture(target, parse_inputs(inputs or ()), backward=backward, optimizer=optimizer)
        if run:
            captured = _with_times(captured, target, inputs or (), backward)
    if operators is not None:
        _write_operators(captured, operators)
    facts = context(module=module, inputs=list(inputs or ()), hardware=[machine.name] if machine else [])
    destination.write(report(captured, hardware=machine, depth=depth, context=facts))


def _with_times(captured: Any, target: Any, inputs: Any, backward: bool) -> Any:
    """Return what was captured with the times of a run on a GPU if there is one, else on the CPU."""
    import dataclasses

    from perfmodel.kernels.device import open_device
    from perfmodel.module_capture.capture import built
    from perfmodel.module_capture.failures import explained
    from perfmodel.module_capture.run import run_module
    from perfmodel.module_capture.spec import DTYPES, parse_inputs

    device = open_device()
    net, args, kwargs = built(target, parse_inputs(inputs, device=device.kind), device=device.kind)
    with explained(type(net).__name__, _RAN):
        net = net.to(device.kind, DTYPES.get(captured.cast_to))
        forward_s, backward_s = run_module(net, kwargs or args, backward=backward)
    return dataclasses.replace(
        captured, measured_s=forward_s, measured_backward_s=backward_s, measured_on=f"{device.kind} ({device.name})"
    )


def _write_operators(captured: Any, path: str) -> None:
    """Write the operators as a file that analyze reads."""
    import json

    from perfmodel.files import write_atomic

    listed = []
    for op in captured.operators():
        params = op.params()
        sizes = {key: params[key] for key in op.given()}
        listed.append({"op": op.op, **sizes, "dtype": op.dtype, "count": op.count, "name": op.name})
    write_atomic(path, json.dumps({"operators": listed}, indent=1) + "\n")
    wrote(path)
