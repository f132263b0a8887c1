"""Running one kernel: checked against float64, timed, and whatever goes wrong made into a status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.core.units import format_binary
from perfmodel.errors import UnavailableError, UsageError
from perfmodel.kernels.device import Device
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.measure.benchmark.nvtx_range import nvtx_range
from perfmodel.measure.benchmark.rows import FAILED, OK, OUT_OF_MEMORY, SKIPPED, WRONG, Outcome
from perfmodel.measure.benchmark.settings import Settings
from perfmodel.measure.benchmark.sustain import sustain
from perfmodel.measure.telemetry.clock_guard import ClockGuard
from perfmodel.measure.telemetry.sampler import Sampler
from perfmodel.measure.timing.input_copies import InputCopies
from perfmodel.measure.timing.timer import time_call
from perfmodel.operators import Operator
from perfmodel.prediction.result import Prediction

#: of the free memory, the share that one kernel may plan to use: the check and the allocator need the rest
_USABLE = 0.8


@dataclass(frozen=True)
class Job:
    """One kernel to run; ``kernel`` is None for an operator that has none."""

    op: Operator
    kernel: Kernel | None
    prediction: Prediction


class Bench:
    """Measures one kernel after another on one device."""

    def __init__(self, device: Device, settings: Settings, sampler: Sampler, guard: ClockGuard) -> None:
        self._device = device
        self._settings = settings
        self._sampler = sampler
        self._guard = guard
        self._shared = _Inputs(device, settings.seed)
        self._lost = ""

    def outcome(self, job: Job) -> Outcome:
        """Run one kernel; whatever goes wrong becomes a status.

        Raises
        ------
        UsageError
            When a user's function cannot take the operator's inputs.
        UnavailableError
            When the device does no more work since an earlier kernel broke it.
        """
        if self._lost:
            raise UnavailableError(self._lost, remedy="Start again: with -o FILE.json, --resume goes on behind it.")
        if job.kernel is None:
            return Outcome(SKIPPED, f"there is no kernel for {job.op.op} yet")
        reason = job.kernel.supports(job.op, self._device)
        if reason:
            return Outcome(SKIPPED, reason)
        shortage = _shortage(job.op, job.kernel, self._device)
        if shortage:
            return Outcome(OUT_OF_MEMORY, shortage)
        try:
            with nvtx_range(f"{job.op.op} {job.kernel.name}"):
                return self._measured(job, job.kernel)
        except (Exception, SystemExit) as error:  # a user's function may call sys.exit
            self._shared.drop()
            if isinstance(error, UsageError) and job.kernel.backend == "user":
                raise
            self._recover(f"{job.op.op} {job.kernel.name}")
            message = next(iter(str(error).splitlines()), "")
            if self._device.is_out_of_memory(error):
                return Outcome(OUT_OF_MEMORY, message)
            return Outcome(FAILED, f"{type(error).__name__}: {message}")

    def _recover(self, what: str) -> None:
        """Free memory after a kernel that failed; remember a device that does not even do that any more.

        After an illegal access a CUDA context fails every call, until its process ends.
        """
        try:
            self._device.synchronize()
            self._device.release_memory()
        except Exception as error:  # noqa: BLE001 -- of whatever type torch makes the driver's errors
            said = next(iter(str(error).splitlines()), type(error).__name__)
            self._lost = f"the device does no more work since {what} ran on it: {said}."

    def _measured(self, job: Job, kernel: Kernel) -> Outcome:
        """Check a kernel, then time it."""
        from perfmodel.kernels.verify import verify

        device, settings = self._device, self._settings
        inputs = self._shared.of(job.op)
        with device.precision(job.op.dtype):
            call = kernel.prepare(job.op, inputs)
            verdict = verify(job.op, call, inputs, settings.seed)
            known = (verdict.correct, verdict.max_relative_error, verdict.checked)
            if not verdict.correct:
                return Outcome(WRONG, verdict.message, None, *known)
            copies = InputCopies(job.op, kernel, inputs, call, device)
            self._sampler.mark()
            timing = time_call(
                call,
                device,
                settings.rule,
                cache=settings.cache,
                timing=settings.timing,
                copies=copies,
                guard=self._guard,
            )
            telemetry = self._sampler.summary()
            series = self._sustained(job.op, job.prediction, copies, timing.median_s) if settings.sustain_s else None
        return Outcome(OK, "", timing, *known, telemetry, series)

    def _sustained(self, op: Operator, prediction: Prediction, copies: InputCopies, call_s: float) -> Mapping[str, Any]:
        """Run a kernel back to back, and tell its rate in what limits it: FLOP or bytes per second."""
        work = op.work()
        computes = prediction.limiter == "compute" and work.flop
        calls: list[Call] = list(copies.beyond_cache() if self._settings.cache == "rotating" else copies.calls(1))
        return sustain(
            calls,
            self._device,
            call_s,
            float(work.flop if computes else work.bytes),
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
        self._made: Mapping[str, Any] = {}

    def of(self, op: Operator) -> Mapping[str, Any]:
        """Return the inputs of an operator; those of the one before are dropped first."""
        if op is not self._op:
            from perfmodel.kernels.inputs import make_inputs

            self.drop()
            self._made = make_inputs(op, self._device.kind, self._seed)
            self._op = op
        return self._made

    def drop(self) -> None:
        """Forget the inputs, so that their memory is free."""
        self._op, self._made = None, {}


def _shortage(op: Operator, kernel: Kernel, device: Device) -> str:
    """Return why a kernel does not fit the memory that is free, or an empty string.

    Asked first, because a system that overcommits memory kills the process instead of refusing.
    """
    needed = float(op.work().working_set_bytes) + kernel.workspace_bytes(op)
    free = device.free_memory_bytes()
    if needed <= _USABLE * free:
        return ""
    return f"it needs {format_binary(needed)}, and {format_binary(free)} are free"
