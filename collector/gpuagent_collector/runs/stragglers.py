"""The rank or GPU for which the others of a run wait."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from gpuagent_collector.present.human import in_unit, significant

# Smaller distances, as shares or percentage points, are found among sound parts.
_LEAST_PERCENT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    """A figure by which a part is late; `words` describe it from its value and that of the others, as texts."""

    metric: str
    unit: str
    is_high: bool
    words: Callable[[str, str, str], str]

    def distance_percent(self, value: float, usual: float) -> float:
        """Return how far a part is from the others in the direction that is late; of percentages in points."""
        further = value - usual if self.is_high else usual - value
        if self.unit == "percent":
            return further
        return 100 * further / usual if usual else 0.0


# The more direct ones first. Ranks that wait for each other take equal steps: then the late one waits least.
_SIGNS = (
    _Sign(
        metric="step_seconds",
        unit="seconds",
        is_high=True,
        words=lambda own, _others, by: f"is slowest: its median step takes {own}, {by} % longer than the others'",
    ),
    _Sign(
        metric="data_wait_percent",
        unit="percent",
        is_high=True,
        words=lambda own, others, _by: f"waits longest for data: {own} of its time, the others {others}",
    ),
    _Sign(
        metric="exposed_communication_percent",
        unit="percent",
        is_high=False,
        words=lambda own, others, _by: f"is late: it waits {own} of its time for communication, the others {others}",
    ),
    _Sign(
        metric="sm_clock_mhz",
        unit="megahertz",
        is_high=False,
        words=lambda own, _others, by: f"is slowest: its mean SM clock is {own}, {by} % below that of the others",
    ),
    _Sign(
        metric="gpu_throttled_percent",
        unit="percent",
        is_high=True,
        words=lambda own, others, _by: f"is held back: its clock was throttled for {own} of the time, others {others}",
    ),
)


def describe_straggler(runs: Iterable[Mapping[str, Mapping[str, float]]]) -> str:
    """Return which part of runs is late, and by how much; '' where no run has figures of two parts.

    `runs` have figures by part and metric; those of several runs are medians.
    """
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for parts in runs:
        for part, of_part in parts.items() if len(parts) > 1 else ():
            for metric, value in of_part.items():
                figures[metric][part].append(value)
    seen = ""
    for sign in _SIGNS:
        values = {part: median(of_part) for part, of_part in figures[sign.metric].items()}
        if len(values) < 2:
            continue
        write = in_unit(sign.unit)
        late = (max if sign.is_high else min)(values, key=values.__getitem__)
        usual = median(value for part, value in values.items() if part != late)
        distance = sign.distance_percent(values[late], usual)
        if distance >= _LEAST_PERCENT:
            words = sign.words(write(values[late]), write(usual), significant(distance, 2))
            # A name begins as it is written: that of a GPU may be its node's.
            return f"{late.capitalize() if late.startswith('rank ') else late} {words}."
        if sign.metric == "step_seconds":
            steps = " to ".join(dict.fromkeys(write(pick(values.values())) for pick in (min, max)))
            seen = f"All ranks take steps of {steps}: where they wait for one another, a late one does not show."
        if sign.metric == "exposed_communication_percent":
            seen = ""  # a late one would show here
    return seen
