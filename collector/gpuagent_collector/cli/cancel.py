"""`collector cancel`: stop runs, wherever they run or wait."""

import click

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.options import CollectorOptions, collector_options
from gpuagent_collector.output.text import harmless
from gpuagent_common.errors import GpuAgentError, MisuseError

_EXAMPLES = """\b
Examples:
  collector cancel mnist-1f2e3d4c5b
  collector cancel mnist-1f2e resnet18-09
  collector cancel --experiment mnist-20260714T091500
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", metavar="RUN...", nargs=-1)
@click.option("--experiment", metavar="NAME", help="All of this experiment that runs or waits.")
@collector_options
def command(names: tuple[str, ...], experiment: str | None, collector: CollectorOptions) -> int:
    """Stop runs, whether they run or wait for their turn; they end as cancelled.

    RUN is a run's identity, or as much of its beginning as no other has. A run that has ended already is no error. The
    exit code is 1 when the agent of one is not connected.
    """
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.names import find_run, open_runs

    if bool(names) == bool(experiment):
        raise MisuseError("name runs, or an --experiment; `collector runs` lists both")
    with collector.open() as reader:
        client = RunsClient(reader)
        # The experiment before its runs: no other run of it begins meanwhile.
        stopped = client.cancel_experiment(experiment) if experiment else 0
        if stopped:
            where = "1 node" if stopped == 1 else f"{stopped} nodes"
            click.echo(harmless(f"experiment {experiment} is to stop on {where}; launched again, it goes on"))
        ask = asking(reader, show_sql=False)
        runs = open_runs(ask, experiment) if experiment else [find_run(ask, name) for name in names]
        if not runs and not stopped:
            click.echo(f"collector: {harmless(f'no run of experiment {experiment} runs or waits')}", err=True)
        failed = False
        for run in runs:
            try:
                if not run.has_ended:
                    client.cancel(run.run_id)
            except GpuAgentError as error:
                failed = True
                click.echo(f"collector: {harmless(str(error))}", err=True)
                continue
            said = f"has ended already: {run.status}" if run.has_ended else "is to stop"
            click.echo(harmless(f"{run.run_id} {said}"))
    return int(failed)
