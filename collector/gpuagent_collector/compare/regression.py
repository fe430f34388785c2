"""Regressions for continuous integration: verdicts on a tolerated loss, as an exit code and as JUnit's XML."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.metrics import Better
from gpuagent_collector.present.files import appearing
from gpuagent_collector.present.human import ratio
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.words import interval, percent
from gpuagent_collector.statistics.shift import Scale, Shift
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import harmless

# Conclusions about a comparison: the whole interval is worse than tolerated, or within that; it has both, or there is
# none.
REGRESSED, SOUND, UNDECIDED = "regressed", "sound", "undecided"


def check_regressions(comparison: Comparison, tolerated: float) -> list[tuple[str, str, str]]:
    """Return the name, conclusion and evidence of each test; `tolerated` is the share by which it may be worse.

    The intervals are those of the tests, so all conclusions hold together.

    Raises:
        MisuseError: the metric has no better direction.
    """
    metric = comparison.figures.primary
    if metric.better is None:
        raise MisuseError(f"{metric.name} has no better direction, so nothing can regress; choose another --metric")
    checks = []
    for test in comparison.figures.tests:
        shift = test.judgement.shift
        name = f"{tell_apart(test.block, comparison.layout.blocks)}: {test.other.side} / {test.baseline.side}"
        evidence = f"{metric.name} {ratio(shift.estimate)}, {interval(shift)}, tolerated: {percent(tolerated)} worse"
        checks.append((name, _conclude(shift, metric.better, tolerated), evidence))
    return checks


def _conclude(shift: Shift, better: Better, tolerated: float) -> str:
    if shift.low is None or shift.high is None or shift.scale is not Scale.RATIO:
        return UNDECIDED
    if better is Better.HIGHER:
        is_worse, is_within = shift.high < 1 - tolerated, shift.low >= 1 - tolerated
    else:
        is_worse, is_within = shift.low > 1 + tolerated, shift.high <= 1 + tolerated
    if is_worse:
        return REGRESSED
    return SOUND if is_within else UNDECIDED


def write_junit(checks: Sequence[tuple[str, str, str]], path: Path) -> None:
    """Write the conclusions as JUnit's XML; undecided ones are skipped tests.

    Raises:
        GpuAgentError: the file cannot be written.
    """
    numbers = Counter(outcome for _, outcome, _ in checks)
    counts = {"tests": len(checks), "failures": numbers[REGRESSED], "skipped": numbers[UNDECIDED], "errors": 0}
    suite = ElementTree.Element("testsuite", {"name": "collector compare"})
    for attribute, number in counts.items():
        suite.set(attribute, str(number))
    for name, outcome, evidence in checks:
        case = ElementTree.SubElement(suite, "testcase", classname="gpuagent", name=harmless(name))
        said = harmless(evidence)
        if outcome == REGRESSED:
            ElementTree.SubElement(case, "failure", message=said).text = said
        elif outcome == UNDECIDED:
            ElementTree.SubElement(case, "skipped", message=f"undecided: {said}")
        else:
            ElementTree.SubElement(case, "system-out").text = said
    with appearing(path) as unfinished:
        ElementTree.ElementTree(suite).write(unfinished, encoding="utf-8", xml_declaration=True)
