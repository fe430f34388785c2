"""`collector cancel`: stop runs, running or queued."""

import click

from gpuagent_collector.cli.options import CollectorOptions, collector_options
from gpuagent_collector.cli.printing import asking, print_error
from gpuagent_common.cli import NAME
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted, harmless

_EXAMPLES = """\b
Examples:
  collector cancel mnist-1f2e3d4c5b
  collector cancel mnist-1f2e resnet18-09
  collector cancel --experiment mnist-20260714T091500
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", metavar="RUN...", nargs=-1)
@click.option("--experiment", type=NAME, metavar="NAME", help="Stop all running and queued runs of this experiment.")
@collector_options
def command(names: tuple[str, ...], experiment: str | None, collector: CollectorOptions) -> int:
    """Stop runs, running or queued.

    They end as cancelled. RUN is a run's identity, or a unique beginning of it. A run that has already ended is no
    error. The exit code is 1 if the agent of a run is not connected.
    """
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.runs import open_runs
    from gpuagent_collector.query.named_runs import find_run

    if bool(names) == bool(experiment):
        raise MisuseError("give either runs or --experiment; `collector runs` lists both")
    with collector.open() as reader:
        client = RunsClient(reader)
        # The experiment before its runs, so that it starts no other meanwhile.
        stopped = client.cancel_experiment(experiment) if experiment else 0
        if stopped:
            words = f"stopping experiment {experiment} on {counted(stopped, 'node')}; launch it again to resume it"
            click.echo(harmless(words))
        ask = asking(reader, show_sql=False)
        runs = open_runs(ask, experiment) if experiment else [find_run(ask, name) for name in names]
        if not runs and not stopped:
            print_error(f"no run of experiment {experiment} is running or queued")
        failed = False
        for run in runs:
            if run.has_ended:
                click.echo(harmless(f"{run.run_id} has already ended: {run.status}"))
                continue
            try:
                client.cancel(run.run_id)
                click.echo(harmless(f"stopping {run.run_id}"))
            except GpuAgentError as error:
                failed = True
                print_error(str(error))
    return int(failed)
