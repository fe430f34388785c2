"""`collector trace`: a run as a trace for Perfetto."""

from collections.abc import Sequence
from pathlib import Path

import click

from gpuagent_collector.cli.options import ReaderOptions, ReadingCommand, reader_options
from gpuagent_collector.cli.printing import asking

_EXAMPLES = """\b
Examples:
  collector trace resnet50-1f2e3d4c5b -o run.json.gz
  collector trace resnet50-1f2e -o both.json.gz --merge rank0.1790857026000.pt.trace.json.gz
"""


@click.command(cls=ReadingCommand, epilog=_EXAMPLES)
@click.argument("name", metavar="RUN")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; gzipped if it ends in .gz.",
)
@click.option(
    "--merge",
    "traces",
    multiple=True,
    metavar="TRACE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Trace that --profile kept, to put on the same axis; repeatable.",
)
@reader_options
def command(name: str, output: Path, traces: Sequence[Path], reader: ReaderOptions) -> None:
    """Write a run as a trace for Perfetto.

    Phases and steps are slices. GPU utilisation, power, memory, CPU and other samples are counter tracks. Open the
    file in https://ui.perfetto.dev. RUN is a run's identity, or a unique beginning of it.
    """
    from gpuagent_collector.timeline import load_timeline, write_trace

    with reader.open() as opened:
        timeline = load_timeline(asking(opened, show_sql=False), name)
    events = write_trace(timeline, output, traces)
    click.echo(f"{output}: {timeline.run_id}, {events:,} events; open it in https://ui.perfetto.dev")
