"""`collector answer`: print and write the answer of an experiment."""

from pathlib import Path

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_common.cli import NAME
from gpuagent_common.errors import MisuseError

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
    from gpuagent_collector.cli.answering import answer_question, check_answers, check_folder
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
        return answer_question(question, opened, folder)
