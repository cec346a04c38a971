"""The peak of a GPU is found by the name that it gives itself."""

import math

import pytest

from music_gpt.training.peak_flops import peak_flops


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 4090", 165),
        ("NVIDIA RTX 6000 Ada Generation", 364),
        ("NVIDIA GH200 480GB", 989),
    ],
)
def test_a_gpu_is_known_by_its_name(name: str, teraflops: float) -> None:
    assert peak_flops(name) == teraflops * 1e12


@pytest.mark.parametrize(
    "name",
    [
        *("cpu", "mps", "", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti"),
        *("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "Tesla T4", "NVIDIA L400"),
    ],
)
def test_of_other_devices_no_peak_is_claimed(name: str) -> None:
    assert math.isnan(peak_flops(name))
