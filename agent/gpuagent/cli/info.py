"""`gpuagent info`: the hardware, environments and sources of this node."""

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gpuagent.cli.options import agent_config, agent_options
from gpuagent_common.text import counted
from gpuagent_common.waiting import waiting_for

_GB = 10**9

_Values = Mapping[str, Any]


@click.command(epilog="\b\nExamples:\n  gpuagent info\n  gpuagent info --cost --rate 50\n  gpuagent info --json")
@agent_options
@click.option("--cost", "with_cost", is_flag=True, help="Measure the cost of reading each source; takes a second.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(with_cost: bool, as_json: bool, **options: Any) -> None:
    """Show this node's hardware, environments and sources.

    Also shows the running agent. Whatever does not work here has a reason and a remedy.
    """
    config = agent_config(options, allow_commands=False)
    from gpuagent import __version__, facts
    from gpuagent.agent_config import find_place
    from gpuagent.clock import SystemClock
    from gpuagent.environments import ENVIRONMENTS
    from gpuagent.environments.environment import EnvironmentUnavailableError
    from gpuagent.sampling.sampler import measure_costs
    from gpuagent.sources import open_sources
    from gpuagent.sources.owners import Owners
    from gpuagent.sources.source import SourceContext
    from gpuagent.sources.support.pods import WHAT

    surroundings = facts.Surroundings()
    spool, node_uuid = find_place(config)
    opened, unavailable = open_sources(SourceContext())
    costs = measure_costs(opened, config.rate_hz, SystemClock()) if with_cost else []
    owners = next((source for source in opened if isinstance(source, Owners)), None)
    missing = owners.check_pods() if owners else None
    missing_by_what = {each.what: each for each in missing or ()}
    pods = []
    for what in WHAT:
        lack = missing_by_what.get(what)
        pods.append(_entry(what, lack and lack.reason, lack and lack.remedy))
    for source in opened:
        source.close()
    environments = []
    with waiting_for("gpuagent", "the answers of container engines and drivers"):
        for environment in ENVIRONMENTS:
            try:
                environment.check()
                environments.append(_entry(environment.name))
            except EnvironmentUnavailableError as error:
                environments.append(_entry(environment.name, str(error), error.remedy))
    found = {
        "agent_version": __version__,
        "node_uuid": node_uuid,
        "platform": config.platform,
        "spool": str(spool),
        "agent": _running_agent(spool, node_uuid),
        "node": asdict(facts.collect_node_facts(surroundings)),
        "devices": [asdict(device) for device in facts.collect_device_facts(surroundings)],
        "environments": environments,
        "sources": [_entry(source.name) for source in opened]
        + [_entry(name, str(error), error.remedy) for name, error in unavailable],
        "pods": None if missing is None else pods,
        "costs": [{**asdict(cost), "cpu_percent": cost.cpu_percent} for cost in costs],
    }
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))


def _entry(name: str, reason: str | None = None, remedy: str | None = None) -> dict[str, Any]:
    return {"name": name, "works": reason is None, "reason": reason, "remedy": remedy}


def _running_agent(spool: Path, node_uuid: str) -> dict[str, Any] | None:
    """Return the state of the agent that uses the spool, or of this user's on the node; None: no agent runs."""
    from gpuagent.service import find_agent_of

    client = find_agent_of(spool, node_uuid)
    status = client.status() if client else None
    if not client or not status:
        return None
    client.close()
    return {
        "node_uuid": status.node_uuid,
        "platform": status.platform,
        "collector": status.collector,
        "connected": status.connected,
        "waiting_messages": status.waiting_messages,
        "last_error": status.last_error or None,
        "warnings": list(status.warnings),
    }


