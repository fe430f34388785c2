"""The answer of an experiment: its commands, one after the other, on the screen and into a folder."""

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.keeper import Keeper
from gpuagent_collector.cli.printing import print_error
from gpuagent_collector.launching.experiment_file import Answer, Question
from gpuagent_common.cli import describe_misuse
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted, harmless

if TYPE_CHECKING:
    from gpuagent_collector.query.reader import StreamingReader

# The page of a folder that shows everything in it.
_PAGE = "answer.md"
_FILE = "experiment.yaml"
_PICTURES = (".png", ".svg")


def check_answers(root: click.Command, answers: Sequence[Answer]) -> None:
    """Check the options of the commands that answer an experiment.

    Raises:
        MisuseError: one has an option, facet or metric that does not exist.
    """
    for answer in answers:
        try:
            root.main([*answer.words, "--check"], prog_name="collector", standalone_mode=False)
        except (GpuAgentError, click.UsageError) as error:
            reason = describe_misuse(error) if isinstance(error, click.UsageError) else error
            raise MisuseError(f"answer `{shlex.join(answer.words)}`: {reason}") from error


def check_folder(folder: Path) -> None:
    """Raise MisuseError where the folder of an answer cannot be made."""
    if folder.exists() and not folder.is_dir():
        raise MisuseError(f"{folder} is not a folder; name another one with --output")
    if not folder.absolute().parent.is_dir():
        raise MisuseError(f"the directory {folder.parent} does not exist; run: mkdir -p {folder.parent}")


def answer_question(root: click.Command, question: Question, reader: "StreamingReader", folder: Path) -> int:
    """Print the answer of an experiment, and write it into a folder; return 1 if no command has an answer.

    Raises:
        GpuAgentError: the folder cannot be written.
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
    parts = [_answer(root, question, number, reader, folder) for number in range(1, len(question.answers) + 1)]
    contents = {_PAGE: "\n\n".join(_page(question, parts)) + "\n", _FILE: question.content.decode(errors="replace")}
    for name, text in contents.items():
        with appearing(folder / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    click.echo("", err=True)
    unanswered = [part for part in parts if part.reason]
    if any(part.needs_drawing for part in parts):
        print_error("no figures without matplotlib; install it: pip install matplotlib")
    for part in unanswered:
        if not part.needs_drawing:
            named = part.answer.title or f"`{shlex.join(part.answer.words[:-2])}`"
            print_error(textwrap.shorten(f"no answer yet: {named}: {part.reason}", 150, placeholder=" …"))
    print_error(f"{folder / _PAGE} has {counted(len(parts) - len(unanswered), 'answer')} of {len(parts)}")
    return int(len(unanswered) == len(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The output of one command.

    Attributes:
        files: names of its files in the folder.
        reason: why there is no answer; None: there is one.
    """

    answer: Answer
    markdown: str = ""
    files: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def needs_drawing(self) -> bool:
        """Return whether the figure is missing because this Python cannot draw."""
        return self.reason == _NO_DRAWING


_NO_DRAWING = "matplotlib is missing"


def _answer(root: click.Command, question: Question, number: int, reader: "StreamingReader", folder: Path) -> _Part:
    answer = question.answers[number - 1]
    if answer.words[0] == "plot" and find_spec("matplotlib") is None:
        return _Part(answer=answer, reason=_NO_DRAWING)
    title = f"\n{harmless(answer.title)}" if answer.title else ""
    click.echo(f"{title}\n$ collector {shlex.join(answer.words)}", err=True)
    keeper = Keeper(reader=reader, folder=folder)
    stem = f"{number:02}-{answer.words[0]}"
    for ending in ("csv", "sql"):
        (folder / f"{stem}.{ending}").unlink(missing_ok=True)
    try:
        root.main(list(answer.words), prog_name="collector", standalone_mode=False, obj=keeper)
    except GpuAgentError as error:
        return _Part(answer=answer, reason=str(error))
    except click.UsageError as error:
        return _Part(answer=answer, reason=describe_misuse(error))
    from gpuagent_collector.present.markdown import to_markdown

    return _Part(
        answer=answer,
        markdown=to_markdown(keeper.answer.document()) if keeper.answer else "",
        files=(*keeper.files, *_write_data(keeper, stem)),
    )


def _write_data(keeper: Keeper, stem: str) -> Iterator[str]:
    """Write the lines of an answer as CSV, and its SQL; yield the files' names."""
    from gpuagent_collector.present.files import appearing, write_rows
    from gpuagent_collector.present.formats import FileFormat
    from gpuagent_collector.present.rendering import as_table

    if keeper.answer:
        table = as_table(keeper.answer)
        with appearing(keeper.folder / f"{stem}.csv") as unfinished:
            write_rows(unfinished, table.schema, table.to_batches(), FileFormat.CSV)
        yield f"{stem}.csv"
    if keeper.statements:
        with appearing(keeper.folder / f"{stem}.sql") as unfinished:
            unfinished.write_text("".join(f"{each};\n\n" for each in keeper.statements), encoding="utf-8")
        yield f"{stem}.sql"


def _page(question: Question, parts: Sequence[_Part]) -> Iterator[str]:
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
