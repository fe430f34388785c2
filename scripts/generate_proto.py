"""Generate the wire format's Python code beside the .proto files, or elsewhere: `generate_proto.py [FOLDER]`.

The generators make code refuse every gRPC and protobuf older than themselves. It runs on those that pyproject.toml
admits, so the refusals are removed; tests/integration/test_wheel.py runs it on the oldest.
"""

import re
import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "proto"
PACKAGE = ROOT / "gpuagent_proto" / "v1"

# The checks of versions, and registered methods, which gRPC has since 1.64: calls took as long without them.
_NEWER_ONLY = re.compile(
    r"^import warnings\n"
    r"|^GRPC_GENERATED_VERSION(?s:.*?)^    \)\n"
    r"|,\s+_registered_method=True"
    r"|^    server\.add_registered_method_handlers\(.*\n"
    r"|^from google\.protobuf import runtime_version.*\n"
    r"|^_runtime_version\.(?s:.*?)^\)\n",
    re.MULTILINE,
)


def generate(target: Path) -> None:
    """Write the code of every .proto file below `target`; only *_service.proto have gRPC code."""
    protos = sorted(PACKAGE.glob("*.proto"))
    services = [proto for proto in protos if proto.stem.endswith("_service")]
    _run(protos, f"--python_out={target}", f"--mypy_out=quiet:{target}")
    _run(services, f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}")
    for code in (target / PACKAGE.relative_to(ROOT)).glob("*_pb2*.py"):
        code.write_text(_NEWER_ONLY.sub("", code.read_text()))


def _run(protos: list[Path], *outputs: str) -> None:
    # protoc looks for its plugins on PATH, but they are beside this Python.
    arguments = ["protoc", f"-I{ROOT}", *outputs, *map(str, protos)]
    for name in ("mypy", "mypy_grpc"):
        arguments.insert(1, f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}")
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
