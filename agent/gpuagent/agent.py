"""The agent of one node: its parts, started and stopped in an order that loses no data."""

import json
import logging
import os
import platform as host
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from gpuagent import __version__, facts, locations
from gpuagent.agent_config import AgentConfig, find_place
from gpuagent.clock import SystemClock
from gpuagent.delivery.courier import Courier
from gpuagent.delivery.pipeline import Pipeline
from gpuagent.delivery.spool import Spool, gap_entry
from gpuagent.delivery.spool_file import SPOOL_FILE
from gpuagent.delivery.stream import Orders
from gpuagent.delivery.uplink import Access, Uplink
from gpuagent.event_loop import EventLoop
from gpuagent.experiment.launches import Launches
from gpuagent.images.records import ImageRecords
from gpuagent.runs.catalogue import Catalogue
from gpuagent.runs.events import Tails
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner
from gpuagent.sampling.rows import LatestGpus, RecordBuffer
from gpuagent.sampling.sampler import Health, Sampler
from gpuagent.service import AgentServicer, find_socket, serve, write_node
from gpuagent.sources import open_sources
from gpuagent.sources.nvml import NvmlGpu
from gpuagent.sources.owners import Owners
from gpuagent.sources.source import Lane, SourceContext, Value
from gpuagent.sources.support.nvml_api import OpenNvml, open_nvml
from gpuagent_proto.v1.agent_service_pb2 import StatusResponse

_LOG = logging.getLogger(__name__)

# Flush intervals until a collector asks for others: while the node has a run, and otherwise.
FLUSH_SECONDS, IDLE_FLUSH_SECONDS = 1.0, 5.0

# Limit of the wait for a stopping thread.
_STOP_SECONDS = 30.0

# Shorter waits are not interrupted when the agent stops.
_SLEPT_SECONDS = 0.2


