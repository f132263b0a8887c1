"""What goes wrong in a module that is captured, as one message with the line of its own code."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from perfmodel.errors import UsageError, first_line

#: what PyTorch raises where an operator asks for the values of a tensor without values
ASKED = (DataDependentOutputException, DynamicOutputShapeException)
#: how PyTorch names an operator of higher order in its messages, before the operator's name
_HIGHER = "HigherOrderOperator "
_HERE = Path(__file__).parent

#: what to do about a module that cannot be built, one that runs without inputs, and one that runs with some
BUILD = "It is built without arguments: for one that needs some, name a function that builds it."
GIVE_INPUTS = 'No input is given: give a tensor or {"x": tensor}; of the command, --input 8x1024:int64 for each.'
FIT = "Do the inputs fit it?"
#: what to do about code that ends the program while it is imported or called
NO_EXIT = 'Put what a script runs, and its arguments, under: if __name__ == "__main__":'


@contextlib.contextmanager
def explained(name: str, remedy: str = FIT) -> Iterator[None]:
    """Turn what a module raises inside the block into one message, which replaces the traceback in PyTorch's log.

    Parameters
    ----------
    name : of the module, or of the function that builds it.
    remedy : what to do about an error of the module's own code.

    Raises
    ------
    UsageError
        When the block raises; its cause is what PyTorch raised.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    silent, log.disabled = log.disabled, True
    try:
        yield
    except UsageError:
        raise
    except ASKED as error:
        raise UsageError(
            f"{name} depends on the values of a tensor ({error.func}).",
            place=own_line(traceback.extract_tb(error.__traceback__)),
            remedy="Modules and inputs that are shapes alone, random numbers and what takes long to work out have no "
            "values here: run and trace it instead, or replace the branch.",
        ) from error
    except SystemExit as error:
        place = own_line(traceback.extract_tb(error.__traceback__))
        raise UsageError(f"{name} ends the program (exit code {error}).", place=place, remedy=NO_EXIT) from error
    except Exception as error:
        if isinstance(error, UnsupportedOperatorException):
            raise UsageError(
                f"{name} runs {error.func}, of which PyTorch does not know what it returns without values.",
                place=own_line(traceback.extract_tb(error.__traceback__)),
                remedy="Replace it, as nested and sparse tensors by padded ones, or run and trace the module instead.",
            ) from error
        if _HIGHER in str(error):
            operator = str(error).partition(_HIGHER)[2].split()[0]
            raise UsageError(
                f"{name} calls {operator}, whose arguments are functions: it has no operators to capture.",
                place=own_line(traceback.extract_tb(error.__traceback__)),
                remedy="Call an operator of tensors in its place, as scaled_dot_product_attention for flex_attention.",
            ) from error
        raise UsageError(
            f"{name} fails: {first_line(error)}.",
            place=own_line(traceback.extract_tb(error.__traceback__)),
            remedy=remedy,
        ) from error
    finally:
        log.disabled = silent


def own_line(frames: Iterable[traceback.FrameSummary]) -> str:
    """Return file and line of the innermost of some frames that is outside of PyTorch and perfmodel, or "capture"."""
    own = [frame for frame in frames if "/torch/" not in frame.filename and Path(frame.filename).parent != _HERE]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "capture"
