"""A profile as a document of paragraphs and tables, for the terminal and for Markdown."""

from collections.abc import Iterator, Mapping, Sequence

from gpuagent_collector.output.document import Grid, Paragraph, Section, caveat_sections
from gpuagent_collector.output.human import Notation, notation, significant
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.profile.answer import answer, exclusive
from gpuagent_collector.profile.caveats import find_caveats
from gpuagent_collector.profile.data import OTHERS
from gpuagent_collector.profile.lanes import KERNELS, Amount, Row, Table
from gpuagent_collector.profile.names import short_names
from gpuagent_collector.profile.study import Side, Study


def build_document(study: Study, *, top: int) -> list[Section]:
    """Return the document, with at most `top` operations in each table."""
    names = [side.name if len(study.sides) > 1 else side.run.run_id for side in study.sides]
    return [
        Section(heading=f"Profile: {' · '.join(names)}", parts=(Paragraph(text=answer(study)), _sides(study), _LEGEND)),
        *_differing(study),
        *_only_on_one_side(study, top),
        *(_table(table, study, top) for table in study.tables),
        *caveat_sections(find_caveats(study)),
    ]


_LEGEND = Paragraph(
    text="Times and calls are means over the traced steps and the ranks, all calls of a name added up; shares are of "
    "the side's time in a table."
)


def _sides(study: Study) -> Grid:
    rows = tuple((side.name, side.run.run_id, _what(side), side.run.device or "no GPU known") for side in study.sides)
    return Grid(header=("", "run", "what", "GPU"), rows=rows, figures_from=4)


def _what(side: Side) -> str:
    run = side.run
    median = f"; the median of {side.runs} runs by throughput" if side.runs > 1 else ""
    place = ", ".join(filter(None, (run.environment, run.platform, run.nodes)))
    return f"{run.workload}{f': {place}' if place else ''}{median}"


def _differing(study: Study) -> Iterator[Section]:
    if study.differing:
        header = ("", *(side.name for side in study.sides))
        rows = tuple((row.title, *(", ".join(values) or ABSENT for values in row.values)) for row in study.differing)
        yield Section(
            heading="Differences that may explain different kernels",
            parts=(Grid(header=header, rows=rows, figures_from=3),),
        )


def _only_on_one_side(study: Study, top: int) -> Iterator[Section]:
    kernels = next((table for table in study.tables if table.lane is KERNELS), None)
    alone = exclusive(kernels) if kernels else []
    if not alone:
        return
    names = short_names(row.name for row in alone)
    scale = notation([row.seconds for row in alone], "seconds")
    rows = [
        (study.sides[row.only_on or 0].name, names[row.name], _calls(row.amounts), scale.write(abs(row.seconds)))
        for row in alone[:top]
    ]
    header = ("launched by", "kernel", "calls", "a step")
    yield Section(
        heading="Kernels that only one side launched",
        parts=(Grid(header=header, rows=tuple(rows), figures_from=2), *_more(alone[top:], scale)),
    )


def _table(table: Table, study: Study, top: int) -> Section:
    names = short_names(row.name for row in table.rows)
    shown = table.rows[:top]
    scale = notation([amount.seconds for row in table.rows for amount in row.amounts if amount], "seconds")
    header = ("", *(side.name for side in study.sides), *_difference_header(study), "share", "calls")
    rows = [(_called(row, names), *_times(row, scale), _shares(row), _calls(row.amounts)) for row in shown]
    return Section(
        heading=f"{table.lane.title}, {scale.symbol} a step",
        parts=(Grid(header=header, rows=(*rows, _total(table, scale))), *_more(table.rows[top:], scale)),
    )


def _difference_header(study: Study) -> tuple[str, ...]:
    return (f"{study.sides[1].name} − {study.sides[0].name}",) if len(study.sides) > 1 else ()


def _called(row: Row, names: Mapping[str, str]) -> str:
    return "(others: without a row of their own)" if row.name == OTHERS else names[row.name]


def _times(row: Row, scale: Notation) -> tuple[str, ...]:
    sides = tuple(ABSENT if amount is None else scale.write_bare(amount.seconds) for amount in row.amounts)
    return sides if len(sides) == 1 else (*sides, scale.write_difference(row.seconds))


def _total(table: Table, scale: Notation) -> tuple[str, ...]:
    sides = tuple(ABSENT if total is None else scale.write_bare(total) for total in table.totals)
    difference = () if len(sides) == 1 else (ABSENT,)
    if table.difference is not None:
        difference = (scale.write_difference(table.difference),)
    return (f"all {len(table.rows)}", *sides, *difference, "", "")


def _shares(row: Row) -> str:
    shares = [significant(amount.share_percent, 2) if amount else ABSENT for amount in row.amounts]
    return f"{' / '.join(shares)} %"


def _calls(amounts: Sequence[Amount | None]) -> str:
    return " / ".join(significant(amount.calls) if amount else ABSENT for amount in amounts)


def _more(rest: Sequence[Row], scale: Notation) -> Iterator[Paragraph]:
    """Yield the number of rows that are not shown."""
    if rest:
        largest = scale.write(abs(rest[0].seconds))
        yield Paragraph(text=f"{len(rest)} more, none above {largest}; --top shows them.")
