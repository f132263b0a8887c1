"""What the names of copies tell: where from, where to, and by which memory of the host."""

import pytest

from perfmodel.profile.copies import copy_direction, copy_pinned, within_device
from perfmodel.profile.timeline import CopyDirection


@pytest.mark.parametrize(
    ("name", "direction", "pinned"),
    [
        ("Memcpy PtoP (Device -> Device)", CopyDirection.BETWEEN_DEVICES, -1),
        ("[CUDA memcpy Peer-to-Peer]", CopyDirection.BETWEEN_DEVICES, -1),
        ("Memcpy DtoH (Device -> Pinned)", CopyDirection.DEVICE_TO_HOST, 1),
        ("CopyHostToDevice (Pageable)", CopyDirection.HOST_TO_DEVICE, 0),
        ("[CUDA memcpy Device-to-Device]", CopyDirection.DEVICE_TO_DEVICE, -1),
        ("memcpy_h2d", CopyDirection.HOST_TO_DEVICE, -1),
        ("zeCommandListAppendMemoryCopy(M2D)", CopyDirection.HOST_TO_DEVICE, -1),
        ("zeCommandListAppendMemoryCopy(D2M)[4096]", CopyDirection.DEVICE_TO_HOST, -1),
        ("zeCommandListAppendMemoryCopy(D2D)", CopyDirection.DEVICE_TO_DEVICE, -1),
        ("Memset (Device)", CopyDirection.UNKNOWN, -1),
    ],
)
def test_copies(name, direction, pinned):
    assert (copy_direction(name), copy_pinned(name)) == (direction, pinned)


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("Memcpy DtoD (Device -> Device)", True),
        ("[CUDA memcpy Device-to-Device]", True),
        ("[CUDA memcpy DtoD]", True),
        ("Memcpy PtoP (Device -> Device)", False),
        ("[CUDA memcpy Peer-to-Peer]", False),
        ("Memcpy HtoD (Pinned -> Device)", False),
        ("__amd_rocclr_copyBuffer", False),
    ],
)
def test_a_copy_within_a_device_crosses_no_link(name, inside):
    assert within_device(name) is inside