class Agent:
    """A sampler of one node, which runs workloads on it and delivers to a collector.

    The constructor locks the node: one agent a node and user, so that nothing is sampled twice. `open_nvml` opens the
    GPUs. Raises GpuAgentError: another agent of this user samples the node, or the spool cannot be used.
    """

    def __init__(self, config: AgentConfig, *, open_nvml: OpenNvml = open_nvml) -> None:
        self.config = config
        self._open_nvml = open_nvml
        # Cause of an end that nobody asked for; None: there was none.
        self.failure: str | None = None
        self._has_started = False
        # Whether it has stopped after a whole start, so that the next two count.
        self.has_stopped = False
        # Unacknowledged messages in the spool when the agent had stopped.
        self.undelivered = 0
        # Messages that were not even spooled when the agent had stopped.
        self.lost = 0
        # The reason why no GPU is measured on a node with a driver, and its remedy; empty: there is none.
        self.gpu_fault = ""
        self._clock = SystemClock()
        self._cleanup = ExitStack()
        with ExitStack() as undo:
            self.spool_directory, self.node_uuid = find_place(config)
            self._socket = find_socket(self.node_uuid, config.beside)
            held = "another agent of yours samples this node already; `gpuagent run` uses it"
            undo.enter_context(locations.lock(self._socket.with_suffix(".lock"), held=held))
            held = f"another agent uses the spool {self.spool_directory}; choose another with --spool"
            undo.enter_context(locations.lock(self.spool_directory / "lock", held=held))
            write_node(self.spool_directory, self.node_uuid)
            self._buffer = RecordBuffer()
            self.spool = Spool(
                self.spool_directory / SPOOL_FILE, node_uuid=self.node_uuid, limit_bytes=config.spool_limit_bytes
            )
            undo.callback(self.spool.close)
            self._wire()
            self._cleanup = undo.pop_all()

    def _wire(self) -> None:
        """Connect the parts; nothing runs yet."""
        self._tails = Tails(self._buffer)
        self._latest = LatestGpus()
        self._pipeline = Pipeline(
            buffer=self._buffer,
            spool=self.spool,
            clock=self._clock,
            latest=self._latest,
            tail=self._tails.read,
            on_spooled=lambda: self.uplink.notify(),  # noqa: PLW0108 - it is created below
            is_busy=lambda: self.runner.is_busy,
            interval_seconds=FLUSH_SECONDS,
            idle_seconds=IDLE_FLUSH_SECONDS,
        )
        access = Access(address=self.config.collector, token_file=self.config.token_file, tls=self.config.tls)
        self.planner = Planner(
            Catalogue(self.config.python),
            allow_commands=self.config.allow_commands,
            home=self.config,
        )
        couriers = Courier(
            folder=self.spool_directory / "couriers",
            access=access,
            clock=self._clock,
            start=lambda coroutine: self._loop.start(coroutine),  # noqa: PLW0108 - it is created when the agent starts
        )
        self.runner = Runner(
            directory=self.spool_directory / "runs",
            images=ImageRecords(self.spool_directory / "images") if self.config.records_requests else None,
            buffer=self._buffer,
            tails=self._tails,
            clock=self._clock,
            flush=self._pipeline.flush,
            deliver_for=couriers.deliver,
            node_lock=find_socket(self.node_uuid, None).with_suffix(".run"),
        )
        self._launches = Launches(
            directory=self.spool_directory / "experiments",
            place=f"{self.config.platform} on {self.node_uuid}",
            planner=self.planner,
            runner=self.runner,
            python=self.config.python,
            open_nvml=self._open_nvml,
        )
        orders = Orders(
            launch=lambda spec: self.runner.submit(self.planner.plan(spec, from_owner=False)),
            cancel=lambda run_id: self.runner.cancel([run_id]),
            read_output=self.runner.read_output,
            pace=self._pipeline.set_intervals,
            allows_commands=self.config.allow_commands,
            experiment=self._launches.answer,
        )
        self.uplink = Uplink(
            access=access,
            spool=self.spool,
            buffer=self._buffer,
            clock=self._clock,
            orders=orders,
            hostname=self.config.node_name,
            machine=facts.find_machine(facts.Surroundings()),
        )
        self._samplers = self._open_samplers()

    def _open_samplers(self) -> list[Sampler]:
        context = SourceContext(
            open_nvml=self._open_nvml,
            runs=self.runner,
            owners=self.config.owners,
            # An agent within a job is one of several on its node, each with a job of its own.
            only_job=os.environ.get("SLURM_JOB_ID"),
        )
        opened, unavailable = open_sources(context)
        self._owners = next((source for source in opened if isinstance(source, Owners)), None)
        for name, reason in unavailable:
            _LOG.info("source %s does not work here: %s", name, reason)
            if name == NvmlGpu.name and reason.is_fault:
                self.gpu_fault = "; ".join(filter(None, ("no GPU is measured", str(reason), reason.remedy)))
                _LOG.warning("%s", self.gpu_fault)
        lanes = ([source for source in opened if source.lane is kind] for kind in Lane)
        rate_hz = self.config.rate_hz
        return [
            Sampler(
                sources,
                rate_hz=rate_hz,
                clock=self._clock,
                buffer=self._buffer,
                watches_clock=sources[0].lane is Lane.FAST,
            )
            for sources in lanes
            if sources
        ]

    def start(self) -> None:
        """Start to sample, to accept work and to deliver."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        def count_undelivered() -> None:
            self.undelivered, self.lost = self.spool.waiting(), self._pipeline.held
            self.has_stopped = self._has_started

        self._describe()
        self._recover()
        # Stopped in the reverse order: the threads that make rows, then the pipeline, then the uplink.
        self._cleanup.callback(count_undelivered)
        loop = self._loop = EventLoop("event loop")
        self._cleanup.callback(loop.close)
        loop.start(self.uplink.run()).add_done_callback(self._end_for_uplink)
        self._cleanup.callback(self.uplink.wait_until_delivered, self.config.delivery)
        self._run_until_cleanup("pipeline", self._pipeline.run)
        self._cleanup.callback(self._say_goodbye)
        for sampler in self._samplers:
            self._run_until_cleanup(sampler.name, sampler.run)
        self._run_until_cleanup("runner", self.runner.run, before_join=self.runner.close)
        self._run_until_cleanup("experiments", self._launches.run, before_join=self._launches.close)
        server = loop.start(serve(AgentServicer(self.planner, self.runner, self.status), self._socket)).result()
        self._cleanup.callback(self._socket.unlink, missing_ok=True)
        self._cleanup.callback(lambda: loop.start(server.stop(grace=1.0)).result())
        self._cleanup.callback(self.runner.begin_stop)
        self._has_started = True

    def stop(self) -> None:
        """Cancel the runs, spool the last samples, deliver within the configured time, and unlock the node."""
        self._cleanup.close()

    def __enter__(self) -> "Agent":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def flushes(self) -> int:
        """Number of flushes, failed and postponed ones included; it stops rising if the agent hangs."""
        return self._pipeline.flushes

    @property
    def sources(self) -> dict[str, Health]:
        """Health of each source, up to 10 s old."""
        return {name: health for sampler in self._samplers for name, health in sampler.totals().items()}

    def status(self) -> StatusResponse:
        """Return the state of the agent."""
        return StatusResponse(
            agent_version=__version__,
            session_uuid=self.spool.session.session_uuid,
            collector=self.config.collector,
            connected=self.uplink.connected,
            waiting_messages=self.spool.waiting(),
            last_error=self.uplink.last_error or "",
            platform=self.config.platform,
            gpus=self._latest.read(),
            gpu_fault=self.gpu_fault,
            node_uuid=self.node_uuid,
            warnings=self.uplink.warnings.texts(),
        )

    def _run_until_cleanup(
        self, name: str, run: Callable[[threading.Event], None], before_join: Callable[[], None] = lambda: None
    ) -> None:
        stop = _Stop()

        def guarded() -> None:
            # For `top -H`; the kernel keeps 15 characters. Python does it from 3.14 on.
            with suppress(OSError):
                Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
            try:
                run(stop)
            except Exception as error:  # noqa: BLE001
                self._end_for(name, error)

        def end() -> None:
            stop.set()
            before_join()
            thread.join(_STOP_SECONDS)
            if thread.is_alive():
                _LOG.error("the %s did not stop within %.0f s", name, _STOP_SECONDS)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        self._cleanup.callback(end)

    def _end_for_uplink(self, uplink: "Future[None]") -> None:
        if not uplink.cancelled() and (error := uplink.exception()):
            self._end_for("uplink", error)

    def _end_for(self, name: str, error: BaseException) -> None:
        """End the agent for a broken part: going on without it would lose data in silence."""
        _LOG.error("the %s broke", name, exc_info=error)
        self.failure = f"its {name} broke ({type(error).__name__}: {error})"
        os.kill(os.getpid(), signal.SIGTERM)

    def _describe(self) -> None:
        """Record the session: this agent and its node."""
        now = self._clock.now().unix_nano
        surroundings = facts.Surroundings(open_nvml=self._open_nvml)
        session: dict[str, Value] = {
            "session_uuid": self.spool.session.session_uuid,
            "node_uuid": self.node_uuid,
            "hostname": self.config.node_name,
            "platform": self.config.platform,
            "labels": json.dumps({**facts.job_labels(surroundings), **self.config.labels}, sort_keys=True),
            "started_at": now,
            "agent_version": __version__,
            "python_version": host.python_version(),
            "rate_hz": self.config.rate_hz,
        }
        self._buffer.add_record("sessions", {**session, **asdict(facts.collect_node_facts(surroundings))})
        for device in facts.collect_device_facts(surroundings):
            self._buffer.add_record("session_devices", {"time": now, **asdict(device)})
        for firmware in facts.collect_firmware(surroundings):
            self._buffer.add_record("session_firmware", {"time": now, **asdict(firmware)})
        links, paths = facts.collect_topology(surroundings)
        for link in links:
            self._buffer.add_record("session_links", {"time": now, **asdict(link)})
        for path in paths:
            self._buffer.add_record("session_paths", {"time": now, **asdict(path)})

    def _say_goodbye(self) -> None:
        """Record the end of the session, after all its samples; a broken agent, like a killed one, records none."""
        if self._owners is not None:
            for table, row in self._owners.last_states(self._clock.now()):
                self._buffer.add_record(table, row)
        if not self.failure:
            self._buffer.add_record("session_ends", {"time": self._clock.now().unix_nano})

    def _recover(self) -> None:
        """Record what an earlier agent process left behind: open runs, a damaged spool."""
        if self.spool.damaged:
            now = self._clock.now().unix_nano
            detail = f"the spool was damaged and set aside as {self.spool.damaged.name}"
            _LOG.error("%s", detail)
            self.spool.append([gap_entry(now, now, "spool_damaged", messages=None, detail=detail)])
        for run_id, (directory, offsets) in self.spool.open_runs().items():
            self.runner.recover(run_id, directory, offsets)


class _Stop(threading.Event):
    """A request to a thread to stop. Short waits sleep, which costs half as much as waiting for the event."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most `timeout` seconds; return whether to stop."""
        if timeout is None or timeout > _SLEPT_SECONDS:
            return super().wait(timeout)
        time.sleep(timeout)
        return self.is_set()
