"""`collector answer`: the commands that answer an experiment, one after the other, on the screen and into a folder."""

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.cli.printing import asking, print_error
from gpuagent_collector.errors import MissingPackageError
from gpuagent_common.cli import NAME
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted, harmless

if TYPE_CHECKING:
    from gpuagent_collector.launching.experiment_file import Answer, Question
    from gpuagent_collector.query.reader import StreamingReader

# The page of a folder that shows everything in it.
_PAGE = "answer.md"
_FILE = "experiment.yaml"
_PICTURES = (".png", ".svg")


def check_answers(answers: "Sequence[Answer]") -> None:
    """Check the options of the commands that answer an experiment.

    Raises MisuseError: one is no such command, or has an option, facet or metric that does not exist.
    """
    from gpuagent_collector.cli.answers import parse

    for answer in answers:
        try:
            parse(answer.words)
        except GpuAgentError as error:
            raise MisuseError(f"answer `{shlex.join(answer.words)}`: {error}") from error


def check_folder(folder: Path) -> None:
    """Raise MisuseError where the folder of an answer cannot be made."""
    if folder.exists() and not folder.is_dir():
        raise MisuseError(f"{folder} is not a folder; name another one with --output")
    if not folder.absolute().parent.is_dir():
        raise MisuseError(f"the directory {folder.parent} does not exist; run: mkdir -p {folder.parent}")


