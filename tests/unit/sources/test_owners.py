"""The owners of work on a node, and the time in which they hold a GPU without using it."""

import json
import os
import pwd
import shutil
from pathlib import Path

import pytest

from gpuagent.sources.owners import Owners
from gpuagent.sources.source import Value
from gpuagent.sources.support.idle_gpus import GpuHolders, Use
from gpuagent.sources.support.owner import HeldTime
from gpuagent.sources.support.slurm import held_gpus, slurm_step
from gpuagent.sources.support.units import Unit, cut_path, parse_unit
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, SECOND, NvmlRecording
from tests.support.pid_namespaces import plant_process
from tests.support.sources import OpenSource
from tests.support.trees import instant, mountinfo_at, plant

UID, CONTAINER = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d", "ab" * 32
POD_SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        ("4:memory:/slurm/uid_1000/job_4711/step_0/task_0", Unit("slurm", "4711", "job_4711")),
        ("9:cpuset:/slurm_n1/uid_1000/job_4711/step_batch", Unit("slurm", "4711", "job_4711")),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", Unit("slurm", "4711", "job_4711")),
        ("0::/system.slice/n1_slurmstepd.scope/job_47/step_extern/user", Unit("slurm", "47", "job_47")),
        ("0::/system.slice/slurmd.service", Unit("unit", "slurmd.service", "slurmd.service")),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/{POD_SLICE}/cri-containerd-{CONTAINER}.scope",
            Unit("pod", UID, POD_SLICE),
        ),
        (f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}", Unit("pod", UID, f"pod{UID}")),
        (f"0::/system.slice/docker-{CONTAINER}.scope", Unit("docker", CONTAINER, f"docker-{CONTAINER}.scope")),
        (f"5:memory:/docker/{CONTAINER}", Unit("docker", CONTAINER, CONTAINER)),
        (
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{CONTAINER}.scope/container",
            Unit("podman", CONTAINER, f"libpod-{CONTAINER}.scope"),
        ),
        ("0::/user.slice/user-1000.slice/session-3.scope", Unit("session", "session-3.scope", "session-3.scope")),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope",
            Unit("unit", *["user@1000.service"] * 2),
        ),
        ("1:cpu:/\n0::/", None),
        ("0::/init.scope", None),
        ("0::/job_4711", None),
    ],
)
def test_a_control_group_names_its_unit(group: str, unit: Unit | None) -> None:
    assert parse_unit(f"{group}\n") == unit


def test_the_group_of_a_unit_is_cut_out_of_that_of_a_process() -> None:
    assert cut_path("/slurm/uid_1/job_4711/step_0", "job_4711") == "/slurm/uid_1/job_4711"
    assert cut_path("/slurm/uid_1/job_47/step_0", "job_4711") is None


