"""What a call asked for, in the words of the audit record."""

from typing import Any

from google.protobuf.message import Message

from gpuagent_collector.trust.audit import shortened
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.run_pb2 import RunSpec
from gpuagent_proto.v1.run_service_pb2 import (
    CancelExperimentRequest,
    CancelRequest,
    ExperimentsRequest,
    LaunchExperimentRequest,
    LaunchExperimentResponse,
    LaunchRequest,
    LaunchResponse,
    LogsRequest,
)


def describe_call(request: Message, response: Message | None) -> dict[str, Any]:
    """Return what stands in the record for a request, and for its answer where that is known."""
    match request:
        case QueryRequest():
            return shortened(request.sql)
        case LaunchRequest():
            return {"sessions": list(request.session_uuids), **_work(request.spec), "runs": _runs(response)}
        case LaunchExperimentRequest():
            return {
                "sessions": list(request.session_uuids),
                "file": request.file.file_name,
                "bytes": len(request.file.content),
                "experiments": _experiments(response),
            }
        case ExperimentsRequest() | CancelExperimentRequest():
            return {"experiment": request.name}
        case CancelRequest() | LogsRequest():
            return {"run": request.run_id}
        case _:
            return {}


def _work(spec: RunSpec) -> dict[str, Any]:
    """Return what is to run. Of a command only the program: its arguments may hold secrets, and the run has them."""
    return {
        "workload": spec.workload or None,
        "program": spec.command[0] if spec.command else None,
        "arguments": len(spec.command) - 1 if spec.command else None,
        "environment": spec.environment or None,
        "image": spec.image or None,
        "repeats": max(1, spec.repeats),
    }


def _runs(response: Message | None) -> list[str] | None:
    if not isinstance(response, LaunchResponse):
        return None
    return [run_id for agent in response.agents for run_id in agent.run_ids]


def _experiments(response: Message | None) -> list[str] | None:
    """Return the name of what was begun, once for each agent that began it."""
    if not isinstance(response, LaunchExperimentResponse):
        return None
    return [agent.state.name for agent in response.agents if agent.HasField("state")]
