"""What an engine or a machine does not have: deployments that can be computed, but that nobody can run as they are."""

from __future__ import annotations

from perfmodel.prediction.latency.machine import NVIDIA
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.precision import SIXTEEN, weight_format
from perfmodel.serving.versions import is_before

#: first compute capability with kernels that widen weights of 8 or 4 floating-point bits to 16, on NVIDIA's machines
#: alone: Marlin in vLLM (docs.vllm.ai, "FP8 W8A8": 7.5 and later as weight-only W8A16; "Supported Hardware" of releases
#: up to 0.14: Ampere and later, neither Volta nor AMD)
WIDENING = "7.5"
_FP8 = "fp8"


def objections(deployment: Deployment) -> tuple[str, ...]:
    """Return in sentences why a deployment cannot be run: no engine for the machine, or no kernel for the format."""
    return tuple(filter(None, (_engine_lacks(deployment), _format_lacks(deployment))))


def remarks(deployment: Deployment) -> tuple[str, ...]:
    """Return in sentences which dtypes the machine has no instruction for, and what is not counted or not measured.

    The CPU computes the spectrum of Whisper's sound: ``WhisperMultiModalProcessor`` of vLLM (whisper.py @ 00a23257a130)
    calls ``WhisperFeatureExtractor`` of transformers, whose device is the CPU unless it is told another one.
    """
    machine, name = deployment.hardware, deployment.weights
    known, used = weight_format(name), deployment.format
    notes = []
    if _widened(deployment) and not _format_lacks(deployment):
        notes.append(f"{machine.name} has no {known.compute}: kernels widen weights in {name} to {used.compute}.")
    if known.compute in SIXTEEN and not known.weight_only and used.compute != known.compute:
        notes.append(
            f"{machine.name} has no {known.compute}: computed in {used.compute}, where the engine is told so (vLLM: "
            "--dtype half)."
        )
    if deployment.kv.strip().lower() == _FP8 and machine.find_peak(_FP8, "tensor") is None:
        notes.append(
            f"{machine.name} has no fp8: engines convert keys and values of 8 bits where they can at all, in time that "
            "is not counted."
        )
    if deployment.config.encoder_positions:
        bands = deployment.config.audio_bands
        notes.append(
            f"The spectrum of the sound ({bands} bands of each 30 s) is computed by the server's CPU before a request "
            "enters the queue: it is not counted, and delays the first token."
        )
    if deployment.config.compressed_layers:
        notes.append(
            "No kernel of attention to compressed keys, of their indexer or of hyper-connections was measured: their "
            "times follow from what they read and multiply at the rates of latent attention, and may be half or twice "
            "as long."
        )
    return tuple(notes)


def _engine_lacks(deployment: Deployment) -> str:
    engine, machine = deployment.profile, deployment.hardware
    title = engine.title or engine.name
    if engine.vendors and machine.vendor not in engine.vendors.split(","):
        return f"{title} runs on machines of {engine.vendors.replace(',', ', ')}, not on {machine.name}."
    if machine.vendor == NVIDIA and is_before(machine.compute_capability, engine.least_capability):
        return (
            f"{title} needs compute capability {engine.least_capability} or later; {machine.name} has "
            f"{machine.compute_capability}."
        )
    return ""


def _format_lacks(deployment: Deployment) -> str:
    machine = deployment.hardware
    widens = machine.vendor == NVIDIA and not is_before(machine.compute_capability, WIDENING)
    if widens or not _widened(deployment):
        return ""
    return (
        f"{machine.name} has no {weight_format(deployment.weights).compute}, and kernels that widen weights in "
        f"{deployment.weights} are for NVIDIA's machines of compute capability {WIDENING} and later."
    )


def _widened(deployment: Deployment) -> bool:
    """Whether weights in 8 or 4 floating-point bits are widened, since the machine multiplies 16 bits alone."""
    known = weight_format(deployment.weights)
    return not known.weight_only and known.compute not in SIXTEEN and deployment.format.compute in SIXTEEN
