"""Runs of the quick tests: what they read, what they take, and what those need that were skipped."""

import gc
import os
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.programs import describe_missing

# Of a processor, for a module of `make test`; what takes longer is marked `slow`. All of them have two processors for
# five minutes, a tenth of which goes to reading the tests.
MODULE_SECONDS, ALL_SECONDS = 30.0, 540.0

_SECONDS = "cpu_seconds"
_began = pytest.StashKey[float]()


def _cpu_seconds() -> float:
    """Return what this process and its children that have ended took of a processor."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Read all tests before looking for garbage, which took a fifth of the time, and leave them out of it then."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what `make test` would read in vain: modules marked slow import browsers and the like."""
    if config.option.markexpr == "not slow" and collection_path.suffix == ".py":
        return is_slow(collection_path.read_text(encoding="utf-8")) or None
    return None


def is_slow(module: str) -> bool:
    """Return whether the text of a module marks all its tests as slow."""
    return re.search(r"^pytestmark = \[?pytest\.mark\.slow\b", module, re.MULTILINE) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember what was taken before a test."""
    item.stash[_began] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a test's last report what the test took: reports alone come from the processes that run tests."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((_SECONDS, _cpu_seconds() - item.stash[_began]))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Print last which modules are too slow for `make test`, and what installs the programs that were missing."""
    yield
    if config.option.markexpr == "not slow":
        for line in over_the_budget(_reports(terminalreporter)):
            terminalreporter.write_line(line, yellow=True)
    # Each is (file, line, reason).
    skipped = [str(report.longrepr[2]) for report in terminalreporter.getreports("skipped")]
    if remedy := describe_missing(skipped):
        terminalreporter.write_line(f"to run what was skipped for want of system programs: {remedy}", yellow=True)


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for reports in terminalreporter.stats.values():
        yield from (report for report in reports if isinstance(report, pytest.TestReport))


def over_the_budget(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return a line for each module that took too long, the slowest first, and one if all together did."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        measured = (value for name, value in report.user_properties if name == _SECONDS)
        seconds[report.nodeid.partition("::")[0]] += sum(value for value in measured if isinstance(value, float))
    slowest = sorted(seconds.items(), key=lambda each: -each[1])
    lines = [
        f"{module} took {taken:.0f} s of a processor, above {MODULE_SECONDS:.0f}: mark it slow, or let it do less"
        for module, taken in slowest
        if taken > MODULE_SECONDS
    ]
    if (total := sum(seconds.values())) > ALL_SECONDS:
        lines.append(f"all quick tests took {total:.0f} s of a processor, above {ALL_SECONDS:.0f}: mark more slow")
    return lines
