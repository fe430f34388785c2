"""The parts of the difference between two sides: of a step, a run, a server's answer, energy or cost. They add up.

Each run's time is split by its own figures, so that its parts sum to it. A side's parts are the median of its times,
divided by the medians of their shares in each run. So the parts of both sides differ by what the medians differ by.
Energy is power × time and cost is price × time: each factor's part is its difference by the mean of the other's
medians. Nothing is guessed: without the figures of a split there is none.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress

import numpy as np

from gpuagent_collector.compare.figures import name_work
from gpuagent_collector.metrics import Metric
from gpuagent_collector.present.human import Notation, notation, per, significant
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, COST_PER_RUN
from gpuagent_collector.runs.cells import Block, Cell, Layout, match_runs
from gpuagent_collector.runs.columns import Floats, Rows
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.specs import SpecRow, set_by
from gpuagent_collector.statistics.shift import Scale, Shift, estimate_shift, least_pairs
from gpuagent_collector.statistics.summaries import median

# The figures of runs, by the names of metrics: a column for each that is known of them. NaN: a cost that a run lacks.
Figures = Mapping[str, Floats]
# Seconds of each part of the runs, by its name.
Times = Mapping[str, Floats]

# Less than this share of the time is not worth a split of its own.
_LEAST_PERCENT = 5.0

# Sides whose steps have as many items, as their throughputs say, are compared by step, others by item.
_SAME_ITEMS = 0.02


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
        "waiting for data",
        "the program waits longer for data",
        "the program waits less for data",
        ("Data", "CPU", "Threads"),
    ),
    "idle": Kind(
        "GPU idle for the host", "the GPU waits longer for the host", "the GPU waits less for the host", _HOST_FACTS
    ),
    "gpu": Kind("GPU busy", "the GPU is busy for longer", "the GPU is busy for less time", _GPU_FACTS),
    "computing": Kind("CPU at work", "the CPU works longer", "the CPU works less", _HOST_FACTS),
    "waiting": Kind("CPU waiting", "the CPU waits longer", "the CPU waits less"),
    "start": Kind("start-up", "it takes longer to start", "it starts sooner", ("Image", "Environment", "Python")),
    "first_token": Kind("first token", "the first token takes longer", "the first token comes sooner"),
    "tokens": Kind("further tokens", "further tokens take longer", "further tokens take less time"),
    "power": Kind("power", "the GPUs draw more power", "the GPUs draw less power", ("GPU power limit", "GPU used")),
    "price": Kind("node price", "the nodes cost more an hour", "the nodes cost less an hour"),
    "time": Kind("time", "the work takes longer", "the work takes less time"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the difference.

    Attributes:
        baseline, other: the figures of both sides, in `unit`.
        difference: what it adds to the other side's time, energy or cost.
        shift: the difference with its interval.
    """

    name: str
    unit: str = "seconds"
    baseline: float
    other: float
    difference: float
    shift: Shift

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the difference, which has the difference in it; None: too few runs."""
        low, high = self.shift.low, self.shift.high
        if low is None or high is None:
            return None
        return min(low, self.difference), max(high, self.difference)

    @property
    def title(self) -> str:
        """Its name for people."""
        return KINDS[self.name].title


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """The parts of the difference between a side and the baseline, the largest first.

    Attributes:
        of: that which is divided, such as `step`.
        unit: of the differences.
        medians: those of the baseline and of the side, whose difference is divided.
    """

    block: Block
    side: str
    of: str
    unit: str = "seconds"
    medians: tuple[float, float]
    parts: tuple[Part, ...]

    @property
    def baseline(self) -> str:
        """The side that the other one is compared with."""
        return self.block.baseline

    @property
    def what(self) -> str:
        """The word for what is divided."""
        return {"seconds": "time", "joules": "energy"}.get(self.unit, "cost")

    @property
    def is_product(self) -> bool:
        """Return whether its parts are those of two factors, which do not sum to a side's whole."""
        return any(part.unit != self.unit for part in self.parts)

    @property
    def difference(self) -> float:
        """The difference of the medians, which the parts sum to."""
        return sum(part.difference for part in self.parts)

    @property
    def lead(self) -> Part | None:
        """The largest part that differs as the whole does, if its interval is on that side of no difference."""
        sign = 1 if self.difference >= 0 else -1
        first = max(self.parts, key=lambda part: sign * part.difference)
        agrees = first.difference * self.difference > 0 < first.shift.estimate * first.difference
        return first if agrees and first.shift.is_shown else None

    @property
    def words(self) -> str | None:
        """The kind of the largest part, as it reads where it grew or shrank; None: no part is shown to be the cause."""
        if self.lead is None:
            return None
        kind = KINDS[self.lead.name]
        return kind.longer if self.lead.difference > 0 else kind.shorter


