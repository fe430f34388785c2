"""A roofline in the terminal: its document, with a chart of each device."""

from rich.console import Console
from rich.text import Text

from gpuagent_collector.compare.terminal import print_sections
from gpuagent_collector.roofline.document import head, points, roofs, warnings
from gpuagent_collector.roofline.plots import LEGEND, draw_roofline
from gpuagent_collector.roofline.study import Roofline, Study

# Wider ones are no easier to read.
_WIDEST_CHART = 120


def print_study(console: Console, study: Study) -> None:
    """Print everything as wide as the console is."""
    print_sections(console, [head(study)])
    for roofline in study.rooflines:
        print_sections(console, [roofs(roofline)])
        _print_chart(console, roofline)
        print_sections(console, [points(roofline, study)])
    print_sections(console, warnings(study))


def _print_chart(console: Console, roofline: Roofline) -> None:
    chart = draw_roofline(roofline, min(console.width, _WIDEST_CHART))
    if chart:
        console.print(Text.from_ansi(chart))
        console.print(Text(f"{LEGEND}\n", style="dim"))
