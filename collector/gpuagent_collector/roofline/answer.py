"""Where points lie, in words."""

from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.roofline.names import intensity_of, label, marked
from gpuagent_collector.roofline.points import Traffic
from gpuagent_collector.roofline.study import Placed, Study

# More than these are left to the tables.
_SPOKEN_POINTS = 3

# From here on it is said that the GPU was idle, since then neither roof is what bounds the step.
_OFTEN_IDLE_PERCENT = 20


def answer(study: Study, errors: int, warnings: int) -> str:
    """Return what the first points reach, and how many errors and warnings there are to read."""
    points = [(mark, roofline.device, placed) for roofline in study.rooflines for mark, placed in marked(roofline)]
    sentences = [_sentence(mark, device, placed, study) for mark, device, placed in points[:_SPOKEN_POINTS]]
    if len(points) > _SPOKEN_POINTS:
        sentences.append(f"The tables have {len(points) - _SPOKEN_POINTS} more.")
    told = [
        f"{number} {noun}{'s' * (number != 1)}" for number, noun in ((errors, "error"), (warnings, "warning")) if number
    ]
    if told:
        sentences.append(f"Read the {' and '.join(told)} below before acting on it.")
    return " ".join(sentences)


def _sentence(mark: str, device: str, placed: Placed, study: Study) -> str:
    point = placed.point
    rate = notation([point.flops_per_second], "FLOP/s").write(point.flops_per_second)
    intensity = intensity_of(point)
    at = f" at {intensity} FLOP/byte" if intensity else ""
    return f"{mark} {label(point, study)} on {device}: {rate}{at}{_of_roof(placed)}{_idle(point.busy_percent)}."


def _of_roof(placed: Placed) -> str:
    """Return how near it comes to the measured roof, else to the datasheet's."""
    for name, standing in (("measured", placed.measured), ("datasheet's", placed.datasheet)):
        if standing.roof_percent is not None:
            least = "at least " if placed.point.traffic_by is Traffic.LEAST else ""
            side = f" on the {standing.side.value} side" if standing.side else ""
            return f", {least}{significant(standing.roof_percent)} % of the {name} roof{side}"
    return _of_peak(placed)


def _of_peak(placed: Placed) -> str:
    """Return how near model FLOPs come to the peak, which needs no bytes."""
    for name, standing in (("measured", placed.measured), ("datasheet's", placed.datasheet)):
        if standing.mfu_percent is not None:
            return f", {significant(standing.mfu_percent)} % of the {name} peak of its arithmetic"
    return ", how near to a roof is not known"


def _idle(busy_percent: float | None) -> str:
    if busy_percent is None or 100 - busy_percent < _OFTEN_IDLE_PERCENT:
        return ""
    idle = significant(100 - busy_percent)
    return f"; its GPU had nothing to do for {idle} % of a step, so that launches or input hold it back before any roof"