def _lines(found: _Values) -> Iterable[str]:
    node, cuda = found["node"], found["node"]["cuda_driver_version"]
    limit = f"; {node['cpu_limit_cores']:g} allowed here" if node["cpu_limit_cores"] is not None else ""
    memory = None
    if node["memory_total_bytes"] is not None:
        allowed = node["memory_limit_bytes"]
        memory = f"{node['memory_total_bytes'] / _GB:.1f} GB"
        memory += f"; {allowed / _GB:.1f} GB allowed here" if allowed else ""
    cores, sockets = (
        counted(number, noun) if (number := node[f"cpu_{noun}s"]) else f"– {noun}s" for noun in ("core", "socket")
    )
    yield from _section(
        "Node",
        {
            "identity": found["node_uuid"],
            "platform": found["platform"],
            "system": _join_known(node["os"], node["kernel"], node["architecture"]),
            "processor": node["cpu_model"],
            "CPUs": f"{node['cpu_threads']} logical, {cores}, {sockets}{limit}",
            "memory": memory,
            "virtualization": node["virtualization"],
            "container": node["container"],
            "orchestrator": node["orchestrator"],
            "cloud": _join_known(node["cloud_provider"], node["instance_type"]),
            "GPU driver": _join_known(node["driver_version"], cuda and f"CUDA {cuda}"),
        },
    )
    index_of = {device["device_id"]: device["device_index"] for device in found["devices"]}
    for device in found["devices"]:
        index, parent = device["device_index"], device["parent_device_id"]
        title = f"GPU {index}" if parent is None else f"GPU {index_of[parent]}, MIG instance {index}"
        yield from _section(title, _device(device, node))
    agent = found["agent"]
    state = "no; `gpuagent start` starts one"
    if agent:
        connection = "connected" if agent["connected"] else f"not connected: {agent['last_error']}"
        state = f"yes, as {agent['platform']}, to {agent['collector']} ({connection})"
        state += f"; waiting: {counted(agent['waiting_messages'], 'message')}"
        if agent["node_uuid"] != found["node_uuid"]:
            state += f"; as the node {agent['node_uuid']}"
    yield from _section("Agent", {"running": state, "spool": found["spool"]})
    yield from (_fill(warning, "    ") for warning in (agent["warnings"] if agent else ()))
    yield from _usable("Environments", found["environments"])
    yield from _usable("Sources", found["sources"])
    if found["pods"] is not None:
        yield from _usable("Pods", found["pods"])
    if found["costs"]:
        yield from _costs(found["costs"])


def _usable(title: str, entries: Iterable[_Values]) -> Iterable[str]:
    yield from ("", title)
    by_reason: dict[tuple[str | None, str | None], list[str]] = {}
    for entry in entries:
        by_reason.setdefault((entry["reason"], entry["remedy"]), []).append(entry["name"])
    for (reason, remedy), names in by_reason.items():
        yield _fill(", ".join(names), "  ✗ " if reason else "  ✓ ")
        yield from (_fill(text, "    ") for text in (reason, remedy) if text)


def _costs(costs: Iterable[_Values]) -> Iterable[str]:
    yield from ("", "Cost of reading    rate        wall         CPU     of a core")
    sum_percent = 0.0
    for cost in costs:
        sum_percent += cost["cpu_percent"]
        wall_micros, cpu_micros = (1e6 * cost[f"{kind}_seconds"] for kind in ("wall", "cpu"))
        yield (
            f"  {cost['source']:<15}{cost['rate_hz']:>5g} Hz{wall_micros:>9.0f} µs{cpu_micros:>9.0f} µs"
            f"{cost['cpu_percent']:>11.3f} %"
        )
    yield f"  {'together':<15}{sum_percent:>43.3f} %"


def _fill(text: str, indent: str) -> str:
    return textwrap.fill(text, 78, initial_indent=indent, subsequent_indent="    ")


def _section(title: str, values: Mapping[str, str | None]) -> Iterable[str]:
    yield from ("", title)
    yield from (f"  {name:<16}{'–' if value is None else value}" for name, value in values.items())


def _join_known(*parts: str | None) -> str | None:
    return ", ".join(part for part in parts if part) or None


def _device(device: _Values, node: _Values) -> dict[str, str | None]:
    memory, power = device["memory_total_bytes"], device["power_limit_watts"]
    shared = ", shared with the node" if memory == node["memory_total_bytes"] else ""
    slices, multiprocessors = device["gpu_slices"], device["multiprocessors"]
    is_instance = device["parent_device_id"] is not None
    share = {"slices": slices and str(slices), "SMs": multiprocessors and str(multiprocessors)}
    return {
        "name": device["name"],
        "identity": device["uuid"],
        "memory": memory and f"{memory / _GB:.1f} GB{shared}",
        "capability": _join_known(device["compute_capability"], device["architecture"]),
        **(share if is_instance else {"power limit": power and f"{power:.0f} W"}),
    }
