"""The rows of a run that the agent itself records: the request, the states and what the program left."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gpuagent.clock import Clock
from gpuagent.environments.environment import Image
from gpuagent.images.records import ImageRecords
from gpuagent.redaction import redact_arguments, redact_text
from gpuagent.runs.events import Digest
from gpuagent.runs.execution import Execution
from gpuagent.runs.output import STREAMS, read_piece
from gpuagent.runs.planning import PlannedRun
from gpuagent.sampling.rows import RecordBuffer
from gpuagent.sources.source import Value
from gpuagent_common.own_module import shown_command
from gpuagent_proto.v1.run_pb2 import RunUpdate

# Collectors take texts of 256 KiB; as JSON each quote and backslash has another byte, and others up to six.
_MOST_COMMAND_BYTES = 32 * 1024


class RunRecorder:
    """A writer of the rows of runs to the buffer; `images` None: who asked for a run records its image, and when."""

    def __init__(self, *, images: ImageRecords | None, buffer: RecordBuffer, clock: Clock) -> None:
        self._images = images
        self._buffer = buffer
        self._clock = clock

    def record_request(self, plan: PlannedRun) -> None:
        """Record the request, and the image of the run."""
        unix_nano, image = self._clock.now().unix_nano, plan.job.image
        request: dict[str, Value] = {
            "time": unix_nano,
            "run_id": plan.run_id,
            "experiment": plan.asked.experiment,
            "workload": plan.workload,
            "command": _json(shorten_command(redact_arguments(shown_command(plan.job.program)))),
            "parameters": _json(_redact_values(plan.parameters)),
            "environment": plan.environment.name,
            "image": image.name if image else None,
            "interference": ",".join(plan.interference) or "none",
            "limits": str(plan.job.limits),
            "repeat": plan.asked.first_repeat,
            "labels": _json(_redact_values(plan.asked.labels)),
            "timeout_seconds": plan.asked.timeout_seconds or None,
            "nodes": plan.nodes,
            "invitation": plan.invitation,
        }
        self._buffer.add_record("run_requests", request)
        if image and self._images:
            durations = self._images.find(plan.environment.name, image)
            self.record_image(plan.run_id, plan.environment.name, image, asdict(durations))
        if plan.asked.input:
            detail = {"path": redact_text(_within(plan.asked.input, plan.asked.working_directory))}
            self._record_event(plan.run_id, "input", "file", detail, unix_nano)

    def record_image(self, run_id: str, environment: str, image: Image, durations: Mapping[str, Value]) -> None:
        """Record the image of a run."""
        row: dict[str, Value] = {
            "time": self._clock.now().unix_nano,
            "run_id": run_id,
            "environment": environment,
            "image": image.name,
            "digest": image.digest,
            "architecture": image.architecture,
            "size_bytes": image.size_bytes,
            "layers": image.layers,
            **durations,
        }
        self._buffer.add_record("images", row)

    def record_state(self, run_id: str, update: RunUpdate, unix_nano: int | None = None) -> None:
        """Record the status of a run; `unix_nano` None: the present one."""
        row: dict[str, Value] = {
            "time": unix_nano or self._clock.now().unix_nano,
            "run_id": run_id,
            "status": update.status,
            "exit_code": update.exit_code if update.HasField("exit_code") else None,
            "reason": update.reason or None,
        }
        self._buffer.add_record("run_states", row)

    def record_leftovers(self, execution: Execution, digest: Digest) -> None:
        """Record its output's end, the load beside it, its start-up, changes, step figures, and what was wrong.

        They are of the time when it ended, however long it took to read them.
        """
        run_id, ended = execution.plan.run_id, execution.times.ended_unix_nano
        for figure in digest.steps.figures(digest.results):
            time = ended or self._clock.now().unix_nano
            row: dict[str, Value] = {"time": time, "run_id": run_id, **figure._asdict()}
            self._buffer.add_record("results", row | {"phase": "measure"})
        for stream in STREAMS:
            tail = read_piece(execution.directory / stream, None, has_ended=True).text
            if tail:
                self._record_event(run_id, "output", stream, {"tail": tail}, ended)
        for name, results in execution.interference.items():
            self._record_event(run_id, "interference", name, results, ended)
        for name, unix_nano in execution.times.instants():
            if name == "launch" and self._images is None:
                continue
            self.record_start(run_id, name, unix_nano)
        for change, unix_nano in execution.changes.made if execution.changes else ():
            detail = {"cpus": change.cpus, "after_seconds": change.after_seconds}
            self._record_event(run_id, "change", "cpus", detail, unix_nano)
        if digest.complaint:
            total = {"lines": digest.malformed, "message": digest.complaint}
            self._record_event(run_id, "malformed", "total", total, ended)
        number, names = execution.left
        if number:
            self._record_event(run_id, "left", "processes", {"processes": number, "names": list(names)}, ended)

    def record_start(self, run_id: str, name: str, unix_nano: int) -> None:
        """Record an instant of a run's start-up."""
        self._record_event(run_id, "start", name, {}, unix_nano)

    def _record_event(
        self, run_id: str, event: str, name: str, detail: Mapping[str, object], unix_nano: int | None = None
    ) -> None:
        row: dict[str, Value] = {
            "time": unix_nano or self._clock.now().unix_nano,
            "run_id": run_id,
            "event": event,
            "name": name,
            "detail": _json(detail),
        }
        self._buffer.add_record("run_events", row)


def _within(path: str, folder: str) -> str:
    """Return a path as from a folder that has the file, as a program's words are; another one as it is."""
    if folder and Path(path).is_relative_to(folder):
        return str(Path(path).relative_to(folder))
    return path


def _redact_values(values: Mapping[str, object]) -> dict[str, object]:
    """Hide values that look like secrets, or whose names do."""
    pairs = ((name, redact_text(f"{name}={value}")) for name, value in values.items() if isinstance(value, str))
    return {**values, **{name: text.removeprefix(f"{name}=") for name, text in pairs}}


def _json(value: object) -> str:
    """Return `value` as JSON that every store takes, with invalid Unicode (such as of a file's name) replaced."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace").decode()


def shorten_command(words: Sequence[str]) -> list[str]:
    """Return a command's words as far as a collector takes them, and the number of the others."""
    kept: list[str] = []
    size = 0
    for at, word in enumerate(words):
        size += len(word.encode(errors="replace"))
        if size > _MOST_COMMAND_BYTES:
            return [*kept, f"… {len(words) - at} more words"]
        kept.append(word)
    return kept
