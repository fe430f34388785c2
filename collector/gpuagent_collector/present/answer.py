"""An answer, written once for all formats.

To add or move an answer:
1. Its module in `answers/` has a request, a study (a dataclass) and a function that makes the study.
2. `render(study) -> Answer` is all that says how the study looks. Nothing else makes texts, JSON or CSV.
3. Make a `Table` for each set of rows; its rows are objects of the study, or dicts.
4. `Column(key, title, value, show)` says a column once. Without a title it is only in data, without a key only shown.
5. The cell is the row's attribute or item of that key, or what `value` makes of the row; it stays raw.
6. `show` makes a cell's text; with `unit` all figures of the column share one notation.
7. Sections hold texts (a `str` is a paragraph), tables, charts, bullets and verbatim text, in their order.
8. `facts` is the rest of the JSON object. A table in it becomes a list of objects, an enum its value.
9. `csv` names the tables whose rows are CSV's lines; a table's `about` is before the cells of each of its rows.
10. List it where the row "an answer" of docs/architecture.md says.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import date
from enum import Enum
from functools import partial
from math import isfinite
from typing import Any

from gpuagent_collector.present.chart import Chart
from gpuagent_collector.present.shortening import shortening
from gpuagent_collector.present.table import Grid, Table
from gpuagent_common.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """Points, each with its remedy."""

    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim:
    """Text whose lines and blanks count, such as a program's output."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command to type, after the words that introduce it."""

    lead: str
    command: str

    def __str__(self) -> str:
        """Return both as a sentence."""
        return f"{self.lead} `{self.command}`."


@dataclass(frozen=True, slots=True)
class Legend:
    """A line of the first screen, or nothing there, and that which is elsewhere in its place.

    Attributes:
        is_spare: whether a first screen that is too long leaves the line out.
    """

    line: str
    text: str | Table | Chart
    is_spare: bool = False


