"""The distribution of step times on each side of a block."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell

_QUANTILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The measured steps of all runs of a cell together.

    Attributes:
        steps: how many there are.
        seconds: evenly spaced quantiles, from the shortest to the longest; those between by a digest.
    """

    side: str
    steps: int
    seconds: tuple[float, ...]


def load_step_times(ask: Ask, block: Block) -> tuple[StepTimes, ...]:
    """Return the step times of each side that reported steps."""
    return tuple(times for cell in block.cells if cell.runs for times in _of_cell(ask, cell))


def _of_cell(ask: Ask, cell: Cell) -> Iterator[StepTimes]:
    row = ask(_STEPS, [[run.run_id for run in cell.runs]])[0]
    if row["steps"]:
        seconds = (row["shortest"], *row["between"], row["longest"])
        yield StepTimes(side=cell.side, steps=row["steps"], seconds=seconds)


_SHARES = ", ".join(f"{number / _QUANTILES:g}" for number in range(1, _QUANTILES))

_STEPS = f"""
SELECT count(seconds) AS steps, min(seconds) AS shortest, max(seconds) AS longest,
       -- A digest: exact quantiles of millions of steps would take a minute.
       approx_quantile(seconds, [{_SHARES}]) AS between
FROM (
    -- Handing a step to a GPU takes another time than the step does.
    SELECT coalesce(gpu_seconds, wall_seconds) AS seconds FROM steps
    WHERE run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) AND phase = 'measure'
)"""  # noqa: S608 - numbers of ours
