"""`gpuagent info`: what this node has, and which sources work here."""

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import click

from gpuagent.cli.options import agent_config, agent_options

_GB = 10**9


@click.command(epilog="\b\nExamples:\n  gpuagent info\n  gpuagent info --json")
@agent_options
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool, **options: Any) -> None:
    """Show what this node has: hardware, what contains it, the agent that runs, and each source.

    Where a source does not work, it says why and what to do about it.
    """
    found = _collect(agent_config(options, allow_commands=False))
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))


def _collect(config: Any) -> dict[str, Any]:
    from gpuagent import __version__, facts
    from gpuagent.agent import find_place
    from gpuagent.environments import ENVIRONMENTS
    from gpuagent.sources import open_sources
    from gpuagent.sources.source import SourceContext

    surroundings = facts.Surroundings()
    spool, node_uuid = find_place(config)
    opened, unavailable = open_sources(SourceContext())
    for source in opened:
        source.close()
    return {
        "agent_version": __version__,
        "node_uuid": node_uuid,
        "platform": config.platform,
        "spool": str(spool),
        "agent": _running_agent(node_uuid),
        "node": asdict(facts.collect_node_facts(surroundings)),
        "devices": [asdict(device) for device in facts.collect_device_facts(surroundings)],
        "environments": [environment.name for environment in ENVIRONMENTS],
        "sources": [{"name": source.name, "works": True, "reason": None, "remedy": None} for source in opened]
        + [{"name": name, "works": False, "reason": str(error), "remedy": error.remedy} for name, error in unavailable],
    }


def _running_agent(node_uuid: str) -> dict[str, Any] | None:
    """Return how this user's agent on the node is doing; None when none runs."""
    import os

    from gpuagent import locations
    from gpuagent.service import find_agent, socket_path
    from gpuagent_proto.keys import key

    client = find_agent(socket_path(locations.runtime_directory(os.environ), key(node_uuid)))
    status = client.status() if client else None
    if not client or not status:
        return None
    client.close()
    return {
        "platform": status.platform,
        "collector": status.collector,
        "connected": status.connected,
        "waiting_messages": status.waiting_messages,
        "last_error": status.last_error or None,
    }


def _lines(found: Mapping[str, Any]) -> Iterable[str]:
    node, cuda = found["node"], found["node"]["cuda_driver_version"]
    yield from _section(
        "Node",
        {
            "identity": found["node_uuid"],
            "platform": found["platform"],
            "system": _joined(node["os"], node["kernel"], node["architecture"]),
            "processor": node["cpu_model"],
            "CPUs": _cpus(node),
            "memory": _memory(node),
            "virtualization": node["virtualization"],
            "container": node["container"],
            "orchestrator": node["orchestrator"],
            "cloud": _joined(node["cloud_provider"], node["instance_type"]),
            "GPU driver": _joined(node["driver_version"], cuda and f"CUDA {cuda}"),
        },
    )
    for device in found["devices"]:
        yield from _section(f"GPU {device['device_index']}", _device(device))
    environments = ", ".join(found["environments"])
    yield from _section(
        "Agent", {"running": _agent(found["agent"]), "spool": found["spool"], "environments": environments}
    )
    yield from _sources(found["sources"])


def _sources(sources: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield the sources, those that share a reason together."""
    yield ""
    yield "Sources"
    by_reason: dict[tuple[str | None, str | None], list[str]] = {}
    for source in sources:
        by_reason.setdefault((source["reason"], source["remedy"]), []).append(source["name"])
    for (reason, remedy), names in by_reason.items():
        yield _filled(", ".join(names), "  ✗ " if reason else "  ✓ ")
        yield from (_filled(text, "    ") for text in (reason, remedy) if text)


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(text, 78, initial_indent=indent, subsequent_indent="    ")


def _section(title: str, values: Mapping[str, str | None]) -> Iterable[str]:
    yield ""
    yield title
    for name, value in values.items():
        yield f"  {name:<16}{'–' if value is None else value}"


def _joined(*parts: str | None) -> str | None:
    return ", ".join(part for part in parts if part) or None


def _cpus(node: Mapping[str, Any]) -> str:
    limit = f"; {node['cpu_limit_cores']:g} allowed here" if node["cpu_limit_cores"] is not None else ""
    cores, sockets = node["cpu_cores"] or "–", node["cpu_sockets"] or "–"
    return f"{node['cpu_threads']} logical, {cores} cores, {sockets} sockets{limit}"


def _memory(node: Mapping[str, Any]) -> str | None:
    if node["memory_total_bytes"] is None:
        return None
    limit = node["memory_limit_bytes"]
    return f"{node['memory_total_bytes'] / _GB:.1f} GB" + (f"; {limit / _GB:.1f} GB allowed here" if limit else "")


def _device(device: Mapping[str, Any]) -> dict[str, str | None]:
    memory, power = device["memory_total_bytes"], device["power_limit_watts"]
    return {
        "name": device["name"],
        "identity": device["uuid"],
        "memory": memory and f"{memory / _GB:.1f} GB",
        "capability": _joined(device["compute_capability"], device["architecture"]),
        "power limit": power and f"{power:.0f} W",
    }


def _agent(agent: Mapping[str, Any] | None) -> str:
    if agent is None:
        return "no; `gpuagent start` starts one"
    state = "connected" if agent["connected"] else f"not connected: {agent['last_error']}"
    return f"yes, as {agent['platform']}, to {agent['collector']} ({state}); {agent['waiting_messages']} messages wait"
