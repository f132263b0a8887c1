"""perfmodel: the bound, the time to expect, the time measured and what is worth optimising first.

    import perfmodel as pm

    a100 = pm.hardware("a100-sxm4-40gb")
    p = pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16"), a100)
    p.bound_time_s, p.predicted_time_s, p.limiter

Names are loaded when first used: importing perfmodel imports neither numpy nor torch nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "PerfModelError": "perfmodel.errors",
    "InputFileError": "perfmodel.errors",
    "UsageError": "perfmodel.errors",
    "UnavailableError": "perfmodel.errors",
    "Hardware": "perfmodel.core.hardware",
    "Prediction": "perfmodel.core.results",
    "Report": "perfmodel.core.report",
    "arithmetic_intensity": "perfmodel.core.roofline",
    "attainable_flop_per_s": "perfmodel.core.roofline",
    "ridge_point": "perfmodel.core.roofline",
    "Operator": "perfmodel.operators",
    "load_operator": "perfmodel.operators",
    "operator_names": "perfmodel.operators",
    "parse_operators": "perfmodel.operators._parse",
    "bound_time": "perfmodel.analysis.predict",
    "predict": "perfmodel.analysis.predict",
    "amdahl_speedup": "perfmodel.analysis.amdahl",
    "amdahl_limit": "perfmodel.analysis.amdahl",
    "Candidate": "perfmodel.analysis.roi",
    "rank": "perfmodel.analysis.roi",
    "hardware": "perfmodel.hardware_catalog",
    "hardware_names": "perfmodel.hardware_catalog",
    "read_profile": "perfmodel.profiles",
    "roofline_plot": "perfmodel.render.roofline_plot",
}


def __getattr__(name: str) -> Any:
    """Load a public name, or an operator class, when it is first used (PEP 562)."""
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
    elif name[:1].isupper():
        from perfmodel.operators import load_class

        try:
            value = load_class(name)
        except KeyError:
            raise AttributeError(f"module 'perfmodel' has no attribute {name!r}") from None
    else:
        raise AttributeError(f"module 'perfmodel' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, for completion in notebooks."""
    from perfmodel.operators import class_names

    return sorted([*_PUBLIC, *class_names(), "__version__"])
