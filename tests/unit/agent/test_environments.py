import os
import re
import struct
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gpuagent import environments
from gpuagent.environments import ENVIRONMENTS, engines, find_environment, split_name
from gpuagent.environments.apptainer import read_sif
from gpuagent.environments.engines import Podman
from gpuagent.environments.environment import (
    Ending,
    EnvironmentUnavailableError,
    Image,
    ImageUnavailableError,
    Job,
    Span,
)
from gpuagent.environments.slurm import find_step
from gpuagent.environments.support import common
from gpuagent.environments.support.common import check_machine, elf_machine, machine_of
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import NO_LIMITS, CpuChange, Limits

CONTRACT = {"__init__", "environment"}
PROGRAM = ("python3", "-m", "gpuagent_workloads", "run", "mnist")


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with a GPU and no program of a container runtime on its PATH."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "GPUAGENT_DEBUG", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(common, "user_name", lambda: "ada")
    for module in ("apptainer", "engines", "kubernetes"):
        monkeypatch.setattr(f"gpuagent.environments.{module}.has_nvidia_gpu", lambda: True)
    return tmp_path


def job(folder: Path, image: str = "/images/torch.sif", start: Path | None = None, limits: Limits = NO_LIMITS) -> Job:
    return Job(
        run_id="mnist-1",
        program=PROGRAM,
        image=Image(name=image, digest=None, architecture=None, size_bytes=None),
        run_directory=folder / "run",
        working_directory=start,
        data=[folder / "data"],
        limits=limits,
    )


def install(node: Path, *programs: str, script: str = "") -> None:
    """Put programs on the node's PATH."""
    (node / "bin").mkdir(exist_ok=True)
    for program in programs:
        (node / "bin" / program).write_text(f"#!/bin/sh\n{script}\n")
        (node / "bin" / program).chmod(0o755)


def test_every_file_of_the_folder_is_listed() -> None:
    files = {path.stem for path in Path(environments.__file__).parent.glob("*.py")} - CONTRACT
    assert {type(environment).__module__.rpartition(".")[2] for environment in ENVIRONMENTS} == files


def test_names_are_split_and_unknown_and_blank_ones_refused() -> None:
    assert find_environment("").name == "bare"
    with pytest.raises(MisuseError, match="did you mean 'docker'"):
        find_environment("dokcer")
    for blank in ("", ":image"):
        with pytest.raises(MisuseError, match="names no environment"):
            split_name(blank)
    assert split_name("apptainer:torch.sif") == ("apptainer", str(Path.cwd() / "torch.sif"))
    assert split_name("docker:registry:5000/torch:2.5") == ("docker", "registry:5000/torch:2.5")
    assert split_name("slurm+apptainer:torch.sif") == ("slurm+apptainer", str(Path.cwd() / "torch.sif"))
    assert split_name("bare") == ("bare", "")


@pytest.mark.parametrize("name", ["apptainer", "singularity"])
def test_the_command_line_of_apptainer_and_singularity(node: Path, name: str) -> None:
    launch = find_environment(name).launch(job(node))
    assert list(launch.command) == [
        *(name, "exec", "--cleanenv", f"--home={node}/cache/gpuagent/containers/{name}"),
        *("--env=GPUAGENT_RUN_ID=mnist-1", f"--env=GPUAGENT_RUN_DIR={node}/run", "--env=USER=ada"),
        *(f"--bind={node}/run", f"--bind={node}/data:{node}/data:ro", f"--pwd={node}/run", "--nv"),
        *("/images/torch.sif", *PROGRAM),
    ]
    assert launch.afterwards == ()


