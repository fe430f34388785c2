"""The peaks of GPUs, of arithmetic and of memory, from their makers' datasheets.

Dense, without structured sparsity, for the whole card that CUDA shows as one device. A GPU that is not here gets no
MFU: another card's peak would be wrong.
"""

import re
from dataclasses import dataclass

from gpuagent_workloads.report import Reporter

GIGA, TERA = 10**9, 10**12

# The columns of `Peaks` that are floating-point operations.
ARITHMETICS = ("fp32", "tf32", "fp16", "bf16", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """One GPU's peaks; None: it has none, or none is certain.

    Those of arithmetic are in 10¹² floating-point operations a second.
    """

    # Regular expression for CUDA's whole name: that of a MIG slice, another device, is longer.
    gpu: str
    # On CUDA cores.
    fp32: float
    tf32: float | None = None
    # On tensor cores, or at the double rate of the P100's CUDA cores.
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    # Bandwidth of the device's memory, in 10⁹ bytes a second, reading and writing together.
    memory: float | None = None
    # Source of all figures. Those with sparsity (from the L4 on) were halved.
    source: str


_V100 = "V100 datasheet (volta-v100-datasheet-update-us-1165301-r5.pdf)"
_P100 = "P100 datasheet (tesla-p100-datasheet.pdf)"
_A100 = "A100 datasheet (nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf)"
_H100 = "H100 datasheet (nvidia-h100-datasheet)"

PEAKS = (
    # A board of two, of which CUDA shows each as a device: half of the board's 8.74 and 480.
    Peaks(gpu=r"Tesla K80", fp32=4.37, memory=240, source="K80 board specification"),
    Peaks(gpu=r"Tesla P4", fp32=5.5, memory=192, source="P4 datasheet"),
    # Their bandwidth was found in one weak source only.
    Peaks(gpu=r"Tesla P100-PCIE-1[26]GB", fp32=9.3, fp16=18.7, source=_P100),
    Peaks(gpu=r"Tesla P100-SXM2-16GB", fp32=10.6, fp16=21.2, source=_P100),
    Peaks(gpu=r"Tesla V100-PCIE-(16|32)GB", fp32=14.0, fp16=112, memory=900, source=_V100),
    Peaks(gpu=r"Tesla V100-SXM2-(16|32)GB", fp32=15.7, fp16=125, memory=900, source=_V100),
    Peaks(gpu=r"Tesla T4", fp32=8.1, fp16=65, memory=320, source="T4 datasheet (t4-tensor-core-datasheet-951643.pdf)"),
    Peaks(gpu=r"NVIDIA L4", fp32=30.3, tf32=60, fp16=121, bf16=121, fp8=242.5, memory=300, source="L4 datasheet"),
    Peaks(gpu=r"NVIDIA L40S", fp32=91.6, tf32=183, fp16=362, bf16=362, fp8=733, memory=864, source="L40S datasheet"),
    # Its TF32 peak was found in one weak source only.
    Peaks(gpu=r"NVIDIA A10", fp32=31.2, fp16=125, bf16=125, memory=600, source="A10 datasheet (a10-datasheet.pdf)"),
    *(
        Peaks(gpu=gpu, fp32=19.5, tf32=156, fp16=312, bf16=312, memory=memory, source=_A100)
        for gpu, memory in (
            (r"(NVIDIA )?A100-(SXM4|PCIE|SXM)-40GB", 1555),
            (r"(NVIDIA )?A100-SXM4?-80GB", 2039),
            (r"(NVIDIA )?A100(-PCIE-80GB| 80GB PCIe)", 1935),
        )
    ),
    Peaks(gpu=r"NVIDIA H100 PCIe", fp32=51, tf32=378, fp16=756, bf16=756, fp8=1513, memory=2000, source=_H100),
    Peaks(gpu=r"NVIDIA H100 80GB HBM3", fp32=67, tf32=494.7, fp16=989, bf16=989, fp8=1979, memory=3350, source=_H100),
    Peaks(gpu=r"NVIDIA H200", fp32=67, tf32=494.7, fp16=989, bf16=989, fp8=1979, memory=4800, source="H200 datasheet"),
    Peaks(gpu=r"(NVIDIA )?GeForce GTX 1080 Ti", fp32=11.3, memory=484, source="2 × 3584 CUDA cores × boost clock"),
)


def peaks_of(gpu: str) -> Peaks | None:
    """Return the peaks of the GPU that CUDA calls `gpu`; None: unknown."""
    return next((peaks for peaks in PEAKS if re.fullmatch(peaks.gpu, gpu)), None)


def report_datasheet(gpu: str, reporter: Reporter) -> None:
    """Report the known peaks of the GPU that CUDA calls `gpu`, in FLOP/s and bytes/s."""
    peaks = peaks_of(gpu)
    if peaks is None:
        return
    for name in ARITHMETICS:
        peak = getattr(peaks, name)
        if peak is not None:
            reporter.result(f"datasheet_{name}_flops_per_second", TERA * peak, unit="FLOP/s")
    if peaks.memory is not None:
        reporter.result("datasheet_dram_bytes_per_second", GIGA * peaks.memory, unit="bytes/s")
