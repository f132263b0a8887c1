"""What configurations of Gemma 3n state of residual streams beside each other, and of MLPs that keep few values.

They follow ``Gemma3nTextConfig`` of Hugging Face's transformers 5.24.
"""

from __future__ import annotations

from typing import Any

from perfmodel.workloads.config_values import Values, WrongValueError

#: families whose layers predict and correct residual streams
PREDICTING = frozenset(("gemma3n_text",))
#: first layers whose MLP keeps few values where a configuration does not say which, of more layers than these
_SPARSE = 10


def predicted_streams(values: Values, layers: int) -> dict[str, Any]:
    """Return the residual streams, the rank of the second residual, and the layers whose MLP keeps few values.

    Raises
    ------
    WrongValueError
        Where the list of what each MLP leaves out is none of numbers, or not one for each layer.
    """
    return {
        "residual_streams": values.of(("altup_num_inputs",), "residual streams", 4),
        "laurel_rank": values.of(("laurel_rank",), "laurel rank", 64),
        "sparse_layers": _sparse_layers(values, layers),
    }


def _sparse_layers(values: Values, layers: int) -> int:
    given = values.raw.get("activation_sparsity_pattern")
    if given is None:
        return _SPARSE if layers > _SPARSE else 0
    numbers = isinstance(given, list) and all(isinstance(one, int | float) and 0 <= one < 1 for one in given)
    if not numbers or len(given) != layers:
        raise WrongValueError(f"activation_sparsity_pattern = {given!r} is not a list of {layers} numbers from 0 to 1")
    return sum(one > 0 for one in given)
