"""The time of a step by operation, or the difference between two steps, in words."""

from collections.abc import Iterator, Mapping, Sequence

from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.profile.data import OTHERS
from gpuagent_collector.profile.lanes import COPIES, KERNELS, Row, Table
from gpuagent_collector.profile.names import short_names
from gpuagent_collector.profile.study import Study

# The tables have the other operations.
_SPOKEN = 3
# One run a side cannot separate smaller differences, as shares of the time, from chance.
_ALIKE_SHARE = 0.01

# Full name of an operation → its short name.
Names = Mapping[str, str]


def answer(study: Study) -> str:
    """Return the difference between two steps and its parts, or the longest operations of one."""
    spoken = _spoken(study)
    names = short_names(row.name for table in spoken for row in table.rows)
    rows = sorted((row for table in spoken for row in table.rows), key=lambda row: -abs(row.seconds))[:_SPOKEN]
    totals = [sum(table.totals[side] or 0.0 for table in spoken) for side in range(len(study.sides))]
    where = "on the GPU" if spoken[0].lane in (KERNELS, COPIES) else "in operators"
    if len(study.sides) == 1:
        return " ".join([_longest(rows, sum(totals), where, names), *_steps(study)])
    return " ".join([_difference(study, rows, totals, where, names), *_alone(study), *_steps(study)])


def exclusive(table: Table) -> list[Row]:
    """Return the operations that only one of two sides has; none where a side has no data."""
    if None in table.totals:
        return []
    return [row for row in table.rows if row.only_on is not None and row.name != OTHERS]


def _spoken(study: Study) -> list[Table]:
    """Return the GPU's tables with all sides, else any table with all sides, else any."""
    shared = [table for table in study.tables if None not in table.totals]
    on_gpu = [table for table in shared if table.lane in (KERNELS, COPIES)]
    return on_gpu or shared[:1] or list(study.tables[:1])


def _longest(rows: Sequence[Row], total: float, where: str, names: Names) -> str:
    listed = "; ".join(
        f"{_time(row.seconds)} ({significant(100 * row.seconds / total)} %) in {_called(row, names)}" for row in rows
    )
    return f"A step takes {_time(total)} {where}: {listed}."


def _difference(study: Study, rows: Sequence[Row], totals: Sequence[float], where: str, names: Names) -> str:
    first, second = (side.name for side in study.sides)
    if not all(totals):
        absent = first if not totals[0] else second
        return f"{absent} has no data {where}, so there is nothing to compare."
    difference = totals[1] - totals[0]
    scale = notation(totals, "seconds")
    both = f"{scale.write_bare(totals[1])} and {scale.write(totals[0])}"
    if abs(difference) < _ALIKE_SHARE * max(totals):
        how = f"as long {where} as one of {first}, to within {significant(100 * _ALIKE_SHARE)} % ({both})"
    else:
        how = f"{_time(abs(difference))} {'longer' if difference > 0 else 'less'} {where} than one of {first} ({both})"
    parts = [_contribution(row, study, names) for row in rows if abs(row.seconds) >= _ALIKE_SHARE * max(totals)]
    return f"A step of {second} takes {how}{': ' if parts else ''}{'; '.join(parts)}."


def _contribution(row: Row, study: Study, names: Names) -> str:
    text = f"{_time(abs(row.seconds))} {'more' if row.seconds > 0 else 'less'} in {_called(row, names)}"
    if row.only_on is None or row.name == OTHERS:
        return text
    other = study.sides[1 - row.only_on].name
    if row.unsure:
        return f"{text}, not among those listed of {other}"
    return f"{text}, which {other} does not {'launch' if row.kind == 'kernel' else 'have'}"


def _alone(study: Study) -> Iterator[str]:
    """Yield the number of kernels that only one side launched."""
    kernels = next((table for table in study.tables if table.lane is KERNELS and None not in table.totals), None)
    if kernels is None:
        return
    alone = exclusive(kernels)
    if not alone:
        yield "Both launch the same kernels."
        return
    of_sides = ((side.name, [row for row in alone if row.only_on == index]) for index, side in enumerate(study.sides))
    listed = [
        f"{len(rows)} launched by {name} alone ({_time(sum(abs(row.seconds) for row in rows))} a step)"
        for name, rows in of_sides
        if rows
    ]
    yield f"{'Listed kernels' if any(row.unsure for row in alone) else 'Kernels'}: {', '.join(listed)}."


def _steps(study: Study) -> Iterator[str]:
    """Yield the busy and idle time of the GPU in a step of each side."""
    texts = []
    for side in study.sides:
        busy = side.step_seconds.get("gpu_busy_seconds_per_step")
        gap = side.step_seconds.get("gpu_gap_seconds_per_step")
        if busy is not None and gap is not None:
            scale = notation([busy, gap], "seconds")
            of_side = f" of {side.name}" if len(study.sides) > 1 else ""
            texts.append(
                f"busy for {scale.write_bare(busy)} and idle for {scale.write(gap)} of a measured step{of_side}"
            )
    if texts:
        yield f"The GPU was {'; '.join(texts)}."


def _called(row: Row, names: Names) -> str:
    return f"{row.kind}s without a row of their own" if row.name == OTHERS else names[row.name]


def _time(seconds: float) -> str:
    return notation([seconds], "seconds").write(seconds)
