from dataclasses import replace

import pytest

from gpuagent_collector.launching.agents import Agent, Spread, Target, choose_agents
from gpuagent_collector.launching.show import agent_columns
from gpuagent_common.errors import GpuAgentError, MisuseError


def agent(node: str, platform: str | None = "satori", open_runs: int = 0, **labels: str) -> Agent:
    names = {"session_uuid": f"s-{node}", "node_uuid": f"u-{node}", "hostname": node, "platform": platform}
    return Agent(**names, version="0.1.0", allows_commands=False, labels=labels, open_runs=open_runs)  # type: ignore[arg-type]


AGENTS = (
    agent("gpu-1.lab", rack="7", open_runs=2),
    agent("gpu-2.lab", rack="8"),
    agent("pod-1", "openshift", rack="7"),
    agent("new", None),
)


def chosen(*texts: str, spread: Spread = Spread.ALL) -> list[str]:
    return [each.node for each in choose_agents(AGENTS, [Target.parse(text) for text in texts], spread)]


def test_an_agent_matches_all_terms_of_one_target() -> None:
    assert chosen("platform=satori") == ["gpu-1.lab", "gpu-2.lab"]
    assert chosen("platform=satori,label.rack=7") == ["gpu-1.lab"]
    assert chosen("label.rack=7", "node=gpu-2") == ["gpu-1.lab", "gpu-2.lab", "pod-1"]
    assert chosen("node=u-pod-1", spread=Spread.ONE) == ["pod-1"]
    assert chosen("node=gpu-1.lab") == ["gpu-1.lab"]
    assert len(chosen()) == len(AGENTS)
    # The agent with the fewest runs comes first.
    assert chosen("label.rack=7", spread=Spread.ANY) == ["pod-1", "gpu-1.lab"]


def test_several_agents_need_a_choice_and_no_agent_is_an_error() -> None:
    with pytest.raises(MisuseError, match=r"^2 agents match platform=satori; choose with --on, or give --all or"):
        chosen("platform=satori", spread=Spread.ONE)
    with pytest.raises(GpuAgentError, match=r"matches platform=x or node=y$"):
        chosen("platform=x", "node=y")
    with pytest.raises(GpuAgentError, match="node: gpuagent start"):
        choose_agents([], [], Spread.ONE)


def test_nodes_of_one_name_are_listed_with_what_chooses_between_them() -> None:
    twins = [agent("pod-1", "openshift"), replace(agent("pod-2"), hostname="pod-1")]
    shown = {each.node_uuid: [column.show({"agent": each}) for column in agent_columns(twins)] for each in twins}
    for own, cells in shown.items():
        assert own in cells
        assert choose_agents(twins, [Target.parse(f"node={own}")], Spread.ONE) == [
            each for each in twins if each.node_uuid == own
        ]
    # Two agents of one node are no two nodes.
    beside = replace(twins[0], session_uuid="beside")
    assert len(agent_columns([twins[0], beside])) < len(agent_columns(twins))


@pytest.mark.parametrize("text", ["", "gpu-1", "platform", "platform=", "host=x", "label=x", "label.=x", "node=a,,"])
def test_a_target_of_another_form_is_rejected(text: str) -> None:
    with pytest.raises(MisuseError, match=r"--on takes platform=NAME, node=NAME and label.KEY=VALUE"):
        Target.parse(text)
    with pytest.raises(MisuseError, match="value, repeat --on"):
        Target.parse("node=a,node=b")