def answer_question(question: "Question", reader: "StreamingReader", folder: Path, place: Sequence[str] = ()) -> int:
    """Print the answer of an experiment, and write it into a folder; return 1 if no command has an answer.

    `place` has the options with which the commands that it names read the same store or collector.

    Raises GpuAgentError: the folder cannot be written.
    """
    from gpuagent_collector.present.files import appearing
    from gpuagent_collector.present.new_files import for_others

    check_folder(folder)
    try:
        if not folder.exists():
            folder.mkdir()
            folder.chmod(for_others(0o777))
    except OSError as error:
        raise GpuAgentError(f"cannot make {folder}: {error.strerror}") from error
    parts = [_answer(question, number, reader, folder, place) for number in range(1, len(question.answers) + 1)]
    contents = {_PAGE: "\n\n".join(_page(question, parts)) + "\n", _FILE: question.content.decode(errors="replace")}
    for name, text in contents.items():
        with appearing(folder / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    click.echo("", err=True)
    unanswered = [part for part in parts if part.reason]
    if any(part.needs_drawing for part in parts):
        print_error(str(MissingPackageError("figures", "matplotlib")))
    for part in unanswered:
        if not part.needs_drawing:
            named = part.answer.title or f"`{shlex.join(part.answer.words[:-2])}`"
            print_error(textwrap.shorten(f"no answer yet: {named}: {part.reason}", 150, placeholder=" …"))
    answers = counted(len(parts), "answer")
    written = f"{len(parts) - len(unanswered)} of {answers}" if unanswered else answers
    print_error(f"{written} written to {folder / _PAGE}")
    return int(len(unanswered) == len(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The output of one command.

    Attributes:
        files: names of its files in the folder.
        reason: why there is no answer; None: there is one.
    """

    answer: "Answer"
    markdown: str = ""
    files: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def needs_drawing(self) -> bool:
        """Return whether the figure is missing because this Python cannot draw."""
        return self.reason == _NO_DRAWING


_NO_DRAWING = "matplotlib is missing"


def _answer(question: "Question", number: int, reader: "StreamingReader", folder: Path, place: Sequence[str]) -> _Part:
    answer = question.answers[number - 1]
    if answer.words[0] == "plot" and find_spec("matplotlib") is None:
        return _Part(answer=answer, reason=_NO_DRAWING)
    title = f"\n{harmless(answer.title)}" if answer.title else ""
    click.echo(f"{title}\n$ collector {shlex.join(answer.words)}", err=True)
    stem = f"{number:02}-{answer.words[0]}"
    for ending in ("csv", "sql"):
        (folder / f"{stem}.{ending}").unlink(missing_ok=True)
    try:
        return _carry_out(answer, reader, folder, stem, place)
    except GpuAgentError as error:
        return _Part(answer=answer, reason=str(error))


def _carry_out(answer: "Answer", reader: "StreamingReader", folder: Path, stem: str, place: Sequence[str]) -> _Part:
    """Print one answer, and write its lines as CSV, its SQL, and its own file."""
    from gpuagent_collector.cli.answers import add_place, parse
    from gpuagent_collector.present.files import appearing, write_rows
    from gpuagent_collector.present.formats import FileFormat, OutputFormat
    from gpuagent_collector.present.markdown import to_markdown
    from gpuagent_collector.present.rendering import as_table, print_answer

    entry, asked = parse(answer.words)
    files: list[str] = []
    statements: list[str] = []
    markdown = ""
    if entry.output:
        path = asked[entry.output]
        if path:
            if path.name != str(path):
                raise MisuseError(f"{path}: files of an answer have no folder of their own; name it {path.name}")
            asked[entry.output] = folder / path
            files.append(path.name)
    found = entry.call(asking(reader, show_sql=False, statements=statements), reader.source, asked)
    if not entry.is_file:
        found = add_place(place, found)
        print_answer(found, OutputFormat.TABLE)
        for note in found.notes:
            print_error(note)
        markdown, table = to_markdown(found.document()), as_table(found)
        with appearing(folder / f"{stem}.csv") as unfinished:
            write_rows(unfinished, table.schema, table.to_batches(), FileFormat.CSV)
        files.append(f"{stem}.csv")
    if statements:
        with appearing(folder / f"{stem}.sql") as unfinished:
            unfinished.write_text("".join(f"{each};\n\n" for each in statements), encoding="utf-8")
        files.append(f"{stem}.sql")
    return _Part(answer=answer, markdown=markdown, files=tuple(files))


def _page(question: "Question", parts: Sequence[_Part]) -> Iterator[str]:
    """Yield the paragraphs of the page that shows a folder, in Markdown."""
    from gpuagent_collector.present.markdown import escaped

    yield f"# {escaped(question.name)}"
    if question.text:
        yield escaped(question.text)
    yield f"The runs are those of the experiment in [{_FILE}]({_FILE})."
    for part in parts:
        command = f"collector {shlex.join(part.answer.words)}"
        yield f"## {escaped(part.answer.title or part.answer.words[0])}"
        yield f"    {harmless(command)}"
        if part.reason:
            yield f"No answer yet: {escaped(part.reason)}"
        yield from (f"![{name}]({name})" for name in part.files if name.endswith(_PICTURES))
        if part.markdown:
            # Its own headings are one level below this one.
            yield part.markdown.replace("\n## ", "\n### ").replace("## ", "### ", 1)
        if part.files:
            yield "Files: " + ", ".join(f"[{name}]({name})" for name in part.files)


_EXAMPLES = """\b
Examples:
  collector answer hpc-cloud
  collector answer mine.yaml --name containers-here --output containers-here
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", metavar="FILE|STUDY")
@click.option("--name", type=NAME, metavar="NAME", help="Name that the experiment's runs have.  [default: FILE's]")
@click.option(
    "--output", metavar="DIR", type=click.Path(path_type=Path), help="Folder to write.  [default: NAME-answer]"
)
@click.option("--check", is_flag=True, hidden=True, help="Check the commands' options and the folder, and do nothing.")
@reader_options
def command(reader: ReaderOptions, file: str, name: str | None, output: Path | None, check: bool) -> int:
    """Print the answer of an experiment, and write it.

    Runs the commands in `answer` of an experiment file on the runs that are there, of one site or of all. The folder
    has each table as CSV with its SQL, the figures, the report, and all of it on one page, answer.md. The exit code is
    1 if nothing could be answered.
    """
    from gpuagent_collector.launching.experiment_file import find_file, read_file, read_question

    path = find_file(file)
    if path is None:
        raise MisuseError(f"there is no file {file}, and no study of that name; see: gpuagent experiment list")
    question = read_question(read_file(path, name=name, repeats=None, only=(), force=False))
    folder = output or Path(f"{question.name}-answer")
    check_answers(question.answers)
    check_folder(folder)
    if check:
        return 0
    with reader.open() as opened:
        return answer_question(question, opened, folder, reader.words)
