"""A CUDA GPU as a device: events on the current stream, a flush of the L2 cache."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from perfmodel.errors import UnavailableError
from perfmodel.kernels.device.protocol import HOLD_S
from perfmodel.kernels.precision import rounding

#: above the clock of any GPU [Hz]: a hold counts cycles, and is never shorter than requested
_HOLD_CLOCK_HZ = 3e9
#: resolution of a pair of events [s] (CUDA runtime API, cudaEventElapsedTime)
_EVENT_TICK_S = 0.5e-6
#: how torch's warning of a graph without kernels begins
_EMPTY_GRAPH = "The CUDA Graph is empty"


def is_available() -> bool:
    """Return whether torch sees a CUDA GPU."""
    return torch.cuda.is_available()


def gpu_count() -> int:
    """Return the number of GPUs that torch sees."""
    return torch.cuda.device_count()


@contextlib.contextmanager
def _without_waiting() -> Iterator[None]:
    """Make torch raise a RuntimeError where the host waits for the GPU (``.item()``), which no graph can contain."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "a prototype feature"
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


@contextlib.contextmanager
def _tidy_capture() -> Iterator[Any]:
    """Yield a memory pool for one capture, and restore torch's state if the capture fails.

    ``torch.cuda.graph`` restores the previous stream only after a successful capture. Before torch 2.12 the allocator
    also remains in its capture mode, so that ``empty_cache`` and all later captures fail (pytorch/pytorch pull request
    180395).
    """
    stream, pool = torch.cuda.current_stream(), torch.cuda.graph_pool_handle()
    try:
        yield pool
    except Exception:
        torch.cuda.set_stream(stream)
        # RuntimeError: torch has ended it itself; AttributeError: a version of torch without this function
        with contextlib.suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        raise


class CudaStopwatch:
    """Time between two events on the current stream, on which kernels are launched."""

    def __init__(self) -> None:
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Record the first event in the stream."""
        self._start.record()

    def stop(self) -> None:
        """Record the second event in the stream."""
        self._stop.record()

    def has_begun(self) -> bool:
        """Return whether the GPU has reached the first event; does not wait."""
        return bool(self._start.query())  # type: ignore[no-untyped-call]

    def elapsed_s(self) -> float:
        """Wait for the second event and return the time between the two [s]; torch returns milliseconds."""
        self._stop.synchronize()
        return float(self._start.elapsed_time(self._stop)) * 1e-3


class CudaDevice:
    """The current CUDA GPU; see `perfmodel.kernels.device.Device`.

    Raises
    ------
    UnavailableError
        When torch sees no GPU.
    """

    kind = "cuda"
    tick_s = _EVENT_TICK_S
    warm_up_s = 0.025  # as triton.testing.do_bench warms up
    has_graphs = True

    def __init__(self, *, threads: int | None = None) -> None:
        if not is_available():
            build = "this torch is built without CUDA" if torch.version.cuda is None else "the driver reports none"
            raise UnavailableError(
                f"torch sees no CUDA GPU: {build}.", remedy="Use --device cpu, or install a driver and a CUDA torch."
            )
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        except RuntimeError as error:  # another process has exclusive use, or the GPU needs a reset
            raise UnavailableError(
                f"the GPU cannot be used: {str(error).splitlines()[0]}.", remedy="See nvidia-smi, or use --device cpu."
            ) from error
        self.name = str(properties.name)
        self.uuid = str(getattr(properties, "uuid", ""))
        self.cache_bytes = float(properties.L2_cache_size)

    def synchronize(self) -> None:
        """Wait until the GPU has finished all work."""
        torch.cuda.synchronize()

    def stopwatch(self) -> CudaStopwatch:
        """Return a stopwatch with two events."""
        return CudaStopwatch()

    @functools.cached_property
    def _eviction_buffer(self) -> torch.Tensor:
        return torch.empty(int(self.cache_bytes), dtype=torch.int8, device="cuda")

    @functools.cached_property
    def _capture_stream(self) -> torch.cuda.Stream:
        # One for all captures: torch's allocator separates the memory of different streams.
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def flush_cache(self) -> None:
        """Enqueue a memset of the L2's size, without waiting for it."""
        self._eviction_buffer.zero_()

    def hold(self, time_s: float = HOLD_S) -> None:
        """Enqueue a kernel that spins in registers for at least some time [s] without memory accesses.

        Meanwhile the host enqueues the first event, the kernels and the second event. The GPU then runs them without
        waiting for the host, so that the launch latency is not between the events.
        """
        torch.cuda._sleep(int(time_s * _HOLD_CLOCK_HZ))  # type: ignore[no-untyped-call]

    def capture(self, calls: Sequence[Callable[[], Any]], *, keep_outputs: bool) -> Callable[[], Any]:
        """Return the replay of a CUDA graph of several calls, all of which have run before.

        They first run once on the capturing stream, since libraries have handles and workspaces per stream. A call in
        which the host waits for the GPU raises an error there, before the capture fails.
        """
        stream = self._capture_stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), _without_waiting():
            for call in calls:
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # "thread_local": another thread may talk to the driver meanwhile, as telemetry does.
        mode = "thread_local"
        with warnings.catch_warnings():
            # Calls whose kernels run elsewhere would be measured as nothing.
            warnings.filterwarnings("error", message=_EMPTY_GRAPH)
            with _tidy_capture() as pool, torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode=mode):
                outputs = []
                try:
                    for call in calls:
                        output = call()
                        if keep_outputs:
                            outputs.append(output)
                        del output
                except Exception:  # torch ends the capture and finds nothing in it, which is not the reason
                    warnings.filterwarnings("ignore", message=_EMPTY_GRAPH)
                    raise
        del outputs  # the graph keeps their memory; the tensors themselves are not needed after the capture
        return graph.replay

    def free_memory_bytes(self) -> float:
        """Return the memory that can still be allocated, including torch's unused cache [B]."""
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return float(torch.cuda.mem_get_info()[0] + cached)

    def release_memory(self) -> None:
        """Return torch's cached blocks to the driver."""
        torch.cuda.empty_cache()

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an exception of torch's allocator or of the driver means that memory ran out."""
        from_driver = isinstance(error, RuntimeError) and "out of memory" in str(error)
        return from_driver or isinstance(error, torch.cuda.OutOfMemoryError | MemoryError)

    def precision(self, dtype: str) -> contextlib.AbstractContextManager[None]:
        """Return a context without gradients, with float32 products in full float32 or in tf32."""
        return rounding(dtype)

    def facts(self) -> dict[str, Any]:
        """Return the versions of torch and CUDA, and properties of the GPU."""
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            **({"hip": torch.version.hip} if torch.version.hip else {}),
            "compute_capability": f"{properties.major}.{properties.minor}",
            "sm_count": properties.multi_processor_count,
            "memory_capacity_bytes": float(properties.total_memory),
        }
