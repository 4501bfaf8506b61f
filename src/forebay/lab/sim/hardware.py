"""Accelerators: what their makers say they can do, each number with its source.

Peak rates are for dense matrices (data sheets often print twice that, with sparsity). What of a
peak is reached in practice stands in `roofline.py`. Vendors' "GB" of accelerator memory are GiB:
an "80 GB" H100 reports 81,559 MiB (nvidia-smi).
"""

from __future__ import annotations

import msgspec

_GIB = 1 << 30
_GB = 1e9
_TERA = 1e12


class Link(msgspec.Struct, frozen=True):
    """How cards of one machine reach each other."""

    name: str
    bytes_per_s: float
    """One direction, one card."""
    latency_s: float
    """Of one small all-reduce."""


# Latency: 0.0037-0.0059 ms for 512 bytes to 4 KiB over 2, 4 and 8 H100 (SGLang's custom
# all-reduce, github.com/sgl-project/sglang/pull/2904, January 2025).
_NVLINK_4 = Link("NVLink 4", 450 * _GB, 5e-6)  # 900 GB/s both ways: H100 data sheet, 2023
_NVLINK_3 = Link("NVLink 3", 300 * _GB, 5e-6)  # 600 GB/s both ways: A100 data sheet, 2021
# 64 GB/s both ways: PCI-SIG, PCIe 4.0 x16. Latency: an assumption, through host memory.
_PCIE_4 = Link("PCIe 4.0 x16", 32 * _GB, 30e-6)


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """One card."""

    name: str
    title: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    fp16_flops: float
    """fp16 and bf16 with 32-bit accumulation, dense, per second."""
    fp8_flops: float | None
    int8_ops: float | None
    int4_ops: float | None
    link: Link
    source: str


HARDWARE: tuple[Hardware, ...] = (
    Hardware(
        name="l4",
        title="NVIDIA L4",
        memory_bytes=24 * _GIB,
        bandwidth_bytes_per_s=300 * _GB,
        fp16_flops=121 * _TERA,
        fp8_flops=242.5 * _TERA,
        int8_ops=242.5 * _TERA,
        int4_ops=None,
        link=_PCIE_4,
        source="NVIDIA L4 Tensor Core GPU data sheet, 2023 (242 and 485 with sparsity)",
    ),
    Hardware(
        name="l20",
        title="NVIDIA L20",
        memory_bytes=48 * _GIB,
        bandwidth_bytes_per_s=864 * _GB,
        fp16_flops=119.5 * _TERA,
        fp8_flops=239 * _TERA,
        int8_ops=239 * _TERA,
        int4_ops=None,
        link=_PCIE_4,
        source="NVIDIA L20 specification for partners, November 2023, as reported by the press; "
        "no public data sheet",
    ),
    Hardware(
        name="a10",
        title="NVIDIA A10",
        memory_bytes=24 * _GIB,
        bandwidth_bytes_per_s=600 * _GB,
        fp16_flops=125 * _TERA,
        fp8_flops=None,
        int8_ops=250 * _TERA,
        int4_ops=500 * _TERA,
        link=_PCIE_4,
        source="NVIDIA A10 Tensor Core GPU data sheet, 2021",
    ),
    Hardware(
        name="rtx4090",
        title="NVIDIA GeForce RTX 4090",
        memory_bytes=24 * _GIB,
        bandwidth_bytes_per_s=1008 * _GB,
        fp16_flops=165.2 * _TERA,
        fp8_flops=330.3 * _TERA,
        int8_ops=660.6 * _TERA,
        int4_ops=1321.2 * _TERA,
        link=_PCIE_4,
        source="NVIDIA Ada GPU architecture white paper 2.02, 2023, appendix A "
        "(fp16 and fp8 with fp32 accumulate)",
    ),
    Hardware(
        name="a100",
        title="NVIDIA A100 80GB SXM",
        memory_bytes=80 * _GIB,
        bandwidth_bytes_per_s=2039 * _GB,
        fp16_flops=312 * _TERA,
        fp8_flops=None,
        int8_ops=624 * _TERA,
        int4_ops=1248 * _TERA,
        link=_NVLINK_3,
        source="NVIDIA A100 Tensor Core GPU data sheet, 2021; int4: A100 architecture white "
        "paper, 2020",
    ),
    Hardware(
        name="h20",
        title="NVIDIA H20",
        memory_bytes=96 * _GIB,
        bandwidth_bytes_per_s=4000 * _GB,
        fp16_flops=148 * _TERA,
        fp8_flops=296 * _TERA,
        int8_ops=296 * _TERA,
        int4_ops=None,
        link=_NVLINK_4,
        source="NVIDIA HGX H20 specification for partners, November 2023, as reported by the "
        "press; no public data sheet",
    ),
    Hardware(
        name="h100",
        title="NVIDIA H100 SXM",
        memory_bytes=80 * _GIB,
        bandwidth_bytes_per_s=3350 * _GB,
        fp16_flops=989.4 * _TERA,
        fp8_flops=1978.9 * _TERA,
        int8_ops=1978.9 * _TERA,
        int4_ops=None,
        link=_NVLINK_4,
        source="NVIDIA H100 Tensor Core GPU data sheet, 2023; dense rates: H100 architecture "
        "white paper 1.04, 2023",
    ),
    Hardware(
        name="h200",
        title="NVIDIA H200 SXM",
        memory_bytes=141 * _GIB,
        bandwidth_bytes_per_s=4800 * _GB,
        fp16_flops=989.4 * _TERA,
        fp8_flops=1978.9 * _TERA,
        int8_ops=1978.9 * _TERA,
        int4_ops=None,
        link=_NVLINK_4,
        source="NVIDIA H200 Tensor Core GPU data sheet, 2024",
    ),
)
