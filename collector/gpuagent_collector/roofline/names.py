"""Names of points and roofs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from string import ascii_letters

from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.roofline.points import Group, Point, Traffic
from gpuagent_collector.roofline.roofs import ARITHMETICS, Mix, Nearness, Roofs
from gpuagent_collector.roofline.study import Placed, Roofline, Study
from gpuagent_collector.runs.facets import CONDITIONS
from gpuagent_collector.runs.words import distinguishing, telling

# The device whose roofs were measured.
NEARNESS = {
    Nearness.SAME_DEVICE: "the same device",
    Nearness.SAME_NODE: "another of the same model on the node",
    Nearness.OTHER_NODE: "one of the same model on another node",
}

# Marks points for which no letter is left.
NO_MARK = "•"


def marked(roofline: Roofline) -> Iterator[tuple[str, Placed]]:
    """Yield the points with the letters that mark them in chart and tables."""
    for index, placed in enumerate(roofline.placed):
        yield (ascii_letters[index] if index < len(ascii_letters) else NO_MARK), placed


def label(point: Point, study: Study, *, briefly: bool = False) -> str:
    """Return the point's workload and the settings that distinguish it from the others on such a device.

    `briefly` leaves out settings that distinguish it from no further point than those before.
    """
    others = [each.point.group for roofline in study.rooflines for each in roofline.placed]
    own = settings_of(point.group, study)
    near = (point.group.workload, point.group.device)
    alike = [settings_of(group, study) for group in others if (group.workload, group.device) == near]
    settings = (telling if briefly else distinguishing)(own, alike)
    words = [point.group.workload, *(_setting(name, str(value)) for name, value in settings.items())]
    return " ".join(filter(None, [*words, point.group.part]))


def settings_of(group: Group, study: Study) -> dict[str, str]:
    """Return everything in which the runs of a group agree, by name, except workload and device."""
    place = {
        study.facet.name: group.side,
        "platform": group.platform,
        "environment": group.environment,
        "image": group.image,
        "interference": group.interference,
        "limits": group.limits,
    }
    parameters: Mapping[str, object] = json.loads(group.parameters)
    return {
        **{name: value or _NONE for name, value in place.items()},
        **{name: str(value) for name, value in parameters.items() if value is not None},
    }


_NONE = "none"


def _setting(name: str, value: str) -> str:
    """Return a setting in words; values of the usual conditions need no name."""
    if name not in CONDITIONS:
        return f"{name}={value}"
    return value if value != _NONE else f"no {name}"


def intensity_of(point: Point) -> str | None:
    """Return FLOPs by byte, as a bound where only that is known; None: unknown."""
    if point.intensity is None:
        return None
    return f"{'≤ ' if point.traffic_by is Traffic.LEAST else ''}{significant(point.intensity)}"


def arithmetic_of(mix: Mix) -> str | None:
    """Return the arithmetic of FLOPs: TF32 90 %, FP32 10 %; None: unknown."""
    total = sum(mix.values())
    named = sorted(mix.items(), key=lambda each: -each[1])
    if len(named) == 1:
        return named[0][0].upper()
    return ", ".join(f"{name.upper()} {significant(100 * flops / total)} %" for name, flops in named) or None


def used_arithmetics(roofline: Roofline) -> list[str]:
    """Return the arithmetics that some point used, in their usual order."""
    used = {name for placed in roofline.placed for name in (*placed.point.mix, *placed.point.model_mix)}
    return [name for name in ARITHMETICS if name in used]


def roofs_of(roofs: Roofs, arithmetics: Iterable[str]) -> str:
    """Return roofs in words: TF32 401 TFLOP/s, FP32 53.5 TFLOP/s, memory 4.35 TB/s; '' for no roofs."""
    peaks = {name: roofs.flops_per_second[name] for name in arithmetics if name in roofs.flops_per_second}
    listed = [f"{name.upper()} {notation([peak], 'FLOP/s').write(peak)}" for name, peak in peaks.items()]
    if roofs.bytes_per_second is not None:
        listed.append(f"memory {notation([roofs.bytes_per_second], 'bytes/s').write(roofs.bytes_per_second)}")
    return ", ".join(listed)


def marks_where(roofline: Roofline, letters: Iterable[str]) -> str:
    """Return points in words: points a, c on NVIDIA H200."""
    listed = list(letters)
    return f"point{'s' * (len(listed) != 1)} {', '.join(listed)} on {roofline.device}"
