"""Facts of a record about machine and device."""

from __future__ import annotations

import pytest

from perfmodel.kernels.registry import Kernel
from perfmodel.measure import machine_facts as module
from perfmodel.measure.machine_facts import checkout, disturbance, hashed, installed, library_versions, machine_facts
from perfmodel.operators.gemm import Gemm


class FakeTelemetry:
    def facts(self):
        return {"driver": "570.1", "mig": False}

    def read(self):
        return {"power_w": 90.0}


def test_context_hides_the_identifier_of_a_gpu(scripted):
    device = scripted()
    device.uuid = "GPU-0"
    facts = machine_facts(device, FakeTelemetry())["device"]
    assert facts["uuid_sha256"] == hashed("GPU-0") != hashed("GPU-1")
    assert "GPU-0" not in str(facts)
    assert (facts["driver"], facts["mig"], facts["before"]) == ("570.1", False, {"power_w": 90.0})


def test_versions_of_packages_that_are_not_there_are_left_out():
    assert installed("numpy")
    assert installed("no-such-package") == ""


def test_libraries_of_kernels_are_installed_packages_that_are_not_stated_elsewhere(monkeypatch):
    kernels = [Kernel(name, "gemm", name, lambda op, inputs: None) for name in ("torch", "numpy", "no_such_package")]
    monkeypatch.setattr(module, "find_kernels", lambda op: kernels)
    found = library_versions([Gemm(m=1, n=1, k=1)], known={"torch": "2.11.0"})
    assert found == {"numpy": installed("numpy")}


def test_commit_only_from_a_checkout(monkeypatch, tmp_path):
    facts = checkout()
    assert not facts or (len(facts["commit"]) == 40 and isinstance(facts["dirty"], bool))
    monkeypatch.setattr(module, "shipped_folder", lambda: tmp_path / "hardware_specs")
    assert checkout() == {}


@pytest.mark.parametrize(("load", "warns"), [(1.0, True), (0.99, False), (None, False)])
def test_others_disturb_from_a_quarter_of_the_cpus_on(monkeypatch, load, warns):
    monkeypatch.setattr(module, "load_average", lambda: load)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
    assert bool(disturbance()) == warns
