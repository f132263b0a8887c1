"""The names of machines as people, drivers and clouds write them, and which of them are alike.

A name is compared by its words, in lower case and without brands: "NVIDIA A100-SXM4-80GB", "a100_sxm4_80gb" and
"DGX A100 SXM4 80G" are one name.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from perfmodel.files import read_document, shipped_folder

#: words before the product's name, as NVML, torch, rocm-smi and people write it
_BRANDS = ("nvidia", "amd", "intel", "tesla", "instinct", "geforce")
#: systems of several GPUs, whose names stand before or behind that of the GPU: DGX A100, HGX B200, B200 NVL8
_SYSTEMS, _SIZES = ("dgx", "hgx", "mgx"), ("nvl8",)
#: words that tell a board with another chip from the product of the same number: RTX 4090 Laptop GPU, RTX 5090 D
_OTHER_CHIPS = frozenset(("laptop", "mobile", "d"))
#: words behind the number that tell products of one number apart
_EDITIONS = frozenset(("ti", "super", "xt", "xtx", "gre"))
#: similarity from which on a name is taken for a misspelt one; board names of one product reach about 0.65
_TYPING_ERROR = 0.8


def name_key(name: str) -> str:
    """Return a name for comparison: lower case, without leading brand and separators.

    >>> name_key("NVIDIA A100-SXM4-80GB") == name_key("a100_sxm4_80g") == name_key("DGX A100 SXM4 80GB")
    True
    >>> name_key("NVIDIA H100 NVL") == name_key("NVIDIA H100 PCIe")
    False
    """
    return "".join(words_of(name))


@functools.lru_cache(maxsize=4096)  # every name of the catalog is compared with every other by lint
def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case, without marks, leading brands and the system that holds the GPU.

    >>> words_of("Intel(R) Arc(TM) Pro B60 Graphics")
    ('arc', 'pro', 'b60', 'graphics')
    """
    text = re.sub(r"\((?:r|tm|c)\)|[®™]", " ", name.lower())
    words = re.findall(r"[^\s_\-/()\[\]]+", text)
    while len(words) > 1 and words[0] in (*_BRANDS, *_SYSTEMS):
        words = words[1:]
    if len(words) > 1 and words[-1] in _SIZES:
        words = words[:-1]
    # a board for export is written "5090 D" and "5090D"
    apart = [part for word in words for part in re.sub(r"^(\d{4})d$", r"\1 d", word).split()]
    return tuple(re.sub(r"^(\d+)g$", r"\1gb", word) for word in apart)


def product_of(name: str) -> tuple[str, ...]:
    """Return the words of a name up to the first with a digit: "a100" of a board, "rtx 4090" of a GeForce."""
    words = words_of(name)
    end = next((place for place, word in enumerate(words) if any(map(str.isdigit, word))), 0)
    return words[: end + 1]


def is_other_chip(name: str, known: str) -> bool:
    """Return whether a name is that of a laptop's board or of one for export, and a known name is not.

    >>> is_other_chip("RTX 4090 Laptop GPU", "rtx-4090"), is_other_chip("RTX 4080 SUPER", "rtx-4080")
    (True, False)
    """
    return bool(_OTHER_CHIPS & (set(words_of(name)) - set(words_of(known))))


def memory_of(name: str) -> float | None:
    """Return the size of the memory that a name states [GB], or None.

    >>> memory_of("NVIDIA A100-SXM4-80GB"), memory_of("a100 80g"), memory_of("RTX 4090")
    (80.0, 80.0, None)
    """
    sizes = (re.fullmatch(r"(\d+)gb", word) for word in words_of(name))
    return next((float(size.group(1)) for size in sizes if size), None)


def whole_of(name: str) -> str:
    """Return the name of the GPU of which a name is a partition (MIG), or "".

    >>> whole_of("NVIDIA A100-SXM4-80GB MIG 3g.40gb"), whole_of("NVIDIA A100-SXM4-80GB")
    ('NVIDIA A100-SXM4-80GB', '')
    """
    partition = re.search(r"[ -]mig\b", name, flags=re.IGNORECASE)
    return name[: partition.start()] if partition else ""


#: a name of a profile of vGPU: the board, slices of MIG that back it, GB, and what it is licensed for (NVIDIA Virtual
#: GPU Software User Guide, "Virtual GPU Types": A100-4-20C, T4-16Q, M60-2B4, A100-1-5CME)
_VGPU = re.compile(r"(?:(?:nvidia|grid) )*(\S.*?)-(?:(\d)-)?(\d+)[qcba](?:me)?\d?", flags=re.IGNORECASE)


class Share(NamedTuple):
    """The share of a board that a virtual GPU is.

    Attributes
    ----------
    board : as the profile's name has it, "A100D".
    memory_gb : memory that it has [GB].
    slices : of MIG that it has, or None where virtual GPUs take turns on all SMs.
    """

    board: str
    memory_gb: int
    slices: int | None


def share_of(name: str) -> Share | None:
    """Return the share that a name of a profile of vGPU states, or None for another name.

    >>> share_of("GRID A100-10C"), share_of("NVIDIA A100D-4-40C").slices, share_of("NVIDIA A100-SXM4-80GB")
    (Share(board='A100', memory_gb=10, slices=None), 4, None)
    """
    found = _VGPU.fullmatch(name.strip())
    return Share(found[1], int(found[3]), int(found[2]) if found[2] else None) if found else None


def same_edition(name: str, known: str) -> bool:
    """Return whether two names of products have the same edition behind their number: RTX 4060 Ti is none of 4060."""
    return _EDITIONS & set(words_of(name)) == _EDITIONS & set(words_of(known))


def misspelt(name: str, known: Iterable[str]) -> list[str]:
    """Return the known name that a name may be a misspelling of, or none.

    Numbers are never misspelt here: the digits of both agree, and so do the word of the product and its edition.

    >>> misspelt("a100-smx4-80gb", ["a100-sxm4-80gb"]), misspelt("P40", ["p4"]), misspelt("A10G", ["a10"])
    (['a100-sxm4-80gb'], [], [])
    """
    digits, model = re.findall(r"\d+", name), product_of(name)[-1:]
    alike = [one for one in known if re.findall(r"\d+", one) == digits and product_of(one)[-1:] == model]
    editions = [one for one in alike if same_edition(name, one) and not is_other_chip(name, one)]
    return difflib.get_close_matches(name.lower(), editions, n=1, cutoff=_TYPING_ERROR)


def of_instance(name: str) -> str | None:
    """Return the machine of the catalog that a GPU of a cloud's instance is, or None for another name.

    >>> of_instance("p5.48xlarge"), of_instance("Standard_ND96isr_H100_v5"), of_instance("a2")
    ('h100-sxm5-80gb', 'h100-sxm5-80gb', None)
    """
    text = name.strip().lower().removeprefix("standard_")
    found = [start for start in _instances() if text == start or re.match(rf"{re.escape(start)}[.\-_]", text)]
    return _instances()[max(found, key=len)] if found else None


@functools.cache
def _instances() -> Mapping[str, str]:
    document = read_document(shipped_folder() / "names" / "instances.toml")
    rows = (table.items() for table in document.values())
    return MappingProxyType({start: machine for table in rows for start, machine in table if start != "source"})
