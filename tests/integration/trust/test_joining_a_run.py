"""Who may take part in a run of several nodes, with a collector in this process."""

from pathlib import Path

from gpuagent.sampling.rows import Row, encode_records
from gpuagent_common.invitation import invited_run, make_invitation
from tests.integration.server.agents import Agent
from tests.integration.trust.guarded import Guarded, guarded

INVITATION = make_invitation(("secret",))
RUN = invited_run("mnist", INVITATION)
FULL = f"run {RUN} has its 2 nodes already"
REFUSED, NOT_INVITED = f"run {RUN} is another node's", f"run {RUN} is of several nodes, and this one was not invited"


def part(invitation: str | None, *, run_id: str = RUN, nodes: int = 2) -> bytes:
    row: Row = {"run_id": run_id, "workload": "mnist", "time": 1, "nodes": nodes, "invitation": invitation}
    return encode_records({"run_requests": [row]})


def state(run_id: str = RUN) -> bytes:
    return encode_records({"run_states": [{"run_id": run_id, "status": "running", "time": 2}]})


async def send(agent: Agent, number: int, records: bytes) -> list[str]:
    """Send a message and return why it was refused, if it was."""
    await agent.send(number, records)
    answers = await agent.acknowledged(number)
    return [answer.rejection.reason for answer in answers if answer.HasField("rejection")]


async def nodes(site: Guarded, count: int) -> list[Agent]:
    agents = [site.bound(f"agent-{number}", f"node-{number}") for number in range(count)]
    for agent in agents:
        await agent.connect()
    return agents


async def test_nodes_that_are_invited_make_one_run_until_it_has_all_of_them(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        first, second, third = await nodes(site, 3)
        assert await send(first, 1, part(INVITATION)) == []
        assert await send(second, 1, state()) == [REFUSED]
        assert await send(second, 2, part(INVITATION)) == []
        assert await send(second, 3, state()) == []
        assert await send(first, 2, state()) == []
        assert await send(third, 1, part(INVITATION)) == [FULL]
        assert site.served.rows("SELECT count(DISTINCT node_id), count(*) FROM run_states") == [(2, 2)]


async def test_who_knows_the_run_s_name_alone_is_not_let_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        owner, thief = await nodes(site, 2)
        assert await send(thief, 1, part("guess")) == [NOT_INVITED]
        assert await send(owner, 1, part(INVITATION)) == []
        for number, invitation in enumerate((None, "guess", RUN), start=2):
            assert await send(thief, number, part(invitation)) == [REFUSED]
        assert await send(thief, 5, state()) == [REFUSED]


async def test_a_run_of_one_node_is_joined_by_nobody(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        owner, thief = await nodes(site, 2)
        assert await send(owner, 1, part(None, run_id="r-1", nodes=1)) == []
        assert await send(thief, 1, part(INVITATION, run_id="r-1")) == ["run r-1 is another node's"]


async def test_the_invitation_is_in_no_table(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        (agent,) = await nodes(site, 1)
        assert await send(agent, 1, part(INVITATION)) == []
        (row,) = site.served.rows("SELECT run_requests::VARCHAR FROM run_requests")
        assert RUN in row[0]
        assert INVITATION not in row[0]


async def test_a_collector_that_starts_anew_knows_who_takes_part(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        first, second, _ = before = await nodes(site, 3)
        for agent in (first, second):
            assert await send(agent, 1, part(INVITATION)) == []
        tokens = [agent.token for agent in before]
    async with guarded(tmp_path) as site:
        again = [
            site.agent(token, session_uuid=agent.session_uuid, node_uuid=agent.node_uuid)
            for token, agent in zip(tokens, before, strict=True)
        ]
        for agent in again:
            await agent.connect()
        first, second, third = again
        assert await send(first, 2, state()) == []
        assert await send(second, 2, state()) == []
        assert await send(third, 1, part(INVITATION)) == [FULL]
