"""The owners of work on this node: Slurm jobs, pods, containers, units of systemd and users, whoever launched them.

`sacct -j ID --format=TotalCPU,MaxRSS` shows the same of a Slurm job, `systemd-cgtop` of a group.
"""

import json
import os
import pwd
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.errors import SourceUnavailableError
from gpuagent.redaction import redact_arguments
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.cgroups import parse_mounts
from gpuagent.sources.support.files import OptionalFile, open_needed, read_text
from gpuagent.sources.support.idle_gpus import Held, Use
from gpuagent.sources.support.nvml_api import NvmlError
from gpuagent.sources.support.owner import MOST_CHARACTERS, Owner, OwnerFacts, without_names
from gpuagent.sources.support.pod_resources import Kubelet
from gpuagent.sources.support.pods import Missing, Pods
from gpuagent.sources.support.processes import read_process_file
from gpuagent.sources.support.slurm import (
    describe_slurm_job,
    held_gpus,
    parse_count,
    parse_environment,
    slurm_step,
)
from gpuagent.sources.support.units import Unit, parse_unit
from gpuagent.sources.support.work import Groups, Step, Work
from gpuagent_common.keys import key

# Between two samples of an owner.
SAMPLE_SECONDS = 5.0

# The state of a running owner is recorded after a minute, and when its age has become three times as much.
_FIRST_STATE_SECONDS = 60.0

# What is no job and has no GPU is reported from so much CPU time in so much time on.
FLOOR_CPU_SECONDS, FLOOR_SECONDS = 10.0, 60.0

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Of each owner's processes: reading those of more takes too long for once a second.
_FEW_PROCESSES = 16
_MOST_OWNERS, _MOST_STEPS = 1000, 1000
_MOST_WORDS = 20
# The first process of each pod, which only holds its namespaces.
_PAUSE = ("/pause", "pause")


