"""Tables and documents in LaTeX, for papers: tables need the packages booktabs and adjustbox.

Long headings and names are broken, and a table that is still wider than the line is made smaller. All compiles with
pdflatex; names from the store in other scripts than Latin need xelatex.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from gpuagent_collector.present.answer import Bullets, Command, Section, Verbatim, without_charts
from gpuagent_collector.present.table import Grid
from gpuagent_common.text import harmless

_WRITTEN = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"$\sim$",
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

# The most characters in a line of a heading and of a cell: five columns then fit a page, at nearly the text's size.
_HEADING, _CELL = 16, 32


def to_latex(sections: Iterable[Section]) -> str:
    """Return a document as the body of a LaTeX file."""
    blocks = [r"% needs \usepackage{booktabs,adjustbox}"]
    for section in without_charts(sections):
        blocks += [f"\\subsection*{{{_text(section.heading)}}}", *_blocks(section)]
    return "\n\n".join(blocks)


def latex_table(names: Sequence[str], right: Iterable[bool], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table; `right` marks the columns aligned to the right."""
    sides = ["r" if each else "l" for each in right]
    yield r"\begin{adjustbox}{max width=\linewidth}"
    yield f"\\begin{{tabular}}{{{''.join(sides)}}}"
    yield r"\toprule"
    yield _row(names, sides, _HEADING, "b")
    yield r"\midrule"
    for row in rows:
        yield _row(row, sides, _CELL, "t")
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield r"\end{adjustbox}"


def _row(cells: Iterable[str], sides: Iterable[str], width: int, line: str) -> str:
    """Return a row of which long cells are broken; their first (`t`) or last (`b`) lines stand side by side."""
    written = []
    for cell, side in zip(cells, sides, strict=True):
        lines = textwrap.wrap(cell.strip(), width, break_long_words=False, break_on_hyphens=False)
        # After the end of a line, a bracket or an asterisk would belong to it.
        text = r" \\ ".join(("{}" if line[0] in "[*" else "") + _text(line) for line in lines)
        if len(lines) > 1:
            text = f"\\begin{{tabular}}[{line}]{{@{{}}{side}@{{}}}}{text}\\end{{tabular}}"
        written.append(text)
    return f"{' & '.join(written)} \\\\"


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
