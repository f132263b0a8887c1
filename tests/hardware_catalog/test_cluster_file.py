"""A cluster in a file of its own."""

import pytest

import perfmodel as pm
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus = 8\n", r"no table \[cluster\]"),
        ('[cluster]\nhardware = "h100"\n', "gpus"),
        ('[cluster]\nhardware = "h100"\ngpus = 8\nnics = "400 Gb/s"\n', "Did you mean 'nic'"),
        ('[cluster]\nhardware = "h100"\ngpus = 8\nnic = "fast"\n', "rate of a network"),
        ('[cluster]\nhardware = "h1000"\ngpus = 8\n', "unknown hardware"),
    ],
)
def test_a_wrong_file_gets_one_message(tmp_path, text, message):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(InputFileError, match=message):
        pm.read_cluster(path)
