"""The codes of the linter's findings, each with the mistake that it means."""

from __future__ import annotations

from types import MappingProxyType

#: code -> mistake. An error makes a bound wrong, a warning needs a check, an info is not a mistake.
CODES = MappingProxyType(
    {
        # the file
        "syntax": "the file is not valid TOML, YAML or JSON, or is empty",
        "schema": "a key or name is unknown, missing or of the wrong type",
        "bad-quantity": "a quantity is not a positive number with the unit of its key",
        "bits-for-bytes": "a bandwidth is in bits, or eight times too high",
        "missing-source": "a table with figures has no source",
        "fact-without-source": "a fact that datasheets leave out is not named in the source of its table",
        "assumption-without-reason": "a source says 'assumed' without a reason",
        "missing-bandwidth": "the main memory of a GPU has no bandwidth, so that nothing can be memory-bound",
        "missing-figure": "a GPU lacks a figure that predictions need, so that a usual one stands for it",
        "name-differs-from-file": "a file of the catalog, which uses the name of the file, is not named as its machine",
        "name-claimed": "a name, alias or device name is that of another product, as in a copy of its file",
        "unknown-vendor": "no machine of the catalog has the vendor, whose measurements machines share",
        "unknown-architecture": "no machine of the vendor has the architecture, whose measurements machines share",
        "bad-compute-capability": "a compute capability is written as its vendor does not write it",
        # peaks
        "peak-arithmetic": "a peak is not SMs x FLOP per clock x clock",
        "peak-differs": "a peak is not that of the known product",
        "sparse-as-dense": "a peak is twice the dense peak: the vendor's figure for 2:4 sparsity",
        "fp16-accumulate": "a GeForce peak is that with fp16 accumulation, not with fp32 accumulation",
        "other-dtype-peak": "a peak is that of another dtype or engine (tf32 for fp32)",
        "other-product-peak": "a peak is that of another product",
        "rounded-up-peak": "a peak is rounded up, so that no kernel can reach it",
        "flop-per-clock": "the FLOP per clock and SM are not those of the compute capability",
        "tensor-below-vector": "the tensor engine is slower than the vector engine for the same dtype",
        "dtype-order": "a narrow dtype is slower on the tensor engine than a wider one",
        "sparse-differs": "a figure with 2:4 sparsity is not one to two times the dense one",
        "microscaled-peak": "the rate of operands with scales is not once or twice that of others",
        "implausible-ridge-point": "the ratio of peak to bandwidth is far outside the range of known machines",
        # chip
        "full-die-sm-count": "the number of SMs is that of the full die; the product has some of them disabled",
        "sm-count-differs": "the number of SMs is not that of the known product",
        "clock-differs": "a clock is not that of the known product",
        "power-differs": "a power limit is not that of the known product",
        "unknown-process": "no energy is known of the manufacturing process, so that another one's counts",
        "fact-differs": "a fact of the chip is not that of the known product or of the compute capability",
        # memory
        "bandwidth-arithmetic": "a bandwidth is not bus width x transfers x clock, or bytes per clock x clock",
        "bandwidth-differs": "a bandwidth is not that of the known product",
        "other-product-bandwidth": "a bandwidth is that of another product",
        "rounded-up-bandwidth": "a bandwidth is rounded up, so that no kernel can reach it",
        "bus-width-differs": "a bus width is not that of the known product",
        "pair-for-device": "a figure is that of a board or module with two devices, not of one device",
        "unit-1000x": "a figure is 1000 times too large or too small: GB for TB, MHz for GHz",
        "implausible-figure": "a figure is far outside the range of known machines",
        "capacity-differs": "a capacity is not that of the known product",
        "capacity-bus-mismatch": "a GDDR capacity is not a multiple of the chips on the bus",
        "capacity-gb-gib": "a capacity is in GB (1e9 B); memory chips have GiB",
        "full-die-l2": "the L2 capacity is that of the full die; the product has a part of it disabled",
        "l2-above-controllers": "the L2 capacity is more than the memory controllers of the bus carry",
        "l2-differs": "the L2 capacity is not that of the known product",
        "shared-memory-differs": "the shared memory per SM is not that of the compute capability",
        # links, launch, sustained
        "link-both-directions": "a link's bandwidth is that of both directions together",
        "link-differs": "a link's bandwidth is not that of its generation or of the known product",
        "launch-implausible": "a launch figure is not within 0.3 to 100 us",
        "launch-order": "the launch floor is above the usual overhead",
        "sustained-above-peak": "a measured figure is above the peak: sparse, cached, or a wrong peak",
        "sustained-implausible": "a measured figure is below a tenth of the peak, or below 70 % for device memory",
    }
)