def test_the_command_line_of_docker(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAGENT_DOCKER", "docker --context lab")
    monkeypatch.setenv("GPUAGENT_DOCKER_ARGS", "--memory 8g --ipc=host")
    launch = find_environment("docker").launch(job(node, "torch:2.5", Path("/")))
    cache = f"{node}/cache/gpuagent/containers/docker"
    assert list(launch.command) == [
        *("docker", "--context", "lab", "run", "--name", "gpuagent-mnist-1", "--init", "--pull", "never"),
        *("--log-driver", "none", "--user", f"{os.getuid()}:{os.getgid()}"),
        *("--env=GPUAGENT_RUN_ID=mnist-1", f"--env=GPUAGENT_RUN_DIR={node}/run", f"--env=HOME={cache}"),
        *("--env=USER=ada", "--workdir=/"),
        f"--mount=type=bind,source={cache},target={cache}",
        f"--mount=type=bind,source={node}/run,target={node}/run",
        f"--mount=type=bind,source={node}/data,target={node}/data,readonly",
        *("--gpus", "all", "--memory", "8g", "--ipc=host", "--entrypoint=python3", "torch:2.5", *PROGRAM[1:]),
    ]
    assert launch.afterwards[-1] == ["docker", "--context", "lab", "rm", "--force", "--volumes", "gpuagent-mnist-1"]


LIMITS = Limits(cpus=2, memory_bytes=8 * 2**30)


@pytest.mark.parametrize("name", ["docker", "podman", "apptainer", "singularity"])
def test_runtimes_get_limits_that_engines_can_change_with_swap_counted_as_memory(node: Path, name: str) -> None:
    launch = find_environment(name).launch(job(node, limits=LIMITS))
    limits = ["--cpus=2", "--memory=8589934592", "--memory-swap=8589934592"]
    assert [word for word in launch.command if word.startswith(("--cpus", "--memory"))] == limits
    if name in ("docker", "podman"):
        assert launch.passes_signals
        assert launch.change_cpus
        assert launch.change_cpus(8.0) == [name, "update", "--cpus=8", "gpuagent-mnist-1"]


def test_apptainer_refuses_limits_that_it_cannot_enforce(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apptainer = find_environment("apptainer")
    monkeypatch.setattr("gpuagent.environments.apptainer._CGROUPS_2", tmp_path / "cgroup.controllers")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MisuseError, match="version 2"):
        apptainer.check_limits(LIMITS)
    apptainer.check_limits(Limits())
    (tmp_path / "cgroup.controllers").touch()
    apptainer.check_limits(LIMITS)
    (tmp_path / "cgroup.controllers").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    apptainer.check_limits(LIMITS)


@pytest.mark.parametrize("name", ["bare", "charliecloud", "apptainer", "slurm", "slurm+apptainer", "kubernetes"])
def test_other_environments_refuse_to_change_cpus(name: str) -> None:
    with pytest.raises(MisuseError, match="running program") as caught:
        find_environment(name).check_limits(Limits(changes=(CpuChange(cpus=8, after_seconds=60),)))
    assert str(caught.value).startswith(name)


def test_a_process_of_the_node_is_bound_to_the_first_cpus(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3, 1, 7}, raising=False)
    install(node, "python3", "taskset")
    bare = find_environment("bare")
    bare.check_limits(Limits(cpus=2))
    assert list(bare.launch(job(node, limits=Limits(cpus=2))).command) == ["taskset", "--cpu-list", "1,3", *PROGRAM]
    with pytest.raises(MisuseError, match="use 3 CPUs"):
        bare.check_limits(Limits(cpus=4))
    (node / "bin" / "taskset").unlink()
    with pytest.raises(EnvironmentUnavailableError, match="taskset"):
        bare.check_limits(Limits(cpus=1))


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/no/such/program", "this node has no program '/no/such/program'"),
        ("/etc/passwd", "'/etc/passwd' is not an executable file; make it one with chmod"),
        ("./plain", "'./plain' is not an executable file"),
        ("./train.py", "'./train.py' is not an executable file; did you mean: python3 ./train.py"),
        ("train.py", "this node has no program 'train.py'; did you mean: python3 train.py"),
    ],
)
def test_a_program_that_cannot_be_started_is_refused_with_the_reason(tmp_path: Path, program: str, words: str) -> None:
    (tmp_path / "plain").touch()
    (tmp_path / "train.py").touch()
    install(tmp_path, "python3")
    with pytest.raises(MisuseError, match=words):
        find_environment("bare").launch(replace(job(tmp_path, start=tmp_path), program=(program,)))


