from pathlib import Path
from typing import Any

from gpuagent.facts import Firmware, Surroundings, collect_firmware
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NvmlRecording


def test_the_firmware_of_node_and_gpu_is_read_and_what_is_missing_left_out(tmp_path: Path) -> None:
    dmi = tmp_path / "sys/class/dmi/id"
    dmi.mkdir(parents=True)
    (dmi / "bios_vendor").write_text("Acme\n")
    (dmi / "bios_version").write_text("2.3.1\n")
    answers: dict[str, list[dict[str, Any]]] = {
        f"nvmlDeviceGetVbiosVersion({FIRST})": [{"answer": "96.00.A5.00.01"}],
        f"nvmlDeviceGetGspFirmwareVersion({FIRST})": [{"error": 3, "words": "Not Supported"}],
    }
    recording = NvmlRecording.of_one_gpu(answers)
    surroundings = Surroundings(root=tmp_path, proc=tmp_path / "proc", sys=tmp_path / "sys", open_nvml=recording.open)
    assert list(collect_firmware(surroundings)) == [
        Firmware(device_id=None, name="bios", version="Acme 2.3.1"),
        Firmware(device_id=key(FIRST), name="vbios", version="96.00.A5.00.01"),
    ]
    assert recording.open_sessions == 0
