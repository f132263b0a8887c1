"""perfmodel: the bound, the predicted time, the measured time, and what is worth optimising first.

    import perfmodel as pm

    p = pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype="fp16"), "a100-sxm4-40gb")
    p.bound_time_s, p.predicted_time_s, p.limiter

Names are loaded when they are first used: importing perfmodel imports neither numpy nor torch nor matplotlib.
"""

from __future__ import annotations

import importlib
import sys
import warnings

#: as that of `typing`, which takes longer to import than all else here
TYPE_CHECKING = False

__version__ = "0.2.0"

_PUBLIC = {
    "PerfModelError": "perfmodel.errors",
    "InputFileError": "perfmodel.errors",
    "UsageError": "perfmodel.errors",
    "UnavailableError": "perfmodel.errors",
    "Hardware": "perfmodel.core.hardware",
    "Prediction": "perfmodel.prediction.result",
    "Report": "perfmodel.core.report",
    "report": "perfmodel.core.report",
    "arithmetic_intensity": "perfmodel.core.roofline",
    "attainable_flop_per_s": "perfmodel.core.roofline",
    "ridge_point": "perfmodel.core.roofline",
    "Operator": "perfmodel.operators",
    "load_operator": "perfmodel.operators",
    "operator_names": "perfmodel.operators",
    "parse_operators": "perfmodel.operators.parse",
    "bound_time": "perfmodel.api",
    "predict": "perfmodel.api",
    "sweep": "perfmodel.api",
    "choose": "perfmodel.api",
    "predict_model": "perfmodel.api",
    "Cluster": "perfmodel.api",
    "read_cluster": "perfmodel.hardware_catalog",
    "train": "perfmodel.api",
    "search": "perfmodel.api",
    "TrainingPlan": "perfmodel.training.plan",
    "Deployment": "perfmodel.api",
    "steady": "perfmodel.serving.steady",
    "simulate": "perfmodel.serving.load",
    "Requests": "perfmodel.serving.requests",
    "open_loop": "perfmodel.serving.requests",
    "closed_loop": "perfmodel.serving.requests",
    "read_requests": "perfmodel.serving.arrivals",
    "html_report": "perfmodel.api",
    "read_record": "perfmodel.api",
    "compare": "perfmodel.api",
    "validate": "perfmodel.api",
    "capture": "perfmodel.module_capture.capture",
    "monitor": "perfmodel.measure.monitor.session",
    "read_model_config": "perfmodel.workloads.config",
    "find_model": "perfmodel.workloads.catalog",
    "model_names": "perfmodel.workloads.catalog",
    "ModelConfig": "perfmodel.workloads.model_config",
    "forward_pass": "perfmodel.workloads.transformer",
    "amdahl_speedup": "perfmodel.investment.amdahl",
    "amdahl_limit": "perfmodel.investment.amdahl",
    "gustafson_speedup": "perfmodel.investment.amdahl",
    "serial_fraction": "perfmodel.investment.amdahl",
    "fit_scaling": "perfmodel.investment.amdahl",
    "Candidate": "perfmodel.profile.candidate",
    "Plan": "perfmodel.investment.plan",
    "read_plan": "perfmodel.investment.plan",
    "Economics": "perfmodel.investment.economics",
    "diagnose": "perfmodel.api",
    "compare_diagnoses": "perfmodel.diagnosis.against",
    "read_scenario": "perfmodel.investment.scenario",
    "what_if": "perfmodel.api",
    "fuse_operators": "perfmodel.api",
    "profile_limits": "perfmodel.api",
    "project": "perfmodel.api",
    "breakdown_plot": "perfmodel.render.plots.diagnosis.breakdown",
    "timeline_plot": "perfmodel.render.plots.diagnosis.timeline",
    "headroom": "perfmodel.api",
    "rank_candidates": "perfmodel.api",
    "Profile": "perfmodel.profile.profile",
    "ProfileEntry": "perfmodel.profile.profile",
    "hardware": "perfmodel.hardware_catalog",
    "hardware_names": "perfmodel.hardware_catalog",
    "read_profile": "perfmodel.formats",
    "read_profiles": "perfmodel.formats",
    "roofline_plot": "perfmodel.api",
}


#: old name -> name; version 0.2 has both, 0.3 only the new ones
_RENAMED = {
    "forward": "forward_pass",
    "against": "compare_diagnoses",
    "limits": "profile_limits",
    "rank": "rank_candidates",
    "fuse": "fuse_operators",
    "read_path": "read_scenario",
}


#: commands that have another name in Python
_COMMANDS = {
    "analyze": "pm.predict",
    "models": "pm.model_names",
    "roi": "pm.rank_candidates",
    "serve": "pm.simulate, or pm.steady without the single requests",
    "show": "pm.read_record",
    "whatif": "pm.what_if",
}


