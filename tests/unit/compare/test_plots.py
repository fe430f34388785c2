"""Charts in the terminal."""

from rich.style import Style
from rich.text import Text

from gpuagent_collector.compare.plots import draw_charts, legend, phase_lines
from gpuagent_collector.runs.series import CHARTS, Phase, Points, Trace

RISING: Points = tuple((float(second), 10.0 * second) for second in range(-2, 9) if second >= 0)
FLAT: Points = tuple((float(second), 90.0) for second in range(9))


def trace(side: str, *curves: Points) -> Trace:
    """Return a trace with curves for the first charts."""
    phases = (
        Phase(name="setup", from_seconds=-2, to_seconds=0),
        Phase(name="measure", from_seconds=0, to_seconds=8),
    )
    return Trace(side=side, run_id=side, repeat=1, phases=phases, curves=dict(zip(CHARTS, curves, strict=False)))


def test_a_chart_is_as_wide_as_asked_names_its_unit_and_marks_the_measured_phase() -> None:
    (chart,) = draw_charts([trace("none", RISING), trace("cpu-burn", FLAT)], 78)
    lines = Text.from_ansi(chart).plain.splitlines()
    assert "Node CPU, %" in lines[0]
    assert max(map(len, lines)) <= 78
    assert "┊" in chart
    assert "100┤" in chart


def test_charts_leave_the_terminals_background_alone() -> None:
    (chart,) = draw_charts([trace("none", RISING), trace("cpu-burn", FLAT)], 78)
    styles = [span.style for span in Text.from_ansi(chart).spans]
    assert not [style for style in styles if isinstance(style, Style) and style.bgcolor]


def test_sides_differ_without_colour() -> None:
    (chart,) = draw_charts([trace("none", RISING), trace("cpu-burn", FLAT)], 78)
    plain = Text.from_ansi(chart).plain
    assert any("\u2800" < character <= "\u28ff" for character in plain)
    assert any(character in plain for character in "▀▄▖▘")
    assert legend([trace("none"), trace("cpu-burn")]) == "⣀ none, repeat 1   ▄ cpu-burn, repeat 1"


def test_quantities_that_nobody_sampled_are_not_drawn() -> None:
    assert draw_charts([trace("none"), trace("cpu-burn")], 78) == []


def test_a_quantity_that_one_side_lacks_is_drawn_for_the_other() -> None:
    assert len(draw_charts([trace("none", RISING, FLAT), trace("cpu-burn", FLAT)], 78)) == 2


def test_a_curve_of_one_point_or_of_zeros_is_drawn() -> None:
    assert len(draw_charts([trace("none", ((0.0, 0.0),), ((0.0, 0.0),))], 60)) == 2


def test_phases_are_shown_in_seconds_from_the_start_of_the_measured_phase() -> None:
    assert phase_lines([trace("none")]) == ["none  setup −2.0 measure 0.0 end 8.0 s"]
