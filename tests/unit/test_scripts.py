"""The scripts: `make audit` fails where nothing was looked up, and generated code is that of the proto files."""

import importlib.util
from pathlib import Path
from typing import Any

from gpuagent_common.keys import key

ROOT = Path(__file__).resolve().parents[2]


def load_script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


audit = load_script("audit")

SOUND = {"name": "click", "version": "8.5.1", "vulns": []}
WEAK = {"name": "x", "version": "1.0", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "y", "skip_reason": "Dependency not found on PyPI and could not be audited: y (1.0)"}


def test_all_looked_up_and_nothing_found_is_well() -> None:
    assert audit.judge([SOUND]) == (0, ["audit: 1 packages, no known weakness"])


def test_what_could_not_be_looked_up_is_a_failure_in_one_line() -> None:
    code, lines = audit.judge([SOUND, UNKNOWN])
    assert (code, len(lines)) == (1, 1)
    assert "1 of 2" in lines[0]
    assert audit.judge([])[0] == 1


def test_a_weakness_is_told_with_the_version_that_mends_it() -> None:
    assert audit.judge([WEAK]) == (1, ["audit: x 1.0: CVE-2026-1, fixed in 1.1"])


def test_the_generated_code_is_that_of_the_proto_files(tmp_path: Path) -> None:
    load_script("generate_proto").generate(tmp_path)
    fresh = {path.name: path.read_text() for path in (tmp_path / "gpuagent_proto" / "v1").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "proto/gpuagent_proto/v1").glob("*_pb2*.py*")}
    assert fresh == committed


def test_every_file_is_in_the_package_of_its_folder() -> None:
    for proto in (ROOT / "proto/gpuagent_proto/v1").glob("*.proto"):
        # The kubelet's own interface has the package that Kubernetes gave it.
        package = "v1" if proto.name == "pod_resources_service.proto" else "gpuagent_proto.v1"
        assert f"package {package};" in proto.read_text().splitlines(), proto.name


def test_keys_are_the_same_everywhere_for_ever() -> None:
    assert (key("node-1"), key("")) == (3020689103880935311, -5426141060434712860)
