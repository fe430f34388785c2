"""The outline of roofs: where they bend, and the lines that they are drawn with."""

from collections.abc import Iterable, Sequence

from gpuagent_collector.roofline.names import used_arithmetics
from gpuagent_collector.roofline.roofs import Roofs
from gpuagent_collector.roofline.study import Roofline

# Points (FLOP/byte, FLOP/s) that are joined.
Line = Sequence[tuple[float, float]]


def ridges(roofs: Roofs, roofline: Roofline) -> list[tuple[float, float]]:
    """Return where each arithmetic's roof meets the memory's: (FLOP/byte, FLOP/s)."""
    if roofs.bytes_per_second is None:
        return []
    peaks = [roofs.flops_per_second[name] for name in used_arithmetics(roofline) if name in roofs.flops_per_second]
    return [(peak / roofs.bytes_per_second, peak) for peak in peaks]


def lines(roofs: Roofs, roofline: Roofline, left: float, right: float) -> Iterable[Line]:
    """Yield the memory's roof up to the highest ridge, and from each ridge on the peak."""
    corners = ridges(roofs, roofline)
    if not corners or roofs.bytes_per_second is None:
        return
    yield [(left, left * roofs.bytes_per_second), max(corners)]
    for intensity, peak in corners:
        yield [(intensity, peak), (right, peak)]
