"""Which constants hold, and how wide an interval is for what they have not seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.hardware import Hardware, Launch
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.vocabulary import Calibration, ErrorSource
from perfmodel.hardware_catalog import load_all
from perfmodel.prediction.latency import constants as latency_constants
from perfmodel.prediction.latency import nearest_tables
from perfmodel.prediction.latency.constants import combined
from perfmodel.prediction.latency.elementwise import FAMILY
from perfmodel.prediction.latency.families import family, family_names
from perfmodel.prediction.latency.own_figures import measured_constants
from perfmodel.prediction.latency.tables import latency_specs
from perfmodel.prediction.uncertainty import Z80

OWN, NEVER = Calibration.CALIBRATED, Calibration.NEVER_SEEN
ENDS = dict.fromkeys(REGIMES, (0.8, 1.25))
#: alpha and beta were measured somewhere, alpha alone on the machine
WIDE = LatencyTable(
    {"eta": 0.8},
    {"alpha": {"issue": 0.5}, "beta": {"issue": 2.0}},
    ENDS,
    {
        "machine": (0.3, 0.2, 0.1), "library": (0.4, 0.4, 0.4), "library_here": (0.2, 0.2, 0.2),
        "dtype": (0.25, 0.25, 0.25), "dtype_here": (0.08, 0.08, 0.08), "vendor": (0.3, 0.3, 0.3),
    },
    ("alpha", "beta"),
    ("fp16", "fp32"),
)  # fmt: skip
MACHINE = LatencyTable({"eta": 0.9, "issue": 1.0}, {}, ENDS, {}, ("alpha",), ("fp32",))
GEMM = pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16")


#: half an 80 % interval of the difference of two logistic variates, over its deviation and that of a normal one: 0.970
LOGISTIC = 3.1887790 / 2.5650997 / 1.2816


def width(*deviations: float) -> float:
    """The upper end with some deviations beside the shape's ln 1.25."""
    return math.exp(math.sqrt(math.log(1.25) ** 2 + Z80**2 * sum(s**2 for s in deviations)))


def test_a_kernel_starts_no_faster_than_the_queue_of_its_machine() -> None:
    """4.4 us on an MI300X, where constants of other machines start in 1.7; in clocks where products count them."""
    for name, unit in (("elementwise", 1.0), ("conv2d", 1.0), ("stream", 1.0), ("gemm_bf16", 2.1e9)):
        for start in ("launch", "start"):
            if start in (values := latency_constants.constants(family(name), pm.hardware("mi300x")).values):
                assert values[start] == pytest.approx(4.4e-6 * unit)
    measured = replace(pm.hardware("mi210"), launch=Launch(queued_s=1e-3))
    own = latency_constants.constants(family("elementwise"), measured).values["launch"]
    assert own < 1e-5  # the machine's own rows say what it takes
    slow = latency_constants.constants(family("moe_bf16"), pm.hardware("mi300x")).values["start"]
    assert slow > 4.4e-6 * 2.1e9  # what takes longer elsewhere still does


@pytest.mark.parametrize(
    ("found", "library", "dtype", "deviations"),
    [
        ([(OWN, MACHINE), (NEVER, WIDE)], "alpha", "fp32", ()),
        ([(OWN, MACHINE), (NEVER, WIDE)], "", "fp32", ()),
        ([(OWN, MACHINE), (NEVER, WIDE)], "beta", "fp32", (0.2 * LOGISTIC,)),
        ([(OWN, MACHINE), (NEVER, WIDE)], "nonsense", "fp32", (0.4 * LOGISTIC * 2**0.5,)),
        ([(OWN, MACHINE), (NEVER, WIDE)], "alpha", "bf16", (0.25,)),
        ([(NEVER, WIDE)], "alpha", "fp32", (0.1 * LOGISTIC,)),
        ([(NEVER, WIDE)], "", "fp32", (0.1 * LOGISTIC, 0.4 * LOGISTIC * 1.5**0.5)),
        ([(NEVER, WIDE)], "nonsense", "fp8", (0.1 * LOGISTIC, 0.4 * LOGISTIC * 1.5**0.5, 0.25)),
    ],
)
def test_what_the_constants_have_not_seen_adds_its_variance(found, library, dtype, deviations) -> None:  # type: ignore[no-untyped-def]
    got = combined(pm_family(), found, library, dtype)
    low, high = got.intervals["large"]
    assert high == pytest.approx(width(*deviations))
    assert low == pytest.approx(1 / width(*deviations))
    assert sum(values[2] for values in got.variances.values()) == pytest.approx(
        (math.log(1.25) / Z80) ** 2 + sum(s**2 for s in deviations)
    )


