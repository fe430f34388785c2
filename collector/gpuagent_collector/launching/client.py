"""Speaks to a collector's RunService."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import grpc

from gpuagent_collector.query.remote import RemoteReader, in_words
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1 import run_service_pb2 as pb
from gpuagent_proto.v1.run_pb2 import ExperimentFile, RunSpec
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub

# What the service says with these codes needs nothing added.
_OWN_WORDS = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)

_LAUNCH_SECONDS = 120.0
_SHORT_SECONDS = 30.0


class RunsClient:
    """Launches, cancels and reads along. Every method raises GpuAgentError where the collector cannot or will not."""

    def __init__(self, reader: RemoteReader) -> None:
        """Speak over the connection of `reader`, which stays its owner."""
        self._reader = reader
        self._stub = RunServiceStub(reader.channel)

    def agents(self) -> Sequence[pb.ConnectedAgent]:
        """Return the agents that are connected."""
        with self._errors_in_words():
            answer = self._stub.Agents(pb.AgentsRequest(), metadata=self._reader.metadata, timeout=_SHORT_SECONDS)
        return answer.agents

    def launch(self, session_uuids: Sequence[str], spec: RunSpec) -> Sequence[pb.LaunchedRuns]:
        """Have the agents of these sessions run `spec`; return what each took or refused, in the same order.

        Raises:
            MisuseError: the spec makes no sense.
        """
        request = pb.LaunchRequest(session_uuids=session_uuids, spec=spec)
        with self._errors_in_words():
            return self._stub.Launch(request, metadata=self._reader.metadata, timeout=_LAUNCH_SECONDS).agents

    def launch_experiment(self, session_uuids: Sequence[str], file: ExperimentFile) -> Sequence[pb.AgentExperiment]:
        """Have the agents of these sessions carry out a file; return what each says, in the same order."""
        request = pb.LaunchExperimentRequest(session_uuids=session_uuids, file=file)
        with self._errors_in_words():
            return self._stub.LaunchExperiment(request, metadata=self._reader.metadata, timeout=_LAUNCH_SECONDS).agents

    def experiments(self, session_uuids: Sequence[str], name: str) -> Sequence[pb.AgentExperiment]:
        """Return how an experiment stands on the agents of these sessions, in the same order."""
        request = pb.ExperimentsRequest(session_uuids=session_uuids, name=name)
        with self._errors_in_words():
            return self._stub.Experiments(request, metadata=self._reader.metadata, timeout=_LAUNCH_SECONDS).agents

    def cancel_experiment(self, name: str) -> int:
        """Stop an experiment wherever it runs or waits; return on how many agents. An older collector has none."""
        request = pb.CancelExperimentRequest(name=name)
        with self._errors_in_words():
            try:
                answer = self._stub.CancelExperiment(request, metadata=self._reader.metadata, timeout=_LAUNCH_SECONDS)
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                    return 0
                raise
        return int(answer.agents)

    def cancel(self, run_id: str) -> None:
        """Have the agent of a run stop it, whether it runs or waits."""
        with self._errors_in_words():
            self._stub.Cancel(pb.CancelRequest(run_id=run_id), metadata=self._reader.metadata, timeout=_SHORT_SECONDS)

    def output(self, run_id: str, *, node_uuid: str = "", follow: bool, from_start: bool) -> Iterator[pb.LogsResponse]:
        """Yield what a run's program wrote, on one node of several, as its agent has it; closing that ends it."""
        request = pb.LogsRequest(run_id=run_id, node_uuid=node_uuid, follow=follow, from_start=from_start)
        with self._errors_in_words():
            call = self._stub.Logs(request, metadata=self._reader.metadata)
            try:
                yield from call
            finally:
                call.cancel()

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise self._words(error) from error

    def _words(self, error: grpc.RpcError) -> GpuAgentError:
        code, details = error.code(), error.details() or ""
        if code in _OWN_WORDS:
            return GpuAgentError(details)
        if code == grpc.StatusCode.UNIMPLEMENTED:
            return GpuAgentError(f"{self._reader.source} is older than this command; upgrade it")
        return in_words(error, self._reader.address, self._reader.tls)