# Figures that decide which parts there are, the most telling first. What few runs have is left out: both sides have the
# same parts.
_DECIDING = (
    *("gpu_busy_percent", "gpu_utilization_percent", "gpus", "data_wait_percent", "exposed_communication_percent"),
    *("process_cpu_cores", "time_to_first_step_seconds", "first_report_seconds", "process_start_seconds"),
    *("ttft_p50_seconds", "throughput"),
)
# What others and the clock cost, where each side has runs that tell it.
_COSTS = ("gpu_other_utilization_percent", "gpu_throttled_percent", "sm_clock_busy_percent")


def find_because(
    block: Block,
    side: str,
    facts: Facts,
    *,
    whole_runs: bool,
    alpha: float,
    unpaired: bool = False,
    by_item: bool | None = None,
) -> Because | None:
    """Return where a side's difference from the block's baseline comes from; None: no split is known for both.

    Of `whole_runs` the duration is compared, else the speed. Intervals have the confidence 1 - alpha. `unpaired` runs
    that were made together count as independent ones. Steps are divided `by_item` where it is known; None: where those
    of the block need it.
    """
    by_item = differ_in_items([block], facts) if by_item is None else by_item
    cells = block.cell(block.baseline), block.cell(side)
    for of, base, split in _SPLITS[whole_runs]:
        runs, figures = _common_figures(cells, base, facts)
        times = [split(of_side) for of_side in figures]
        if not all(runs) or not all(times):
            continue
        is_of_items = of == "step" and by_item and _divide_by_items(times, figures)
        what = name_work([*chain(*runs)], facts) if is_of_items else of
        pairs = None if unpaired else _find_pairs(runs, cells, alpha)
        # The parts are those of the runs with readings, and their sums the medians of all runs.
        wholes = [_known_seconds(cell.runs, base, facts, by_item=is_of_items) for cell in cells]
        first, second = (_shares(of_side, median(whole)) for of_side, whole in zip(times, wholes, strict=True))
        parts = []
        for name in KINDS:
            # Those that are nothing on both sides are left out.
            if first.get(name) or second.get(name):
                one, two = first[name], second[name]
                shift = _shift_of(name, times, pairs, alpha=alpha)
                parts.append(Part(name=name, baseline=one, other=two, difference=two - one, shift=shift))
        parts.sort(key=lambda part: -abs(part.difference))
        totals = (sum(part.baseline for part in parts), sum(part.other for part in parts))
        return Because(block=block, side=side, of=what, medians=totals, parts=tuple(parts))
    return None


# The begin of a metric's name → its factor beside time, and the work of which it is; None items: a whole run.
_PRODUCTS: Mapping[str, tuple[str, str, float | None]] = {
    "gpu_energy_per_item_": ("power", "item", 1.0),
    "gpu_energy_run_joules": ("power", "run", None),
    f"{COST_PER_MILLION_ITEMS.stem}_": ("price", "million items", 1e6),
    f"{COST_PER_RUN.stem}_": ("price", "run", None),
}


def find_product(
    block: Block, side: str, facts: Facts, metric: Metric, *, alpha: float, unpaired: bool = False
) -> Because | None:
    """Return how much of a difference in energy or cost is the time, and how much is the power or the price.

    None: the metric is no energy or cost, or a side has no figures of it. The other arguments are as for
    `find_because`.
    """
    product = next((each for begin, each in _PRODUCTS.items() if metric.name.startswith(begin)), None)
    if product is None:
        return None
    name, of, items = product
    cells = block.cell(block.baseline), block.cell(side)
    of = of.replace("item", name_work([run for cell in cells for run in cell.runs], facts))
    unit, per_second = ("watts", 1.0) if name == "power" else (f"{metric.unit.removesuffix('/run')}/h", 3600.0)
    (before, factors), (after, others) = (_factors(cell, facts, metric, items, name) for cell in cells)
    if not before or not after:
        return None
    times, pairs = [factors, others], None if unpaired else _find_pairs([before, after], cells, alpha)
    wholes = [median(of_side["whole"]) for of_side in times]
    seconds = [median(of_side["time"]) for of_side in times]
    rates = [_without_noise(whole / time) for whole, time in zip(wholes, seconds, strict=True)]
    parts = []
    for factor, values, by in (name, rates, sum(seconds) / 2), ("time", seconds, sum(rates) / 2):
        shift = _shift_of(factor, times, pairs, alpha=alpha)
        low, high = (None if end is None else end * by for end in (shift.low, shift.high))
        shown = per_second if factor == name else 1.0
        parts.append(
            Part(
                name=factor,
                unit=unit if factor == name else "seconds",
                baseline=values[0] * shown,
                other=values[1] * shown,
                difference=(values[1] - values[0]) * by,
                shift=replace(shift, estimate=shift.estimate * by, low=low, high=high),
            )
        )
    parts.sort(key=lambda part: -abs(part.difference))
    return Because(block=block, side=side, of=of, unit=metric.unit, medians=(wholes[0], wholes[1]), parts=tuple(parts))