def pm_family():  # type: ignore[no-untyped-def]
    """A family whose dtypes matter, and whose libraries differ alike in all of them."""
    return replace(FAMILY, by_dtype=True, wide_library=None)


def test_libraries_differ_less_in_wide_elements() -> None:
    narrower = replace(FAMILY, wide_library=(0.3, 0.2, 0.1))
    wide, narrow = (
        combined(narrower, [(OWN, MACHINE), (NEVER, WIDE)], "nonsense", dtype) for dtype in ("fp32", "fp16")
    )
    assert wide.variances[ErrorSource.LIBRARY] == pytest.approx([0.3**2, 0.2**2, 0.1**2])
    assert narrow.variances[ErrorSource.LIBRARY] == pytest.approx([2 * (0.4 * LOGISTIC) ** 2] * 3)


def test_a_vendor_without_any_table_adds_its_variance() -> None:
    foreign = combined(pm_family(), [(NEVER, WIDE)], "alpha", "fp32", own_vendor=False)
    assert foreign.intervals["large"][1] == pytest.approx(width(0.1 * LOGISTIC, 0.3))


def test_a_library_that_was_measured_elsewhere_carries_its_ratio() -> None:
    # beta takes 4 times alpha's cycles there; here alpha takes 1, and the kernel alone sets the cycles: 4
    got = combined(pm_family(), [(OWN, MACHINE), (NEVER, WIDE)], "beta", "fp32")
    assert got.values["issue"] == pytest.approx(4.0)
    # a constant that machines set too: 1 x 4^w, w = 0.4^2 / (0.4^2 + 0.2^2) = 0.8
    shared = tuple(replace(constant, of_kernel=False) for constant in pm_family().constants)
    got = combined(replace(pm_family(), constants=shared), [(OWN, MACHINE), (NEVER, WIDE)], "beta", "fp32")
    assert got.values["issue"] == pytest.approx(4**0.8)
    assert combined(pm_family(), [(OWN, MACHINE), (NEVER, WIDE)], "alpha", "fp32").values["issue"] == 1.0


def test_a_library_that_nobody_measured_is_the_mean_of_all_rather_than_of_those_of_the_machine() -> None:
    constants = tuple(replace(constant, unmeasured=None) for constant in pm_family().constants)
    family = replace(pm_family(), constants=constants)
    # the mean of alpha and beta is twice alpha's there; the dispatch is the host's, too, and stays
    wide = replace(WIDE, libraries={"alpha": {"issue": 0.5, "host": 1e-5}, "beta": {"issue": 2.0, "host": 9e-5}})

    def unknown(own: LatencyTable) -> dict[str, float]:
        return dict(combined(family, [(OWN, own), (NEVER, wide)], "nonsense", "fp32").values)

    assert unknown(MACHINE)["issue"] == pytest.approx(2.0)
    assert unknown(replace(MACHINE, constants={"issue": 1.0, "host": 2e-5}))["host"] == 2e-5
    # a machine that ran all of them has nothing to learn, and neither has one that ran none of them
    for ran in (("alpha", "beta"), ("gamma",)):
        assert unknown(replace(MACHINE, known_libraries=ran))["issue"] == 1.0


def test_an_unknown_library_is_less_sure_than_a_known_one() -> None:
    known, unknown = (pm.predict(GEMM, "h100", library=name) for name in ("sglang", "nonsense"))
    assert unknown.predicted_time_high_s / unknown.predicted_time_low_s > 1.05 * (
        known.predicted_time_high_s / known.predicted_time_low_s
    )
    assert "none of nonsense's own" in unknown.prediction_basis


def test_a_machine_of_a_vendor_that_nobody_measured_is_least_sure() -> None:
    ratio = {}
    for machine in load_all():
        found = pm.predict(GEMM, machine) if machine.find_peak("bf16", "tensor") else None
        if found is not None:
            ratio[machine.name] = found.predicted_time_high_s / found.predicted_time_low_s
    assert ratio["mi300x"] > ratio["l4"] > ratio["h200-sxm-141gb"]


