"""The codes of the linter's findings, each with the mistake that it stands for."""

from __future__ import annotations

from types import MappingProxyType

#: code -> the mistake. An error makes a bound wrong; a warning deserves a look; an info is no mistake.
CODES = MappingProxyType(
    {
        # the file
        "syntax": "the file is no valid TOML, YAML or JSON, or is empty",
        "schema": "a key or name is unknown or missing, or has the wrong type",
        "bad-quantity": "a quantity is no number with the unit that its key wants, or is not positive",
        "bits-for-bytes": "a bandwidth is in bits, or eight times what it should be",
        "missing-source": "a table of figures does not say where they are from",
        "missing-bandwidth": "the main memory of a GPU has no bandwidth, so nothing can be memory-bound",
        "name-differs-from-file": "the catalog finds a machine by the name of its file, which is another",
        "name-claimed": "an alias or device name belongs to another product",
        # peaks
        "peak-arithmetic": "a peak is not SMs x FLOP per clock x clock",
        "peak-differs": "a peak is not that of the known product",
        "sparse-as-dense": "a peak is twice the dense one: the vendor's figure for 2:4 sparsity",
        "fp16-accumulate": "a GeForce peak with fp16 accumulation stands for the one with fp32 accumulation",
        "other-dtype-peak": "a peak is that of another dtype or engine (tf32's as fp32's)",
        "other-product-peak": "a peak is that of another product",
        "rounded-up-peak": "a peak is rounded up, so that no kernel can reach it",
        "flop-per-clock": "FLOP per clock per SM are not those of the compute capability",
        "tensor-below-vector": "the tensor engine is slower than the vector engine in the same dtype",
        "dtype-order": "a narrower dtype is slower on the tensor engine than a wider one",
        "implausible-ridge-point": "peak over bandwidth is far outside of what any machine has",
        # chip
        "full-die-sm-count": "the SMs of the full die, of which the product has some disabled",
        "sm-count-differs": "the number of SMs is not that of the known product",
        "clock-differs": "a clock is not that of the known product",
        # memory
        "bandwidth-arithmetic": "a bandwidth is not bus width x transfers x clock, or bytes per clock x clock",
        "bandwidth-differs": "a bandwidth is not that of the known product",
        "other-product-bandwidth": "a bandwidth is that of another product",
        "rounded-up-bandwidth": "a bandwidth is rounded up, so that nothing can reach it",
        "bus-width-differs": "a bus width is not that of the known product",
        "pair-for-device": "the figure of a board or module with two devices stands for one device",
        "unit-1000x": "a figure is 1000 times too large or too small: GB for TB, MHz for GHz",
        "implausible-figure": "a figure is far outside of what any machine has",
        "capacity-differs": "a capacity is not that of the known product",
        "capacity-bus-mismatch": "a GDDR capacity does not divide into the chips that the bus width has",
        "capacity-gb-gib": "a capacity is in GB (1e9 B), while memory chips come in GiB",
        "full-die-l2": "the L2 cache of the full die, of which the product has some disabled",
        "l2-differs": "the L2 capacity is not that of the known product",
        "shared-memory-differs": "shared memory per SM is not that of the compute capability",
        # links, launch, sustained
        "link-both-directions": "a link's bandwidth is that of both directions together",
        "link-differs": "a link's bandwidth is not that of its generation or of the known product",
        "launch-implausible": "a launch figure is outside of 0.3 to 100 us",
        "launch-order": "the launch floor is above the usual overhead",
        "sustained-above-peak": "a measured figure is above the peak: sparse, cached, or a wrong peak",
        "sustained-implausible": "a measured figure is under a tenth of the peak",
    }
)
