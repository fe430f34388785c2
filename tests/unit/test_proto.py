import importlib.util
from pathlib import Path

from gpuagent_common.keys import key

ROOT = Path(__file__).resolve().parents[2]


def test_the_generated_code_is_that_of_the_proto_files(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate_proto", ROOT / "scripts" / "generate_proto.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.generate(tmp_path)
    fresh = {path.name: path.read_text() for path in (tmp_path / "gpuagent_proto" / "v1").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "proto/gpuagent_proto/v1").glob("*_pb2*.py*")}
    assert fresh == committed


def test_every_file_is_in_the_package_of_its_folder() -> None:
    for proto in (ROOT / "proto/gpuagent_proto/v1").glob("*.proto"):
        assert "package gpuagent_proto.v1;" in proto.read_text().splitlines(), proto.name


def test_keys_are_the_same_everywhere_for_ever() -> None:
    assert (key("node-1"), key("")) == (3020689103880935311, -5426141060434712860)