def test_a_script_that_is_not_there_is_refused_before_it_fails(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    install(tmp_path, "python3")
    bare = find_environment("bare")
    asked = replace(job(tmp_path, start=tmp_path), program=("python3", "trian.py", "--x"))
    with pytest.raises(MisuseError, match=r"no file 'trian.py' in .*; did you mean train.py"):
        bare.launch(asked)
    (tmp_path / "below").mkdir()
    below = replace(job(tmp_path, start=tmp_path / "below"), program=("python3", "../trian.py"))
    with pytest.raises(MisuseError, match=r"did you mean \.\./train\.py"):
        bare.launch(below)
    for program in ("python3", "train.py"), ("python3", "-c", "trian.py"), ("python3", f"{'x' * 300}.py"):
        assert list(bare.launch(replace(asked, program=program)).command) == [*program]


def test_a_program_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "own")
    monkeypatch.chdir(tmp_path / "bin")
    # As an experiment's check has it, before the first run.
    started = find_environment("bare").launch(replace(job(tmp_path, start=Path()), program=("./own",)))
    assert list(started.command) == ["./own"]


@pytest.mark.parametrize("name", ["bare", "charliecloud"])
def test_a_process_of_the_node_has_whole_cpus_and_no_memory_limit(name: str) -> None:
    with pytest.raises(MisuseError, match=f"{name} cannot limit memory"):
        find_environment(name).check_limits(Limits(memory_bytes=1))
    with pytest.raises(MisuseError, match="whole CPUs only"):
        find_environment(name).check_limits(Limits(cpus=0.5))


