"""The operations of each GPU, rank or node of a run, side by side."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gpuagent_collector.choices import PartKind
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.parts import label_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTimes:
    """The time of operations on each part of one run, a step.

    Attributes:
        side: the run's.
        on_gpu: whether they are kernels, copies and sets, or else operators on the host.
        seconds: name of a part → operation → seconds a step, in the mean over its ranks.
    """

    side: str
    on_gpu: bool
    seconds: Mapping[str, Mapping[str, float]]

    @property
    def operations(self) -> Sequence[str]:
        """All operations, the longest on any part first."""
        longest: dict[str, float] = defaultdict(float)
        for of_part in self.seconds.values():
            for name, seconds in of_part.items():
                longest[name] = max(longest[name], seconds)
        return sorted(longest, key=lambda name: -longest[name])


def load_part_times(ask: Ask, side: str, run: Run, facts: Facts, kind: PartKind) -> PartTimes:
    """Return the operations of each part of a traced run."""
    labels = label_parts(run, facts, kind)
    of_rank: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    on_gpu = False
    for row in ask(_TIMES.format(part=_KEYS[kind]), [run.run_id, run.run_id]):
        label = labels.get(row["part"])
        if label is not None:
            of_rank[label, row["rank"]][row["name"]] = row["seconds"]
            on_gpu = row["on_gpu"]
    seconds: dict[str, dict[str, float]] = {}
    for label in labels.values():
        ranks = [times for (of_label, _), times in of_rank.items() if of_label == label]
        names = dict.fromkeys(name for times in ranks for name in times)
        if ranks:
            seconds[label] = {name: fmean(times.get(name, 0.0) for times in ranks) for name in names}
    return PartTimes(side=side, on_gpu=on_gpu, seconds=seconds)


# Kind of part → its key, as in label_parts.
_KEYS = {PartKind.GPU: "device_id", PartKind.RANK: "rank", PartKind.NODE: "node_id"}

# The GPU's work where some was traced, else operators on the host. All rows of a rank are of the same traced steps.
_TIMES = """
WITH times AS (
    SELECT rank, node_id, name, kind <> 'operator' AS on_gpu,
           sum(if(kind = 'operator', cpu_self_seconds, gpu_seconds)) / max(steps) AS seconds
    FROM op_times WHERE run_id = ? GROUP BY ALL
), places AS (
    SELECT rank, any_value(device_id) AS device_id FROM run_devices
    WHERE run_id = ? AND device_id IS NOT NULL GROUP BY rank
)
SELECT {part} AS part, rank, name, on_gpu, seconds
FROM times LEFT JOIN places USING (rank)
WHERE seconds > 0 AND on_gpu = (SELECT bool_or(on_gpu) FROM times)"""