@pytest.mark.parametrize(
    ("kind", "variables", "held"),
    [
        ("slurm", {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0"}, (SECOND,)),
        ("slurm", {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "0,1"}, (FIRST, SECOND)),
        ("slurm", {"SLURM_JOB_ID": "1"}, ()),
        ("slurm", {}, None),
        ("docker", {"NVIDIA_VISIBLE_DEVICES": FIRST}, (FIRST,)),
        ("docker", {"NVIDIA_VISIBLE_DEVICES": "all"}, None),
        ("session", {"CUDA_VISIBLE_DEVICES": "0"}, None),
        # Anyone can set them.
        ("docker", {"NVIDIA_VISIBLE_DEVICES": ",".join([FIRST] * 9000)}, (FIRST,) * 64),
        ("docker", {"NVIDIA_VISIBLE_DEVICES": "9" * 5000}, ()),
    ],
)
def test_gpus_are_held_where_slurm_or_a_container_engine_says_so(
    kind: str, variables: dict[str, str], held: tuple[str, ...] | None
) -> None:
    assert held_gpus(kind, variables, (FIRST, SECOND)) == held


# Per minute: whether a kernel ran, and whether the job's CPUs worked while none did.
KERNEL, PREPARES, NOTHING = (True, False), (False, True), (False, False)


@pytest.mark.parametrize(
    ("minutes", "idle_minutes"),
    [
        ([NOTHING] * 100, 100),  # memory held asleep, or an allocation without a process
        ([NOTHING] * 14 + [KERNEL], 0),
        ([KERNEL] * 100, 0),  # a busy loop
        ([PREPARES] * 4 + [KERNEL], 0),  # a data-starved loop
        ([KERNEL] * 10 + [PREPARES] * 2 + [KERNEL] * 10, 0),  # a compilation
        ([KERNEL] * 10 + [NOTHING] * 8 + [KERNEL] * 10, 0),  # a barrier
        ([PREPARES] * 40 + [KERNEL] * 10, 0),  # data that take long to load
        ([PREPARES] * 100, 100),  # a GPU that a CPU job holds
        ([NOTHING] * 20 + [PREPARES] * 5 + [KERNEL] * 5 + [NOTHING] * 20, 40),
    ],
)
def test_a_held_gpu_is_idle_after_a_quarter_of_an_hour_without_work(
    minutes: list[tuple[bool, bool]], idle_minutes: int
) -> None:
    windows = 100
    held = HeldTime.begun(0.0)
    totals = []
    for minute, (has_kernel, prepares) in enumerate([*minutes, KERNEL] * windows, 1):
        held.follow(60.0 * minute, has_kernel=has_kernel, prepares=prepares)
        totals.append(held.total_seconds)
    assert totals == sorted(totals)
    assert totals[len(minutes) :: len(minutes) + 1] == [
        60.0 * idle_minutes * number for number in range(1, windows + 1)
    ]


def open_job(tmp_path: Path, open_source: OpenSource, **context: object) -> tuple[Owners, GpuHolders]:
    """Open the source on a node with a job of Slurm in groups of version 2, and two GPUs of which it holds both."""
    group = "/system.slice/slurmstepd.scope/job_4711"
    plant_process(tmp_path / "proc", 47, name="bash")
    variables = {
        "SLURM_JOB_ID": "4711",
        "SLURM_ARRAY_JOB_ID": "4700",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_JOB_NAME": "train",
        "SLURM_JOB_USER": "alice",
        "SLURM_JOB_ACCOUNT": "vision",
        "SLURM_JOB_GPUS": "0,1",
        "SLURM_CPUS_ON_NODE": "8",
    }
    mounts = "25 0 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    files = {
        "proc/self/stat": "",
        "proc/self/mountinfo": mountinfo_at(tmp_path, mounts),
        "proc/sys/kernel/random/boot_id": "boot\n",
        "proc/47/cgroup": f"0::{group}/step_0/user/task_0\n",
        "proc/47/environ": "\0".join(f"{name}={value}" for name, value in variables.items()),
        "proc/47/cmdline": "train.py\0--api-key\0secret\0",
        f"sys/fs/cgroup{group}/cpu.stat": "usage_usec 1000000\n",
        f"sys/fs/cgroup{group}/memory.stat": "anon 4096\nfile 8192\n",
    }
    plant(tmp_path, files)
    holders = GpuHolders()
    recording = NvmlRecording({"open()": [{"answer": None}], "devices()": [{"answer": [FIRST, SECOND]}]})
    proc = tmp_path / "proc"
    return open_source(Owners, proc=proc, open_nvml=recording.open, holders=holders, **context), holders


def add_use(holders: GpuHolders, busy_seconds: float, seconds: float) -> None:
    use = Use(sm_percent=100.0, memory_percent=0.0, busy_seconds=busy_seconds, covered_seconds=5.0)
    holders.add_use(FIRST, {47: use}, instant(seconds))


def read(source: Owners, seconds: float, table: str) -> dict[Value, dict[str, Value]]:
    """Return the rows of one table by their GPU."""
    rows = [dict(reading.values) for reading in source.read(instant(seconds)) if reading.table == table]
    return {row.get("device_id"): row for row in rows}


def test_a_job_is_found_with_what_it_was_given_and_uses(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    holders.note_processes(FIRST, {47: 1000}, {47: 50.0})
    holders.note_processes(SECOND, {}, {})
    states = read(source, 0, "owners")
    assert set(states) == {None, key(FIRST), key(SECOND)}
    own = states[None]
    assert [own[name] for name in ("kind", "job", "number", "title", "user_name", "account", "held_cores")] == [
        *("slurm", "4700_3", "4711", "train", "alice", "vision", 8.0)
    ]
    assert json.loads(str(own["command"])) == ["train.py", "--api-key", "[hidden]"]
    holders.energy_joules[FIRST] = 100.0
    read(source, 5, "owners")
    holders.energy_joules[FIRST] = 400.0
    add_use(holders, 5.0, 10)
    samples = read(source, 10, "owner_samples")
    assert (samples[None]["cpu_seconds"], samples[None]["memory_used_bytes"]) == (1.0, 4096)
    assert (samples[key(FIRST)]["gpu_seconds"], samples[key(FIRST)]["energy_joules"]) == (5.0, 300.0)
    assert (samples[key(SECOND)]["gpu_seconds"], samples[key(SECOND)]["sm_percent"]) == (0.0, 0.0)


def test_the_energy_of_a_job_reaches_from_its_beginning_to_its_end(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    read(source, 0, "owners")
    counters = iter((100.0, 730.0))
    holders.renew_energy = lambda uuid: holders.energy_joules.update({uuid: next(counters)} if uuid == FIRST else {})
    read(source, 1, "owners")
    for seconds in (2, 5):
        read(source, seconds, "owners")
    (tmp_path / "proc/47").rename(tmp_path / "gone")
    assert read(source, 10, "owners")[key(FIRST)]["energy_joules"] == 630.0


def plant_next_job(tmp_path: Path, pid: int) -> None:
    """Add a process of a job without control groups, to which the first GPU is allocated."""
    plant_process(tmp_path / "proc", pid)
    environ = f"SLURM_JOB_ID={pid}\0SLURM_JOB_GPUS=0"
    plant(tmp_path, {f"proc/{pid}/cgroup": "0::/\n", f"proc/{pid}/environ": environ})


def test_a_job_has_its_last_energy_where_the_next_one_follows_at_once(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    counters = iter((100.0, 730.0, 730.0, 900.0))
    holders.renew_energy = lambda uuid: holders.energy_joules.update({uuid: next(counters)} if uuid == FIRST else {})
    read(source, 0, "owners")
    (tmp_path / "proc/47").rename(tmp_path / "gone")
    plant_next_job(tmp_path, 60)
    rows = [reading.values for reading in source.read(instant(4)) if reading.table == "owners"]
    assert [row["energy_joules"] for row in rows if row["ended_at"] and row.get("device_id") == key(FIRST)] == [630.0]
    (tmp_path / "proc/60").rename(tmp_path / "gone too")
    assert read(source, 10, "owners")[key(FIRST)]["energy_joules"] == 170.0


def test_an_end_is_recorded_with_what_was_counted_last(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source)
    for seconds in (0, 1):
        read(source, seconds, "owners")
    (tmp_path / "proc/47").rename(tmp_path / "gone")
    assert read(source, 2, "owners") == {}, "no process has begun"
    states = read(source, 6, "owners")
    assert states[None]["ended_at"] == instant(6).unix_nano
    assert states[None]["cpu_seconds"] == 1.0
    assert read(source, 7, "owners") == {}


def test_what_an_owner_used_before_and_after_a_pause_is_one_sum(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    process, away = tmp_path / "proc/47", tmp_path / "away"
    energy = 0.0
    for seconds in (0, 5, 10):
        holders.note_processes(FIRST, {47: 1000}, {47: 100.0})
        add_use(holders, 5.0, seconds)
        holders.energy_joules[FIRST] = energy = energy + 500.0
        before = read(source, seconds, "owner_samples")[key(FIRST)]
    process.rename(away)
    assert read(source, 15, "owners")[None]["ended_at"]
    away.rename(process)
    holders.energy_joules[FIRST] = 90_000.0
    assert read(source, 600, "owners")[None]["ended_at"] is None
    holders.energy_joules[FIRST] = 90_500.0
    add_use(holders, 5.0, 605)
    after = read(source, 605, "owner_samples")[key(FIRST)]
    assert (before["gpu_seconds"], after["gpu_seconds"]) == (10.0, 15.0)
    assert (before["energy_joules"], after["energy_joules"]) == (1000.0, 1500.0)


def test_cpu_time_before_a_pause_stays_where_no_group_has_it(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source)
    shutil.rmtree(tmp_path / "sys")
    plant(tmp_path, {"proc/47/statm": "9 9 9 9 0 9 0"})
    stat = (tmp_path / "proc/47/stat").read_text()
    (tmp_path / "proc/47/stat").write_text(stat.replace(" 0 1 0 ", " 0 1000 0 "))
    before = read(source, 0, "owner_samples")[None]["cpu_seconds"]
    (tmp_path / "proc/47").rename(tmp_path / "away")
    read(source, 10, "owners")
    (tmp_path / "away").rename(tmp_path / "proc/48")
    (tmp_path / "proc/48/stat").write_text(stat.replace(" 0 1 0 ", " 0 300 0 "))
    plant(tmp_path, {"proc/loadavg": "0 0 0 1/9 48"})
    read(source, 20, "owners")
    assert (before, read(source, 26, "owner_samples")[None]["cpu_seconds"]) == (10.0, 13.0)


@pytest.mark.parametrize(("gpus", "is_holder"), [("SLURM_JOB_GPUS=0", 1), ("SLURM_JOB_ID=4711", 0), (None, None)])
def test_a_job_without_gpus_is_not_one_whose_gpus_are_unknown(
    tmp_path: Path, open_source: OpenSource, gpus: str | None, is_holder: int | None
) -> None:
    source, _ = open_job(tmp_path, open_source)
    environ = tmp_path / "proc/47/environ"
    environ.write_text(f"SLURM_JOB_ID=4711\0{gpus}" if gpus else "")
    assert read(source, 0, "owners")[None]["is_held"] == is_holder


def test_a_process_that_begins_shows_what_has_ended_at_once(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source)
    for seconds in (0, 1):
        read(source, seconds, "owners")
    (tmp_path / "proc/47").rename(tmp_path / "gone")
    plant_process(tmp_path / "proc", 60)
    assert read(source, 2, "owners")[None]["ended_at"] == instant(2).unix_nano


def test_two_owners_of_one_gpu_have_no_energy(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    plant_process(tmp_path / "proc", 50)
    plant(tmp_path, {"proc/50/cgroup": f"0::/system.slice/docker-{CONTAINER}.scope\n"})
    holders.note_processes(FIRST, {47: 1000, 50: 3000}, {47: 30.0, 50: 60.0})
    for seconds, joules in ((0, 100.0), (5, 200.0), (10, 300.0)):
        holders.energy_joules[FIRST] = joules
        rows = [reading.values for reading in source.read(instant(seconds)) if reading.table == "owner_samples"]
    shares = {row["sm_percent"]: row["energy_joules"] for row in rows if row.get("device_id") == key(FIRST)}
    assert shares == {30.0: None, 60.0: None}
    asked: list[str] = []  # which takes 3 ms, and is of no use here
    holders.renew_energy = asked.append
    read(source, 11, "owners")
    assert FIRST not in asked


@pytest.mark.parametrize("is_held", [False, True])
def test_a_job_has_the_energy_of_a_gpu_that_another_has_left(
    tmp_path: Path, open_source: OpenSource, is_held: bool
) -> None:
    source, holders = open_job(tmp_path, open_source, only_job=None)
    (tmp_path / "proc/47").rename(tmp_path / "later")
    plant_docker(tmp_path, 50, environ=f"NVIDIA_VISIBLE_DEVICES={FIRST}" if is_held else "")
    holders.note_processes(FIRST, {50: 3000}, {50: 60.0})
    holders.energy_joules[FIRST] = 100.0
    for seconds in (0, 5):
        read(source, seconds, "owners")
    holders.note_processes(FIRST, {}, {})
    read(source, 10, "owners")
    (tmp_path / "later").rename(tmp_path / "proc/47")
    for seconds, joules in ((15, 200.0), (20, 700.0)):
        holders.energy_joules[FIRST] = joules
        rows = [reading.values for reading in source.read(instant(seconds)) if reading.table == "owner_samples"]
    energy = [row["energy_joules"] for row in rows if row.get("device_id") == key(FIRST)]
    assert energy == [None, None if is_held else 500.0]


def test_without_names_an_owner_has_its_numbers(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source, owners="ids")
    own = read(source, 0, "owners")[None]
    assert (own["job"], own["number"]) == ("4700_3", "4711")
    assert [own[name] for name in ("title", "account", "place", "command")] == [None] * 4
    assert str(own["user_name"]).isdecimal()


@pytest.mark.parametrize(
    ("group", "variables", "step"),
    [
        ("4:memory:/slurm/uid_1000/job_4711/step_0/task_0", {}, "0"),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0", {"SLURM_STEP_ID": "3"}, "batch"),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_extern", {}, "extern"),
        ("0::/", {"SLURM_STEP_ID": "12"}, "12"),
        ("0::/", {"SLURM_STEP_ID": "4294967290"}, "interactive"),
        ("0::/", {"SLURM_STEP_ID": "4294967291"}, "batch"),
        ("0::/", {"SLURM_STEP_ID": "4294967292"}, "extern"),
        ("0::/", {"SLURMD_NODENAME": "n1"}, "batch"),
        ("0::/", {"SLURM_STEP_ID": "1;true"}, None),
        ("0::/system.slice/slurmstepd.scope/job_4711", {}, None),  # the shell of an allocation
    ],
)
def test_a_process_of_a_job_has_a_step(group: str, variables: dict[str, str], step: str | None) -> None:
    assert slurm_step(f"{group}\n", variables) == step


def test_the_steps_of_a_job_are_recorded_with_what_they_used(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    group = "/system.slice/slurmstepd.scope/job_4711"
    holders.note_processes(FIRST, {47: 1000}, {47: 50.0})

    def steps(seconds: float) -> dict[Value, dict[str, Value]]:
        rows = [dict(each.values) for each in source.read(instant(seconds)) if each.table == "owner_steps"]
        return {row["step"]: row for row in rows}

    plant(tmp_path, {f"sys/fs/cgroup{group}/step_0/cpu.stat": "usage_usec 600000\n"})
    first = steps(0)
    assert first["0"]["ended_at"] is None
    assert (first["0"]["cpu_seconds"], first["0"]["gpus_used"]) == (0.6, 1)
    plant_process(tmp_path / "proc", 60)
    plant(
        tmp_path,
        {
            "proc/60/cgroup": f"0::{group}/step_1/user/task_0\n",
            f"sys/fs/cgroup{group}/step_1/cpu.stat": "usage_usec 300000\n",
            f"sys/fs/cgroup{group}/step_1/memory.stat": "anon 2048\n",
        },
    )
    assert steps(6).keys() == {"1"}
    (tmp_path / "proc/47").rename(tmp_path / "gone")
    ended = steps(12)
    assert ended.keys() == {"0"}
    assert (ended["0"]["ended_at"], ended["0"]["cpu_seconds"]) == (instant(12).unix_nano, 0.6)
    (tmp_path / "proc/60").rename(tmp_path / "gone too")
    last = steps(20)["1"]
    assert [last[name] for name in ("cpu_seconds", "memory_max_bytes", "gpus_used")] == [0.3, 2048, 0]


def test_without_control_groups_the_steps_of_a_job_add_up_to_it(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source)
    (tmp_path / "proc/47").rename(tmp_path / "gone")
    for pid, step in ((60, "SLURM_STEP_ID=0"), (61, "SLURM_STEP_ID=1"), (62, "SLURM_STEP_ID=1"), (63, "PATH=/")):
        plant_process(tmp_path / "proc", pid)
        stat = (tmp_path / f"proc/{pid}/stat").read_text().replace(" 0 1 0 ", f" 0 {pid} 0 ")
        environ = f"SLURM_JOB_ID=5\0{step}"
        files = {"cgroup": "0::/\n", "environ": environ, "stat": stat, "statm": "9 3 1 9 0 9 0"}
        plant(tmp_path, {f"proc/{pid}/{name}": text for name, text in files.items()})
    rows = list(source.read(instant(0)))
    used = {row.values["step"]: row.values["cpu_seconds"] for row in rows if row.table == "owner_steps"}
    assert used == {"0": 0.6, "1": 1.23}
    (job,) = (row.values for row in rows if row.table == "owner_samples")
    page = os.sysconf("SC_PAGE_SIZE")
    assert job["cpu_seconds"] == pytest.approx(2.46)
    assert job["memory_used_bytes"] == 8 * page


def test_an_agent_within_a_job_reports_this_job_alone(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source, only_job="4712")
    assert read(source, 0, "owners") == {}


def test_what_is_no_job_is_reported_from_some_cpu_time_on(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source, only_job=None)
    plant_process(tmp_path / "proc", 50)
    group = "sys/fs/cgroup/system.slice/a.service/cpu.stat"
    plant(tmp_path, {"proc/50/cgroup": "0::/system.slice/a.service\n", group: "usage_usec 5000000\n"})

    def jobs(seconds: float) -> set[Value]:
        return {reading.values["job"] for reading in source.read(instant(seconds)) if reading.table == "owners"}

    assert jobs(0) == {"4700_3"}
    plant(tmp_path, {group: "usage_usec 14000000\n"})
    assert "a.service" not in jobs(60)
    plant(tmp_path, {group: "usage_usec 25000000\n"})
    assert "a.service" in jobs(120)


def plant_docker(tmp_path: Path, pid: int, **files: str) -> None:
    """Add a process of a container, with files of its folder in /proc."""
    plant_process(tmp_path / "proc", pid)
    planted = {f"proc/{pid}/{name}": text for name, text in files.items()}
    plant(tmp_path, {f"proc/{pid}/cgroup": f"0::/system.slice/docker-{CONTAINER}.scope\n", **planted})


def test_variables_that_anyone_can_set_do_no_harm(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source)
    forged = {
        "SLURM_JOB_ID": "47;true",
        "SLURM_CPUS_ON_NODE": "9" * 5000,
        "SLURM_MEM_PER_NODE": "9" * 18,
        "SLURM_JOB_ACCOUNT": "a" * 5000,
        "SLURM_JOB_USER": "alice",
    }
    variables = "\0".join(f"{name}={value}" for name, value in forged.items())
    plant(tmp_path, {"proc/47/environ": variables})
    plant_process(tmp_path / "proc", 50)
    plant(tmp_path, {"proc/50/cgroup": "0::/user.slice/session-3.scope\n", "proc/50/environ": variables})
    own = read(source, 0, "owners")[None]
    assert [own[name] for name in ("job", "held_cores", "memory_held_bytes")] == ["4711", None, None]
    assert len(str(own["account"])) == 300


def test_the_node_s_name_of_a_user_counts_before_a_variable(
    tmp_path: Path, open_source: OpenSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = open_job(tmp_path, open_source)
    monkeypatch.setattr("gpuagent.sources.owners._uid_of", lambda _proc, _pid: pwd.getpwnam("nobody").pw_uid)
    assert read(source, 0, "owners")[None]["user_name"] == "nobody"


def test_a_job_begins_with_its_first_process(tmp_path: Path, open_source: OpenSource) -> None:
    source, _ = open_job(tmp_path, open_source)
    plant(tmp_path, {"proc/uptime": "1000.00 0.00\n"})
    group = (tmp_path / "proc/47/cgroup").read_text()
    for pid in range(60, 64):
        plant_process(tmp_path / "proc", pid)
        stat = (tmp_path / f"proc/{pid}/stat").read_text().replace(" 77 ", f" {pid if pid == 62 else 5000} ")
        plant(tmp_path, {f"proc/{pid}/cgroup": group, f"proc/{pid}/stat": stat})
    started = read(source, 0, "owners")[None]["started_at"]
    ticks = os.sysconf("SC_CLK_TCK")
    assert started == instant(0).unix_nano - round((1000 - 62 / ticks) * 1e9)


def test_a_process_of_another_job_makes_energy_unknown(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source, only_job="4711")
    plant_docker(tmp_path, 50)
    holders.note_processes(FIRST, {47: 1000, 50: 3000}, {47: 30.0, 50: 60.0})
    for seconds in (0, 5, 10):
        holders.energy_joules[FIRST] = 100.0 + seconds
        samples = read(source, seconds, "owner_samples")
    assert samples[key(FIRST)]["energy_joules"] is None


def test_a_process_that_becomes_its_program_is_described_anew(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    plant_docker(tmp_path, 50, cmdline="runc\0init\0")
    holders.note_processes(FIRST, {47: 1}, {})
    read(source, 0, "owners")
    variables = f"NVIDIA_VISIBLE_DEVICES={SECOND}"
    plant(tmp_path, {"proc/50/cmdline": "train.py\0", "proc/50/environ": variables})
    rows = [reading.values for reading in source.read(instant(1)) if reading.table == "owners"]
    (own,) = (row for row in rows if row["kind"] == "docker" and row.get("device_id") is None)
    assert json.loads(str(own["command"])) == ["train.py"]
    assert {row.get("device_id") for row in rows if row["kind"] == "docker"} == {None, key(SECOND)}


def test_a_pod_is_described_by_the_container_with_its_gpus(
    tmp_path: Path, open_source: OpenSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = open_job(tmp_path, open_source)
    monkeypatch.setattr("gpuagent.sources.owners._uid_of", lambda _proc, pid: 65535 if pid == 50 else 4321)
    commands = {50: "/pause", 51: "proxy", 52: "train.py"}
    for pid, command in commands.items():
        plant_process(tmp_path / "proc", pid)
        plant(tmp_path, {f"proc/{pid}/cgroup": f"0::/kubepods/pod{UID}/{CONTAINER}\n", f"proc/{pid}/cmdline": command})
    plant(tmp_path, {"proc/52/environ": f"NVIDIA_VISIBLE_DEVICES={FIRST}"})
    rows = [reading.values for reading in source.read(instant(0)) if reading.table == "owners"]
    pod = [row for row in rows if row["kind"] == "pod"]
    assert {row.get("device_id") for row in pod} == {None, key(FIRST)}
    assert json.loads(str(pod[0]["command"])) != ["/pause"]
    assert pod[0]["user_name"] == "4321"


def test_without_permission_a_job_keeps_its_first_command(
    tmp_path: Path, open_source: OpenSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = open_job(tmp_path, open_source)
    monkeypatch.setattr("gpuagent.sources.owners._uid_of", lambda _proc, pid: 0 if pid == 40 else 4321)
    group = (tmp_path / "proc/47/cgroup").read_text()
    (tmp_path / "proc/47/environ").unlink()
    plant_process(tmp_path / "proc", 40)
    plant(tmp_path, {"proc/40/cgroup": group, "proc/40/cmdline": "slurmstepd: [4711.batch]"})
    own = read(source, 0, "owners")[None]
    assert (own["job"], own["user_name"], own["title"]) == ("4711", "4321", None)
    assert json.loads(str(own["command"]))[0] == "train.py"
    plant_process(tmp_path / "proc", 60)
    plant(tmp_path, {"proc/60/cgroup": group, "proc/60/cmdline": "sleep\x001"})
    read(source, 1, "owners")
    assert json.loads(str(read(source, 70, "owners")[None]["command"]))[0] == "train.py"


def test_a_gpu_that_is_first_used_late_is_recorded_at_once(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    plant(tmp_path, {"proc/47/environ": "SLURM_JOB_ID=4711"})
    for seconds in (0, 60, 180):
        assert set(read(source, seconds, "owners")) == {None}
    holders.note_processes(SECOND, {47: 1000}, {})
    assert key(SECOND) in read(source, 190, "owners")


def test_a_held_gpu_whose_processes_are_not_listed_is_not_known_to_be_idle(
    tmp_path: Path, open_source: OpenSource
) -> None:
    source, _ = open_job(tmp_path, open_source)
    for seconds in range(0, 1000, 5):
        samples = read(source, seconds, "owner_samples")
    assert [samples[key(FIRST)][name] for name in ("sm_percent", "gpu_seconds", "idle_now_seconds")] == [None] * 3
