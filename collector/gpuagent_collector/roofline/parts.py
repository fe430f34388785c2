"""The ranks and GPUs of runs as trials of their own."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuagent_collector.choices import PartKind
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.roofline.roofs import Trial, load_figures
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.parts import label_parts, load_parts


def divide_trials(ask: Ask, trials: Sequence[Trial], facts: Facts, kind: PartKind) -> Iterator[Trial]:
    """Yield a trial for each rank: its own steps and results, and the samples of its GPU, by which it can be named."""
    runs = [trial.run for trial in trials]
    run_ids = [run.run_id for run in runs]
    figures = load_figures(ask, run_ids, rank="coalesce(rank, 0)")
    of_ranks, of_gpus = (load_parts(ask, runs, facts, each) for each in (PartKind.RANK, PartKind.GPU))
    devices: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in ask(_DEVICES, [run_ids]):
        devices[row["run_id"], row["rank"]].append(row["device_id"])
    for trial in trials:
        run_id, gpus = trial.run.run_id, label_parts(trial.run, facts, PartKind.GPU)
        for rank, label in label_parts(trial.run, facts, PartKind.RANK).items():
            # A rank on several GPUs keeps its name and the means over them.
            own = devices[run_id, rank] if len(devices[run_id, rank]) == 1 else []
            gpu = gpus.get(own[0]) if own else None
            yield replace(
                trial,
                part=gpu if gpu and kind is PartKind.GPU else label,
                device_ids=frozenset(own) or trial.device_ids,
                # What one rank reports of the device, such as its datasheet, is true of all.
                figures={**trial.figures, **figures.get((run_id, rank), {})},
                metrics={
                    **trial.metrics,
                    **of_ranks.get(run_id, {}).get(label, {}),
                    **of_gpus.get(run_id, {}).get(gpu or "", {}),
                },
            )


_DEVICES = """
SELECT DISTINCT run_id, coalesce(rank, 0) AS rank, device_id FROM run_devices
WHERE device_id IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""
