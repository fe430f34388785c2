"""Regressions for continuous integration: verdicts on a tolerated loss, as an exit code and as JUnit's XML."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from xml.etree import ElementTree

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import Test
from gpuagent_collector.metrics import Better
from gpuagent_collector.present.files import appearing
from gpuagent_collector.present.human import ratio
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.words import interval, percent
from gpuagent_collector.statistics.shift import Scale
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import harmless


class Outcome(Enum):
    """A conclusion about one comparison."""

    # The whole interval is worse than tolerated.
    REGRESSED = "regressed"
    # The whole interval is within what is tolerated.
    SOUND = "sound"
    # The interval has both, or there is none.
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison with its conclusion and evidence."""

    name: str
    outcome: Outcome
    evidence: str


def check_regressions(comparison: Comparison, tolerated: float) -> list[Check]:
    """Return a conclusion for each test; `tolerated` is a share by which the metric may be worse.

    The intervals are those of the tests, so all conclusions hold together.

    Raises:
        MisuseError: the metric has no better direction.
    """
    metric = comparison.figures.primary
    if metric.better is None:
        raise MisuseError(f"{metric.name} has no better direction, so nothing can regress; choose another --metric")
    return [
        Check(
            name=f"{tell_apart(test.block, comparison.layout.blocks)}: {test.other.side} / {test.baseline.side}",
            outcome=_conclude(test, metric.better, tolerated),
            evidence=f"{metric.name} {ratio(test.judgement.shift.estimate)}, {interval(test.judgement.shift)}, "
            f"tolerated: {percent(tolerated)} worse",
        )
        for test in comparison.figures.tests
    ]


def _conclude(test: Test, better: Better, tolerated: float) -> Outcome:
    shift = test.judgement.shift
    if shift.low is None or shift.high is None or shift.scale is not Scale.RATIO:
        return Outcome.UNDECIDED
    if better is Better.HIGHER:
        worst, best, bound = shift.low, shift.high, 1 - tolerated
        return Outcome.REGRESSED if best < bound else Outcome.SOUND if worst >= bound else Outcome.UNDECIDED
    worst, best, bound = shift.high, shift.low, 1 + tolerated
    return Outcome.REGRESSED if best > bound else Outcome.SOUND if worst <= bound else Outcome.UNDECIDED


def write_junit(checks: Sequence[Check], path: Path) -> None:
    """Write the conclusions as JUnit's XML; undecided ones are skipped tests.

    Raises:
        GpuAgentError: the file cannot be written.
    """
    counts = {outcome: sum(check.outcome is outcome for check in checks) for outcome in Outcome}
    suite = ElementTree.Element(
        "testsuite",
        name="collector compare",
        tests=str(len(checks)),
        failures=str(counts[Outcome.REGRESSED]),
        skipped=str(counts[Outcome.UNDECIDED]),
        errors="0",
    )
    for check in checks:
        case = ElementTree.SubElement(suite, "testcase", classname="gpuagent", name=harmless(check.name))
        evidence = harmless(check.evidence)
        if check.outcome is Outcome.REGRESSED:
            ElementTree.SubElement(case, "failure", message=evidence).text = evidence
        elif check.outcome is Outcome.UNDECIDED:
            ElementTree.SubElement(case, "skipped", message=f"undecided: {evidence}")
        else:
            ElementTree.SubElement(case, "system-out").text = evidence
    with appearing(path) as unfinished:
        ElementTree.ElementTree(suite).write(unfinished, encoding="utf-8", xml_declaration=True)
