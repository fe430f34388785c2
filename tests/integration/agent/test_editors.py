"""The schemas of experiment and price files in an editor: a real language server of YAML judges our examples."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import BIN

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENTS = sorted((ROOT / "workloads/gpuagent_workloads/experiments").glob("*.yaml"))
PRICES = [ROOT / "docs/prices.example.yaml", ROOT / "tests/integration/recommend/prices.yaml"]


class LanguageServer:
    """A process of yaml-language-server, and the texts that it knows."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin and process.stdout
        self._in, self._out = process.stdin, process.stdout
        self._send("initialize", {"processId": None, "rootUri": None, "capabilities": {}}, id=1)
        while self._receive().get("id") != 1:
            pass
        self._send("initialized", {})

    def open(self, file: Path, text: str) -> None:
        about = {"uri": file.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self._send("textDocument/didOpen", {"textDocument": about})

    def change(self, file: Path, text: str) -> None:
        about = {"uri": file.as_uri(), "version": 2}
        self._send("textDocument/didChange", {"textDocument": about, "contentChanges": [{"text": text}]})

    def problems(self, file: Path, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Return the problems of a file as soon as they are as wanted; what comes before is of an earlier text."""
        while True:
            message = self._receive()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == file.as_uri():
                found = [each["message"] for each in message["params"]["diagnostics"]]
                if wanted(found):
                    return found

    def _send(self, method: str, params: Any, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._in.flush()

    def _receive(self) -> dict[str, Any]:
        """Return the next message; those that ask for something are answered with nothing."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self._out.read(1)
            assert byte, "the language server has ended"
            head += byte
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length
        message: dict[str, Any] = json.loads(self._out.read(int(length[1])))
        if "method" in message and "id" in message:
            result: Any = [{} for _ in message["params"].get("items", ())] if "items" in message["params"] else None
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            self._in.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            self._in.flush()
        return message


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    folder = tmp_path_factory.mktemp("npm")
    if not (npm := shutil.which("npm")):
        pytest.skip("needs npm, which fetches yaml-language-server; install: npm")
    fetch = [npm, "install", "--no-fund", "--no-audit", "--silent", "yaml-language-server@2.0.0"]
    if subprocess.run(fetch, cwd=folder, check=False, capture_output=True).returncode:
        pytest.skip("npm cannot fetch yaml-language-server; it needs an index of packages")
    command = [str(folder / "node_modules/.bin/yaml-language-server"), "--stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield LanguageServer(process)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a user has put both schemas, as docs/experiments.md says."""
    folder = tmp_path_factory.mktemp("schemas")
    for name, command in (
        ("experiment", ["gpuagent", "experiment", "schema"]),
        ("prices", ["collector", "prices", "--schema"]),
    ):
        with (folder / f"{name}.schema.json").open("w") as file:
            subprocess.run([BIN / command[0], *command[1:]], stdout=file, check=True)
    return folder


@pytest.mark.parametrize("example", [*EXPERIMENTS, *PRICES], ids=lambda path: path.name)
def test_an_example_is_valid_and_a_mistake_in_it_is_not(example: Path, server: LanguageServer, schemas: Path) -> None:
    kind = "prices" if example in PRICES else "experiment"
    text = f"# yaml-language-server: $schema={kind}.schema.json\n{example.read_text()}"
    mistake = "\n- platform: 3\n  unknown_key: 4\n" if kind == "prices" else "\nunknown_key: 4\n"
    file = schemas / f"{kind}-{example.parent.name}-{example.name}"
    server.open(file, text + mistake)
    found = server.problems(file, bool)
    assert any("unknown_key" in problem for problem in found), found
    server.change(file, text)
    assert server.problems(file, lambda problems: not problems) == []