def test_podman_asks_for_gpus_by_cdi_unless_site_options_do(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    podman = find_environment("podman")
    assert "nvidia.com/gpu=all" in podman.launch(job(node)).command
    monkeypatch.setenv("GPUAGENT_PODMAN_ARGS", "--device nvidia.com/gpu=0")
    command = podman.launch(job(node)).command
    assert ("nvidia.com/gpu=all" in command, "nvidia.com/gpu=0" in command) == (False, True)
    monkeypatch.setenv("GPUAGENT_PODMAN_ARGS", "--label 'open")
    with pytest.raises(GpuAgentError, match="GPUAGENT_PODMAN_ARGS"):
        podman.launch(job(node))


@pytest.mark.parametrize("options", ["--device /dev/nvidia0 --device /dev/nvidiactl", "--device=/dev/nvidia0"])
def test_docker_asks_for_no_gpus_where_options_do(node: Path, monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    monkeypatch.setenv("GPUAGENT_DOCKER_ARGS", options)
    assert "--gpus" not in find_environment("docker").launch(job(node)).command


@pytest.mark.parametrize(
    "site",
    ["--network=host --ipc=host --label x", "--network host --ipc host --label x", "--net=host --ipc=host --label x"],
)
def test_a_runs_own_network_replaces_that_of_the_site(node: Path, monkeypatch: pytest.MonkeyPatch, site: str) -> None:
    monkeypatch.setenv("GPUAGENT_PODMAN_ARGS", site)
    podman = find_environment("podman")
    command = podman.launch(replace(job(node), options=("--network=none",))).command
    assert [word for word in command if word.startswith("--net")] == ["--network=none"]
    ipc = site.split()[site.split().index("--label") - 1]
    assert (ipc in command, "--label" in command) == (True, True)


def test_a_path_with_a_comma_is_mounted_whole_and_a_container_has_a_name_that_engines_take() -> None:
    assert engines.mount_option(Path("/a,b")) == '--mount=type=bind,"source=/a,b","target=/a,b"'
    assert engines.container_name("größe.sh-1a") == "gpuagent-gr__e.sh-1a"


@pytest.mark.parametrize("name", [one.name for one in ENVIRONMENTS if one.name != "bare"])
def test_a_missing_runtime_is_reported_with_a_remedy(name: str) -> None:
    with pytest.raises(EnvironmentUnavailableError, match="no program") as caught:
        find_environment(name).check()
    assert name.partition("+")[0] in caught.value.remedy.lower()


@pytest.mark.parametrize(
    ("said", "remedy"), [("permission denied while trying", "group docker"), ("Cannot connect", "systemctl start")]
)
def test_a_silent_daemon_is_reported_with_a_remedy(node: Path, said: str, remedy: str) -> None:
    install(node, "docker", script=f"echo '{said}' >&2; exit 1")
    with pytest.raises(EnvironmentUnavailableError, match=said) as caught:
        find_environment("docker").check()
    assert remedy in caught.value.remedy


def test_podman_without_catatonit_is_reported_with_the_package(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent.environments.engines._HELPERS", str(node / "helpers"))
    monkeypatch.setenv("CONTAINERS_CONF", str(node / "containers.conf"))
    install(node, "podman")
    with pytest.raises(EnvironmentUnavailableError, match="podman lacks catatonit") as caught:
        Podman().check()
    assert "apt-get install catatonit" in caught.value.remedy
    (node / "containers.conf").write_text('[containers]\n  init_path = "/opt/tini"\n')
    Podman().check()
    (node / "containers.conf").unlink()
    install(node, "catatonit")
    Podman().check()
    (node / "bin" / "catatonit").unlink()
    monkeypatch.setenv("GPUAGENT_PODMAN_ARGS", "--init-path=/opt/tini")
    Podman().check()


@pytest.mark.parametrize("image", [None, "", "--privileged", "a\nb"])
@pytest.mark.parametrize("name", ["docker", "podman", "apptainer", "charliecloud"])
def test_an_invalid_name_of_an_image_is_refused(name: str, image: str | None) -> None:
    with pytest.raises(MisuseError, match="image"):
        find_environment(name).find_image(image)


@pytest.mark.parametrize(
    ("name", "image", "remedy"),
    [
        ("docker", "gpuagent-workloads", "run: gpuagent image build docker ("),
        ("podman", "registry.example/torch", "run: podman pull registry.example/torch ("),
        ("apptainer", "/no/such.sif", "`gpuagent image build apptainer --tag /no/such.sif` makes it"),
        ("charliecloud", "/no/such", "`gpuagent image build charliecloud --tag /no/such` makes one"),
    ],
)
def test_a_missing_image_is_reported_with_the_command_that_makes_it(
    monkeypatch: pytest.MonkeyPatch, name: str, image: str, remedy: str
) -> None:
    monkeypatch.setenv(f"GPUAGENT_{name.upper()}", "false")
    with pytest.raises(ImageUnavailableError, match=re.escape(remedy)):
        find_environment(name).find_image(image)


def test_an_image_for_another_architecture_is_refused_unless_the_kernel_runs_it() -> None:
    image, old = (
        Image(name="torch", digest=None, architecture=machine_of(name), size_bytes=None) for name in ("arm64", "386")
    )
    with pytest.raises(MisuseError, match="node is x86_64"):
        check_machine(image, "x86_64")
    assert check_machine(image, "aarch64") is image
    assert check_machine(old, "x86_64") is old


def test_the_headers_of_programs_and_sif_files_have_architecture_and_identity(node: Path) -> None:
    program, image = node / "sh", node / "torch.sif"
    program.write_bytes(b"\x7fELF\x02\x01" + bytes(12) + struct.pack("<H", 183))
    assert elf_machine(program) == "aarch64"
    program.write_text("#!/bin/sh")
    assert elf_machine(program) is elf_machine(node / "missing") is None
    identity = uuid.UUID("12345678-1234-5678-1234-567812345678")
    image.write_bytes(bytes(32) + b"SIF_MAGIC\0" + b"01\0" + b"04\0" + identity.bytes + bytes(500))
    size_bytes = image.stat().st_size
    assert read_sif(image) == Image(
        name=str(image), digest=f"sif:{identity}", architecture="aarch64", size_bytes=size_bytes
    )
    image.write_bytes(b"short")
    with pytest.raises(MisuseError, match=r"no \.sif file"):
        read_sif(image)


def test_charliecloud_mounts_all_run_directories_at_once_and_makes_none_outside_its_image(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, charliecloud = node / "image", find_environment("charliecloud")
    (image / "bin").mkdir(parents=True)
    (image / "scratch").symlink_to(node)
    with pytest.raises(GpuAgentError, match="leads out of"):
        charliecloud.launch(job(Path("/scratch/gpuagent"), str(image)))
    assert not (node / "gpuagent").exists()
    monkeypatch.setattr("gpuagent.environments.charliecloud._SHARED", Path("/shared"))
    assert f"--bind={node}/runs" in charliecloud.launch(job(node / "runs", str(image))).command
    assert (image / node.relative_to("/") / "runs").is_dir()


def test_the_command_line_of_slurm(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAGENT_SLURM_ARGS", "--gres=gpu:1")
    launch = find_environment("slurm").launch(job(node))
    name = os.uname().nodename.partition(".")[0]
    assert list(launch.command) == [
        *("srun", "--job-name=gpuagent-mnist-1", "--nodes=1", "--ntasks=1", "--input=none"),
        *(f"--nodelist={name}", f"--chdir={node}/run", "--gres=gpu:1", *PROGRAM),
    ]
    assert list(launch.afterwards) == [["scancel", "--quiet", "--name=gpuagent-mnist-1"]]
    command = find_environment("slurm").launch(job(node, limits=LIMITS)).command
    assert command[command.index("--cpus-per-task=2") + 1] == "--mem=8388608K"
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert list(find_environment("slurm").launch(job(node)).afterwards) == []


def test_the_times_of_a_task_of_slurm_are_noted_in_its_run_directory_alone(node: Path) -> None:
    slurm, run = find_environment("slurm"), node / "run"
    run.mkdir()
    assert not [option for option in slurm.launch(job(node)).command if option.startswith("--task")]
    assert list(run.iterdir()) == []
    slurm.prepare(run)
    scripts = [run / f"slurm-{name}" for name in ("prolog", "epilog")]
    command = slurm.launch(job(node)).command
    assert [f"--task-prolog={scripts[0]}", f"--task-epilog={scripts[1]}"] == command[7:9]
    subprocess.run([scripts[0]], check=True, env={"PATH": os.defpath})
    # A task that is killed has no end of its own.
    span = slurm.find_span(run)
    assert span.started_unix_nano is not None
    assert span.ended_unix_nano is None
    subprocess.run([scripts[1]], check=True, env={"PATH": os.defpath})
    assert (slurm.find_span(run).ended_unix_nano or 0) >= span.started_unix_nano


def test_a_container_within_a_job_of_slurm(node: Path) -> None:
    both = find_environment("slurm+apptainer")
    launch = both.launch(job(node, limits=LIMITS))
    place = list(launch.command).index("apptainer")
    assert launch.command[place - 2 : place] == ["--cpus-per-task=2", "--mem=8388608K"]
    assert launch.command[place:] == find_environment("apptainer").launch(job(node)).command
    assert launch.afterwards == find_environment("slurm").launch(job(node)).afterwards
    # Neighbours of a job are in no job.
    assert both.launch_beside(job(node)).command == find_environment("apptainer").launch(job(node)).command
    assert find_environment("slurm").launch_beside(job(node)).command == PROGRAM
    assert both.exit_code(137) == -9


def process(pid: int, name: str, *parents: SimpleNamespace, run_id: str = "") -> SimpleNamespace:
    """Return a process with its name, its parents, and the run in its environment."""
    variables = {"GPUAGENT_RUN_ID": run_id}
    return SimpleNamespace(pid=pid, name=lambda: name, parents=lambda: list(parents), environ=lambda: variables)


@pytest.mark.parametrize("is_in_a_job", [False, True])
def test_the_step_of_a_run_is_neither_its_srun_nor_the_agents_own(
    monkeypatch: pytest.MonkeyPatch, is_in_a_job: bool
) -> None:
    own_step = process(10, "slurmstepd")
    agent = process(11, "gpuagent", *([own_step] if is_in_a_job else []))
    step = process(20, "slurmstepd")
    srun = process(12, "srun", agent, *([own_step] if is_in_a_job else []), run_id="mnist-1")
    program = process(21, "python3", step, run_id="mnist-1")
    other = process(22, "other", step)
    monkeypatch.setattr(psutil, "process_iter", lambda: [own_step, agent, srun, step, other, program])
    assert find_step("mnist-1", agent=11) == 20
    assert find_step("mnist-2", agent=11) is None


OUT_OF_MEMORY = "its memory limit (64M) ran out, and the kernel ended it"
PROBABLY_OUT_OF_MEMORY = "ended by signal 9, probably because its memory limit (64M) ran out"


@pytest.mark.parametrize(
    ("name", "ending", "words"),
    [
        ("slurm", (137, "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", ""), OUT_OF_MEMORY),
        ("slurm", (137, "", ""), PROBABLY_OUT_OF_MEMORY),
        ("apptainer", (137, "", ""), PROBABLY_OUT_OF_MEMORY),
        ("podman", (137, "", "false\n"), PROBABLY_OUT_OF_MEMORY),
        ("slurm", (1, "srun: error: Unable to create step: none\n", ""), "slurm could not start it: Unable to create"),
        ("docker", (137, "", "true\n"), OUT_OF_MEMORY),
        ("docker", (125, "docker: no space left\n", "false\n"), "docker could not start it: docker: no space left"),
        ("docker", (125, "little\n\nUsage:  docker run\n\nRun 'docker run --help' for\n", ""), "start it: little"),
        ("podman", (125, "Error: too little\nSee 'podman run --help'\n", "false\n"), "start it: Error: too little"),
        ("podman", (127, "python3: not found\n", "false\n"), "the image cannot start the program: python3"),
        ("apptainer", (1, "python3: No module named gpuagent_workloads", ""), "pip install"),
        ("apptainer", (255, "INFO: a\nFATAL:   no squashfs\n", ""), "apptainer could not start it: no squashfs"),
        ("apptainer", (255, "the program's own words", ""), "None"),
        ("charliecloud", (1, "ch-run[1]: error: can't execve", ""), "charliecloud could not start it"),
    ],
)
def test_the_reason_of_a_failure_is_reported(name: str, ending: tuple[int, str, str], words: str) -> None:
    code, stderr, afterwards = ending
    ended = Ending(exit_code=code, stderr=stderr, afterwards=afterwards, memory_bytes=64 * 2**20)
    assert words in str(find_environment(name).explain(ended))


def test_an_unknown_memory_limit_has_no_value_and_no_limit_is_no_reason() -> None:
    docker, ended = find_environment("docker"), Ending(exit_code=137, stderr="", afterwards="true\n")
    assert "memory limit ran" in str(docker.explain(ended))
    assert docker.explain(Ending(exit_code=137, stderr="", afterwards="false\n")) is None


@pytest.mark.parametrize(("name", "code"), [("apptainer", -9), ("podman", 137), ("charliecloud", -9), ("bare", -9)])
def test_the_kernels_count_of_what_it_ended_makes_a_reason_probable(name: str, code: int) -> None:
    environment = find_environment(name)

    def explain(exit_code: int, memory_bytes: int | None, *, has_oom_kill: bool) -> str | None:
        return environment.explain(
            Ending(exit_code=exit_code, stderr="", afterwards="", memory_bytes=memory_bytes, has_oom_kill=has_oom_kill)
        )

    limit = "ended by signal 9, probably because its memory limit (1G) ran out"
    assert [explain(code, 2**30, has_oom_kill=known) for known in (True, False)] == [limit, limit]
    # The count is the node's: another process may be the one that the kernel ended.
    assert explain(code, None, has_oom_kill=True) == "ended by signal 9, probably because memory ran out"
    assert explain(code, None, has_oom_kill=False) is None
    child = "the kernel ended a process, probably because its memory limit (1G) ran out"
    assert [explain(1, 2**30, has_oom_kill=known) for known in (True, False)] == [child, None]
    assert explain(1, None, has_oom_kill=True) is None


def test_a_signal_in_a_container_has_a_negative_code() -> None:
    codes = {0: 0, 3: 3, 125: 125, 137: -9, 255: 255, -9: -9}
    assert {code: find_environment("podman").exit_code(code) for code in codes} == codes


@pytest.mark.parametrize(
    ("said", "span"),
    [
        # Docker 20.10, Podman 4.3 east of Greenwich; one that still ran; no engine.
        (
            'false "2026-11-26T10:46:28.5Z" "2026-11-26T10:46:29.000000012Z"\ngpuagent-mnist-1\n',
            Span(started_unix_nano=1795689988500000000, ended_unix_nano=1795689989000000012),
        ),
        (
            'true "2026-11-26T12:46:28.123456789+02:00" "2026-11-26T12:46:29+02:00"\n',
            Span(started_unix_nano=1795689988123456789, ended_unix_nano=1795689989000000000),
        ),
        (
            'false "2026-11-26T10:46:28Z" "0001-01-01T00:00:00Z"\n',
            Span(started_unix_nano=1795689988000000000, ended_unix_nano=-62135596800000000000),
        ),
        ('false "2026-13-26T10:46:28Z" "soon"\n', Span()),
        ("Cannot connect to the Docker daemon\n", Span()),
    ],
)
def test_the_times_of_a_container_are_those_of_its_engine(said: str, span: Span, tmp_path: Path) -> None:
    (tmp_path / "afterwards").write_text(said)
    assert find_environment("docker").find_span(tmp_path) == span
