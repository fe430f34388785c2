"""`collector history`: show the figures of a workload over time."""

from typing import Any

import click

from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.options import ReaderOptions, answer_options
from gpuagent_collector.cli.printing import asking, print_answer
from gpuagent_collector.cli.selection import run_options, tested_options
from gpuagent_collector.present.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector history resnet50
  collector history resnet50 --metric gpu_energy_per_item_joules --where "platform = 'satori'"
  collector history nightly --format csv > levels.csv
"""


@click.command(epilog=_EXAMPLES)
@click.argument("workload", required=False, shell_complete=stored_workloads)
@run_options
@tested_options
@answer_options
def command(reader: ReaderOptions, output_format: OutputFormat, show_sql: bool, **asked: Any) -> None:
    """Show the figures of a workload over time.

    Shows for each node the levels of a metric, the changes between them, and the facts that changed there: driver,
    kernel, firmware, image, torch and others that agents record. At most 5 % of histories without a change show one.
    """
    from gpuagent_collector.answers.history import Request, render, study_history

    with reader.open() as opened:
        print_answer(render(study_history(asking(opened, show_sql=show_sql), Request(**asked))), output_format)
