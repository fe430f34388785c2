"""The server that a run of serve-load starts: awaited until it is ready, and ended with all that it started."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuagent_common.errors import MisuseError
from gpuagent_common.own_module import SAFE_PATH
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.serve_load import Config
from gpuagent_workloads.suite.serve_load.run import served

_SERVER = """
import http.server, subprocess, sys, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print(child.pid, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(200 if Handler.asked > 2 else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_server_is_awaited_and_ends_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent_workloads.suite.serve_load.run._GRACE_SECONDS", 0.5)
    script = tmp_path / "server.py"
    script.write_text(_SERVER)
    asked = Config(rate=1.0, serve=f"{{python}} {script} {{port}}")
    reporter = Reporter(tmp_path / "events.0.0.jsonl")
    with reporter, pytest.raises(RuntimeError, match="within"), served(asked, reporter) as url:
        assert url.startswith("http://127.0.0.1:")
        child = psutil.Process(int((tmp_path / "server.log").read_text().split()[0]))
        server = child.parent()
        raise RuntimeError("within")
    assert server
    assert not server.is_running()
    # It was killed; nobody here collects it, so that it may remain as a zombie.
    with suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    found: dict[str, Any] = {result.name: result.value for result in reporter.results}
    assert 0 < float(found["server_listen_seconds"]) <= float(found["server_ready_seconds"])


@pytest.mark.parametrize(
    ("code", "reason"),
    [("print('no memory'); raise SystemExit(3)", "ended with code 3: no memory"), ("", "code 0: it printed nothing")],
)
def test_a_server_that_ends_early_is_reported_with_its_last_line(tmp_path: Path, code: str, reason: str) -> None:
    (tmp_path / "server.py").write_text(code)
    asked = Config(rate=1.0, serve=f"{{python}} {tmp_path / 'server.py'} {{port}}")
    reporter = Reporter(tmp_path / "events.0.0.jsonl")
    with reporter, pytest.raises(WorkloadError, match=reason), served(asked, reporter):
        pass


def test_only_a_user_s_own_server_is_taken_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(*SAFE_PATH)
    (tmp_path / "folder").mkdir()
    (tmp_path / "gpuagent_workloads.py").write_text("print('hostile')")
    (tmp_path / "server.py").write_text("print('the folder')")
    for module, reason in (("gpuagent_workloads serve --nothing", "nothing"), ("server", "the folder")):
        reporter = Reporter(tmp_path / "folder/events.0.0.jsonl")
        asked = Config(rate=1.0, serve=f"{{python}} -m {module} {{port}}")
        with reporter, pytest.raises(WorkloadError, match=reason), served(asked, reporter):
            pass


def test_a_missing_server_is_misuse(tmp_path: Path) -> None:
    asked = Config(rate=1.0, serve="/no/such/program {port}")
    with pytest.raises(MisuseError, match="start the server"), served(asked, Reporter(None)):
        pass
