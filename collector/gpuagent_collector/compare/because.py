"""The parts of the difference between two sides: of a step, of a run or of a server's answer. They add up.

Each run's time is split by its own figures, so that its parts sum to it. A side's parts are the median of its times,
divided by the medians of their shares in each run. So the parts of both sides differ by what the medians differ by.
Nothing is guessed: without the figures of a split there is none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpuagent_collector.present.human import Notation, notation, significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.runs.cells import Block, Cell, match_runs
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.specs import SpecRow
from gpuagent_collector.runs.words import percent
from gpuagent_collector.statistics.shift import Scale, Shift, estimate_shift, least_pairs

# The figures of a run, by the names of metrics.
Metrics = Mapping[str, float]

# Seconds of each part, by its name.
Parts = dict[str, float]

# The parts of the runs of a side, by run.
Times = Mapping[str, Parts]

# Less than this share of the time is not worth a split of its own.
_LEAST_PERCENT = 5.0

# Runs whose steps have as many items are compared by step, others by item.
_SAME_ITEMS = 0.1


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of parts: its title, how it reads where it grew and where it shrank, and the facts that touch it."""

    title: str
    longer: str
    shorter: str
    facts: tuple[str, ...] = ()


_HOST_FACTS = ("CPU", "Threads", "CPU limit", "Python", "Torch version")
_GPU_FACTS = ("GPU used", "GPU power limit", "Torch version", "CUDA", "cuDNN", "GPU driver")
KINDS: Mapping[str, Kind] = {
    "kernels": Kind("kernels", "kernels take longer", "kernels take less time", _GPU_FACTS),
    "throttled": Kind(
        "clock held back", "the GPU is held back longer", "the GPU is held back less", ("GPU power limit", "GPU used")
    ),
    "shared": Kind("GPU used by others", "others use the GPU more", "others use the GPU less"),
    "communication": Kind(
        "communication",
        "communication that nothing hides takes longer",
        "communication that nothing hides takes less time",
        ("GPU link", "NCCL", "Network"),
    ),
    "data": Kind(
        "waiting for data", "the GPU waits longer for data", "the GPU waits less for data", ("Data", "CPU", "Threads")
    ),
    "idle": Kind(
        "GPU idle for the host", "the GPU waits longer for the host", "the GPU waits less for the host", _HOST_FACTS
    ),
    "gpu": Kind("GPU busy", "the GPU is busy for longer", "the GPU is busy for less time", _GPU_FACTS),
    "computing": Kind("CPU at work", "its CPU works longer", "its CPU works less", _HOST_FACTS),
    "waiting": Kind("CPU waiting", "its CPU waits longer", "its CPU waits less"),
    "start": Kind("start-up", "it takes longer to start", "it starts sooner", ("Image", "Environment", "Python")),
    "first_token": Kind("first token", "the first token takes longer", "the first token comes sooner"),
    "tokens": Kind("further tokens", "further tokens take longer", "further tokens take less time"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the time of both sides, in seconds, and its difference with an interval; None: too few runs."""

    name: str
    baseline_seconds: float
    other_seconds: float
    shift: Shift

    @property
    def difference_seconds(self) -> float:
        """The seconds that it adds to the other side's time."""
        return self.other_seconds - self.baseline_seconds

    @property
    def interval_seconds(self) -> tuple[float, float] | None:
        """The interval of the difference, which has the difference in it; None: too few runs."""
        low, high = self.shift.low, self.shift.high
        if low is None or high is None:
            return None
        return min(low, self.difference_seconds), max(high, self.difference_seconds)

    @property
    def title(self) -> str:
        """Its name for people."""
        return KINDS[self.name].title


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """The parts of the difference between a side and the baseline, the largest first.

    Attributes:
        of: that which is divided, such as `step`; an interval is one of its time.
    """

    block: Block
    side: str
    baseline: str
    of: str
    parts: tuple[Part, ...]

    @property
    def difference_seconds(self) -> float:
        """The difference of the medians, which the parts sum to."""
        return sum(part.difference_seconds for part in self.parts)

    @property
    def lead(self) -> Part | None:
        """The largest part that differs as the whole does, if its interval is on that side of no difference."""
        first = max(self.parts, key=lambda part: part.difference_seconds * _sign(self.difference_seconds))
        agrees = (
            first.difference_seconds * self.difference_seconds > 0 < first.shift.estimate * first.difference_seconds
        )
        return first if agrees and first.shift.is_shown else None


def _sign(value: float) -> int:
    return 1 if value >= 0 else -1


# Figures that decide which parts there are. Those that not all runs have are left out: both sides have the same parts.
_DECIDING = frozenset(
    {
        *("gpu_busy_percent", "gpu_utilization_percent", "gpus", "data_wait_percent", "exposed_communication_percent"),
        *("process_cpu_cores", "time_to_first_step_seconds", "first_report_seconds", "process_start_seconds"),
        *("ttft_p50_seconds", "throughput"),
    }
)
# What others and the clock cost, where each side has runs that tell it.
_COSTS = frozenset({"gpu_other_utilization_percent", "gpu_throttled_percent", "sm_clock_busy_percent"})


def find_because(
    block: Block, side: str, facts: Facts, *, whole_runs: bool, alpha: float, unpaired: bool = False
) -> Because | None:
    """Return where a side's difference from the block's baseline comes from; None: no split is known for both.

    Args:
        block: has the side and its baseline.
        side: another side than the baseline.
        facts: of their runs.
        whole_runs: whether the duration of runs is compared, and not their speed.
        alpha: 1 less the confidence of the intervals.
        unpaired: whether runs that were made together count as independent ones.
    """
    cells = block.cell(block.baseline), block.cell(side)
    for of, base, split in (_RUN,) if whole_runs else (_ANSWER, _STEP):
        figures = _common_figures(cells, base, facts)
        times = [_split_all(of_side, split) for of_side in figures]
        if all(times):
            by_item = of == "step" and _differ_in_items(figures)
            if by_item:
                times = [_divide_by_items(*each) for each in zip(times, figures, strict=True)]
            compared = _compare(times, cells, alpha=alpha, unpaired=unpaired)
            what = "item" if by_item else of
            return Because(block=block, side=side, baseline=block.baseline, of=what, parts=compared)
    return None


def _split_all(figures: Mapping[str, Metrics], split: "Split") -> Times:
    parts = {run_id: split(each) for run_id, each in figures.items()}
    return {run_id: each for run_id, each in parts.items() if each}


def _common_figures(cells: Sequence[Cell], base: str, facts: Facts) -> list[dict[str, Metrics]]:
    """Return the figures of each side's runs that have the base, as far as they are of the same kind on both sides."""
    sides: list[dict[str, Metrics]] = []
    for cell in cells:
        every = {run.run_id: facts.metrics.get(run.run_id, {}) for run in cell.runs}
        sides.append({run_id: figures for run_id, figures in every.items() if base in figures})
    runs = [figures for of_side in sides for figures in of_side.values()]
    known = {base} | {name for name in _DECIDING if all(name in figures for figures in runs)}
    for name in _COSTS:
        if all(any(name in figures for figures in of_side.values()) for of_side in sides):
            known.add(name)
    return [
        {run_id: {name: figures[name] for name in known if name in figures} for run_id, figures in of_side.items()}
        for of_side in sides
    ]


def _split_step(figures: Metrics) -> Parts | None:
    """Return the parts of a step: by the steps that were traced, else by samples of the GPU's use."""
    step = figures.get("step_seconds")
    traced = figures.get("gpu_busy_percent")
    busy_percent = figures.get("gpu_utilization_percent") if traced is None else traced
    waits = figures.get("data_wait_percent")
    if not step:
        return None
    if busy_percent is None:
        if waits is None:
            return None
        return {"data": step * min(waits, 100) / 100, "computing": step * (1 - min(waits, 100) / 100)}
    parts = _split_gpu(step, min(busy_percent, 100), figures, is_own=traced is not None)
    # Samples tell that some kernel ran, and not how long each took.
    busy = "gpu" if traced is None else "kernels"
    data = min(step * (waits or 0) / 100, parts["idle"])
    exposed = min(step * figures.get("exposed_communication_percent", 0) / 100, parts["busy"])
    parts[busy] = parts.pop("busy") - exposed
    parts["idle"] -= data
    return {**parts, "data": data, "communication": exposed}


def _split_gpu(seconds: float, busy_percent: float, figures: Metrics, *, is_own: bool) -> Parts:
    """Return busy and idle time of a GPU; `is_own`: the run's own work alone is busy time."""
    busy = seconds * busy_percent / 100
    idle = seconds - busy
    others = min(seconds * figures.get("gpu_other_utilization_percent", 0) / 100, seconds)
    # Others' turns are idle time in a trace of the run's own kernels, and lengthen those that they interrupt.
    in_idle = min(others, idle) if is_own else 0.0
    in_busy = min(others - in_idle, busy)
    idle, busy = idle - in_idle, busy - in_busy
    throttled = figures.get("gpu_throttled_percent", 0)
    lost = 0.0
    if throttled >= _LEAST_PERCENT:
        # What the same work would take less at the highest clock.
        lost = busy * throttled / 100 * (1 - figures.get("sm_clock_busy_percent", 100) / 100)
    return {"busy": busy - lost, "throttled": lost, "shared": in_idle + in_busy, "idle": idle}


def _split_run(figures: Metrics) -> Parts | None:
    """Return the parts of a whole run: its start-up, and the rest by the use of its GPU or its CPU."""
    seconds = figures.get("run_seconds")
    if not seconds:
        return None
    names = ("time_to_first_step_seconds", "first_report_seconds", "process_start_seconds")
    start = min(next((figures[name] for name in names if name in figures), 0.0), seconds)
    rest = seconds - start
    if "gpus" in figures and "gpu_utilization_percent" in figures:
        parts = _split_gpu(rest, min(figures["gpu_utilization_percent"], 100), figures, is_own=False)
        return {"start": start, "gpu": parts.pop("busy"), **parts}
    if "process_cpu_cores" not in figures:
        return None
    computing = rest * min(figures["process_cpu_cores"], 1.0)
    return {"start": start, "computing": computing, "waiting": rest - computing}


def _split_answer(figures: Metrics) -> Parts | None:
    """Return the parts of a server's answer at its median."""
    whole, first = figures.get("e2e_p50_seconds"), figures.get("ttft_p50_seconds")
    if not whole or first is None:
        return None
    return {"first_token": min(first, whole), "tokens": max(whole - first, 0.0)}


Split = Callable[[Metrics], Parts | None]
_ANSWER: tuple[str, str, Split] = ("answer", "e2e_p50_seconds", _split_answer)
_STEP: tuple[str, str, Split] = ("step", "step_seconds", _split_step)
_RUN: tuple[str, str, Split] = ("run", "run_seconds", _split_run)


def _differ_in_items(figures: Sequence[Mapping[str, Metrics]]) -> bool:
    """Return whether the steps of the sides have different numbers of items, which all runs must have reported."""
    middles = []
    for of_side in figures:
        items = [_items(each) for each in of_side.values()]
        if not all(items):
            return False
        middles.append(median(items))
    return abs(middles[1] / middles[0] - 1) > _SAME_ITEMS


def _items(figures: Metrics) -> float:
    """Return the number of items in a step; 0: unknown."""
    return figures.get("throughput", 0.0) * figures["step_seconds"]


def _divide_by_items(times: Times, figures: Mapping[str, Metrics]) -> Times:
    divided = {}
    for run_id, parts in times.items():
        divided[run_id] = {name: seconds / _items(figures[run_id]) for name, seconds in parts.items()}
    return divided


def _compare(times: Sequence[Times], cells: Sequence[Cell], *, alpha: float, unpaired: bool) -> tuple[Part, ...]:
    """Return the parts of both sides, those that are nothing on both left out."""
    before, after = map(_shares, times)
    pairs = [
        (one.run_id, two.run_id) for one, two in match_runs(*cells) if one.run_id in times[0] and two.run_id in times[1]
    ]
    is_matched = not unpaired and len(pairs) >= least_pairs(1, alpha)
    parts = []
    for name in KINDS:
        if not before.get(name) and not after.get(name):
            continue
        if is_matched:
            values = [[times[side][pair[side]].get(name, 0.0) for pair in pairs] for side in (0, 1)]
        else:
            values = [[of_run.get(name, 0.0) for of_run in of_side.values()] for of_side in times]
        shift = estimate_shift(values[0], values[1], is_matched, alpha=alpha, scale=Scale.DIFFERENCE)
        seconds = before.get(name, 0.0), after.get(name, 0.0)
        parts.append(Part(name=name, baseline_seconds=seconds[0], other_seconds=seconds[1], shift=shift))
    return tuple(sorted(parts, key=lambda part: -abs(part.difference_seconds)))


def _shares(times: Times) -> Parts:
    """Return the median of the times, divided by the medians of the shares: one odd run does not count for all."""
    middle = median(sum(parts.values()) for parts in times.values())
    names = dict.fromkeys(name for parts in times.values() for name in parts)
    shares = {}
    for name in names:
        shares[name] = median(parts.get(name, 0.0) / sum(parts.values()) for parts in times.values())
    whole = sum(shares.values())
    return {name: middle * share / whole for name, share in shares.items()}


_MOST_SPOKEN = 3


def say(because: Because, preposition: str, specs: Sequence[SpecRow], sides: Sequence[str]) -> str | None:
    """Return the reason in one sentence, and the facts that touch it; None: no part is shown to be one.

    Args:
        because: the parts.
        preposition: stands before names of sides.
        specs: the properties of all sides.
        sides: in the order of the properties' values.
    """
    lead = because.lead
    if lead is None:
        return None
    kind = KINDS[lead.name]
    words = kind.longer if lead.difference_seconds > 0 else kind.shorter
    scale = notation([because.difference_seconds, *(part.difference_seconds for part in because.parts)], "seconds")

    def write(seconds: float) -> str:
        return f"{_signed(seconds, scale, digits=3)} {scale.symbol}"

    shown = [part for part in because.parts if part.shift.is_shown]
    others = [f"{write(part.difference_seconds)} {part.title}" for part in shown if part is not lead][
        : _MOST_SPOKEN - 1
    ]
    listed = ", ".join([f"{write(lead.difference_seconds)} is {lead.title}", *others])
    article = "an" if because.of[0] in "aeiou" else "a"
    whole = f"of {write(because.difference_seconds)} {article} {because.of}, {listed}"
    where = f"{preposition} {because.side} ".lstrip()
    return " ".join([f"Because {where}{words}: {whole}.", *_touching(because, kind, specs, sides)])


def _touching(because: Because, kind: Kind, specs: Sequence[SpecRow], sides: Sequence[str]) -> list[str]:
    both = [sides.index(because.baseline), sides.index(because.side)]
    found = []
    for row in specs:
        before, after = (", ".join(row.values[side]) for side in both)
        if row.title in kind.facts and before and after and before != after:
            found.append(f"{row.title} {after} instead of {before}")
    return [f"There: {'; '.join(found[:2])}."] if found else []


def because_table(because: Because) -> Table:
    """Return a row for each part, its times in seconds."""
    seconds = [value for part in because.parts for value in (part.baseline_seconds, part.other_seconds)]
    scale = notation(seconds, "seconds")
    columns = (
        Column(
            "part", f"of {'an' if because.of[0] in 'aeiou' else 'a'} {because.of}", lambda part: part.title, left=True
        ),
        Column("baseline_seconds", because.baseline, show=scale.write),
        Column("side_seconds", because.side, "other_seconds", show=scale.write),
        Column("difference_seconds"),
        Column(
            None, f"difference [{percent(1 - because.parts[0].shift.alpha)}]", lambda part: _with_interval(part, scale)
        ),
        Column("low_seconds", value=lambda part: part.interval_seconds and part.interval_seconds[0]),
        Column("high_seconds", value=lambda part: part.interval_seconds and part.interval_seconds[1]),
    )
    return Table(columns, because.parts, about={"side": because.side, "baseline": because.baseline, "of": because.of})


def _with_interval(part: Part, scale: Notation) -> str:
    """Return the difference of a part, and its interval where there is one."""
    interval = part.interval_seconds
    bounds = ", ".join(_signed(each, scale) for each in interval) if interval else ABSENT
    return f"{_signed(part.difference_seconds, scale)} [{bounds}]"


def _signed(seconds: float, scale: Notation, *, digits: int = 2) -> str:
    return f"{'+' if seconds >= 0 else '−'}{significant(abs(seconds) / scale.divisor, digits)}"
