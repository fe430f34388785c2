"""One owner of work on a node, and the counters that are kept of it.

A held GPU is idle when no kernel has run on it for 15 minutes. While its job's CPUs work and none of the job's GPUs
does, as when it loads data or compiles, the job counts as preparing: for an hour at most."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.sources.process_tree import RisingSum
from gpuagent.sources.source import Reading, Value
from gpuagent.sources.support.idle_gpus import Held, Use
from gpuagent.sources.support.pods import Pod
from gpuagent.sources.support.units import Unit
from gpuagent.sources.support.work import Step, Work
from gpuagent_common.keys import key

IDLE_SECONDS = 15 * 60.0
LONGEST_PREPARATION_SECONDS = 60 * 60.0

# The CPU time by wall time from which a job's CPUs work. An interpreter that waits for its user takes a tenth of it.
QUIET_CORES = 0.05

# Of each name and each word of a command.
MOST_CHARACTERS = 300


@dataclass(slots=True)
class HeldTime:
    """The idle time of one GPU that one job holds.

    Attributes:
        since: when the last kernel was seen, or when the job was first seen.
        quiet_since: the same, or when the job was last seen preparing.
        followed: the last call.
        ended_seconds: idle time before the last kernel.
        quiet_seconds: idle time since the last kernel, before the job prepared last.
    """

    since: float
    quiet_since: float
    followed: float
    ended_seconds: float = 0.0
    quiet_seconds: float = 0.0
    # Idle time that goes on; 0: it is not idle now.
    idle_seconds: float = 0.0

    @classmethod
    def begun(cls, seconds: float) -> "HeldTime":
        """Return a GPU that is held from now on."""
        return cls(since=seconds, quiet_since=seconds, followed=seconds)

    @property
    def total_seconds(self) -> float:
        """Return all idle time."""
        return self.ended_seconds + max(self.idle_seconds, self.quiet_seconds)

    def follow(self, seconds: float, *, has_kernel: bool, prepares: bool) -> None:
        """Note the time since the last call: whether a kernel ran, and whether the job prepared."""
        before, self.followed = self.followed, seconds
        if has_kernel:
            self.ended_seconds = self.total_seconds
            self.since = self.quiet_since = seconds
            self.quiet_seconds = self.idle_seconds = 0.0
            return
        if prepares:
            quiet = before - self.quiet_since
            self.quiet_seconds += quiet if quiet >= IDLE_SECONDS else 0.0
            self.quiet_since = seconds
        quiet = seconds - self.quiet_since
        if seconds - self.since >= LONGEST_PREPARATION_SECONDS:
            self.idle_seconds = seconds - self.since
        else:
            self.idle_seconds = self.quiet_seconds + quiet if quiet >= IDLE_SECONDS else 0.0


@dataclass(slots=True, kw_only=True)
class OwnerFacts:
    """The names of an owner, and what it was given; None: unknown, or not to be stored."""

    job: str
    number: str | None = None
    title: str | None = None
    user_name: str | None = None
    account: str | None = None
    place: str | None = None
    command: str | None = None
    held_cores: float | None = None
    memory_held_bytes: int | None = None


@dataclass(slots=True, kw_only=True)
class Part:
    """The part of one GPU that an owner has. Energy is None from the moment that another owner has a part of it too."""

    uuid: str
    is_held: bool | None
    held: HeldTime
    # When a process of the owner was on it last, and when its energy was counted last.
    seen_seconds: float
    counted_seconds: float
    gpu_seconds: float | None = None
    memory_bytes: int | None = None
    memory_max_bytes: int | None = None
    sm_percent: float | None = None
    energy_joules: float | None = 0.0
    counter_joules: float | None = None
    # The GPU's time with kernels when it was counted last, and what the driver said of the owner's processes since.
    counter_busy_seconds: float | None = None
    uncounted_seconds: float | None = None

    def add_use(self, use: Sequence[Use]) -> None:
        """Note the time in which kernels of the owner's processes ran; those of several count as one."""
        busy_seconds = min(sum(one.busy_seconds for one in use), max(one.covered_seconds for one in use))
        self.uncounted_seconds = (self.uncounted_seconds or 0.0) + busy_seconds

    def follow(self, seconds: float, mine: Sequence[Held] | None, *, prepares: bool) -> None:
        """Note what the owner's processes have of the GPU at this moment; None: unknown."""
        if mine is None:
            self.memory_bytes = self.sm_percent = None
            return
        self.memory_bytes = _sum([each.memory_bytes for each in mine])
        self.memory_max_bytes = max(filter(None, (self.memory_bytes, self.memory_max_bytes)), default=None)
        shares = [each.sm_percent for each in mine]
        # Without a process on the GPU it does nothing.
        self.sm_percent = 0.0 if not mine else None if None in shares else min(100.0, _sum(shares) or 0.0)
        if self.sm_percent is not None:
            self.gpu_seconds = self.gpu_seconds or 0.0
            self.held.follow(seconds, has_kernel=self.sm_percent > 0, prepares=prepares)

    @property
    def is_new(self) -> bool:
        """True until its energy is counted from a reading on; it is not where another owner had a part at the time."""
        return self.counter_joules is None and self.energy_joules is not None

    def is_shared_with(self, other: "Part") -> bool:
        """Return whether the other had the GPU too at any time since the energy was counted last."""
        return bool(other.is_held) or other.seen_seconds >= self.counted_seconds

    def count(
        self, counter_joules: float | None, busy_seconds: float | None, seconds: float, *, is_alone: bool
    ) -> None:
        """Add the energy, and the time with kernels, since this was done last.

        Of an owner that was alone on the GPU both are the GPU's; the driver's words of single processes cover less.

        Args:
            busy_seconds: the GPU's time with kernels so far.
            is_alone: no other owner had the GPU since the last time.
        """
        counted_seconds, self.counted_seconds = self.counted_seconds, seconds
        busy_before, self.counter_busy_seconds = self.counter_busy_seconds, busy_seconds
        added, self.uncounted_seconds = self.uncounted_seconds, None
        # Without the driver's words the processes on the GPU are not all known.
        was_alone = is_alone and self.gpu_seconds is not None and self.seen_seconds >= counted_seconds
        if was_alone and busy_seconds is not None and busy_before is not None:
            added = min(busy_seconds - busy_before, seconds - counted_seconds)
        if added is not None:
            self.gpu_seconds = (self.gpu_seconds or 0.0) + added
        if not is_alone or self.energy_joules is None or counter_joules is None:
            self.energy_joules = None if not is_alone else self.energy_joules
            return
        before, self.counter_joules = self.counter_joules, counter_joules
        self.energy_joules += max(0.0, counter_joules - before) if before is not None else 0.0

    def totals(self) -> dict[str, Value]:
        """Return what has been counted."""
        return {
            "is_held": None if self.is_held is None else int(self.is_held),
            "gpu_memory_max_bytes": self.memory_max_bytes,
            "gpu_seconds": self.gpu_seconds,
            "energy_joules": self.energy_joules if self.counter_joules is not None else None,
            "idle_seconds": self.held.total_seconds if self.gpu_seconds is not None else None,
        }


