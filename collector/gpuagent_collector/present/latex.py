"""Tables and documents in LaTeX, for papers: tables need the package booktabs, and all compiles with pdflatex.

Names from the store in other scripts than Latin need xelatex.
"""

from collections.abc import Iterable, Iterator, Sequence

from gpuagent_collector.present.answer import Bullets, Command, Section, Verbatim, without_charts
from gpuagent_collector.present.table import Grid
from gpuagent_common.text import harmless

_WRITTEN = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # Fonts of eight bits lack these.
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "●": r"$\bullet$",
    "Δ": r"$\Delta$",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "≠": r"$\neq$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "µ": r"$\mu$",
    "°": r"$^\circ$",
    "²": "$^2$",
    "³": "$^3$",
    "–": r"\textendash{}",
    "…": r"\ldots{}",
}


def to_latex(sections: Iterable[Section]) -> str:
    """Return a document as the body of a LaTeX file."""
    blocks: list[str] = []
    for section in without_charts(sections):
        blocks += [f"\\subsection*{{{_text(section.heading)}}}", *_blocks(section)]
    return "\n\n".join(blocks)


def latex_table(names: Sequence[str], right: Iterable[bool], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table; `right` marks the columns aligned to the right."""
    yield f"\\begin{{tabular}}{{{''.join('r' if each else 'l' for each in right)}}}"
    yield r"\toprule"
    yield _row(names)
    yield r"\midrule"
    yield from map(_row, rows)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _row(cells: Iterable[str]) -> str:
    return f"{' & '.join(map(_text, cells))} \\\\"


def _text(text: str) -> str:
    written = "".join(_WRITTEN.get(character, character) for character in harmless(text.strip()))
    return written.replace("--", "-{}-")  # two hyphens would become a dash


def _blocks(section: Section) -> Iterator[str]:
    for part in section.parts:
        match part:
            case str() | Command():
                yield _text(str(part))
            case Bullets():
                points = [
                    rf"\item {_text(text)} {_text(f'→ {remedy}' if remedy else '')}" for text, remedy in part.points
                ]
                yield "\n".join([r"\begin{itemize}", *points, r"\end{itemize}"])
            case Verbatim():
                yield f"{_text(part.title)}:\n\n" + r"\\".join(map(_text, part.text.split("\n")))
            case Grid():
                yield "\n".join(latex_table(part.header, part.right_columns(), part.full_rows()))
