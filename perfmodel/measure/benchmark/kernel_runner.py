"""Running one kernel: it is checked against float64, then timed; whatever goes wrong becomes a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.core.units import format_binary
from perfmodel.core.vocabulary import CacheState, Limiter
from perfmodel.errors import UnavailableError, UsageError
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.measure.benchmark.jobs import Job
from perfmodel.measure.benchmark.nvtx_range import nvtx_range
from perfmodel.measure.benchmark.rows import Outcome
from perfmodel.measure.benchmark.settings import BenchSettings
from perfmodel.measure.benchmark.sustain import sustain
from perfmodel.measure.telemetry.clock_guard import ClockGuard
from perfmodel.measure.telemetry.sampler import Sampler
from perfmodel.measure.timing.input_copies import InputCopies
from perfmodel.measure.timing.timer import time_call
from perfmodel.operators import Operator
from perfmodel.operators.collective import Collective
from perfmodel.prediction.result import Prediction
from perfmodel.records.schema import Status

#: share of the free memory that one kernel may plan to use: the check and the allocator need the rest
_USABLE = 0.8


class KernelRunner:
    """Measures one kernel after another on one device."""

    def __init__(self, device: Device, settings: BenchSettings, sampler: Sampler, guard: ClockGuard) -> None:
        self._device = device
        self._settings = settings
        self._sampler = sampler
        self._guard = guard
        self._inputs = _Inputs(device, settings.seed)
        self._lost = ""

    def outcome(self, job: Job) -> Outcome:
        """Run one kernel; whatever goes wrong becomes a status.

        Raises
        ------
        UsageError
            When a user's function does not take the operator's inputs.
        UnavailableError
            When an earlier kernel broke the device.
        """
        if self._lost:
            raise UnavailableError(self._lost, remedy="Start again; with -o FILE.json, --resume skips finished rows.")
        if job.kernel is None:
            if isinstance(job.op, Collective):
                return Outcome(Status.SKIPPED, f"{job.op.op} runs among ranks: add --num-gpus {job.op.num_gpus}")
            return Outcome(Status.SKIPPED, _no_kernel(job.op))
        reason = job.kernel.refuses(job.op, self._device)
        if reason:
            return Outcome(Status.SKIPPED, reason)
        shortage = _shortage(job.op, job.kernel, self._device)
        if shortage:
            return Outcome(Status.OUT_OF_MEMORY, shortage)
        try:
            with nvtx_range(f"{job.op.op} {job.kernel.name}"):
                return self._measured(job, job.kernel)
        except (Exception, SystemExit) as error:  # a user's function may call sys.exit
            self._inputs.drop()
            if isinstance(error, UsageError) and job.kernel.backend == "user":
                raise
            self._recover(f"{job.op.op} {job.kernel.name}")
            message = next(iter(str(error).splitlines()), "")
            if self._device.is_out_of_memory(error):
                return Outcome(Status.OUT_OF_MEMORY, message)
            return Outcome(Status.FAILED, f"{type(error).__name__}: {message}")

    def _recover(self, kernel: str) -> None:
        """Free memory after a kernel that failed; remember if the device fails at that too.

        After an illegal access a CUDA context fails every call until its process ends.
        """
        try:
            self._device.synchronize()
            self._device.release_memory()
        except Exception as error:  # noqa: BLE001 -- of whatever type torch makes the driver's errors
            message = next(iter(str(error).splitlines()), type(error).__name__)
            self._lost = f"the device fails every call since {kernel} ran on it: {message}."

    def _measured(self, job: Job, kernel: Kernel) -> Outcome:
        """Check a kernel, then time it."""
        from perfmodel.kernels.verify import verify

        device, settings = self._device, self._settings
        inputs = self._inputs.of(job.op)
        with device.precision(job.op.dtype):
            call = kernel.prepare(job.op, inputs)
            sums = kernel.rounded_sums(job.op)
            verdict = verify(job.op, call, inputs, settings.seed, in_place=kernel.in_place, rounded_sums=sums)
            check = (verdict.correct, verdict.max_relative_error, verdict.checked)
            if not verdict.correct:
                return Outcome(Status.WRONG, verdict.message, None, *check)
            copies = InputCopies(job.op, kernel, inputs, call, device)
            self._sampler.mark()
            timed = time_call(
                call,
                device,
                settings.rule,
                cache=settings.cache,
                timing=settings.timing,
                copies=copies,
                guard=self._guard,
            )
            telemetry = self._sampler.summary()
            series = self._sustained(job.op, job.prediction, copies, timed.median_s) if settings.sustain_s else None
        return Outcome(Status.OK, "", timed, *check, telemetry, series)

    def _sustained(self, op: Operator, prediction: Prediction, copies: InputCopies, call_s: float) -> Mapping[str, Any]:
        """Run a kernel back to back; return its rate over time in FLOP/s or B/s, whichever limits it."""
        work = op.work()
        computes = prediction.limiter == Limiter.COMPUTE and work.flop
        rotates = self._settings.cache == CacheState.ROTATING
        calls: list[Call] = list(copies.beyond_cache() if rotates else copies.calls(1))
        return sustain(
            calls,
            self._device,
            call_s,
            float(work.flop if computes else work.least_bytes),
            "FLOP/s" if computes else "B/s",
            self._settings.sustain_s,
            self._sampler,
        )


class _Inputs:
    """The inputs of one operator at a time, shared by its kernels."""

    def __init__(self, device: Device, seed: int) -> None:
        self._device = device
        self._seed = seed
        self._op: Operator | None = None
        self._tensors: Mapping[str, Any] = {}

    def of(self, op: Operator) -> Mapping[str, Any]:
        """Return the inputs of an operator; those of the previous one are dropped first."""
        if op is not self._op:
            from perfmodel.kernels.inputs import make_inputs

            self.drop()
            self._tensors = make_inputs(op, self._device.kind, self._seed)
            self._op = op
        return self._tensors

    def drop(self) -> None:
        """Free the memory of the inputs, and hand it back."""
        if self._op is not None:
            self._op, self._tensors = None, {}
            self._device.release_memory()


def _no_kernel(op: Operator) -> str:
    """Return why nothing runs: the operator has no kernels, or none for its dtype and algorithm."""
    what = f"the gradient of {op.op}" if getattr(op, "backward", False) else op.op
    given = [f"{name}={op.params()[name]}" for name in op.given() if isinstance(op.params()[name], str)]
    return f"there is no kernel for {what} with {' '.join([f'dtype={op.dtype}', *given])}"


def _shortage(op: Operator, kernel: Kernel, device: Device) -> str:
    """Return why a kernel does not fit the free memory, or an empty string.

    It is asked first because a system that overcommits memory kills the process instead of refusing.
    """
    buffers = sum(float(tensor.size_bytes) for tensor in op.buffers())
    needed = max(float(op.work().working_set_bytes), buffers) + kernel.workspace_bytes(op)
    free = device.free_memory_bytes()
    if needed <= _USABLE * free:
        return ""
    return f"it needs {format_binary(needed)}, and {format_binary(free)} are free"
