"""Charts in the terminal."""

import pytest
from rich.style import Style
from rich.text import Text

from gpuagent_collector.compare.plots import draw_charts, legend, phase_lines
from gpuagent_collector.runs.series import CHARTS, Course, Curve, Phase, Reading, _stretches
from tests.support.bare_runs import bare_run


def curve(*points: tuple[float, float]) -> Curve:
    return (tuple(Reading(seconds=seconds, mean=value, low=value, high=value) for seconds, value in points),)


RISING = curve(*((float(second), 10.0 * second) for second in range(9)))
FLAT = curve(*((float(second), 90.0) for second in range(9)))
# In percent.
PERCENTS = [chart for chart in CHARTS if chart.brief and chart.unit == "percent"]
RUN = bare_run(repeat=1)


def trace(side: str, *curves: Curve) -> Course:
    """Return a course with curves for the first charts."""
    spans = (("setup", -2, 0), ("measure", 0, 8))
    phases = tuple(Phase(name=name, from_seconds=begin, to_seconds=end) for name, begin, end in spans)
    return Course(side=side, run=RUN, phases=phases, curves=dict(zip(PERCENTS, curves, strict=False)))


def test_a_chart_is_as_wide_as_asked_names_its_unit_and_tells_its_parts_apart_without_colour() -> None:
    (chart,) = draw_charts([trace("none", RISING), trace("cpu-burn", FLAT)], 78)
    text = Text.from_ansi(chart)
    lines = text.plain.splitlines()
    assert "Node CPU, %" in lines[0]
    assert max(map(len, lines)) <= 78
    assert "┊" in chart
    assert "100┤" in chart
    # The terminal's background is left alone.
    assert not [span for span in text.spans if isinstance(span.style, Style) and span.style.bgcolor]
    assert any("\u2800" < character <= "\u28ff" for character in text.plain)
    assert any(character in text.plain for character in "▀▄▖▘")
    assert legend([trace("none"), trace("cpu-burn")]) == ["⣀ none, repeat 1   ▄ cpu-burn, repeat 1"]


def test_each_curve_has_a_mark_of_its_own_and_those_without_one_are_counted() -> None:
    levels = [trace(f"side {number}", curve((number, 50.0), (number + 0.5, 50.0))) for number in range(1, 15)]
    marks = [each.split()[0] for each in legend(levels[:12])]
    assert len(set(marks)) == 12
    (chart,) = draw_charts(levels, 78)
    plain = Text.from_ansi(chart).plain
    assert all(mark in plain for mark in marks[2:])
    assert legend(levels)[-2:] == [f"{marks[11]} side 12, repeat 1", "not drawn: 2 more"]


@pytest.mark.parametrize(
    ("first", "second", "charts"),
    [((), (), 0), ((RISING, FLAT), (FLAT,), 2), ((curve((0.0, 0.0)), curve((0.0, 0.0))), (), 2)],
    ids=["nobody sampled", "one side lacks one", "one point, of zeros"],
)
def test_quantities_of_some_side_are_drawn(first: tuple[Curve, ...], second: tuple[Curve, ...], charts: int) -> None:
    assert len(draw_charts([trace("none", *first), trace("cpu-burn", *second)], 78)) == charts


def test_phases_are_shown_in_seconds_from_the_start_of_the_measured_phase() -> None:
    assert phase_lines([trace("none")]) == ["none  setup −2.0 measure 0.0 end 8.0 s"]


def test_a_curve_is_interrupted_where_nothing_was_read_for_long() -> None:
    # Two agents read in turns, half a second apart.
    times = (0, 0.5, 2, 2.5, 4, 4.5, 60, 60.5, 62, 62.5)
    (readings,) = curve(*((second, 1.0) for second in times))
    assert [len(stretch) for stretch in _stretches(readings, width=0.1)] == [6, 4]
