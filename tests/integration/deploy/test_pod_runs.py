"""`gpuagent run` as a pod's own program: its spool goes with the pod, so it waits until everything is delivered."""

from tests.support.servers import LIMIT_SECONDS, Node, until


def test_a_run_waits_for_a_collector_that_only_comes_later(node: Node) -> None:
    # A port that was free a moment ago: the collector listens there again after its restart.
    collector = node.serve()
    node.stop(collector)
    run = node.start("gpuagent", "run", "--deliver-within", "60", "--", "true", log="run.log")
    until(lambda: "collector serve" in (node.folder / "run.log").read_text(), "the word that nobody answers")
    node.serve(listen=node.environment["GPUAGENT_COLLECTOR"])
    assert run.wait(timeout=LIMIT_SECONDS) == 0
    assert "stored by the" in (node.folder / "run.log").read_text()


def test_a_run_that_could_not_be_delivered_fails_after_the_workload_s_own_exit_code(node: Node) -> None:
    node.without_collector()
    done = node.run("gpuagent", "run", "--deliver-within", "0.2", "--", "true", code=1)
    assert "messages wait in" in done.stderr
    node.environment["GPUAGENT_DELIVER_WITHIN"] = "0.2"
    node.run("gpuagent", "run", "--", "sh", "-c", "exit 7", code=7)