def _factors(cell: Cell, facts: Facts, metric: Metric, items: float | None, name: str) -> tuple[tuple[Run, ...], Times]:
    """Return the runs with an energy or cost, and this beside the two figures of which it is the product."""
    whole = facts.column(cell.runs, metric.name)
    if items is None:
        seconds = facts.column(cell.runs, "run_seconds")
    else:
        throughput = facts.column(cell.runs, "throughput")
        seconds = items / np.where(throughput == 0, np.nan, throughput)
    known = ~np.isnan(whole) & (np.nan_to_num(seconds) != 0)
    whole, seconds = whole[known], seconds[known]
    rates = np.array([_without_noise(rate) for rate in whole / seconds])
    return tuple(compress(cell.runs, known)), {"whole": whole, "time": seconds, name: rates}


def _without_noise(rate: float) -> float:
    """Return a quotient with 12 digits: one price, multiplied by times and divided by them again, stays one."""
    return float(f"{rate:.12g}")


# Of the runs of a side, those that must have a figure by which the time is divided.
_LEAST_SHARE = 2 / 3


def _common_figures(cells: Sequence[Cell], base: str, facts: Facts) -> tuple[list[tuple[Run, ...]], list[Figures]]:
    """Return each side's runs that have the base, and their figures that are of the same kind on both sides.

    A figure that most runs of both sides have leaves out the others: a short run may end before a reading.
    """
    runs = [tuple(compress(cell.runs, np.nan_to_num(facts.column(cell.runs, base)) != 0)) for cell in cells]
    known = {base}
    for name in _DECIDING:
        having = [~np.isnan(facts.column(side, name)) for side in runs]
        if all(each.size and each.mean() >= _LEAST_SHARE for each in having):
            runs = [tuple(compress(side, each)) for side, each in zip(runs, having, strict=True)]
            known.add(name)
    for name in _COSTS:
        if not any(np.isnan(facts.column(side, name)).all() for side in runs):
            known.add(name)
    return runs, [{name: facts.column(side, name) for name in known} for side in runs]


def lacks_samples(cell: Cell, facts: Facts) -> bool:
    """Return whether too few runs of a side have a sample of their CPU, by which their time could be divided."""
    return bool((~np.isnan(facts.column(cell.runs, "process_cpu_cores"))).mean() < _LEAST_SHARE)


def _split_step(figures: Figures) -> dict[str, Floats]:
    """Return the parts of a step: by the steps that were traced, else by samples of the GPU's use; {}: unknown."""
    step = figures["step_seconds"]
    traced = figures.get("gpu_busy_percent")
    busy_percent = figures.get("gpu_utilization_percent") if traced is None else traced
    waits = figures.get("data_wait_percent")
    if busy_percent is None:
        data = step * np.minimum(_known(figures, "data_wait_percent"), 100) / 100
        if "process_cpu_cores" not in figures:
            return {} if waits is None else {"data": data, "computing": step - data}
        computing = np.minimum(step - data, step * np.minimum(figures["process_cpu_cores"], 1.0))
        return {"data": data, "computing": computing, "waiting": step - data - computing}
    parts = _split_gpu(step, np.minimum(busy_percent, 100), figures, is_own=traced is not None)
    # Samples tell that some kernel ran, and not how long each took.
    busy = "gpu" if traced is None else "kernels"
    data = np.minimum(step * _known(figures, "data_wait_percent") / 100, parts["idle"])
    exposed = np.minimum(step * _known(figures, "exposed_communication_percent") / 100, parts["busy"])
    parts[busy] = parts.pop("busy") - exposed
    parts["idle"] -= data
    return {**parts, "data": data, "communication": exposed}


