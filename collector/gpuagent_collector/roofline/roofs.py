"""The peak performance of a device, in arithmetic and in memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Each has its own peak, and this name in the results of runs.
ARITHMETICS = ("fp64", "fp32", "tf32", "fp16", "bf16")

# FLOPs of a step by arithmetic; only those above 0.
Mix = Mapping[str, float]

# The arithmetic outside tensor cores.
CUDA_CORES = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """The peaks of one device, from one source.

    Attributes:
        flops_per_second: the known ones, by arithmetic.
        bytes_per_second: of the device's memory, both directions; None: unknown.
    """

    flops_per_second: Mapping[str, float]
    bytes_per_second: float | None

    def peak(self, mix: Mix) -> float | None:
        """Return the FLOP/s of a mix at its peaks, one arithmetic after the other; None: a peak is unknown."""
        if not mix or not self.flops_per_second.keys() >= mix.keys():
            return None
        return sum(mix.values()) / sum(flops / self.flops_per_second[name] for name, flops in mix.items())

    def at(self, mix: Mix, intensity: float) -> float | None:
        """Return the roof in FLOP/s at an intensity: the lesser of the peak and of bandwidth × FLOPs by byte."""
        peak = self.peak(mix)
        if peak is None or self.bytes_per_second is None:
            return None
        return min(peak, intensity * self.bytes_per_second)

    def ridge(self, mix: Mix) -> float | None:
        """Return the FLOPs by byte from which on arithmetic is the bound, not memory."""
        peak = self.peak(mix)
        return None if peak is None or self.bytes_per_second is None else peak / self.bytes_per_second


def measured_roofs(figures: Mapping[str, float]) -> Roofs:
    """Return the roofs from a run of `ceilings`: its best matrix products, and the better of copy and triad."""
    bandwidths = [figures.get(f"dram_{way}_bytes_per_second") for way in ("copy", "triad")]
    return Roofs(
        flops_per_second=_by_arithmetic(figures, "gemm_{}_flops_per_second"),
        bytes_per_second=max((each for each in bandwidths if each), default=None),
    )


def datasheet_roofs(runs: Iterable[Mapping[str, float]]) -> Roofs:
    """Return the datasheet's roofs from the results of runs on one device."""
    known = {name: value for figures in runs for name, value in figures.items()}
    return Roofs(
        flops_per_second=_by_arithmetic(known, "datasheet_{}_flops_per_second"),
        bytes_per_second=known.get("datasheet_dram_bytes_per_second"),
    )


def _by_arithmetic(figures: Mapping[str, float], name: str) -> dict[str, float]:
    found = {arithmetic: figures.get(name.format(arithmetic)) for arithmetic in ARITHMETICS}
    return {arithmetic: value for arithmetic, value in found.items() if value}
