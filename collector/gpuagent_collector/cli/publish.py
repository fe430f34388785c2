"""`collector publish`: runs for a tracker of experiments."""

import os
from collections.abc import Sequence

import click

from gpuagent_collector.cli.options import ReaderOptions, ReadingCommand, reader_options
from gpuagent_collector.cli.printing import asking
from gpuagent_common.text import counted, harmless

_EXAMPLES = """\b
Examples:
  collector publish mnist-1ba185b1ca --to mlflow --at http://127.0.0.1:5000
  collector publish resnet50-1f2e resnet50-77ab --to trackio --project resnet
"""


@click.command(cls=ReadingCommand, epilog=_EXAMPLES)
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--to", "tracker", type=click.Choice(["mlflow", "trackio"]), required=True, help="Tracker of experiments."
)
@click.option(
    "--at",
    "place",
    metavar="URL|DIR",
    help="MLflow's address or Trackio's folder.  [env var: MLFLOW_TRACKING_URI, TRACKIO_DIR]",
)
@click.option("--project", metavar="NAME", help="Experiment or project there.  [default: the run's experiment]")
@click.option("--pages", metavar="URL", help="Address of the collector's pages, to link each run's.")
@reader_options
def command(
    names: Sequence[str], tracker: str, place: str | None, project: str | None, pages: str | None, reader: ReaderOptions
) -> None:
    """Add runs to MLflow or Trackio.

    Each gets its parameters, figures, values by step, means over ten seconds of all nodes and GPUs, and with --pages a
    link to its page. What is there already stays: publish a run again when it has ended, or has more figures. RUN is a
    run's identity, or a unique beginning of it.

    A user of MLflow is named by its own variables, such as MLFLOW_TRACKING_TOKEN.
    """
    from gpuagent_collector.publishing.mlflow import MlflowTracker
    from gpuagent_collector.publishing.run import load_published
    from gpuagent_collector.publishing.trackio import TrackioTracker

    if tracker == "mlflow":
        target: MlflowTracker | TrackioTracker = MlflowTracker(place or os.environ.get("MLFLOW_TRACKING_URI", ""))
    else:
        target = TrackioTracker(place or os.environ.get("TRACKIO_DIR"))
    with reader.open() as store:
        ask = asking(store, show_sql=False)
        for run in [load_published(ask, name, project=project, pages=pages) for name in dict.fromkeys(names)]:
            added, address = target.publish(run)
            click.echo(f"{run.run_id}: {counted(added, 'value')} added to {harmless(address)}")
