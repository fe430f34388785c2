"""DCGM, replayed by a fake dcgmi: tests/fixtures/dcgmi/README.md."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.dcgm import COLUMNS, Dcgm, complaint, parse_fields, parse_gpus, parse_row
from gpuagent.sources.source import SourceContext
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NOT_SUPPORTED, SECOND, NvmlRecording
from tests.support.pid_namespaces import plant_process, plant_view
from tests.support.sources import OpenSource, Runs
from tests.support.trees import instant, plant

FIXTURES = Path(__file__).parents[2] / "fixtures/dcgmi"
BUSY = "GPU 0     0.966      0.482      0.941      0.516      0.000      0.131      0.000      21618      95830\n"
IDLE = "GPU 1     0.000      0.000      0.000      0.000      0.000      0.000      0.000      0          N/A\n"


def nvml(**supports_gpm: bool) -> NvmlRecording:
    """Return a driver with these GPUs."""
    uuids = {"first": FIRST, "second": SECOND}
    outcomes: dict[str, list[dict[str, Any]]] = {"open()": [{"answer": None}]}
    outcomes["devices()"] = [{"answer": [uuids[name] for name in supports_gpm]}]
    for name, has_gpm in supports_gpm.items():
        answer = {"answer": {"version": 1, "isSupportedDevice": 1}} if has_gpm else NOT_SUPPORTED
        outcomes[f"nvmlGpmQueryDeviceSupport({uuids[name]})"] = [answer]
    return NvmlRecording(outcomes)


class FakeDcgmi:
    """The folder of a fake dcgmi, and the pipe of the rows that its `dmon` prints."""

    def __init__(self, folder: Path) -> None:
        self.folder = shutil.copytree(FIXTURES, folder)
        os.mkfifo(self.folder / "rows")
        # Opened for both, so that neither end waits for the other.
        self._rows = os.open(self.folder / "rows", os.O_RDWR)

    def print(self, text: str) -> None:
        os.write(self._rows, text.encode())

    def close(self) -> None:
        os.close(self._rows)

    def fail(self, command: str, words: str) -> None:
        (self.folder / f"{command}.error").write_text(f"{words}\n")

    def recover(self, command: str) -> None:
        (self.folder / f"{command}.error").unlink()

    def calls(self, command: str) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if line.startswith(command)]


@pytest.fixture
def dcgmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDcgmi]:
    fake = FakeDcgmi(tmp_path / "dcgmi")
    monkeypatch.setenv("PATH", str(fake.folder), prepend=os.pathsep)
    yield fake
    fake.close()


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return plant_view(tmp_path / "proc", 50, of_host=True)


@pytest.fixture
def source(dcgmi: FakeDcgmi, proc: Path, open_source: OpenSource) -> Dcgm:
    return open_source(Dcgm, proc=proc, open_nvml=nvml(first=False, second=False).open)


def read_until_rows(source: Dcgm, seconds: float, rows: int = 1) -> dict[object, Mapping[str, object]]:
    """Read until the child has printed its rows."""
    found: dict[object, Mapping[str, object]] = {}
    while len(found) < rows:
        found |= {reading.key: reading.values for reading in source.read(instant(seconds))}
    return found


def read_until_failure(source: Dcgm, seconds: float) -> str:
    while True:
        try:
            assert list(source.read(instant(seconds))) == []
        except SourceError as error:
            return str(error)


def test_one_child_prints_the_gpus_fields_without_unknown_figures(dcgmi: FakeDcgmi, source: Dcgm) -> None:
    for second in range(3):
        assert list(source.read(instant(second))) == []
    dcgmi.print(BUSY + IDLE)
    rows = read_until_rows(source, 3, rows=2)
    running = "dmon --field-id 1002,1003,1004,1005,1006,1007,1008,1009,1010 --entity-id 0,1 --delay 1000"
    assert dcgmi.calls("dmon") == [f"{running} --count 1", running]
    # Ratios become percent.
    assert rows[key(FIRST)] == {
        "device_id": key(FIRST),
        "sm_active_percent": pytest.approx(96.6),
        "sm_occupancy_percent": pytest.approx(48.2),
        "tensor_active_percent": pytest.approx(94.1),
        "dram_active_percent": pytest.approx(51.6),
        "fp64_active_percent": 0.0,
        "fp32_active_percent": pytest.approx(13.1),
        "fp16_active_percent": 0.0,
        "pcie_send_bytes_per_second": 21_618.0,
        "pcie_receive_bytes_per_second": 95_830.0,
    }
    assert "pcie_receive_bytes_per_second" not in rows[key(SECOND)]
    assert rows[key(SECOND)]["sm_active_percent"] == 0.0


def test_the_last_row_counts_and_an_incomplete_one_waits(dcgmi: FakeDcgmi, source: Dcgm) -> None:
    list(source.read(instant(0)))
    dcgmi.print("\n#Entity SMACT\nID\n" + BUSY + BUSY.replace("0.966", "0.500") + BUSY[:20])
    rows = read_until_rows(source, 1)
    while rows[key(FIRST)]["sm_active_percent"] != 50.0:
        rows = read_until_rows(source, 1)
    dcgmi.print(BUSY[20:])
    assert read_until_rows(source, 2)[key(FIRST)]["sm_active_percent"] == pytest.approx(96.6)


def test_a_gpu_with_gpm_is_left_out(dcgmi: FakeDcgmi, proc: Path) -> None:
    source = Dcgm(SourceContext(proc=proc, open_nvml=nvml(first=True, second=False).open))
    list(source.read(instant(0)))
    assert all("--entity-id 1 " in call for call in dcgmi.calls("dmon"))
    source.close()
    with pytest.raises(SourceUnavailableError, match="the same figures"):
        Dcgm(SourceContext(proc=proc, open_nvml=nvml(first=True).open))


def test_the_counters_are_released_while_a_run_has_ncu(dcgmi: FakeDcgmi, proc: Path, open_source: OpenSource) -> None:
    runs = Runs()
    source = open_source(Dcgm, proc=proc, open_nvml=nvml(first=False, second=False).open, runs=runs)
    list(source.read(instant(0)))
    dcgmi.print(BUSY)
    read_until_rows(source, 1)
    plant_process(proc, 4700)
    plant_process(proc, 4711, parent=4700, name="ncu")
    runs.supervisors = (("run", 4700),)
    assert list(source.read(instant(2))) == list(source.read(instant(30))) == []
    runs.supervisors = ()
    dcgmi.print(BUSY)
    assert key(FIRST) in read_until_rows(source, 31)
    assert len(dcgmi.calls("dmon")) == 3


def test_a_lost_host_engine_is_retried_with_backoff(dcgmi: FakeDcgmi, source: Dcgm) -> None:
    list(source.read(instant(0)))
    dcgmi.fail("discovery", "Error: unable to establish a connection to the specified host: localhost")
    dcgmi.print("Error getting values information. Return -7: Host engine connection invalid/disconnected\nEND\n")
    assert "information. Return -7:" in read_until_failure(source, 1)
    calls = len(dcgmi.calls("discovery"))
    for second, tries in ((1.9, 0), (2.1, 1), (4, 1), (4.2, 2), (8.1, 2), (8.3, 3)):
        with pytest.raises(SourceError):
            list(source.read(instant(second)))
        assert len(dcgmi.calls("discovery")) - calls == tries
    dcgmi.recover("discovery")
    list(source.read(instant(60)))
    dcgmi.print(BUSY)
    assert key(FIRST) in read_until_rows(source, 61)


def test_a_silent_child_is_restarted(dcgmi: FakeDcgmi, source: Dcgm) -> None:
    list(source.read(instant(0)))
    assert list(source.read(instant(9))) == []
    with pytest.raises(SourceError, match="prints no values"):
        list(source.read(instant(11)))
    list(source.read(instant(13)))
    dcgmi.print(BUSY)
    assert key(FIRST) in read_until_rows(source, 14)


def refusal(proc: Path) -> tuple[str, str]:
    """Return why the source is unavailable, and the remedy."""
    with pytest.raises(SourceUnavailableError) as raised:
        Dcgm(SourceContext(proc=proc, open_nvml=nvml(first=False).open))
    assert raised.value.remedy
    return str(raised.value), raised.value.remedy


def test_without_dcgm_the_remedy_is_to_install_it(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    reason, remedy = refusal(proc)
    assert "no dcgmi" in reason
    assert "datacenter-gpu-manager" in remedy


@pytest.mark.parametrize(
    ("command", "words", "admin_only", "remedy"),
    [
        ("discovery", "Error: Unable to connect to host engine.", 0, "nvidia-dcgm"),
        ("dmon", "Error setting watches. Result: -29", 1, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("dmon", "Error setting watches. Result: -29", 0, "dcgmi modules -l"),
    ],
)
def test_a_command_that_fails_comes_with_a_remedy(
    dcgmi: FakeDcgmi, proc: Path, command: str, words: str, admin_only: int, remedy: str
) -> None:
    plant(proc, {"driver/nvidia/params": f"EnableMSI: 1\nRmProfilingAdminOnly: {admin_only}\n"})
    dcgmi.fail(command, words)
    found, found_remedy = refusal(proc)
    assert words in found
    assert remedy in found_remedy


def test_gpus_that_dcgm_cannot_read_are_unavailable(dcgmi: FakeDcgmi, proc: Path) -> None:
    dcgmi.fail("profile", "Error: Unable to Get supported metric groups: This request is not supported.")
    assert "not supported" in refusal(proc)[0]
    dcgmi.recover("profile")
    (dcgmi.folder / "profile.txt").write_text("")
    assert "no profiling metrics" in refusal(proc)[0]
    (dcgmi.folder / "discovery.txt").write_text("0 GPUs found.\n")
    assert "does not know" in refusal(proc)[0]


def test_gpus_and_fields_are_parsed() -> None:
    fields = (field for field in COLUMNS if field <= 1010)
    assert parse_gpus((FIXTURES / "discovery.txt").read_text()) == {FIRST: "0", SECOND: "1"}
    assert parse_fields((FIXTURES / "profile.txt").read_text()) == {1001, *fields}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GPU 3     0.250        1000", ("3", {"sm_active_percent": 25.0, "pcie_send_bytes_per_second": 1000.0})),
        ("     GPU 3   0.250    N/A", ("3", {"sm_active_percent": 25.0})),
        ("GPU 3     0.250        123456789...", ("3", {"sm_active_percent": 25.0})),
        ("GPU 3     nan        inf", ("3", {})),
        ("GPU 3     0.250", None),
        ("GPU-I 3   0.250        1000", None),
        *((line, None) for line in ("#Entity   SMACT        PCITX", "ID", "")),
    ],
)
def test_a_row_has_a_value_for_each_field(line: str, expected: tuple[str, dict[str, float]] | None) -> None:
    assert parse_row(line, [1002, 1009]) == expected


def test_a_complaint_is_the_last_error_or_the_last_line() -> None:
    assert complaint(["# Entity", "Error  setting watches.", "bye", ""]) == "Error setting watches."
    assert complaint(["# Entity", "  Id  ", ""]) == "Id"
    assert complaint([]) == "it printed nothing"