# A text is a paragraph; a function makes one that is worked out only where it is shown.
Part = str | Bullets | Table | Grid | Chart | Verbatim | Command | Legend | Callable[[], str]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its content; the first screen has no details."""

    heading: str
    parts: Sequence[Part]
    is_detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """One warning and its remedy. `code` is stable for scripts."""

    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer:
    """Everything that a command says, for all formats.

    Attributes:
        heading: of the first section.
        text: the sentences of the answer; what begins a paragraph is on a line of its own.
        parts: what else is in the first section, after the text.
        sections: the further ones.
        details: returns those after them that the first screen does not have.
        caveats: the warnings, the gravest first.
        next: the command that takes the question further.
        facts: what JSON has between the text and the warnings; tables in it are lists of objects.
        csv: the tables whose rows are CSV's lines, or a function that makes them.
        short: the sentences on the first screen; None: all of them.
        more: what the first screen leaves out, in words.
        everything: whether a terminal shows the whole answer.
        sides: names that are shortened where they are long.
        statements: the SQL behind it, where it says so.
        notes: lines for standard error; beside_csv: further ones with CSV, which has no sentences.
        failed: whether the command ends with exit code 1.
    """

    heading: str
    text: str
    parts: Sequence[Part] = ()
    sections: Sequence[Section] = ()
    details: Callable[[], Iterable[Section]] = tuple
    caveats: Sequence[Caveat] = ()
    next: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    csv: Sequence[Table] | Callable[[], Sequence[Table]] = ()
    short: str | None = None
    more: str = ""
    everything: bool = False
    sides: Sequence[str] = ()
    statements: Sequence[str] = ()
    notes: Sequence[str] = ()
    beside_csv: Sequence[str] = ()
    failed: bool = False

    def document(
        self,
        *,
        wide: bool = True,
        brief: bool = False,
        cut: bool = False,
        warnings: int = 2,
        whole: str | None = None,
        spare: bool = True,
        rows: int | None = None,
        tables: bool = True,
        remedies: bool = True,
        details: bool = True,
    ) -> list[Section]:
        """Return the sections with their tables as text.

        Args:
            wide: whether there is room for all columns.
            brief: whether it is the first screen: no details, tables cut, and only the gravest warnings.
            cut: whether long names of sides are cut, as a terminal has no room for them.
            warnings: of a first screen, the most.
            whole: the command that prints the rest; None: this one, with `--all`; '': none is named.
            spare: whether there is room for spare legends and charts.
            rows: of a first screen, the most of a table that can shrink; None: as many as each table has there.
            tables: whether there is room for spare tables.
            remedies: whether there is room for the remedies of warnings.
            details: whether sections of details are among them, where it is not a first screen.
        """
        text = self.short if brief and self.short is not None else self.text
        sections = [Section(self.heading, [*text.splitlines(), *self.parts])]
        details = details and not brief
        sections += [section for section in self.sections if details or not section.is_detail]
        sections += self.details() if details else ()
        if brief and self.caveats:
            shown = self.caveats[:warnings]
            points = tuple((f"{each.text} → {each.remedy}" if remedies else each.text, "") for each in shown)
            sections[-1] = replace(sections[-1], parts=[*sections[-1].parts, Bullets(points=points)])
        else:
            sections += caveat_sections(self.caveats)
        if self.statements and not brief:
            statements = counted(len(self.statements), "statement")
            text = f"--show-sql prints the {statements} of this answer; --json has everything."
            sections.append(Section("SQL", [text]))
        hidden = len(self.caveats) - warnings
        more = [counted(hidden, "more warning")] if hidden > 0 else []
        more += [] if remedies else ["remedies"]
        spared: list[Part] = [each for each in self.parts if isinstance(each, Table) and each.spare and not tables]
        more += [each.spare for each in spared if isinstance(each, Table)]
        more += [self.more] if self.more else []
        last: Part = f"--all shows {', '.join(more)}." if brief and more else ""
        if last and whole is not None:
            lead = ", ".join(more)
            rest = [Command(f"{lead[:1].upper()}{lead[1:]}:", whole)] if whole else []
            sections[-1] = replace(sections[-1], parts=[*sections[-1].parts, *rest])
            last = ""
        if self.next:
            last = Command(f"{last} Next:".lstrip(), self.next)
        if last:
            sections[-1] = replace(sections[-1], parts=[*sections[-1].parts, last])
        spared += [part for part in self.parts if isinstance(part, Legend | Chart) and part.is_spare and not spare]
        kept = [part for part in sections[0].parts if not any(part is each for each in spared)]
        sections[0] = replace(sections[0], parts=kept)
        written = partial(_written, wide=wide, whole=not brief, rows=rows)
        return shorten_sides([Section(each.heading, [*written(each.parts)]) for each in sections], self.sides, cut=cut)

    def record(self) -> dict[str, Any]:
        """Return the object that JSON has."""
        record = {"answer": " ".join(self.text.splitlines()), **plain(self.facts), "warnings": plain(self.caveats)}
        return {**record, "sql": list(self.statements)} if self.statements else record

    def json(self) -> str:
        """Return the answer as one JSON object."""
        return json.dumps(self.record(), indent=2, default=str, allow_nan=False)

    def _repr_html_(self) -> str:
        """Return the answer as a notebook shows it."""
        from gpuagent_collector.present.html import to_html

        return to_html(self)

    def __repr__(self) -> str:
        return f"<answer: {self.text or self.heading}>"

    def tables(self) -> Sequence[Table]:
        """Return the tables whose rows are CSV's lines."""
        return self.csv() if callable(self.csv) else self.csv

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines that CSV has; a nested value is JSON."""
        lines = [line for table in self.tables() for line in table.lines()]
        return [{key: _flat(plain(value)) for key, value in line.items()} for line in lines]


def add_sentence(answer: Answer, sentence: str) -> Answer:
    """Return the answer with a sentence more at the end of its first paragraph."""
    said = []
    for text in (answer.text, answer.short or answer.text):
        result, line, because = text.partition("\n")
        said.append(f"{result} {sentence}{line}{because}")
    return replace(answer, text=said[0], short=said[1])


def plain(value: Any) -> Any:
    """Return a value as JSON has it: tables, dataclasses and mappings as objects, enums by their value."""
    match value:
        case Table():
            return [plain(record) for record in value.records()]
        case Enum():
            return value.value
        case date():
            return value.isoformat()
        case float() if not isfinite(value):
            return None
        case Mapping():
            return {key: plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list) else value


# Begins the line below a table that does not show all its rows.
MORE = "… "


def _written(parts: Sequence[Part], *, wide: bool, whole: bool, rows: int | None) -> Iterator[Part]:
    """Yield the parts with their tables as text, and below a table what it does not show."""
    for part in parts:
        if isinstance(part, Legend):
            part = part.text if whole else part.line  # noqa: PLW2901 - it stands for the other
        elif callable(part):
            part = part()  # noqa: PLW2901
        if not isinstance(part, Table):
            yield from [part] if part else []
            continue
        part = part.shortened(rows)  # noqa: PLW2901
        if whole or part.most != 0:
            yield part.grid(wide=wide, whole=whole)
        rest = () if whole or part.most is None else part.rows[part.most :]
        if rest and part.more:
            line = part.more(rest)
            yield from [line] if line else []
        elif rest and part.most:
            yield f"{MORE}{counted(len(rest), 'more row')}"


# Characters of the name of a side: a line of text goes on in the next one, a row of a table does not.
_MOST_IN_TEXT = 56
_MOST_IN_TABLE = 40


def shorten_sides(sections: Sequence[Section], sides: Sequence[str], *, cut: bool = True) -> list[Section]:
    """Return a document with short names of sides, but not in remedies or, for commands, in backquotes."""
    write = shortening(sides, _MOST_IN_TEXT if cut else None)
    in_table = shortening(sides, _MOST_IN_TABLE if cut else None)

    def shorten_part(part: Part) -> Part:
        match part:
            case str():
                return write(part)
            case Bullets():
                return Bullets(points=tuple((write(text), remedy) for text, remedy in part.points))
            case Grid():
                rows = tuple(tuple(map(in_table, row)) for row in part.rows)
                return replace(part, header=tuple(map(in_table, part.header)), rows=rows)
        return part

    return [Section(write(section.heading), [*map(shorten_part, section.parts)]) for section in sections]


def without_charts(sections: Iterable[Section]) -> Iterator[Section]:
    """Yield the sections that have more than charts."""
    for section in sections:
        if not section.parts or not all(isinstance(part, Chart) for part in section.parts):
            yield section


def caveat_sections(caveats: Sequence[Caveat], *, heading: str = "Warnings") -> Iterator[Section]:
    """Yield a section with the warnings; nothing without warnings."""
    if caveats:
        yield Section(heading, [Bullets(points=tuple((caveat.text, caveat.remedy) for caveat in caveats))])


def join_sentences(sentences: Sequence[str]) -> str:
    """Return sentences as one text; one that begins with a line's end begins a paragraph."""
    return " ".join(sentences).replace(" \n", "\n")


def in_short(sentences: Sequence[str], *, most: int, place: str = "in the table") -> list[str]:
    """Return the first `most` sentences, and the number of the others with the place where they are."""
    rest = len(sentences) - most
    more = f"One more is {place}." if rest == 1 else f"{rest} more are {place}."
    return [*sentences[:most], *([more] if rest > 0 else [])]
