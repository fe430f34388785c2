"""`collector prices`: convert a price catalogue to a price file."""

from pathlib import Path
from typing import Any

import click

from gpuagent_common.cli import NAME
from gpuagent_common.errors import MisuseError

_EXAMPLES = """\b
Examples:
  collector prices vms.csv --platform aws-h100 --region us-east-1 --date 2026-11-01 > prices.yaml
  collector prices vms.csv --platform aws-l4 --region us-east-1 --date 2026-11-01 --instance-type g6.xlarge --spot
  collector prices --schema > prices.schema.json
"""


def _print_schema(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from gpuagent_collector.prices.price import SCHEMA

        click.echo(SCHEMA.read_text(), nl=False)
        context.exit()


@click.command(epilog=_EXAMPLES)
@click.argument("catalogue", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--platform", type=NAME, required=True, metavar="NAME", help="The nodes' name in `gpuagent start --platform`."
)
@click.option("--region", required=True, metavar="REGION", help="The region, as the catalogue names it.")
@click.option("--date", "day", required=True, type=click.DateTime(["%Y-%m-%d"]), help="Day of the catalogue.")
@click.option("--source", metavar="TEXT", help="Where the catalogue is from.  [default: its file name]")
@click.option("--instance-type", "instance_types", multiple=True, metavar="TYPE", help="Only this machine; repeatable.")
@click.option("--spot", is_flag=True, help="Spot prices instead of those on demand.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of price files, and exit.",
)
@click.option("--currency", default="USD", show_default=True, metavar="CODE", help="Currency of the catalogue.")
def command(catalogue: Path, **chosen: Any) -> None:
    """Convert a price catalogue to a price file.

    CATALOGUE is a CSV file with the columns of SkyPilot's catalogues: InstanceType, Region, Price, SpotPrice. gpuagent
    ships no prices and fetches none: source and date are yours, and every entry names them.
    """
    from gpuagent_collector.prices.files import Chosen, convert, parse_prices

    try:
        text = catalogue.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MisuseError(f"cannot read {catalogue}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    chosen |= {"source": chosen["source"] or catalogue.name, "day": chosen["day"].date()}
    converted = convert(text, Chosen(**chosen))
    # What it prints must be readable again.
    parse_prices(converted.encode(), "the converted file")
    click.echo(converted, nl=False)
