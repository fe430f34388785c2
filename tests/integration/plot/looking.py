"""Readers of drawn figures: their texts, and whether these are within the figure and apart from one another."""

from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.text import Text

from gpuagent_collector.plot.picture import Picture


def axes_of(picture: Picture) -> list[Axes]:
    """Return the panels of a figure that are drawn."""
    return [axes for axes in picture.figure.axes if axes.axison]


def texts_of(picture: Picture) -> list[Text]:
    """Return every text that is drawn."""
    found: list[Text] = []
    for axes in axes_of(picture):
        found += [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]  # type: ignore[attr-defined]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high:
                    found += [label for label in (tick.label1, tick.label2) if label.get_visible()]
    for part in picture.figure.subfigs:
        found += part.texts
        found += [text for legend in part.legends for text in legend.get_texts()]
    return [text for text in found if text.get_text().strip() and text.get_visible()]


def xs_of(line: Line2D) -> list[float]:
    """Return the horizontal places of a line's points."""
    return [float(x) for x in np.asarray(line.get_xdata())]


def ys_of(line: Line2D) -> list[float]:
    """Return the vertical places of a line's points."""
    return [float(y) for y in np.asarray(line.get_ydata())]


def words_of(picture: Picture) -> str:
    """Return all texts, joined."""
    return " ".join(" ".join(text.get_text().split()) for text in texts_of(picture))


def assert_clear(picture: Picture) -> None:
    """Check that no text leaves the figure or covers another one."""
    picture.figure.set_dpi(200)
    canvas = FigureCanvasAgg(picture.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer, whole = canvas.get_renderer(), picture.figure.bbox  # type: ignore[no-untyped-call]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts_of(picture)]
    for text, box in boxes:
        assert min(box.x0, box.y0) > -2, text
        assert box.x1 < whole.width + 2, text
        assert box.y1 < whole.height + 2, text
    for (one, first), (other, second) in combinations(boxes, 2):
        wide = min(first.x1, second.x1) - max(first.x0, second.x0)
        tall = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert wide < 2 or tall < 2 or first.width * second.width == 0, (one, other)
