"""The cost of machines per hour, from the user's own prices (docs/cost.md)."""

from pathlib import Path

from deploy.kubernetes.problems import MisuseError

_ROOT = Path(__file__).resolve().parents[2]


def describe_cost(prices_file: Path | None, *, platform: str, machine_type: str, machines: int, spot: bool) -> str:
    """Return a line with the cost per hour, or with the reason why it is unknown.

    Args:
        prices_file: the named file; None: the default one, if it exists.

    Raises:
        MisuseError: the named file cannot be read.
    """
    try:
        from gpuagent_collector.prices.file import find_prices
        from gpuagent_common.errors import GpuAgentError
    except ImportError as error:
        if prices_file:
            python = _ROOT / ".venv/bin/python"
            raise MisuseError(
                f"--prices needs {error.name}; run this with {python}, which `make install` makes"
            ) from error
        return "cost per hour: unknown; give --prices FILE (docs/cost.md)"
    try:
        prices = find_prices(prices_file)
    except GpuAgentError as error:
        raise MisuseError(str(error)) from error
    price = prices.of_node(platform, (), machine_type) if prices else None
    if not prices or not price or price.instance_hour is None:
        source = f"{prices.source} has no price of" if prices else "no prices file for"
        return f"cost per hour: unknown; {source} {machine_type} on {platform} (docs/cost.md)"
    total = f"{machines * price.instance_hour:g} {price.currency}"
    caveat = ", and the file has no Spot prices" if spot else ""
    return (
        f"cost per hour: {total} for {machines} × {machine_type}, by {prices.source}, line {price.line}; "
        f"without other charges{caveat}"
    )
