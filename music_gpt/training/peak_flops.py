"""The name of a GPU -> the floating-point operations that it can do in a second.

Model FLOPs utilisation (MFU) is what the network needs for the tokens it gets through, as a share
of this. It is told for the GPUs below; for another one, and for a CPU, there is no agreed peak, so
there is no MFU.
"""

from __future__ import annotations

import math

# Lightning has such a table, but some of its rows count sparse products, and others no tensor cores
DENSE_BF16_TERAFLOPS: dict[str, float] = {
    "B200": 2250,
    "GH200": 989,
    "H200": 989,
    "H200 NVL": 835,
    "H100": 989,
    "H100 NVL": 835,
    "H100 PCIe": 756,
    "A100": 312,
    "A40": 150,
    "A30": 165,
    "A10": 125,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "RTX 5090": 210,
    "RTX 4090": 165,
    "RTX 3090": 71,
    "RTX 6000 Ada": 364,
    "RTX A6000": 155,
}
"""Words in a GPU's name -> its peak by NVIDIA's data sheets: dense products in bf16, summed in
float32. A run in float32 is measured by it as well."""
OTHER_CHIPS = {"Laptop", "Max-Q", "D", "Ti", "MIG"}
"""Words by which a name means another, slower or faster chip."""


def peak_flops(device_name: str) -> float:
    """Dense bf16 operations in a second of the GPU of this name; NaN where it is not known.

    >>> peak_flops("NVIDIA H100 80GB HBM3"), peak_flops("NVIDIA H100 PCIe")
    (989000000000000.0, 756000000000000.0)
    >>> peak_flops("NVIDIA GeForce RTX 4090 Laptop GPU")
    nan
    """
    words = set(device_name.replace("-", " ").split())
    known = [name for name in DENSE_BF16_TERAFLOPS if words.issuperset(name.split())]
    if not known or words & OTHER_CHIPS:
        return math.nan
    return DENSE_BF16_TERAFLOPS[max(known, key=len)] * 1e12