def _sum(values: Sequence[float | int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(sum(known)) if known else None


@dataclass(slots=True, kw_only=True)
class Owner(Work):
    """One owner of work: its processes, its group, and its counters."""

    unit: Unit
    owner_id: int
    facts: OwnerFacts
    # Of a job of Slurm, those that have processes, by their names.
    steps: dict[str, Step] = field(default_factory=dict)
    # Of a pod, what the node's kubelet and the API server say of it; None: nothing yet.
    pod: Pod | None = None
    uid: int | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    # The process that said what was allocated, the one that the command is of, and whether it is on a GPU.
    described_pid: int | None = None
    command_pid: int | None = None
    has_gpu_command: bool = False
    is_reported: bool = False
    # Whether GPUs are allocated to it: 0 none are; None: nothing says.
    is_holder: int | None = None
    # CPU time when it was looked at for the floor last, and when.
    floor: tuple[float, float] | None = None
    cpu_before: tuple[float, float] | None = None
    next_state_seconds: float = 0.0

    def read(self, proc: Path, total_bytes: int | None, *, with_memory: bool) -> None:
        """Read the CPU time of it and of its steps, and the memory; `total_bytes` is the node's.

        Of a job without a group of its own the processes of steps are read once, for both.
        """
        for step in self.steps.values():
            step.read_use(proc, with_memory=with_memory)
        memory = self.read_use(proc, self.steps.values(), with_memory=with_memory)
        if memory is not None:
            limit = memory.limit_bytes
            if self.facts.memory_held_bytes is None and limit is not None and total_bytes and limit < total_bytes:
                self.facts.memory_held_bytes = limit
            if self.facts.held_cores is None and self.groups:
                self.facts.held_cores = self.groups.read_limit_cores()

    def cores_since(self, seconds: float) -> float | None:
        """Return the CPU time by wall time since the last call; None: unknown."""
        before = self.cpu_before
        self.cpu_before = (seconds, self.cpu_seconds) if self.cpu_seconds is not None else None
        if before is None or self.cpu_before is None or seconds <= before[0]:
            return None
        return max(0.0, self.cpu_before[1] - before[1]) / (seconds - before[0])

    def follow_gpus(
        self, seconds: float, on_gpus: Mapping[str, Sequence[Held]], listed: Collection[str], cores: float | None
    ) -> None:
        """Note what its processes have of each GPU; of GPUs whose processes are not listed this is unknown."""
        for uuid in on_gpus:
            self.part_of(uuid, seconds)
        works = any((each.sm_percent or 0) > 0 for mine in on_gpus.values() for each in mine)
        # Where the CPU time is unknown the job may prepare.
        prepares = not works and (cores is None or cores >= QUIET_CORES)
        for uuid, part in self.parts.items():
            mine = on_gpus.get(uuid, ()) if uuid in listed else None
            part.follow(seconds, mine, prepares=prepares)

    def part_of(self, uuid: str, seconds: float) -> Part:
        """Return its part of a GPU, which begins now if it has none."""
        if uuid not in self.parts:
            held = HeldTime.begun(seconds)
            self.parts[uuid] = Part(uuid=uuid, is_held=None, held=held, seen_seconds=seconds, counted_seconds=seconds)
            # Without a state of its own it would not be listed.
            self.next_state_seconds = 0.0
        return self.parts[uuid]

    def resume(self) -> None:
        """Go on after a pause without a process, in which nothing was used."""
        self.cpu_before = self.floor = None
        self.next_state_seconds = 0.0
        self.rising = RisingSum(lost=self.rising.lost + self.rising.last)
        for part in self.parts.values():
            part.counter_joules = part.counter_busy_seconds = part.uncounted_seconds = None

    def note_pod(self, pod: Pod, seconds: float, *, has_names: bool) -> None:
        """Note what is known of it as a pod: its names unless they are not to be stored, what made it, its GPUs."""
        self.pod = pod
        if has_names:
            self.facts.job, self.facts.place = f"{pod.namespace}/{pod.name}", pod.namespace
            self.facts.title = pod.maker or self.facts.title
        if pod.gpus is not None:
            self.hold(pod.gpus, seconds)
        self.next_state_seconds = 0.0

    def hold(self, uuids: Sequence[str], seconds: float) -> None:
        """Note the GPUs that are allocated to it; those that it uses beside are not."""
        self.is_holder = int(bool(uuids))
        for uuid in uuids:
            self.part_of(uuid, seconds)
        for part in self.parts.values():
            part.is_held = part.uuid in uuids

    def states(self, seconds: float, ended_unix_nano: int | None) -> Iterator[Reading]:
        """Yield the rows that say who it is and what has been counted: its own, and one for each GPU and each step."""
        facts: dict[str, Value] = asdict(self.facts)
        shared: dict[str, Value] = {
            "owner_id": self.owner_id,
            "kind": self.unit.kind,
            **facts,
            "started_at": self.started_unix_nano,
            "ended_at": ended_unix_nano,
            "observed_seconds": seconds - self.seen_seconds,
        }
        counted: dict[str, Value] = {"cpu_seconds": self.cpu_seconds, "memory_max_bytes": self.memory_max_bytes}
        yield Reading("owners", {**shared, **counted, "is_held": self.is_holder}, f"{self.owner_id}")
        for part in self.parts.values():
            values = {**shared, "device_id": key(part.uuid), **part.totals()}
            yield Reading("owners", values, f"{self.owner_id}/{part.uuid}")
        for step in self.steps.values():
            yield self._state_of(step, seconds, ended_unix_nano)

    def steps_since(self, now: Instant) -> Iterator[Reading]:
        """Yield the rows of steps that have begun or ended since the last call; those that have ended are forgotten."""
        for step in list(self.steps.values()):
            if not step.pids:
                del self.steps[step.name]
                yield self._state_of(step, now.monotonic_seconds, now.unix_nano)
            elif not step.is_recorded:
                yield self._state_of(step, now.monotonic_seconds, None)
            step.is_recorded = True

    def _state_of(self, step: Step, seconds: float, ended_unix_nano: int | None) -> Reading:
        """Return the row that says what has been counted of one of its steps."""
        values: dict[str, Value] = {
            "owner_id": self.owner_id,
            "step": step.name,
            "started_at": step.started_unix_nano,
            "ended_at": ended_unix_nano,
            "observed_seconds": seconds - step.seen_seconds,
            "cpu_seconds": step.cpu_seconds,
            "memory_max_bytes": step.memory_max_bytes,
            "gpus_used": len(step.gpus) if step.sees_gpus else None,
        }
        return Reading("owner_steps", values, f"{self.owner_id}.{step.name}")

    def samples(self) -> Iterator[Reading]:
        """Yield the rows of this moment."""
        of_owner: dict[str, Value] = {"owner_id": self.owner_id}
        counted: dict[str, Value] = {"cpu_seconds": self.cpu_seconds, "memory_used_bytes": self.memory_bytes}
        yield Reading("owner_samples", {**of_owner, **counted}, f"{self.owner_id}")
        for part in self.parts.values():
            totals = part.totals()
            values: dict[str, Value] = {
                "device_id": key(part.uuid),
                "gpu_memory_used_bytes": part.memory_bytes,
                "sm_percent": part.sm_percent,
                **{name: totals[name] for name in ("gpu_seconds", "energy_joules", "idle_seconds")},
                "idle_now_seconds": part.held.idle_seconds if part.gpu_seconds is not None else None,
            }
            yield Reading("owner_samples", {**of_owner, **values}, f"{self.owner_id}/{part.uuid}")


def without_names(facts: OwnerFacts, uid: int | None) -> OwnerFacts:
    """Return the facts that identify an owner, and what it was given; of its user the number."""
    user_name = None if uid is None else str(uid)
    return replace(facts, title=None, user_name=user_name, account=None, place=None, command=None)
