"""The stacks of layers that `memory-limit` tried: what fits into memory, and the time of a step."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpuagent_collector.output.document import Grid, Paragraph, Section
from gpuagent_collector.output.human import notation
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.query.ask import Ask

# Name, GPU, convolutions, linear layers, whether it fits.
_Key = tuple[str, int | None, int, int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of layers, or the part of it on one GPU.

    Attributes:
        name: of the point, as the run reported it.
        gpu: index of the GPU that has this part; None: the whole stack.
        conv, fc: numbers of layers.
        fits: False: it is out of memory.
        step_seconds, peak_bytes: of the runs that report them.
    """

    name: str
    gpu: int | None
    conv: int
    fc: int
    fits: bool
    step_seconds: tuple[float, ...]
    peak_bytes: tuple[float, ...]
    runs: int


def load_stacks(ask: Ask, run_ids: Sequence[str]) -> tuple[Stack, ...]:
    """Return the stacks that runs report, each with its parts behind it; runs that agree in one are put together."""
    reported: dict[tuple[str, str, int | None], dict[str, float]] = defaultdict(dict)
    for row in ask(_RESULTS, [list(run_ids)]):
        if match := _NAME.fullmatch(row["name"]):
            gpu = None if match["gpu"] is None else int(match["gpu"])
            reported[row["run_id"], match["stack"], gpu][match["field"]] = row["value"]
    stacks: dict[_Key, list[Mapping[str, float]]] = defaultdict(list)
    for (run_id, name, gpu), fields in reported.items():
        if {"conv_layers", "fc_layers"} <= fields.keys():
            whole = reported.get((run_id, name, None), {})
            fits = bool(whole.get("fits", 1))
            stacks[name, gpu, int(fields["conv_layers"]), int(fields["fc_layers"]), fits].append(fields)
    return tuple(
        Stack(
            name=name,
            gpu=gpu,
            conv=conv,
            fc=fc,
            fits=fits,
            step_seconds=_values(found, "step_seconds"),
            peak_bytes=_values(found, "peak_reserved_bytes"),
            runs=len(found),
        )
        for (name, gpu, conv, fc, fits), found in sorted(stacks.items(), key=lambda item: _order(item[0]))
    )


def stacks_section(stacks: Sequence[Stack]) -> Section:
    """Return the stacks as a table."""
    rows = tuple(
        (
            f"{stack.conv} conv + {stack.fc} fc"
            if stack.gpu is None
            else f"  GPU {stack.gpu}: {stack.conv} + {stack.fc}",
            _outcome(stack),
            _write(stack.step_seconds, "seconds"),
            _write(stack.peak_bytes, "bytes"),
            str(stack.runs),
        )
        for stack in stacks
    )
    header = ("stack", "memory", "step", "GPU memory, peak", "runs")
    note = "Medians over runs; convolutions and linear layers in training, forward and backward."
    return Section(
        heading="Stacks of layers", parts=(Grid(header=header, rows=rows, figures_from=2), Paragraph(text=note))
    )


def _outcome(stack: Stack) -> str:
    if stack.gpu is not None:
        return ""
    if not stack.fits:
        return "out of memory"
    return "fits" if stack.name.startswith("point") else "largest that fits"


def _write(values: Iterable[float], unit: str) -> str:
    found = list(values)
    return notation([median(found)], unit).write(median(found)) if found else ABSENT


def _values(found: Iterable[Mapping[str, float]], field: str) -> tuple[float, ...]:
    return tuple(fields[field] for fields in found if field in fields)


def _order(key: _Key) -> tuple[list[str | int], int, int, int, bool]:
    name, gpu, conv, fc, fits = key
    # Numbers in names count as numbers: 6 convolutions before 30.
    parts = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    return (parts, -1 if gpu is None else gpu, conv, fc, fits)


# Such as frontier_conv1_fc1_step_seconds, and of one GPU's part point_conv84_fc0_conv54_fc62_gpu0_conv_layers.
_NAME = re.compile(
    r"(?P<stack>(?:frontier|point|gpu\d+)_.+?)(?:_gpu(?P<gpu>\d+))?"
    r"_(?P<field>conv_layers|fc_layers|step_seconds|fits|peak_reserved_bytes)"
)

_RESULTS = """
SELECT run_id, name, arg_max(value, time) AS value FROM results
WHERE regexp_matches(name, '_(conv_layers|fc_layers|step_seconds|fits|peak_reserved_bytes)$')
    AND value IS NOT NULL AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL ORDER BY ALL"""
