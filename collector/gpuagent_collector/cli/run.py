"""`collector run`: correct what is stored about runs."""

from collections.abc import Sequence

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_common.cli import NAME, SuggestingGroup, parse_pairs
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted

_EXAMPLES = """\b
Examples:
  collector run edit mnist-1f2e3d4c5b --note "fan was broken" --exclude
  collector run edit train-7a1b train-7a1c --name resnet-fp16
  collector run edit mnist-1f2e3d4c5b --label rack=7 --label trial=
"""


@click.group(cls=SuggestingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Correct labels, name and note of runs, or exclude them."""


@command.command(epilog=_EXAMPLES)
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@click.option("--label", "labels", multiple=True, metavar="K=V", help="Set a label, or remove it with K=; repeatable.")
@click.option("--name", type=NAME, metavar="NAME", help="Another name of the program; runs are compared by it.")
@click.option("--note", metavar="TEXT", help="A remark; an empty one removes it.")
@click.option(
    "--exclude/--include", "is_excluded", default=None, help="Keep the runs out of comparisons, or take them back."
)
@reader_options
def edit(
    run_ids: Sequence[str],
    labels: Sequence[str],
    name: str | None,
    note: str | None,
    is_excluded: bool | None,
    reader: ReaderOptions,
) -> None:
    """Edit runs.

    What was measured stays as it is, and every edit is kept in the table `run_edits`. A running collector does it at an
    operator's request; otherwise the store is changed directly.
    """
    from gpuagent_collector.exchange.edit import RunEdit

    changed = RunEdit(
        labels=parse_pairs(labels, "--label"),
        workload=name,
        note=note,
        is_excluded=is_excluded,
    )
    if changed == RunEdit(labels={}):
        raise MisuseError("nothing to edit; give --label, --name, --note, --exclude or --include")
    with reader.open_to_change() as store:
        store.edit_runs(run_ids, changed)
    click.echo(f"{counted(len(set(run_ids)), 'run')} edited")