def _known(figures: Figures, name: str, otherwise: float = 0.0) -> Floats:
    """Return the figure of each run, and `otherwise` of those without it."""
    column = figures.get(name)
    return np.array(otherwise) if column is None else np.nan_to_num(column, nan=otherwise)


def _split_gpu(seconds: Floats, busy_percent: Floats, figures: Figures, *, is_own: bool) -> dict[str, Floats]:
    """Return busy and idle time of a GPU; `is_own`: the run's own work alone is busy time."""
    busy = seconds * busy_percent / 100
    idle = seconds - busy
    others = np.minimum(seconds * _known(figures, "gpu_other_utilization_percent") / 100, seconds)
    # Others' turns are idle time in a trace of the run's own kernels, and lengthen those that they interrupt.
    in_idle = np.minimum(others, idle) if is_own else np.zeros_like(idle)
    in_busy = np.minimum(others - in_idle, busy)
    idle, busy = idle - in_idle, busy - in_busy
    throttled = _known(figures, "gpu_throttled_percent")
    # What the same work would take less at the highest clock.
    lost = busy * throttled / 100 * (1 - _known(figures, "sm_clock_busy_percent", 100.0) / 100)
    lost = np.where(throttled >= _LEAST_PERCENT, lost, 0.0)
    return {"busy": busy - lost, "throttled": lost, "shared": in_idle + in_busy, "idle": idle}


def _split_run(figures: Figures) -> dict[str, Floats]:
    """Return the parts of a whole run: its start-up, and the rest by the use of its GPU or its CPU; {}: unknown."""
    seconds = figures["run_seconds"]
    names = ("time_to_first_step_seconds", "first_report_seconds", "process_start_seconds")
    start = np.minimum(next((figures[name] for name in names if name in figures), np.zeros_like(seconds)), seconds)
    rest = seconds - start
    if "gpus" in figures and "gpu_utilization_percent" in figures:
        parts = _split_gpu(rest, np.minimum(figures["gpu_utilization_percent"], 100), figures, is_own=False)
        return {"start": start, "gpu": parts.pop("busy"), **parts}
    if "process_cpu_cores" not in figures:
        return {}
    computing = rest * np.minimum(figures["process_cpu_cores"], 1.0)
    return {"start": start, "computing": computing, "waiting": rest - computing}


def _split_answer(figures: Figures) -> dict[str, Floats]:
    """Return the parts of a server's answer at its median; {}: unknown."""
    whole, first = figures["e2e_p50_seconds"], figures.get("ttft_p50_seconds")
    if first is None:
        return {}
    return {"first_token": np.minimum(first, whole), "tokens": np.maximum(whole - first, 0.0)}


Split = Callable[[Figures], dict[str, Floats]]
# Of speed, and of the duration of whole runs: what is divided, its metric, and how.
_SPLITS: Mapping[bool, Sequence[tuple[str, str, Split]]] = {
    False: (("answer", "e2e_p50_seconds", _split_answer), ("step", "step_seconds", _split_step)),
    True: (("run", "run_seconds", _split_run),),
}


# The metrics that all splits read.
OF_SPLITS = (*(base for splits in _SPLITS.values() for _, base, _ in splits), *_DECIDING, *_COSTS)


def differ_in_items(blocks: Sequence[Block], facts: Facts) -> bool:
    """Return whether steps of some block's commands have other numbers of items: then all times are of items.

    So they are of the same work, and differ as the throughputs do.
    """
    for block in blocks:
        by_command: dict[tuple[str, tuple[str, ...]], list[Run]] = defaultdict(list)
        for cell in block.cells:
            for run in cell.runs:
                by_command[cell.side, run.command].append(run)
        usual = []
        for runs in by_command.values():
            rates, seconds = (facts.column(runs, name) for name in ("throughput", "step_seconds"))
            known = rates * seconds > 0
            usual += [median(rates[known]) * median(seconds[known])] if known.any() else []
        if usual and max(usual) / min(usual) - 1 > _SAME_ITEMS:
            return True
    return False


def _divide_by_items(times: Sequence[dict[str, Floats]], figures: Sequence[Figures]) -> bool:
    """Divide times of steps by their items and return True, if all runs report items."""
    if "throughput" not in figures[0]:
        return False
    items = [of_side["throughput"] * of_side["step_seconds"] for of_side in figures]
    if not all(of_side.all() for of_side in items):
        return False
    for of_side, number in zip(times, items, strict=True):
        of_side.update({name: seconds / number for name, seconds in of_side.items()})
    return True


