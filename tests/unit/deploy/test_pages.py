"""The commands of pages in docs/deploy: make has them, or tests in a cluster run them."""

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.kubernetes.composition import overlays

ROOT = Path(__file__).parents[3]
CLUSTER_TESTS = ROOT / "tests/integration/cluster"
PAGES = ("kubernetes.md", "openshift.md", "power.md")

# What no test runs, and why.
UNTRIED = {
    "kubectl kustomize deploy/kubernetes/jobs/workload | sed 's|image: |image: registry.example.org/gpuagent/|' | "
    "kubectl -n team-a apply -f -": "a test runs jobs/torchrun, which is made of it",
    "oc new-project gpuagent": "projects are OpenShift's own",
    "oc registry login": "no registry",
    "oc policy add-role-to-user system:image-puller system:serviceaccount:gpuagent:gpuagent-agent -n OTHER": (
        "no registry"
    ),
    "oc -n nvidia-gpu-operator get pods": "no GPU operator",
}


def commands(page: str) -> Iterator[str]:
    """Yield the commands of blocks, line by line, and those between backticks; without comments."""
    text = (ROOT / "docs/deploy" / page).read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for line in "\n".join(blocks).splitlines():
        yield line.partition("   #")[0].strip()
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", outside)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_make_has_a_target_variables_and_an_overlay_that_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    found = [each for each in commands(page) if each.startswith("make ")]
    assert found
    for command in found:
        words = command.split(" && ")[0].split()
        assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), command
        for name, value in (word.split("=", 1) for word in words[2:] if "=" in word):
            assert re.search(rf"\b{name}\b", makefile), command
            assert name != "OVERLAY" or value in overlays(), command


def test_tests_in_a_cluster_run_every_command_of_kubectl_and_oc() -> None:
    run = {
        node.value.partition("   #")[0].strip()
        for path in CLUSTER_TESTS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    run |= {line.partition("   #")[0].strip() for text in run for line in text.splitlines()}
    # A command with a place to fill in has "…".
    found = {
        each for page in PAGES for each in commands(page) if re.match(r"(\(umask 077; )?(kubectl|oc) \S+ \S", each)
    }
    missing = {each for each in found if "…" not in each} - run - UNTRIED.keys()
    assert not {each for each in missing if re.sub(r"^oc ", "kubectl ", each) not in run}
    assert not UNTRIED.keys() - found, "no page has these any more"


@pytest.mark.needs("make")
def test_make_names_the_page_of_a_processor_that_the_index_has_no_builds_for(tmp_path: Path) -> None:
    (tmp_path / "uname").write_text("#!/bin/sh\necho ppc64le\n")
    (tmp_path / "uname").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for target in ("install", "install-agent"):
        command = ["make", target, f"VENV={tmp_path}/venv", f"PREFIX={tmp_path}/prefix"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        first = done.stderr.splitlines()[0]
        assert "ppc64le" in first
        assert (ROOT / first.split()[-1]).is_file()
        assert not (tmp_path / "venv").exists()
