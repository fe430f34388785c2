"""The look of figures in print: colours that the colour-blind distinguish, and marks that differ without them."""

from collections.abc import Mapping
from typing import Any

MM_PER_INCH = 25.4

# From this width on a figure spans two columns of a journal.
WIDE_MM = 120.0

# Okabe and Ito (2008), in an order in which neighbours differ in grey too.
_COLORS = ("#0072B2", "#E69F00", "#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7")
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
    return _DASHES[index % len(_DASHES)]


def marker(index: int) -> str:
    """Return the shape of a series' points."""
    return _MARKERS[index % len(_MARKERS)]


def hatch(index: int) -> str:
    """Return the hatch of a series' bars."""
    return _HATCHES[index % len(_HATCHES)]


def line_style(index: int) -> dict[str, Any]:
    """Return the settings of a series' line with points, by its position."""
    return {"color": color(index), "ls": dash(index), "marker": marker(index)}


def points(width_mm: float) -> float:
    """Return the size of text in a figure of this width."""
    return 8.0 if width_mm >= WIDE_MM else 7.0


def settings(width_mm: float) -> Mapping[str, Any]:
    """Return matplotlib's settings for a figure of this width."""
    size = points(width_mm)
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": size,
        "axes.titlesize": size,
        "axes.labelsize": size,
        "xtick.labelsize": size - 1,
        "ytick.labelsize": size - 1,
        "legend.fontsize": size - 0.5,
        "axes.titlelocation": "left",
        "axes.titlepad": 3.0,
        "axes.linewidth": 0.6,
        "axes.edgecolor": QUIET,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.5,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "hatch.linewidth": 0.5,
        "lines.linewidth": 1.1,
        "lines.markersize": 4.5,
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
