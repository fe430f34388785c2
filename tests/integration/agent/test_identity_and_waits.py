"""The agent that a command finds by its spool, and what a command says while it waits."""

import json
import sys
from contextlib import closing

from gpuagent.locations import lock
from tests.support.servers import LIMIT_SECONDS, Node, until

QUIET = (sys.executable, "-c", "print('hello')")


def test_the_agent_of_a_spool_is_found_whatever_its_node_s_identity(node: Node) -> None:
    node.serve()
    node.start_agent("--node-id", "mine")
    assert node.run("gpuagent", "run", "--", *QUIET).stdout == "hello\n"
    assert "hello" in node.run("gpuagent", "run", "--node-id", "mine", "--", *QUIET).stdout
    refused = node.run("gpuagent", "run", "--node-id", "other", "--", *QUIET, code=2)
    assert "--node-id" in refused.stderr
    agent = json.loads(node.run("gpuagent", "info", "--json").stdout)["agent"]
    assert agent["connected"] is True
    until(lambda: len(node.ask("SELECT 1 FROM runs WHERE status = 'succeeded'")) == 2, "both ends")
    # The host's name may be that of other clones, too.
    own = {"node_uuid": agent["node_uuid"], "hostname": "mine"}
    assert node.ask("SELECT DISTINCT node_uuid, hostname FROM sessions") == [own]


def test_a_command_says_that_it_waits_for_an_agent_that_does_not_listen(node: Node) -> None:
    node.without_collector()
    (node.folder / "spool").mkdir(mode=0o700)
    with closing(lock(node.folder / "spool" / "lock", held="the test")):
        process = node.start("gpuagent", "run", "--", *QUIET, log="run.log")
        until(lambda: "waiting for the agent that uses" in (node.folder / "run.log").read_text(), "the line")
    assert process.wait(timeout=LIMIT_SECONDS) == 0
    assert "hello" in (node.folder / "run.log").read_text()
