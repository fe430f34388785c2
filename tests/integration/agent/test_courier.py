"""What this machine alone knows of a run that recorded itself elsewhere reaches the store, as that other node's."""

import uuid
from contextlib import closing
from pathlib import Path

from gpuagent.clock import SystemClock
from gpuagent.delivery.courier import Courier
from gpuagent.delivery.uplink import Access
from gpuagent.event_loop import EventLoop
from gpuagent.runs.recording import RunRecorder
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.keys import key
from gpuagent_common.statuses import RunStatus
from gpuagent_proto.v1.run_pb2 import RunUpdate
from tests.support.servers import Node


def rows(run_id: str) -> RecordBuffer:
    buffer = RecordBuffer()
    recorder = RunRecorder(images=None, buffer=buffer, clock=SystemClock())
    recorder.record_state(run_id, RunUpdate(status=RunStatus.FAILED, reason="its node is gone"))
    return buffer


def test_rows_of_another_node_wait_for_a_collector_and_are_stored_once(node: Node) -> None:
    collector = node.serve()
    address, token = node.environment["GPUAGENT_COLLECTOR"], Path(node.environment["GPUAGENT_TOKEN_FILE"])
    node.stop(collector)
    access = Access(address=address, token_file=token)
    other = str(uuid.uuid4())
    with closing(EventLoop("agent")) as loop:
        courier = Courier(folder=node.folder / "couriers", access=access, clock=SystemClock(), start=loop.start)
        courier.deliver(other, "n2", rows("first"))
        assert len(list(courier.folder.iterdir())) == 1
        # A call that was killed before its rows were complete.
        (courier.folder / "0").mkdir()
        node.serve(listen=address)
        courier.deliver(other, "n2", rows("second"))
    assert [path.name for path in courier.folder.iterdir()] == ["0"]
    found = node.ask("SELECT run_id, node_id, status, reason FROM run_states ORDER BY run_id")
    assert found == [
        {"run_id": run_id, "node_id": key(other), "status": "failed", "reason": "its node is gone"}
        for run_id in ("first", "second")
    ]
