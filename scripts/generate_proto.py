"""Generate the wire format's Python code beside the .proto files, or elsewhere: `generate_proto.py [FOLDER]`."""

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "proto"
PACKAGE = ROOT / "gpuagent_proto" / "v1"


def generate(target: Path) -> None:
    """Write the code of every .proto file below `target`; only *_service.proto have gRPC code."""
    protos = sorted(PACKAGE.glob("*.proto"))
    services = [proto for proto in protos if proto.stem.endswith("_service")]
    _run(protos, f"--python_out={target}", f"--mypy_out=quiet:{target}")
    _run(services, f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}")


def _run(protos: list[Path], *outputs: str) -> None:
    # protoc looks for its plugins on PATH, but they are beside this Python.
    arguments = ["protoc", f"-I{ROOT}", *outputs, *map(str, protos)]
    for name in ("mypy", "mypy_grpc"):
        arguments.insert(1, f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}")
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
