"""The points of a roofline in words."""

from gpuagent_collector.output.document import in_short, read_warnings
from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.roofline.names import intensity_of, label, marked
from gpuagent_collector.roofline.points import Traffic
from gpuagent_collector.roofline.study import Placed, Study

# The tables have the others.
_SPOKEN_POINTS = 3

# From here on the answer mentions idle time: then neither roof bounds the step.
_OFTEN_IDLE_PERCENT = 20


def answer(study: Study, errors: int, warnings: int) -> str:
    """Return the performance of the first points, and a pointer to errors and warnings."""
    points = [(mark, roofline.device, placed) for roofline in study.rooflines for mark, placed in marked(roofline)]
    sentences = [_sentence(mark, device, placed, study) for mark, device, placed in points]
    return " ".join([*in_short(sentences, most=_SPOKEN_POINTS), *read_warnings(warnings, errors)])


def _sentence(mark: str, device: str, placed: Placed, study: Study) -> str:
    point = placed.point
    rate = notation([point.flops_per_second], "FLOP/s").write(point.flops_per_second)
    intensity = intensity_of(point)
    at = f" at {intensity} FLOP/byte" if intensity else ""
    return f"{mark} {label(point, study)} on {device}: {rate}{at}{_of_roof(placed)}{_idle(point.busy_percent)}."


def _of_roof(placed: Placed) -> str:
    """Return the share of the measured roof, else of the datasheet's; without bytes that of the peak."""
    for name, standing in (("measured", placed.measured), ("datasheet's", placed.datasheet)):
        if standing.roof_percent is not None:
            least = "at least " if placed.point.traffic_by is Traffic.LEAST else ""
            side = f" on the {standing.side.value} side" if standing.side else ""
            return f", {least}{significant(standing.roof_percent)} % of the {name} roof{side}"
    for name, standing in (("measured", placed.measured), ("datasheet's", placed.datasheet)):
        if standing.mfu_percent is not None:
            return f", {significant(standing.mfu_percent)} % of the {name} peak of its arithmetic"
    return ", its share of a roof is unknown"


def _idle(busy_percent: float | None) -> str:
    if busy_percent is None or 100 - busy_percent < _OFTEN_IDLE_PERCENT:
        return ""
    idle = significant(100 - busy_percent)
    return f"; its GPU was idle for {idle} % of a step, so launches or input limit it before any roof"
