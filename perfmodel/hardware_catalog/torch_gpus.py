"""What an installed torch for ROCm says about AMD's GPUs. The CUDA driver lists those of a torch for CUDA."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from perfmodel.hardware_catalog.gpu_reading import GpuReading


def read_torch(torch: Any = None) -> tuple[GpuReading, ...]:
    """Return the GPUs that torch sees; none where it is not installed, not built for ROCm, or sees none.

    ``torch`` stands in for the module in tests.
    """
    torch = torch or _import_torch()
    if torch is None or not torch.cuda.is_available():
        return ()
    return tuple(_reading(torch, index) for index in range(torch.cuda.device_count()))


def _import_torch() -> Any:
    """Return the module `torch`, or None. One that is not built for ROCm is not imported, which takes seconds."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None or not _is_for_rocm(Path(found.origin).with_name("version.py")):
        return None
    try:
        return importlib.import_module("torch")
    except (ImportError, OSError, RuntimeError):  # libraries that it was built with may be absent
        return None


def _is_for_rocm(version_file: Path) -> bool:
    """Return whether torch's version.py names a release of HIP that it was built with."""
    try:
        text = version_file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # not as expected: importing it tells
    return bool(re.search(r"^hip\b[^=\n]*=\s*['\"]", text, flags=re.MULTILINE))


def _reading(torch: Any, index: int) -> GpuReading:
    properties = torch.cuda.get_device_properties(index)
    # "gfx942:sramecc+:xnack-": the design, then what is switched on
    design = str(getattr(properties, "gcnArchName", "")).split(":")[0]
    return GpuReading(
        index=index,
        name=properties.name,
        memory_bytes=float(properties.total_memory),
        sm_count=getattr(properties, "multi_processor_count", None),
        compute_capability=design,
        # not the L2: ROCm states that of one of several dies, 4 MiB of the 32 of an MI300X (ROCm/ROCm issue 4203)
        source="torch",
    )
