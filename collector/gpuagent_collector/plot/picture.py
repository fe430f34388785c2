"""A picture for print: its style, its axes, and the file."""

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib.style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpuagent_collector.present.files import appearing
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.runs.arguments import NOT_GIVEN
from gpuagent_collector.runs.facets import Facet
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

MM_PER_INCH = 25.4

# From this width on a figure spans two columns of a journal.
WIDE_MM = 120.0

# First those of Okabe and Ito (2008), in an order in which neighbours differ in grey too.
_COLORS = (
    *("#0072B2", "#E69F00", "#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7"),
    *("#663300", "#999933", "#3322AA", "#9933FF", "#882255"),
)
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1.2)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">", "h")
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "oo", "----", "++", "||||", "**", "//..")

# Text, lines that help reading, and the shade of a measured phase.
QUIET = "#666666"
GRID = "#dddddd"
SHADE = "#eeeeee"


def color(index: int) -> str:
    """Return the colour of a series, by its position."""
    return _COLORS[index % len(_COLORS)]


def dash(index: int) -> Any:
    """Return the pattern of a series' line."""
    return _DASHES[(index + index // len(_COLORS)) % len(_DASHES)]


def marker(index: int) -> str:
    """Return the shape of a series' points."""
    return _MARKERS[index % len(_MARKERS)]


def in_bars(index: int) -> dict[str, Any]:
    """Return the settings of a series' bars beside their colour."""
    return {"hatch": _HATCHES[index % len(_HATCHES)], "edgecolor": "white", "linewidth": 0}


def line_style(index: int) -> dict[str, Any]:
    """Return the settings of a series' line with points, by its position."""
    return {"color": color(index), "ls": dash(index), "marker": marker(index)}


# The marks of a curve are so far apart, as a share of the panel's diagonal.
_MARKS_APART = 0.3


def curve_style(index: int, points: int) -> dict[str, Any]:
    """Return the settings of a series' curve of so many points, whose few marks no other curve's cover."""
    if points == 1:
        return line_style(index)
    # So that neighbours are far apart, as five and twelve have no common divisor.
    first = 5 * index % len(_COLORS) / len(_COLORS) * _MARKS_APART
    return {**line_style(index), "markevery": (first, _MARKS_APART)}


def in_style(width_mm: float) -> Any:
    """Return a context with matplotlib's settings for a figure of this width, whatever the user's own are."""
    size = points(width_mm)
    settings = {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": size,
        "axes.titlesize": size,
        "axes.labelsize": size,
        "axes.titlelocation": "left",
        "axes.titlepad": 3.0,
        "axes.linewidth": 0.6,
        "axes.edgecolor": QUIET,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.5,
        "hatch.linewidth": 0.5,
        "lines.linewidth": 1.1,
        "lines.markersize": 4.5,
        "legend.fontsize": size - 0.5,
        "legend.frameon": False,
        "legend.handlelength": 2.6,
        "figure.constrained_layout.h_pad": 0.045,
        "figure.constrained_layout.w_pad": 0.045,
        # Names come from the store: a dollar is a dollar.
        "text.parse_math": False,
        # Editable text in PDF, outlines in SVG; the same data give the same file.
        "pdf.fonttype": 42,
        "svg.hashsalt": "gpuagent",
        "savefig.dpi": 300,
    }
    for ticks in ("xtick", "ytick"):
        settings |= {f"{ticks}.labelsize": size - 1, f"{ticks}.major.width": 0.6}
        settings |= {f"{ticks}.major.size": 2.5, f"{ticks}.minor.size": 0}
    return matplotlib.style.context(["default", settings])


def points(width_mm: float) -> float:
    """Return the size of text in a figure of this width."""
    return 8.0 if width_mm >= WIDE_MM else 7.0


_MM_PER_POINT = MM_PER_INCH / 72
# A character's usual width and a line's height, as shares of the size of text.
_CHARACTER, _LINE = 0.56, 1.35
# Between panels, for the title and the axis of each.
_PANEL_MM = 10.0


def characters(width_mm: float, size: float) -> int:
    """Return the number of characters of a size in points that fit into a width."""
    return max(6, int(width_mm / (size * _MM_PER_POINT * _CHARACTER)))


def shorten_names(texts: Sequence[str], most: int) -> list[str]:
    """Return harmless texts of at most `most` characters, or as they are where cutting would make two of them alike."""
    return shorten([harmless(text) for text in texts], most)


def fold(texts: Sequence[str], most: int) -> list[str]:
    """Return texts in at most two lines of `most` characters, shortened where two do not suffice."""
    # An option stays on the line of its value.
    harmless_texts = (harmless(text).replace(" | ", _TIED) for text in texts)
    tied = [re.sub(r"(--[\w.-]+) (?!-)", "\\1\N{NO-BREAK SPACE}", text) for text in harmless_texts]
    lines = [wrap(text, most, break_long_words=False) for text in tied]
    if all(len(of_one) <= 2 and max(map(len, of_one), default=0) <= most for of_one in lines):
        return ["\n".join(of_one) for of_one in lines]
    return shorten_names(texts, most)


# Values of the sides remain in one line.
_TIED = "\N{NO-BREAK SPACE}|\N{NO-BREAK SPACE}"


def write_counts(counts: Iterable[int]) -> str:
    """Return numbers of runs in words: 5, or 5 to 7."""
    known = sorted(set(counts))
    return f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}"


def name_side(side: str, facet: Facet) -> str:
    """Return a side's name for a legend: a parameter's value has its key, as `2` alone names nothing."""
    _, _, key = facet.name.partition(":")
    return f"{key}={side}" if key and not facet.joined and side != NOT_GIVEN else side


def only_side(sides: Sequence[str], facet: Facet) -> str:
    """Return the only side for a note, such as ` on satori`; '' for several, and where its name says nothing of it."""
    is_place = len(sides) == 1 and facet.name not in ("all", "run", "workload")
    return f" {facet.preposition} {name_side(sides[0], facet)}" if is_place else ""


@dataclass(slots=True, kw_only=True)
class Picture:
    """A figure in the making.

    Attributes:
        width_mm: of the whole figure.
        note: sentences about what is drawn, below it.
        missing: names that were asked for, and of which the runs have nothing.
        said: what the figure shows, in words; '' where no answer has them.
        legend: artists with their names, below the panels.
        height_mm: known when the panels are made.
    """

    width_mm: float
    note: str
    missing: Sequence[str] = ()
    said: str = ""
    legend: list[tuple[Artist, str]] = field(default_factory=list)
    height_mm: float = 0.0
    figure: Figure = field(init=False)

    @property
    def size(self) -> float:
        """The size of text, in points."""
        return points(self.width_mm)

    @property
    def line_mm(self) -> float:
        """The distance of names of rows."""
        return (self.size - 1) * _MM_PER_POINT * _LINE

    @property
    def is_wide(self) -> bool:
        """Return whether the figure spans two columns."""
        return self.width_mm >= WIDE_MM

    def name_line(self, name: str, **style: Any) -> None:
        """Add a line or mark of this style to the legend."""
        self.legend.append((Line2D([], [], **style), name))

    def grid(self, number: int, height_mm: float, columns: int) -> list[Axes]:
        """Return so many panels of one height; the legend is drawn now. Raises GpuAgentError, as `panels`."""
        axes = self.panels([height_mm] * -(-number // columns), columns=columns)
        for spare in axes[number:]:
            spare.set_axis_off()
        return axes[:number]

    def panels(
        self, heights_mm: Sequence[float], *, columns: int = 1, sharex: bool = False, sharey: bool = False
    ) -> list[Axes]:
        """Return axes in rows of these heights, from the upper left; legend and note are drawn now.

        Raises GpuAgentError: the figure would be too large to draw.
        """
        size = self.size
        note = wrap(harmless(self.note), characters(self.width_mm - 4, size - 1.5))
        note_mm = len(note) * (size - 1.5) * _MM_PER_POINT * _LINE + 2
        names = shorten_names([name for _, name in self.legend], characters(self.width_mm - 16, size))
        longest = max(map(len, names), default=0) * size * _MM_PER_POINT * _CHARACTER + 13
        across = max(1, min(len(names), int((self.width_mm - 4) / longest))) if names else 1
        legend_mm = ceil(len(names) / across) * size * _MM_PER_POINT * 1.45 + 2 if names else 0.0
        panels_mm = sum(heights_mm) + _PANEL_MM * (1 if sharex else len(heights_mm)) + 4 * (len(heights_mm) - 1)
        self.height_mm = panels_mm + legend_mm + note_mm
        if self.height_mm > _MOST_MM:
            raise GpuAgentError(
                f"the figure would be {self.height_mm / 1000:.1f} m tall; choose fewer runs with --workload or --where"
            )
        inches = (self.width_mm / MM_PER_INCH, self.height_mm / MM_PER_INCH)
        self.figure = Figure(figsize=inches, layout="constrained")
        # A part of no height cannot be laid out.
        ratios = [panels_mm, max(legend_mm, 0.01), note_mm]
        upper, middle, lower = self.figure.subfigures(3, 1, squeeze=False, height_ratios=ratios, hspace=0).flat
        if names:
            handles = [artist for artist, _ in self.legend]
            middle.legend(handles, names, loc="center", ncols=across, borderaxespad=0, columnspacing=1.4)
        x = 2 / self.width_mm
        lower.text(x, 0.98, "\n".join(note), va="top", fontsize=size - 1.5, color=QUIET, linespacing=1.25)
        grid = upper.subplots(
            len(heights_mm), columns, squeeze=False, sharex=sharex, sharey=sharey, height_ratios=list(heights_mm)
        )
        return list(grid.flat)

    def save(self, path: Path) -> None:
        """Write the figure in the format that the name ends in. Raises GpuAgentError: it cannot be written."""
        ending = path.suffix.lower().lstrip(".")
        metadata: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[ending]
        drawn = io.BytesIO()  # matplotlib's PDF prints a traceback where the disk is full
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # characters that the font lacks, and rooms that are too narrow
            self.figure.savefig(drawn, format=ending, metadata=metadata)
        with appearing(path) as unfinished:
            unfinished.write_bytes(drawn.getbuffer())


# Where matplotlib's PNGs end, at 300 dots an inch.
_MOST_MM = 5000.0