if TYPE_CHECKING:  # what type checkers and editors see; operators that are not listed are typed as Any
    from typing import Any

    from perfmodel.api import Cluster as Cluster
    from perfmodel.api import Deployment as Deployment
    from perfmodel.api import bound_time as bound_time
    from perfmodel.api import choose as choose
    from perfmodel.api import compare as compare
    from perfmodel.api import diagnose as diagnose
    from perfmodel.api import fuse_operators as fuse_operators
    from perfmodel.api import headroom as headroom
    from perfmodel.api import html_report as html_report
    from perfmodel.api import predict as predict
    from perfmodel.api import predict_model as predict_model
    from perfmodel.api import profile_limits as profile_limits
    from perfmodel.api import project as project
    from perfmodel.api import rank_candidates as rank_candidates
    from perfmodel.api import read_record as read_record
    from perfmodel.api import roofline_plot as roofline_plot
    from perfmodel.api import search as search
    from perfmodel.api import sweep as sweep
    from perfmodel.api import train as train
    from perfmodel.api import validate as validate
    from perfmodel.api import what_if as what_if
    from perfmodel.core.hardware import Hardware as Hardware
    from perfmodel.core.report import Report as Report
    from perfmodel.core.report import report as report
    from perfmodel.core.roofline import arithmetic_intensity as arithmetic_intensity
    from perfmodel.core.roofline import attainable_flop_per_s as attainable_flop_per_s
    from perfmodel.core.roofline import ridge_point as ridge_point
    from perfmodel.diagnosis.against import compare_diagnoses as compare_diagnoses
    from perfmodel.errors import InputFileError as InputFileError
    from perfmodel.errors import PerfModelError as PerfModelError
    from perfmodel.errors import UnavailableError as UnavailableError
    from perfmodel.errors import UsageError as UsageError
    from perfmodel.formats import read_profile as read_profile
    from perfmodel.formats import read_profiles as read_profiles
    from perfmodel.hardware_catalog import hardware as hardware
    from perfmodel.hardware_catalog import hardware_names as hardware_names
    from perfmodel.hardware_catalog import read_cluster as read_cluster
    from perfmodel.investment.amdahl import amdahl_limit as amdahl_limit
    from perfmodel.investment.amdahl import amdahl_speedup as amdahl_speedup
    from perfmodel.investment.amdahl import fit_scaling as fit_scaling
    from perfmodel.investment.amdahl import gustafson_speedup as gustafson_speedup
    from perfmodel.investment.amdahl import serial_fraction as serial_fraction
    from perfmodel.investment.economics import Economics as Economics
    from perfmodel.investment.plan import Plan as Plan
    from perfmodel.investment.plan import read_plan as read_plan
    from perfmodel.investment.scenario import read_scenario as read_scenario
    from perfmodel.measure.monitor.session import monitor as monitor
    from perfmodel.module_capture.capture import capture as capture
    from perfmodel.operators import Operator as Operator
    from perfmodel.operators import load_operator as load_operator
    from perfmodel.operators import operator_names as operator_names
    from perfmodel.operators.add_rms_norm import AddRmsNorm as AddRmsNorm
    from perfmodel.operators.all_gather import AllGather as AllGather
    from perfmodel.operators.all_reduce import AllReduce as AllReduce
    from perfmodel.operators.alltoall import Alltoall as Alltoall
    from perfmodel.operators.attention import Attention as Attention
    from perfmodel.operators.batch_norm import BatchNorm as BatchNorm
    from perfmodel.operators.broadcast import Broadcast as Broadcast
    from perfmodel.operators.conv2d import Conv2d as Conv2d
    from perfmodel.operators.conv3d import Conv3d as Conv3d
    from perfmodel.operators.cross_entropy import CrossEntropy as CrossEntropy
    from perfmodel.operators.dequantize import Dequantize as Dequantize
    from perfmodel.operators.dropout import Dropout as Dropout
    from perfmodel.operators.elementwise import Elementwise as Elementwise
    from perfmodel.operators.embedding import Embedding as Embedding
    from perfmodel.operators.embedding_bag import EmbeddingBag as EmbeddingBag
    from perfmodel.operators.fft import Fft as Fft
    from perfmodel.operators.gated_delta import GatedDelta as GatedDelta
    from perfmodel.operators.gather import Gather as Gather
    from perfmodel.operators.geglu import Geglu as Geglu
    from perfmodel.operators.gemm import Gemm as Gemm
    from perfmodel.operators.group_norm import GroupNorm as GroupNorm
    from perfmodel.operators.index_select import IndexSelect as IndexSelect
    from perfmodel.operators.kv_write import KvWrite as KvWrite
    from perfmodel.operators.layer_norm import LayerNorm as LayerNorm
    from perfmodel.operators.linear_attention import LinearAttention as LinearAttention
    from perfmodel.operators.linear_cross_entropy import LinearCrossEntropy as LinearCrossEntropy
    from perfmodel.operators.memcpy import Memcpy as Memcpy
    from perfmodel.operators.mla import Mla as Mla
    from perfmodel.operators.moe import Moe as Moe
    from perfmodel.operators.muon import Muon as Muon
    from perfmodel.operators.optimizer import Optimizer as Optimizer
    from perfmodel.operators.optimizer_adamw import OptimizerAdamw as OptimizerAdamw
    from perfmodel.operators.parse import parse_operators as parse_operators
    from perfmodel.operators.pool2d import Pool2d as Pool2d
    from perfmodel.operators.pool3d import Pool3d as Pool3d
    from perfmodel.operators.quantize import Quantize as Quantize
    from perfmodel.operators.reduce_scatter import ReduceScatter as ReduceScatter
    from perfmodel.operators.reduction import Reduction as Reduction
    from perfmodel.operators.resample import Resample as Resample
    from perfmodel.operators.rms_norm import RmsNorm as RmsNorm
    from perfmodel.operators.rope import Rope as Rope
    from perfmodel.operators.sampling import Sampling as Sampling
    from perfmodel.operators.scan import Scan as Scan
    from perfmodel.operators.scatter_add import ScatterAdd as ScatterAdd
    from perfmodel.operators.send_recv import SendRecv as SendRecv
    from perfmodel.operators.softmax import Softmax as Softmax
    from perfmodel.operators.sort import Sort as Sort
    from perfmodel.operators.ssm_scan import SsmScan as SsmScan
    from perfmodel.operators.swiglu import Swiglu as Swiglu
    from perfmodel.operators.topk import Topk as Topk
    from perfmodel.operators.transpose import Transpose as Transpose
    from perfmodel.prediction.result import Prediction as Prediction
    from perfmodel.profile.candidate import Candidate as Candidate
    from perfmodel.profile.profile import Profile as Profile
    from perfmodel.profile.profile import ProfileEntry as ProfileEntry
    from perfmodel.render.plots.diagnosis.breakdown import breakdown_plot as breakdown_plot
    from perfmodel.render.plots.diagnosis.timeline import timeline_plot as timeline_plot
    from perfmodel.serving.arrivals import read_requests as read_requests
    from perfmodel.serving.load import simulate as simulate
    from perfmodel.serving.requests import Requests as Requests
    from perfmodel.serving.requests import closed_loop as closed_loop
    from perfmodel.serving.requests import open_loop as open_loop
    from perfmodel.serving.steady import steady as steady
    from perfmodel.training.plan import TrainingPlan as TrainingPlan
    from perfmodel.workloads.catalog import find_model as find_model
    from perfmodel.workloads.catalog import model_names as model_names
    from perfmodel.workloads.config import read_model_config as read_model_config
    from perfmodel.workloads.model_config import ModelConfig as ModelConfig
    from perfmodel.workloads.transformer import forward_pass as forward_pass

    def __getattr__(name: str) -> Any: ...
