"""What machines cost an hour, by the prices that the user wrote down; gpuagent ships none (docs/cost.md)."""

from pathlib import Path

from deploy.kubernetes.problems import MisuseError

_ROOT = Path(__file__).resolve().parents[2]


def describe_cost(prices_file: Path | None, *, platform: str, machine_type: str, machines: int, spot: bool) -> str:
    """Return a line that tells what machines cost an hour, or that it is not known and why.

    Args:
        prices_file: the file that the user named; None: the default one, if it is there.

    Raises:
        MisuseError: the file that was named cannot be read.
    """
    try:
        from gpuagent_collector.prices.file import find_prices
        from gpuagent_common.errors import GpuAgentError
    except ImportError as error:
        if prices_file:
            python = _ROOT / ".venv/bin/python"
            raise MisuseError(
                f"--prices wants {error.name}: run this with {python}, which `make install` makes"
            ) from error
        return "cost an hour: not known; --prices FILE tells it (docs/cost.md)"
    try:
        prices = find_prices(prices_file)
    except GpuAgentError as error:
        raise MisuseError(str(error)) from error
    price = prices.of_node(platform, (), machine_type) if prices else None
    if not prices or not price or price.instance_hour is None:
        source = f"{prices.source} has no price of" if prices else "no prices file tells that of"
        return f"cost an hour: not known; {source} {machine_type} on {platform} (docs/cost.md)"
    total = f"{machines * price.instance_hour:g} {price.currency}"
    caveat = ", and the file tells no Spot prices apart" if spot else ""
    return (
        f"cost an hour: {total} for {machines} × {machine_type}, by {prices.source}, line {price.line}; "
        f"what else is charged for is not in it{caveat}"
    )
