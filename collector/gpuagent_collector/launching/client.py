"""A client of a collector's RunService."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import grpc

from gpuagent_collector.query.remote import RemoteReader, to_error
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.waiting import waiting_for
from gpuagent_proto.v1 import run_service_pb2 as pb
from gpuagent_proto.v1.run_pb2 import ExperimentFile, RunSpec
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub

# The service's text with these codes is complete as it is.
_COMPLETE = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)

_LAUNCH_SECONDS = 120.0
_SHORT_SECONDS = 30.0

Request = TypeVar("Request")
Response = TypeVar("Response")


class RunsClient:
    """A client that launches, cancels and reads output. Every method raises GpuAgentError where the collector fails."""

    def __init__(self, reader: RemoteReader) -> None:
        """Use the connection of `reader`, which the caller closes."""
        self._reader = reader
        self._stub = RunServiceStub(reader.channel)

    def agents(self) -> Sequence[pb.ConnectedAgent]:
        """Return the connected agents."""
        return self._call(self._stub.Agents, pb.AgentsRequest(), _SHORT_SECONDS).agents

    def launch(self, session_uuids: Sequence[str], spec: RunSpec) -> Sequence[pb.LaunchedRuns]:
        """Launch `spec` on the agents of these sessions; return their answers in the same order.

        Raises MisuseError: the spec makes no sense.
        """
        request = pb.LaunchRequest(session_uuids=session_uuids, spec=spec)
        return self._call(self._stub.Launch, request).agents

    def launch_experiment(self, session_uuids: Sequence[str], file: ExperimentFile) -> Sequence[pb.AgentExperiment]:
        """Launch an experiment file on the agents of these sessions; return their answers in the same order."""
        request = pb.LaunchExperimentRequest(session_uuids=session_uuids, file=file)
        return self._call(self._stub.LaunchExperiment, request).agents

    def experiments(self, session_uuids: Sequence[str], name: str) -> Sequence[pb.AgentExperiment]:
        """Return the state of an experiment on the agents of these sessions, in the same order."""
        request = pb.ExperimentsRequest(session_uuids=session_uuids, name=name)
        return self._call(self._stub.Experiments, request).agents

    def cancel_experiment(self, name: str) -> int:
        """Stop an experiment; return the number of agents that had it."""
        return self._call(self._stub.CancelExperiment, pb.CancelExperimentRequest(name=name)).agents

    def cancel(self, run_id: str) -> None:
        """Stop a run, running or queued."""
        self._call(self._stub.Cancel, pb.CancelRequest(run_id=run_id), _SHORT_SECONDS)

    def output(self, run_id: str, *, node_uuid: str = "", follow: bool, from_start: bool) -> Iterator[pb.LogsResponse]:
        """Yield the output of a run, on one node of several, as its agent reads it; closing the iterator ends that."""
        request = pb.LogsRequest(run_id=run_id, node_uuid=node_uuid, follow=follow, from_start=from_start)
        with self._translated_errors():
            call = self._stub.Logs(request, metadata=self._reader.metadata)
            try:
                yield from call
            finally:
                call.cancel()

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Request, Response]",
        request: Request,
        timeout_seconds: float = _LAUNCH_SECONDS,
    ) -> Response:
        with self._translated_errors(), waiting_for("collector", f"the answer of {self._reader.source}"):
            return method(request, metadata=self._reader.metadata, timeout=timeout_seconds)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            if error.code() in _COMPLETE:
                raise GpuAgentError(error.details() or "") from error
            raise to_error(error, self._reader.address, self._reader.tls) from error