else:

    def __getattr__(name: str) -> Any:
        """Load a public name, or an operator class, when it is first used (PEP 562)."""
        if name in _RENAMED:
            new = _RENAMED[name]
            message = f"perfmodel.{name} is now perfmodel.{new}; perfmodel 0.3 removes the old name."
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(sys.modules[__name__], new)
        if name == "__all__":  # asked for by ``from perfmodel import *``
            return [public for public in __dir__() if not public.startswith("_")]
        value = getattr(importlib.import_module(_PUBLIC[name]), name) if name in _PUBLIC else _operator_class(name)
        globals()[name] = value
        return value


def _operator_class(name: str) -> Any:
    if name[:1].isupper():
        from perfmodel.operators import load_class

        try:
            return load_class(name)
        except KeyError:
            pass
    import importlib.util

    message = f"module 'perfmodel' has no attribute {name!r}"
    # what tools ask of any module, and what ``from perfmodel import storage`` asks before it imports the room
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}"):
        raise AttributeError(message)
    if name in _COMMANDS:
        raise AttributeError(f"{message}. The command `{name}` is {_COMMANDS[name]}.", name=name, obj=None)
    from perfmodel.errors import nearest

    # with ``obj`` Python would add the same suggestion once more; notebooks add none
    raise AttributeError(f"{message}. {nearest(name, __dir__())}".removesuffix(". "), name=name, obj=None)


def __dir__() -> list[str]:
    """List the public names, for completion in notebooks."""
    from perfmodel.operators import class_names

    return sorted([*_PUBLIC, *class_names(), "__version__"])