def _find_pairs(runs: Sequence[Sequence[Run]], cells: Sequence[Cell], alpha: float) -> Sequence[Rows] | None:
    """Return the rows of the runs of both sides that were made together; None: there are not enough."""
    before, after = ({run.run_id: row for row, run in enumerate(of_side)} for of_side in runs)
    pairs = [(before.get(one.run_id, -1), after.get(two.run_id, -1)) for one, two in match_runs(*cells)]
    rows = np.array([pair for pair in pairs if -1 not in pair], np.int64)
    return list(rows.T) if len(rows) >= least_pairs(1, alpha) else None


def _shift_of(name: str, times: Sequence[Times], pairs: Sequence[Rows] | None, *, alpha: float) -> Shift:
    """Return the distance of the runs of both sides in one part, in pairs where there are some."""
    before, after = (of_side[name] for of_side in times)
    if pairs is not None:
        before, after = before[pairs[0]], after[pairs[1]]
    return estimate_shift(before, after, pairs is not None, alpha=alpha, scale=Scale.DIFFERENCE)


def _known_seconds(runs: Sequence[Run], base: str, facts: Facts, *, by_item: bool) -> Floats:
    """Return the time of each run that has one, of a step, an item or all of it."""
    seconds = facts.column(runs, base)
    if by_item:
        items = seconds * facts.column(runs, "throughput")
        seconds = seconds[items > 0] / items[items > 0]
    return seconds[seconds > 0]


def _shares(times: Times, whole: float) -> dict[str, float]:
    """Return a whole time, divided by the medians of the shares: one odd run does not count for all."""
    totals: Floats = sum(times.values(), np.array(0.0))
    shares = {name: median(seconds / totals) for name, seconds in times.items()}
    return {name: whole * share / sum(shares.values()) for name, share in shares.items()}


_MOST_SPOKEN = 3


def say(because: Because, layout: Layout, specs: Sequence[SpecRow], *, names_both: bool = False) -> str | None:
    """Return the reason in one sentence, and the facts that touch it; None: no part is shown to be one.

    `specs` have values in the order of the layout's sides. With `names_both` the baseline is named too.
    """
    lead = because.lead
    if lead is None:
        return None
    # The sentence before has the names of several options in full; the table has their values.
    options, values_of = layout.options
    where = {side: f"with {values_of[side]}" if options else layout.facet.where(side) for side in layout.sides}
    scale = notation([because.difference, *(part.difference for part in because.parts)], because.unit)
    symbol, space, thousand = scale.symbol.partition(" ")

    def write(difference: float) -> str:
        return f"{write_signed(difference, scale, digits=3)} {symbol}"

    least = abs(lead.difference) * _LEAST_PERCENT / 100
    # Of a product both factors are named.
    is_product = because.what != "time"
    shown = []
    for part in because.parts:
        if part is not lead and abs(part.difference) >= least and (is_product or part.shift.is_shown):
            shown.append(part)
    spoken_parts = shown[: _MOST_SPOKEN - 1]
    listed = [f"{write(lead.difference)} is {lead.title}"]
    listed += [f"{write(part.difference)} {part.title}" for part in spoken_parts]
    rest = because.difference - lead.difference - sum(part.difference for part in spoken_parts)
    if abs(rest) >= least:
        listed.append(f"{write(rest)} all else")
    whole = f"of {per(write(because.difference) + space + thousand, because.of)}, {', '.join(listed)}"
    than = f" than {where[because.baseline]}" if names_both else ""
    sentences = [f"Because {where[because.side]} {because.words}{than}: {whole}."]
    first, second = layout.sides.index(because.baseline), layout.sides.index(because.side)
    touching, compared = [], set_by(layout.facet)
    for row in specs:
        before, after = ", ".join(row.values[first]), ", ".join(row.values[second])
        is_touching = row.title in KINDS[lead.name].facts and row.title not in compared
        if is_touching and before and after and before != after:
            touching.append(f"{row.title} {after} instead of {before}")
    if touching:
        sentences.append(f"There: {'; '.join(touching[:2])}.")
    return " ".join(sentences)


def write_signed(difference: float, scale: Notation, *, digits: int = 2) -> str:
    """Return a difference with its sign, without its unit."""
    return f"{'+' if difference >= 0 else '−'}{significant(abs(difference) / scale.divisor, digits)}"
