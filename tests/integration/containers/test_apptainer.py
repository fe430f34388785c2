"""Apptainer itself: builds on local bases, limits, and a user who is not root."""

import functools
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.containers import Runtime, fakeroot_options, find_apptainer, need_fakeroot, on
from tests.support.images import make_tiny_base
from tests.support.programs import found
from tests.support.servers import BIN, Node, until

pytestmark = pytest.mark.slow


@pytest.fixture
def node(sharing: Node) -> Node:
    return sharing


RECIPE = """
Bootstrap: docker
From: anything
%files
    wheels/constraints.txt /constraints.txt
%post
    {last}
"""


@pytest.fixture
def builds(node: Node) -> Node:
    """A node where both names of Apptainer build as an ordinary user would, in a folder of its own."""
    need_fakeroot()
    (node.folder / "tmp").mkdir()
    node.environment["TMPDIR"] = str(node.folder / "tmp")
    for name in ("apptainer", "singularity"):
        node.environment[f"GPUAGENT_{name.upper()}"] = str(find_apptainer(name))
        node.environment[f"GPUAGENT_{name.upper()}_BUILD_ARGS"] = fakeroot_options()
    make_tiny_base(node.folder / "base")
    return node


def recipe(node: Node, last: str) -> str:
    path = node.folder / "Recipe.def"
    path.write_text(RECIPE.format(last=last))
    return str(path)


def test_an_image_is_built_on_a_folder_and_another_on_the_image(builds: Node) -> None:
    build = ("gpuagent", "image", "build")
    first = ("--recipe", recipe(builds, "echo first >/made"), "--base", "base", "--tag", "first.sif", "--json")
    made = json.loads(builds.run(*build, "apptainer", *first).stdout)
    assert made["build_seconds"] > 0
    assert made["digest"].startswith("sif:")
    second = ("--recipe", recipe(builds, "echo second >>/made"), "--base", "first.sif", "--tag", "second.sif")
    builds.run(*build, "singularity", *second)
    show = ("sh", "-c", "while read line; do echo $line; done </made; test -s /constraints.txt")
    done = builds.run("gpuagent", "run", "--environment", "singularity:second.sif", "--", *show)
    assert done.stdout == "first\nsecond\n"
    taken = builds.run(*build, "apptainer", *second, code=2)
    assert "exists already" in taken.stderr
    missing = builds.run(*build, "apptainer", "--base", "missing.sif", code=2)
    assert (
        missing.stderr == "gpuagent: there is no file or directory 'missing.sif' to begin with; name another --base\n"
    )


def test_a_failed_or_interrupted_build_leaves_nothing(builds: Node) -> None:
    build = ("gpuagent", "image", "build", "apptainer", "--base", "base", "--tag", "broken.sif", "--recipe")
    done = builds.run(*build, recipe(builds, "false"), code=1)
    assert "apptainer failed with" in done.stderr.splitlines()[-1]
    process = builds.start(*build, recipe(builds, "echo last; sleep 600"), log="log")
    until(lambda: "+ sleep 600" in (builds.folder / "log").read_text(), "the recipe's last step")
    assert builds.stop(process, signal.SIGINT) == 130
    assert not list(builds.folder.glob("*broken*")) + list(builds.folder.glob(".*broken*"))
    assert not list((builds.folder / "tmp").iterdir())


LIMITED = """
SELECT max(cpu_limit_cores) AS cpus, max(memory_limit_bytes) AS bytes FROM cgroup_samples
WHERE run_id IS NOT NULL AND path LIKE '%apptainer%'
"""


@on("apptainer")
def test_a_limited_program_is_sampled_in_its_group_which_goes_with_it(node: Node, runtime: Runtime) -> None:
    if os.getuid() != 0:
        pytest.skip("Apptainer limits a user's programs by systemd only; run as root")
    limits = ("--cpus", "0.5", "--memory", "256M")
    run = node.start("gpuagent", "run", "--environment", runtime.environment, *limits, "--", "sleep", "600", log="log")
    until(lambda: node.ask(LIMITED) == [{"cpus": 0.5, "bytes": 256 * 2**20}], "a sample of both limits")
    (group,) = node.ask("SELECT DISTINCT path FROM cgroup_samples WHERE path LIKE '%apptainer%'")
    assert list(Path("/sys/fs/cgroup").glob(f"*{group['path']}"))
    assert node.stop(run, signal.SIGINT) == 130
    assert not list(Path("/sys/fs/cgroup").glob(f"*{group['path']}"))


@on("apptainer")
def test_a_user_who_is_not_root_runs_images_and_is_refused_limits_before_the_run(node: Node, runtime: Runtime) -> None:
    as_user = [found("unshare"), "--user", "--map-user=1000", "--map-group=1000"] if os.getuid() == 0 else []
    node.without_collector()
    run = (*as_user, str(BIN / "gpuagent"), "run", "--environment", runtime.environment)
    name = "import os, sys; print(os.getuid()); open(os.environ['GPUAGENT_RUN_DIR'] + '/mine', 'w'); sys.exit(3)"
    done = node.run(*run, "--", "python3", "-c", name, code=3)
    assert done.stdout == f"{1000 if as_user else os.getuid()}\n"
    assert "exit code 3" in done.stderr
    (folder,) = (node.folder / "spool" / "runs").iterdir()
    assert (folder / "mine").exists()
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        refused = node.run(*run, "--memory", "1G", "--", "true", code=2)
        assert "groups of version 2" in refused.stderr


@on("apptainer")
def test_a_users_program_is_sampled_and_an_interrupt_or_a_killed_agent_ends_it(node: Node, runtime: Runtime) -> None:
    as_user = [found("unshare"), "--user", "--map-user=1000", "--map-group=1000"] if os.getuid() == 0 else []
    marker = f"import time; time.sleep(600)  # {node.folder}"

    def programs() -> list[int]:
        every = psutil.process_iter(["cmdline"])
        return [process.pid for process in every if (process.info["cmdline"] or [])[1:] == ["-c", marker]]

    for number in (signal.SIGINT, signal.SIGKILL):
        words = [
            *as_user,
            str(BIN / "gpuagent"),
            "run",
            "--environment",
            runtime.environment,
            "--label",
            f"by={number}",
        ]
        run = node.start(*words, "--", "python3", "-c", marker, log="log")
        label = f"labels->>'by' = '{number}'"
        sampled = f"SELECT 1 FROM process_samples JOIN runs USING (run_id) WHERE {label} LIMIT 1"
        until(functools.partial(node.ask, sampled), "a sample of the program")
        # The first samples can be of Apptainer alone.
        assert until(programs, "the program")
        node.stop(run, number)
        until(lambda: not programs(), "the program's end")