class Owners:
    """Owners with their start, CPU time, memory and GPUs, and with what is allocated to them."""

    name = "owners"
    lane = Lane.SLOW
    # Each second it looks for processes that begin and end, and every 5 s at their use.
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        if context.owners == "off":
            raise SourceUnavailableError("it is switched off", "start the agent with --owners full")
        open_needed(context.proc / "self/stat").close()
        self._proc = context.proc
        self._has_names = context.owners == "full"
        self._only_job = context.only_job
        self._activity = context.activity
        self._holders = context.holders
        self._holders.add_use = self._add_use
        self._mounts = parse_mounts(read_text(context.proc / "self/mountinfo") or "")
        self._boot = (read_text(context.proc / "sys/kernel/random/boot_id") or "").strip()
        total_kib = (read_text(context.proc / "meminfo") or "").partition("MemTotal:")[2].split(" kB")[0].strip()
        self._memory_bytes = int(total_kib) * 1024 if total_kib.isdecimal() else None
        self._uuids = _list_gpus(context)
        self._pods = Pods(context.cluster, lambda socket: Kubelet(socket, self._uuids, _list_minors(context)))
        # Of each process its owner, or that it has none worth a look; young ones are looked at twice, since a process
        # is moved into its group, and becomes its program, after it has begun.
        self._owner_of: dict[int, Owner | None] = {}
        self._young: set[int] = set()
        self._owners: dict[Unit, Owner] = {}
        self._step_of: dict[int, Step] = {}  # of a job of Slurm, by process
        # Those without a process, the latest last: a job without a group of its own may go on after a pause.
        self._paused: dict[int, Owner] = {}
        # Of ended processes on GPUs, whose last use the driver tells later; the latest last.
        self._ended_on_gpu: dict[int, Owner] = {}
        # GPUs with a process that has no owner here, such as that of another job.
        self._with_strangers: set[str] = set()
        self._next_sample_seconds = self._next_scan_seconds = 0.0
        self._loadavg = OptionalFile(context.proc / "loadavg")
        self._last_assigned: str | None = None

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield the samples of all owners every 5 s, and their states when they are found, change much and end."""
        seconds = now.monotonic_seconds
        ended = self._scan(now)
        self._follow_pods(seconds)
        is_due = seconds >= self._next_sample_seconds
        on_gpus = self._find_on_gpus(seconds)
        if is_due:
            self._next_sample_seconds = seconds + SAMPLE_SECONDS - 0.5
        for owner in list(self._owners.values()):
            self._follow(owner, seconds, on_gpus.get(owner.owner_id, {}), is_due=is_due)
            if not owner.is_reported:
                continue
            if is_due:
                yield from owner.samples()
            yield from owner.steps_since(now)
            if seconds >= owner.next_state_seconds:
                age = seconds - owner.seen_seconds
                owner.next_state_seconds = seconds + max(2 * age, _FIRST_STATE_SECONDS)
                yield from owner.states(seconds, None)
        for owner in ended:
            if owner.is_reported:
                yield from owner.states(seconds, now.unix_nano)
                owner.steps.clear()

    def last_states(self, now: Instant) -> Iterator[tuple[str, Mapping[str, Value]]]:
        """Yield the rows for an agent that stops, with their tables."""
        for owner in self._owners.values():
            if owner.is_reported:
                for reading in owner.states(now.monotonic_seconds, None):
                    yield reading.table, {"time": now.unix_nano, **reading.values}

    def close(self) -> None:
        """Close /proc/loadavg, and leave the kubelet."""
        self._loadavg.close()
        self._pods.close()

    def check_pods(self) -> Sequence[Missing] | None:
        """Return what is unknown of the pods of this node; None: it is no node of Kubernetes."""
        return self._pods.check() if self._pods.are_expected else None

    def _scan(self, now: Instant) -> list[Owner]:
        """Assign new processes to their owners; return the owners that have none left.

        Where no process has begun since the last time, those that have ended are looked for every 5 s.
        """
        loadavg = self._loadavg.read()
        last_assigned = loadavg.rpartition(" ")[2] if loadavg else None
        is_quiet = last_assigned is not None and last_assigned == self._last_assigned and not self._young
        if is_quiet and now.monotonic_seconds < self._next_scan_seconds:
            return []
        self._last_assigned, self._next_scan_seconds = last_assigned, now.monotonic_seconds + SAMPLE_SECONDS - 0.5
        alive = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}  # noqa: PTH208 - a third of the time
        gone = self._owner_of.keys() - alive
        self._settle(gone, now)
        self._forget(gone)
        new = alive - self._owner_of.keys()
        for pid in (self._young & alive) | new:
            before = self._owner_of.get(pid)
            if step := self._step_of.pop(pid, None):
                step.pids.discard(pid)
            owner = self._find_owner(pid, now)
            if before is not None and before is not owner:
                before.pids.discard(pid)
            self._owner_of[pid] = owner
            if owner is not None:
                self._add_process(owner, pid, now)
                self._describe(owner, pid)
        self._young = new
        ended = [owner for owner in self._owners.values() if not owner.pids]
        for owner in ended:
            del self._owners[owner.unit]
            self._paused[owner.owner_id] = owner
        while len(self._paused) > _MOST_OWNERS:
            del self._paused[next(iter(self._paused))]
        return ended

    def _add_process(self, work: Work, pid: int, now: Instant) -> None:
        work.pids.add(pid)
        if work.seen_seconds == now.monotonic_seconds:
            work.started_unix_nano = min(work.started_unix_nano, self._began_at(pid, now))

    def _forget(self, gone: Set[int]) -> None:
        for pid in gone:
            if step := self._step_of.pop(pid, None):
                step.pids.discard(pid)
            if owner := self._owner_of.pop(pid):
                owner.pids.discard(pid)
                if owner.parts:
                    self._ended_on_gpu.pop(pid, None)
                    self._ended_on_gpu[pid] = owner
        while len(self._ended_on_gpu) > _MOST_OWNERS:
            del self._ended_on_gpu[next(iter(self._ended_on_gpu))]

    def _find_owner(self, pid: int, now: Instant) -> Owner | None:
        text = read_process_file(self._proc, pid, "cgroup")
        if text is None:
            return None
        unit = parse_unit(text)
        variables: Mapping[str, str] = {}
        if unit is None or unit.kind in ("session", "unit", "user"):
            environ = read_process_file(self._proc, pid, "environ") or ""
            variables = parse_environment(environ) if "SLURM_JOB_ID=" in environ else {}
            number = parse_count(variables, "SLURM_JOB_ID")
            job = None if number is None else str(number)
            # Kernel threads have neither a unit nor a command line.
            if unit is None and not job and not read_process_file(self._proc, pid, "cmdline"):
                return None
            uid = _uid_of(self._proc, pid)
            if uid is None:  # it has ended
                return None
            unit = Unit("slurm", job) if job else unit or Unit("user", str(uid))
        if self._only_job and unit[:2] != ("slurm", self._only_job):
            return None
        if unit not in self._owners and len(self._owners) < _MOST_OWNERS:
            groups = Groups.find(text, unit.group, self._mounts)
            named = self._pods.find_name(unit.name) if unit.kind == "pod" and self._has_names else None
            place, job = (named[0], "/".join(named)) if named else (None, unit.name)
            # Requeued jobs and restarted units are others; an agent that restarts finds the same.
            incarnation = groups.inode if groups else variables.get("SLURM_RESTART_COUNT", "0")
            owner_id = key(f"{self._boot}/{unit.kind}/{unit.name}/{incarnation}")
            if paused := self._paused.pop(owner_id, None):
                paused.resume()
                self._owners[unit] = paused
            else:
                self._owners[unit] = Owner(
                    unit=unit,
                    owner_id=owner_id,
                    facts=OwnerFacts(job=job, number=unit.name if unit.kind == "slurm" else None, place=place),
                    started_unix_nano=now.unix_nano,
                    seen_seconds=now.monotonic_seconds,
                    groups=groups,
                )
        owner = self._owners.get(unit)
        if owner is not None and unit.kind == "slurm" and (name := slurm_step(text, variables)):
            self._put_into_step(owner, name, pid, text, now)
        return owner

    def _put_into_step(self, owner: Owner, name: str, pid: int, memberships: str, now: Instant) -> None:
        step = owner.steps.get(name)
        if step is None and len(owner.steps) < _MOST_STEPS:
            step = owner.steps[name] = Step(
                name=name,
                started_unix_nano=now.unix_nano,
                seen_seconds=now.monotonic_seconds,
                groups=Groups.find(memberships, f"step_{name}", self._mounts),
            )
        if step is not None:
            self._step_of[pid] = step
            self._add_process(step, pid, now)

    def _follow_pods(self, seconds: float) -> None:
        """Add to the pods that were found what the kubelet and the API server have said of them since."""
        pods = [owner for owner in self._owners.values() if owner.unit.kind == "pod"]
        if not pods:
            return
        known = self._pods.follow(frozenset(owner.unit.name for owner in pods))
        for owner in pods:
            pod = known.get(owner.unit.name)
            if pod is not None and pod != owner.pod:
                owner.note_pod(pod, seconds, has_names=self._has_names)

    def _began_at(self, pid: int, now: Instant) -> int:
        """Return when a process began, by the node's wall clock."""
        stat = (read_process_file(self._proc, pid, "stat") or "").rpartition(")")[2].split()
        up = (read_text(self._proc / "uptime") or "").split()
        if len(stat) < 20 or not up:
            return now.unix_nano
        return now.unix_nano - round((float(up[0]) - int(stat[19]) / _TICKS_PER_SECOND) * 1e9)

    def _describe(self, owner: Owner, pid: int) -> None:
        """Add what one process says of its owner: its user, its job, and what was allocated."""
        # The process that only holds a pod's namespaces has a user of its own.
        is_pause = owner.unit.kind == "pod" and self._read_words(pid)[0] in _PAUSE
        uid = None if is_pause else _uid_of(self._proc, pid)
        if owner.uid is None or (owner.uid == 0 and uid):  # the daemons of a job are root's
            owner.uid = uid
            owner.facts.user_name = _user_name(uid, has_names=self._has_names)
        if owner.described_pid not in (None, pid):
            return
        kind, facts = owner.unit.kind, owner.facts
        text = read_process_file(self._proc, pid, "environ")
        variables = parse_environment(text or "")
        if kind == "slurm" and "SLURM_JOB_ID" in variables:
            # Anyone can set variables, so the kernel's user counts where the node names it.
            is_known = bool(uid) and facts.user_name != str(uid)
            describe_slurm_job(facts, variables, has_user=is_known)
        elif kind == "slurm" and (text is not None or not uid):  # a daemon of the job
            return
        gpus = held_gpus(kind, variables, self._uuids)
        if gpus is not None and (owner.pod is None or owner.pod.gpus is None):
            owner.hold(gpus, owner.seen_seconds)
        # Of a pod's containers any one may have GPUs.
        if gpus is not None or kind not in ("slurm", "pod"):
            owner.described_pid = pid
        if owner.command_pid in (None, pid):
            self._note_command(owner, pid)
        if not self._has_names:
            owner.facts = without_names(facts, owner.uid)

    def _note_command(self, owner: Owner, pid: int) -> None:
        words = self._read_words(pid)
        if self._has_names and any(words) and words[0] not in _PAUSE:
            owner.command_pid = pid
            # As JSON, which the store has of commands.
            redacted = redact_arguments(words[:_MOST_WORDS])
            owner.facts.command = json.dumps([word[:MOST_CHARACTERS] for word in redacted])

    def _read_words(self, pid: int) -> list[str]:
        return (read_process_file(self._proc, pid, "cmdline") or "").rstrip("\0").split("\0")

    def _find_on_gpus(self, seconds: float) -> dict[int, dict[str, list[Held]]]:
        """Return what the processes of each owner have of each GPU."""
        found: dict[int, dict[str, list[Held]]] = defaultdict(lambda: defaultdict(list))
        self._with_strangers.clear()
        for uuid, processes in self._holders.processes.items():
            for pid, held in processes.items():
                if owner := self._owner_of.get(pid):
                    found[owner.owner_id][uuid].append(held)
                    if step := self._step_of.get(pid):
                        step.gpus.add(uuid)
                    if uuid in owner.parts:
                        owner.parts[uuid].seen_seconds = seconds
                    if not owner.has_gpu_command:
                        owner.has_gpu_command = True
                        self._note_command(owner, pid)
                elif pid in self._owner_of:
                    self._with_strangers.add(uuid)
        return found

    def _follow(self, owner: Owner, seconds: float, on_gpus: Mapping[str, list[Held]], *, is_due: bool) -> None:
        """Read the counters of an owner that is reported, or may be from now on."""
        owner.is_reported = owner.is_reported or owner.unit.kind == "slurm" or bool(on_gpus) or bool(owner.parts)
        if not owner.is_reported and not self._exceeds_floor(owner, seconds):
            return
        owner.is_reported = True
        # Jobs end at once: what they used since the last look would be missing.
        if is_due or (owner.unit.kind == "slurm" and (owner.groups or len(owner.pids) <= _FEW_PROCESSES)):
            owner.read(self._proc, self._memory_bytes, with_memory=is_due)
        if is_due:
            for step in owner.steps.values():
                step.sees_gpus = step.sees_gpus or bool(self._holders.processes)
            owner.follow_gpus(seconds, on_gpus, self._holders.processes, owner.cores_since(seconds))
        if is_due or any(part.is_new for part in owner.parts.values()):
            self._count(owner, seconds, is_end=False)

    def _add_use(self, uuid: str, use: Mapping[int, Use], now: Instant) -> None:
        """Add what the driver says of the processes on a GPU to their owners' time."""
        of_owner: dict[int, list[Use]] = defaultdict(list)
        owners: dict[int, Owner] = {}
        for pid, one in use.items():
            if owner := self._owner_of.get(pid, self._ended_on_gpu.get(pid)):
                owners[owner.owner_id] = owner
                of_owner[owner.owner_id].append(one)
        for owner_id, owner in owners.items():
            owner.part_of(uuid, now.monotonic_seconds).add_use(of_owner[owner_id])

    def _settle(self, gone: Set[int], now: Instant) -> None:
        """Add the last that owners used whose processes are all gone, before the next ones begin on their GPUs."""
        for owner in self._owners.values():
            if owner.parts and owner.pids <= gone:
                for uuid in tuple(owner.parts):
                    self._holders.renew_use(uuid, now)
                self._count(owner, now.monotonic_seconds, is_end=True)

    def _count(self, owner: Owner, seconds: float, *, is_end: bool) -> None:
        """Add what its GPUs did and used; energy when they are found and at its end by the counter as it is then."""
        for uuid, part in owner.parts.items():
            others = (
                other.parts[uuid] for other in self._owners.values() if other is not owner and uuid in other.parts
            )
            is_alone = uuid not in self._with_strangers and not any(map(part.is_shared_with, others))
            if is_alone and (is_end or part.is_new):
                self._holders.renew_energy(uuid)
            busy_seconds = self._activity.busy_seconds(uuid)
            # One that has ended since the last time had a part of what was counted.
            for ended in self._paused.values():
                if uuid in ended.parts and ended.parts[uuid].seen_seconds >= part.counted_seconds:
                    busy_seconds = None
            part.count(self._holders.energy_joules.get(uuid), busy_seconds, seconds, is_alone=is_alone)

    def _exceeds_floor(self, owner: Owner, seconds: float) -> bool:
        """Return whether what is no job and has no GPU used much CPU time lately; of a mere user it is not known."""
        before = owner.floor
        if owner.unit.kind == "user" or (before is not None and seconds - before[1] < FLOOR_SECONDS):
            return False
        owner.read(self._proc, None, with_memory=False)
        owner.floor = (owner.cpu_seconds or 0.0, seconds)
        return before is not None and owner.floor[0] - before[0] >= FLOOR_CPU_SECONDS


def _list_gpus(context: SourceContext) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs by their index, as Slurm counts them."""
    try:
        nvml = context.open_nvml()
    except NvmlError:
        return ()
    try:
        return tuple(nvml.devices())
    except NvmlError:
        return ()
    finally:
        nvml.close()


def _list_minors(context: SourceContext) -> Mapping[int, str]:
    """Return the UUIDs of the GPUs by the numbers of their device files."""
    minors: dict[int, str] = {}
    with suppress(NvmlError), closing(context.open_nvml()) as nvml:
        for uuid in nvml.devices():
            minors[int(nvml.ask("nvmlDeviceGetMinorNumber", uuid))] = uuid
    return minors


def _uid_of(proc: Path, pid: int) -> int | None:
    try:
        return os.stat(f"{proc}/{pid}").st_uid  # noqa: PTH116 - of each new process
    except OSError:
        return None


def _user_name(uid: int | None, *, has_names: bool) -> str | None:
    """Return the name of a user, or the number where the node has no name for it."""
    if uid is None:
        return None
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name if has_names else str(uid)
    return str(uid)
