import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpuagent.sources
from gpuagent.sources import SOURCES, open_sources
from gpuagent.sources.host import HostLoad
from gpuagent.sources.source import SourceContext
from tests.support.nvml_replay import NO_DRIVER
from tests.support.trees import instant

_NO_SOURCES = {"source", "support"}


def test_every_file_in_the_folder_has_a_listed_source() -> None:
    files = {module.name for module in pkgutil.iter_modules(gpuagent.sources.__path__)} - _NO_SOURCES
    assert {f"gpuagent.sources.{name}" for name in files} == {source.__module__ for source in SOURCES}
    assert len({source.name for source in SOURCES}) == len(SOURCES)


def test_on_an_empty_node_each_source_reports_why_it_cannot_work(tmp_path: Path) -> None:
    context = SourceContext(proc=tmp_path / "proc", sys=tmp_path / "sys", open_nvml=NO_DRIVER)
    opened, unavailable = open_sources(context)
    assert [source.name for source in opened] == []
    assert {name for name, _ in unavailable} == {source.name for source in SOURCES}
    assert all(str(error) for _, error in unavailable)


def test_a_source_that_cannot_be_opened_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_context: SourceContext) -> HostLoad:
        raise ZeroDivisionError("an odd kernel")

    monkeypatch.setattr(breaks, "name", "odd", raising=False)
    monkeypatch.setattr(gpuagent.sources, "SOURCES", (breaks, HostLoad))
    opened, unavailable = open_sources(SourceContext())
    assert [source.name for source in opened] == ["host_load"]
    assert [(name, str(error)) for name, error in unavailable] == [
        ("odd", "it failed: ZeroDivisionError('an odd kernel')")
    ]


def test_the_sources_of_this_machine_fill_host_samples() -> None:
    opened, unavailable = open_sources(SourceContext())
    columns: dict[str, object] = {}
    for second in (0, 1):
        for source in opened:
            for reading in source.read(instant(second)):
                columns |= reading.values if reading.table == "host_samples" else {}
    for source in opened:
        source.close()
    assert len(opened) + len(unavailable) == len(SOURCES)
    assert isinstance(columns["memory_used_bytes"], int)
    assert columns["memory_used_bytes"] > 0
    assert isinstance(columns["load_1m"], float)
    assert "network_receive_bytes_per_second" in columns


@pytest.mark.parametrize(
    ("module", "heavy"), [("gpuagent.sources", set()), ("gpuagent.facts", set()), ("gpuagent.cli", {"psutil"})]
)
def test_importing_stays_light(module: str, heavy: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not ({"pynvml", "grpc", "duckdb", "rich", "torch", "numpy", "pyarrow"} | heavy) & set(loaded)
