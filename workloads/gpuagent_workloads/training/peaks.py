"""The arithmetic peaks of GPUs, as their makers state them.

Dense, without structured sparsity, for the whole card that CUDA shows as one device. What is not here has no peak, and
gets no MFU: another card's peak would be wrong.
"""

import re
from dataclasses import dataclass

TERA = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """One GPU's peaks, in 10¹² floating-point operations a second; None: it has none, or none is known for sure."""

    gpu: str
    """Regular expression for the whole of the name that CUDA gives: a MIG slice's goes on, and is another device."""
    fp32: float
    """On CUDA cores."""
    tf32: float | None = None
    fp16: float | None = None
    """On tensor cores, or at the double rate of the P100's CUDA cores."""
    bf16: float | None = None
    source: str
    """Where all of the figures are from. Sheets that state them with sparsity (from the L4 on) were halved."""


_V100 = "V100 datasheet (volta-v100-datasheet-update-us-1165301-r5.pdf)"
_P100 = "P100 datasheet (tesla-p100-datasheet.pdf)"
_A100 = "A100 datasheet (nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf)"
_H100 = "H100 datasheet (nvidia-h100-datasheet)"

PEAKS = (
    # A board of two, of which CUDA shows each as a device: half of the board's 8.74.
    Peaks(gpu=r"Tesla K80", fp32=4.37, source="K80 board specification"),
    Peaks(gpu=r"Tesla P4", fp32=5.5, source="P4 datasheet"),
    Peaks(gpu=r"Tesla P100-PCIE-1[26]GB", fp32=9.3, fp16=18.7, source=_P100),
    Peaks(gpu=r"Tesla P100-SXM2-16GB", fp32=10.6, fp16=21.2, source=_P100),
    Peaks(gpu=r"Tesla V100-PCIE-(16|32)GB", fp32=14.0, fp16=112, source=_V100),
    Peaks(gpu=r"Tesla V100-SXM2-(16|32)GB", fp32=15.7, fp16=125, source=_V100),
    Peaks(gpu=r"Tesla T4", fp32=8.1, fp16=65, source="T4 datasheet (t4-tensor-core-datasheet-951643.pdf)"),
    Peaks(gpu=r"NVIDIA L4", fp32=30.3, tf32=60, fp16=121, bf16=121, source="L4 datasheet"),
    # Its TF32 peak was found in one weak source only.
    Peaks(gpu=r"NVIDIA A10", fp32=31.2, fp16=125, bf16=125, source="A10 datasheet (a10-datasheet.pdf)"),
    Peaks(
        gpu=r"(NVIDIA )?A100(-(SXM4|PCIE|SXM)-(40|80)GB| 80GB PCIe)",
        fp32=19.5,
        tf32=156,
        fp16=312,
        bf16=312,
        source=_A100,
    ),
    Peaks(gpu=r"NVIDIA H100 PCIe", fp32=51, tf32=378, fp16=756, bf16=756, source=_H100),
    Peaks(gpu=r"NVIDIA H100 80GB HBM3", fp32=67, tf32=494.7, fp16=989, bf16=989, source=_H100),
    Peaks(gpu=r"NVIDIA H200", fp32=67, tf32=494.7, fp16=989, bf16=989, source="H200 datasheet"),
    Peaks(gpu=r"(NVIDIA )?GeForce GTX 1080 Ti", fp32=11.3, source="2 × 3584 CUDA cores × boost clock"),
)


def peaks_of(gpu: str) -> Peaks | None:
    """Return the peaks of the GPU that CUDA calls `gpu`; None: unknown."""
    return next((peaks for peaks in PEAKS if re.fullmatch(peaks.gpu, gpu)), None)
