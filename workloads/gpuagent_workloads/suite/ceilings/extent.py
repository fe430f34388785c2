"""How large and how often: on a GPU, on a CPU, or in a quick test."""

from collections.abc import Sequence
from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Sizes and repeats."""

    # Of the square matrices.
    sides: Sequence[int]
    # Of each buffer in the device's memory: many times its last cache.
    buffer_bytes: int
    # Of what is copied between host and device.
    transfer_bytes: int
    # Of what each rank gives.
    all_reduce_bytes: Sequence[int]
    # Kernels launched in a row: fewer than the 1024 for which the driver's queue has room.
    launches: int
    # Of which the median is taken.
    repeats: int


GPU = Extent(
    sides=(1024, 2048, 4096, 8192, 16384),
    buffer_bytes=1024 * _MIB,
    transfer_bytes=256 * _MIB,
    all_reduce_bytes=(_MIB, 16 * _MIB, 256 * _MIB),
    launches=500,
    repeats=50,
)

CPU = Extent(
    sides=(512, 1024, 2048, 4096),
    buffer_bytes=512 * _MIB,
    transfer_bytes=256 * _MIB,
    all_reduce_bytes=(_MIB, 16 * _MIB),
    launches=500,
    repeats=20,
)

QUICK = Extent(
    sides=(64, 128),
    buffer_bytes=4 * _MIB,
    transfer_bytes=4 * _MIB,
    all_reduce_bytes=(_MIB,),
    launches=10,
    repeats=3,
)
