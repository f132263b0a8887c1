"""A cluster in a file of its own."""

import pytest

import perfmodel as pm
from perfmodel.core.hardware import Fabric
from perfmodel.errors import InputFileError


def test_a_file_gives_a_cluster(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nhardware = "a100-sxm4-80gb"\ngpus = 64\nnic = "100 Gb/s"\nalpha = "20 us"\n')
    cluster = pm.read_cluster(path)
    assert (cluster.gpus, cluster.gpus_per_node, cluster.nic_bytes_per_s, cluster.alpha_s) == (
        64,
        8,
        12.5e9,
        pytest.approx(20e-6),
    )


def test_a_file_may_leave_bridges_out(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nhardware = "rtx-a6000"\ngpus = 4\nbridge = false\n')
    assert [link.name for link in pm.read_cluster(path).machine.links] == ["pcie"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus = 8\n", r"no table \[cluster\]"),
        ('[cluster]\nhardware = "h100"\n', "gpus"),
        ('[cluster]\nhardware = "h100"\ngpus = 8\nnics = "400 Gb/s"\n', "Did you mean 'nic'"),
        ('[cluster]\nhardware = "h100"\ngpus = 8\nnic = "fast"\n', "rate of a network"),
        ('[cluster]\nhardware = "h1000"\ngpus = 8\n', "unknown hardware"),
        ('[cluster]\nhardware = "h100"\ngpus = 8\nspeed = 3\n', "unknown key 'speed'. Allowed: .*gpus.*nvlink_domain"),
        ('[cluster]\nhardware = "h100"\ngpus = "8"\n', r"cluster\.gpus: expected `int`, got `str`. Found: '8'"),
        ('[cluster]\nhardware = "h100"\ngpus = 16\nalpha = 0.00002\n', "has no unit. Write '20 us'"),
    ],
)
def test_a_wrong_file_gets_one_message(tmp_path, text, message):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(InputFileError, match=message):
        pm.read_cluster(path)


def test_a_file_may_have_every_key_of_a_specification_s_cluster(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[cluster]\nhardware = "h100"\ngpus = 16\ngpus_per_node = 4\nnic = "100 Gb/s"\nnic_efficiency = 0.7\n'
        'alpha = "20 us"\noversubscription = 2\nhost_memory = "240 GB"\ndeviation = 0.1\nsource = "our switches"\n'
    )
    cluster = pm.read_cluster(path)
    assert cluster.source == "our switches"
    assert cluster.machine.fabric == Fabric(4, 12.5e9, 0.7, pytest.approx(20e-6), 2.0, 240e9, 0.1, "our switches")
