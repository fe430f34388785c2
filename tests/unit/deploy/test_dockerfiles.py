"""What the project's recipes for images promise: pinned, labelled, not root, no compiler, no network address."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuagent.images.builders import BUILDERS, Builder
from gpuagent.images.recipe import Ingredients, build_arguments, find_recipe, takes, with_base, write_context
from gpuagent_common.errors import MisuseError

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
DOCKERFILES = sorted((DEPLOY / "docker").glob("*.Dockerfile"))
DEFINITIONS = sorted((DEPLOY / "apptainer").glob("*.def"))
RECIPES = [*DOCKERFILES, *DEFINITIONS, *(DEPLOY / "charliecloud").glob("*.Dockerfile")]
SECTIONS = {"files", "post", "environment", "runscript", "test", "labels"}
BASE = re.compile(r"^(?:ARG BASE=|FROM |From: )(?!\$)(\S+)", re.MULTILINE)


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return (instruction, rest) of a Dockerfile, continued lines joined."""
    text = re.sub(r"\\\n", " ", path.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines]


def named(paths: Sequence[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.name)


@named(RECIPES)
def test_the_base_is_pinned_and_a_plain_name(path: Path) -> None:
    (base,) = BASE.findall(path.read_text())
    name, _, tag = base.partition(":")
    assert re.fullmatch(r"\d+\.\d+\.\d+-slim-[a-z]+", tag)
    assert "/" not in name


@named(RECIPES)
def test_everything_comes_from_wheels_by_the_pinned_versions(path: Path) -> None:
    text = path.read_text()
    assert "--find-links /wheels --constraint /wheels/constraints.txt" in re.sub(r"\\\n\s+", "", text)
    assert "/wheels/gpuagent-*.whl" in text
    for word in ("latest", "apt-get", "curl", "wget", "://", "gcc", "ADD "):
        assert word not in text, word


@named(DOCKERFILES)
def test_an_image_is_labelled_not_root_and_without_the_stage_that_built_it(path: Path) -> None:
    found = instructions(path)
    names = [name for name, _ in found]
    last = len(names) - 1 - names[::-1].index("FROM")
    assert found[last] == ("FROM", "${BASE}")
    final = found[last:]
    labels = next(rest for name, rest in final if name == "LABEL")
    for label in ("title", "description", "version", "licenses"):
        assert f"org.opencontainers.image.{label}=" in labels
    assert "gpuagent.build=${BUILD}" in labels
    assert [rest for name, rest in final if name == "COPY"] == ["--from=build /opt/gpuagent /opt/gpuagent"]
    assert [rest for name, rest in final if name == "USER"] == ["65532:0"]
    assert not [name for name, rest in final if name == "RUN" and "pip" in rest]


@named(DOCKERFILES)
def test_services_have_health_checks_that_are_programs_and_workloads_say_that_they_have_none(path: Path) -> None:
    (check,) = [rest for name, rest in instructions(path) if name == "HEALTHCHECK"]
    if path.name.startswith("workloads"):
        assert check == "NONE"
        return
    program = json.loads(check[check.index("[") :])
    assert program[0] == "python3"
    compile(program[-1], "health check", "exec")


@named(DOCKERFILES)
def test_programs_are_lists_so_that_signals_reach_them(path: Path) -> None:
    for name, rest in instructions(path):
        if name in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list)


@named(DEFINITIONS)
def test_a_definition_file_has_known_sections_and_puts_its_programs_on_the_path(path: Path) -> None:
    found: dict[str, list[str]] = {"": []}
    for line in path.read_text().splitlines():
        if line.startswith("%"):
            found[line[1:].strip()] = []
        elif line.strip() and not line.startswith("#"):
            found[list(found)[-1]].append(line.strip())
    assert found.pop("")[0] == "Bootstrap: docker"
    assert set(found) == SECTIONS
    assert found["files"] == ["wheels /wheels"]
    assert "export PATH=/opt/gpuagent/bin:/usr/local/bin:/usr/bin:/bin" in found["environment"]
    assert found["runscript"][0].startswith("exec ")
    assert found["runscript"][0].endswith('"$@"')


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda builder: builder.environment)
def test_a_recipe_takes_what_the_command_offers(builder: Builder, tmp_path: Path) -> None:
    recipe = find_recipe(builder.recipe)
    (tmp_path / "own").mkdir()
    (tmp_path / "context").mkdir()
    (tmp_path / "own" / "torch-2.4.1-py3-none-any.whl").touch()
    ingredients = Ingredients(
        recipe=recipe, base="mine:1", torch="torch==2.4.1", index="file:///index", wheels=tmp_path / "own"
    )
    write_context(tmp_path / "context", ingredients)
    text = (tmp_path / "context" / "recipe").read_text()
    wheels = {path.name for path in (tmp_path / "context" / "wheels").iterdir()}
    assert wheels == {"gpuagent-0.1.0-py3-none-any.whl", "torch-2.4.1-py3-none-any.whl", "constraints.txt", "arguments"}
    assert "torch==" not in (tmp_path / "context" / "wheels" / "constraints.txt").read_text()
    assert "export TORCH=torch==2.4.1\n" in (tmp_path / "context" / "wheels" / "arguments").read_text()
    if builder.takes_arguments:
        arguments = build_arguments(tmp_path / "context", ingredients, "build-1")
        expected = {"TORCH": "torch==2.4.1", "PIP_NO_INDEX": "1", "PIP_EXTRA_INDEX_URL": "file:///index"}
        assert arguments.items() >= expected.items()
    assert takes(text, "BASE") or re.search(r"^(FROM|From:) mine:1$", text, re.MULTILINE)


def test_the_one_base_of_a_recipe_without_arguments_is_replaced() -> None:
    assert with_base("FROM a:1 AS x\nRUN true\n", "b:2") == "FROM b:2 AS x\nRUN true\n"


def test_a_definition_begins_with_a_file_a_folder_or_an_image_of_any_kind_of_registry(tmp_path: Path) -> None:
    definition = "Bootstrap: docker\nFrom: python:3.12\n"
    file = tmp_path / "base.sif"
    file.touch()
    for place in (file, tmp_path):
        assert with_base(definition, str(place)) == f"Bootstrap: localimage\nFrom: {place}\n"
    assert with_base(definition, "mine:1") == "Bootstrap: docker\nFrom: mine:1\n"
    assert with_base(definition, "docker://registry.example/mine:1") == (
        "Bootstrap: docker\nFrom: registry.example/mine:1\n"
    )
    assert with_base(definition, "oras://mine:1") == "Bootstrap: oras\nFrom: mine:1\n"
    with pytest.raises(MisuseError, match="no file or"):
        with_base(definition, str(tmp_path / "missing.sif"))