def test_a_table_of_the_vendor_alone_makes_the_vendor_a_seen_one(
    simple_gpu: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a machine for which nothing but the table for any GPU holds pays for its vendor."""
    for seen, pays in (("generic", True), ("none", False)):
        tables = {seen: {FAMILY.name: WIDE}}
        monkeypatch.setattr(nearest_tables, "default_tables", lambda place, tables=tables: tables.get(place, {}))
        machine = replace(simple_gpu, memory=simple_gpu.memory)  # nothing is kept on it yet
        got = latency_constants.constants(FAMILY, machine, "alpha", "fp32")
        assert ("vendor" in got.variances) is pays


def test_a_library_has_the_constant_of_all_where_its_rows_do_not_tell_another() -> None:
    # alpha takes 4 cycles where all take 2; here alpha takes 1, and so beta half of it, as there
    wide = replace(
        WIDE, constants={"eta": 0.8, "issue": 2.0}, libraries={"alpha": {"issue": 4.0}, "beta": {"eta": 0.8}}
    )
    here = replace(MACHINE, constants={"eta": 0.9}, libraries={"alpha": {"issue": 1.0}})
    assert combined(pm_family(), [(OWN, here), (NEVER, wide)], "beta", "fp32").values["issue"] == pytest.approx(0.5)


@pytest.mark.parametrize("name", family_names())
def test_a_measured_bandwidth_determines_only_constants_that_a_family_has(name: str) -> None:
    machine = next(machine for machine in load_all() if machine.name == "h100-sxm5-80gb")
    main = replace(machine.main_memory, sustained_bytes_per_s=3e12)
    machine = replace(machine, memory=tuple(main if level.name == main.name else level for level in machine.memory))
    determined = measured_constants(family(name), machine)
    assert determined.keys() <= {constant.name for constant in family(name).all_constants}
    assert bool(determined) == family(name).streams
    latency_specs({name: LatencyTable(determined)})  # a table with them can be written to a specification


@pytest.mark.parametrize(("link", "deviations"), [("nvlink", ()), ("", ()), ("pcie", (0.15,))])
def test_a_kind_of_link_that_the_nearest_table_has_no_rows_of_adds_its_variance(link, deviations) -> None:  # type: ignore[no-untyped-def]
    near = replace(MACHINE, links=("nvlink",))
    wide = replace(WIDE, deviations={**WIDE.deviations, "link": (0.4, 0.3, 0.15)}, links=("nvlink", "pcie"))
    got = combined(pm_family(), [(OWN, near), (NEVER, wide)], "alpha", "fp32", link=link)
    assert got.intervals["large"][1] == pytest.approx(width(*deviations))
    assert got.calibration == (NEVER if deviations else OWN)


def test_calls_that_a_family_tells_apart_have_intervals_of_their_own() -> None:
    own = replace(MACHINE, apart={**ENDS, "large": (0.5, 2.0)})
    got = combined(pm_family(), [(OWN, own), (NEVER, WIDE)], "alpha", "fp32")
    assert got.intervals["large"] == pytest.approx((0.8, 1.25))
    assert got.apart is not None
    assert got.apart.intervals["large"] == pytest.approx((0.5, 2.0))
    nearer = combined(pm_family(), [(OWN, MACHINE), (NEVER, own)], "alpha", "fp32")
    assert nearer.apart is None  # the nearer table rules


def test_the_shapes_of_a_library_may_differ_by_more_than_those_of_all() -> None:
    own = replace(MACHINE, spread={"alpha": 2.0})
    known, other = (combined(pm_family(), [(OWN, own), (NEVER, WIDE)], name, "fp32") for name in ("alpha", "beta"))
    assert known.intervals["large"] == pytest.approx((0.8**2, 1.25**2))
    plain = combined(pm_family(), [(OWN, MACHINE), (NEVER, WIDE)], "beta", "fp32")
    assert other.intervals == plain.intervals


def test_a_sweep_over_the_batch_has_the_interval_of_each_product() -> None:
    machine = next(one for one in load_all() if one.name == "p100-pcie-16gb")
    swept = pm.predict(pm.Gemm(m=2048, n=2048, k=2048, batch=np.array([1, 2, 4]), dtype="fp32"), machine)
    for place, batch in enumerate((1, 2, 4)):
        one = pm.predict(pm.Gemm(m=2048, n=2048, k=2048, batch=batch, dtype="fp32"), machine)
        assert swept.predicted_time_high_s[place] == pytest.approx(one.predicted_time_high_s)
        shape = swept.uncertainty.variances(swept.regime)[ErrorSource.SHAPE][place]
        assert shape == pytest.approx(one.uncertainty.variances(str(one.regime))[ErrorSource.SHAPE])
    ratio = swept.predicted_time_high_s / swept.predicted_time_s
    assert ratio[0] > ratio[1]  # single products spread more
