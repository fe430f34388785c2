from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.host_energy import HostEnergy, Unwrapped, column_of
from gpuagent.sources.source import SourceContext, Value
from tests.support.sources import OpenSource
from tests.support.trees import instant, plant

POWERCAP = "class/powercap"
ONE_SOCKET = {"intel-rapl:0": "package-0"}
TWO_SOCKETS = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}


def plant_zones(sys: Path, names: Mapping[str, str] = ONE_SOCKET, highest: str = "262143328850") -> Path:
    for zone, name in names.items():
        files = {"name": f"{name}\n", "energy_uj": "1000\n", "max_energy_range_uj": f"{highest}\n"}
        plant(sys / POWERCAP / zone, files)
    return sys


def spend(sys: Path, **joules: float) -> None:
    """Advance the counters of zones, written as `_0` for intel-rapl:0."""
    for suffix, amount in joules.items():
        file = sys / POWERCAP / f"intel-rapl{suffix.replace('_', ':')}" / "energy_uj"
        file.write_text(f"{int(file.read_text()) + round(amount * 1e6)}\n")


def read(source: HostEnergy, seconds: float) -> Mapping[str, Value]:
    (reading,) = source.read(instant(seconds))
    assert (reading.table, reading.key) == ("host_samples", None)
    return reading.values


def test_power_is_the_mean_since_the_reading_before_over_all_sockets(tmp_path: Path, open_source: OpenSource) -> None:
    source = open_source(HostEnergy, sys=plant_zones(tmp_path, TWO_SOCKETS))
    assert list(source.read(instant(0))) == []
    # The packages contain the cores' energy, and the whole machine's contains theirs.
    spend(tmp_path, _0=200, _0_0=150, _0_1=10, _1=100, _1_0=6, _2=500)
    assert read(source, 2) == {"cpu_power_watts": pytest.approx(150.0), "dram_power_watts": pytest.approx(8.0)}


def test_processors_that_do_not_count_their_memory_leave_it_out(tmp_path: Path, open_source: OpenSource) -> None:
    source = open_source(HostEnergy, sys=plant_zones(tmp_path, {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core"}))
    list(source.read(instant(0)))
    spend(tmp_path, _0=90)
    assert read(source, 1) == {"cpu_power_watts": pytest.approx(90.0)}


def test_a_counter_that_begins_again_counts_on(tmp_path: Path, open_source: OpenSource) -> None:
    source = open_source(HostEnergy, sys=plant_zones(tmp_path, highest="1000000"))
    counter = tmp_path / POWERCAP / "intel-rapl:0/energy_uj"
    counter.write_text("900000\n")
    list(source.read(instant(0)))
    counter.write_text("400000\n")
    assert read(source, 1) == {"cpu_power_watts": pytest.approx(0.5)}


@pytest.mark.parametrize("highest", ["0", "30 x"])
def test_a_falling_counter_without_range_is_absent_once(tmp_path: Path, highest: str, open_source: OpenSource) -> None:
    source = open_source(HostEnergy, sys=plant_zones(tmp_path, highest=highest))
    spend(tmp_path, _0=5)
    list(source.read(instant(0)))
    (tmp_path / POWERCAP / "intel-rapl:0/energy_uj").write_text("0\n")
    assert read(source, 1) == {"cpu_power_watts": None}
    spend(tmp_path, _0=7)
    assert read(source, 2) == {"cpu_power_watts": pytest.approx(7.0)}


@given(st.integers(1, 10**12), st.data())
def test_an_unwrapped_counter_rises_by_the_energy_spent_up_to_half_its_range(highest: int, data: st.DataObject) -> None:
    spent: Sequence[int] = data.draw(st.lists(st.integers(0, highest // 2)))
    counter, total = Unwrapped(highest=highest), 0
    for amount in spent:
        total += amount
        assert counter.follow(total % highest) == total


# Names as open-power/skiboot makes them (hw/occ-sensor.c), a chip's with a space at its end; watts as in "Hwmon sensors
# in P9" by the authors of those sensors, except for the memory's.
OCC = {"Chip 0 ": 157, "Chip 0 Vdd": 113, "Chip 0 Memory": 40, "Chip 8 ": 99, "Chip 8 Memory": 41, "System": 426}


def plant_occ(sys: Path, kind: str, amounts: Mapping[str, float]) -> Path:
    """Write the sensors of one kind, energy or power, in joules or watts."""
    for number, (label, amount) in enumerate(amounts.items(), 1):
        files = {f"{kind}{number}_label": f"{label}\n", f"{kind}{number}_input": f"{round(amount * 1e6)}\n"}
        plant(sys / "class/hwmon/hwmon0", {"name": "ibmpowernv\n", **files})
    return sys


def test_power9_counts_the_energy_of_each_chip_and_of_its_memory(tmp_path: Path, open_source: OpenSource) -> None:
    plant_occ(tmp_path, "power", OCC)
    source = open_source(HostEnergy, sys=plant_occ(tmp_path, "energy", dict.fromkeys(OCC, 7.51e6)))
    assert list(source.read(instant(0))) == []
    plant_occ(tmp_path, "energy", {label: 7.51e6 + 2 * watts for label, watts in OCC.items()})
    assert read(source, 2) == {"cpu_power_watts": pytest.approx(256), "dram_power_watts": pytest.approx(81)}


def test_power9_with_old_firmware_shows_power_alone(tmp_path: Path, open_source: OpenSource) -> None:
    source = open_source(HostEnergy, sys=plant_occ(tmp_path, "power", OCC))
    assert read(source, 0) == {"cpu_power_watts": 256, "dram_power_watts": 81}
    plant_occ(tmp_path, "power", dict.fromkeys(OCC, 100))
    assert read(source, 1) == {"cpu_power_watts": 200, "dram_power_watts": 200}


@pytest.mark.parametrize("place", ["", "device"])
def test_grace_shows_the_power_of_cores_and_fabric(tmp_path: Path, place: str, open_source: OpenSource) -> None:
    sensors = {
        "Grace Power Socket 0": 180,
        "CPU Power Socket 0": 120,
        "SysIO Power Socket 0": 30,
        "Module Power Socket 0": 500,
    }
    for number, (name, watts) in enumerate(sensors.items()):
        files = {"name": "power_meter\n", "power1_oem_info": f"{name}\n", "power1_average": f"{watts}000000\n"}
        plant(tmp_path / f"class/hwmon/hwmon{number}" / place, files)
    assert read(open_source(HostEnergy, sys=tmp_path), 0) == {"cpu_power_watts": 150}


def test_only_packages_and_their_memory_count() -> None:
    assert column_of("package-1") == column_of("package-0-die-1") == "cpu_power_watts"
    assert column_of("dram") == "dram_power_watts"
    assert {column_of(zone) for zone in ("core", "uncore", "psys", "")} == {None}


def test_a_malformed_counter_is_a_failed_reading(tmp_path: Path, open_source: OpenSource) -> None:
    source = open_source(HostEnergy, sys=plant_zones(tmp_path))
    (tmp_path / POWERCAP / "intel-rapl:0/energy_uj").write_text("\n")
    with pytest.raises(SourceError, match="energy_uj"):
        list(source.read(instant(0)))


def test_a_node_without_rapl_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="no RAPL"):
        HostEnergy(SourceContext(sys=tmp_path))


def test_counters_that_cannot_be_opened_come_with_a_remedy(tmp_path: Path) -> None:
    plant_zones(tmp_path)
    # Root may read everything; a link to itself replaces a forbidden file.
    (tmp_path / POWERCAP / "intel-rapl:0/energy_uj").unlink()
    (tmp_path / POWERCAP / "intel-rapl:0/energy_uj").symlink_to("energy_uj")
    with pytest.raises(SourceUnavailableError, match="cannot open") as raised:
        HostEnergy(SourceContext(sys=tmp_path))
    assert raised.value.remedy
    assert "as root" in raised.value.remedy


@pytest.mark.parametrize("reset_to", [0, 900_000])
def test_a_counter_reset_far_from_its_end_has_no_power(tmp_path: Path, reset_to: int, open_source: OpenSource) -> None:
    source = open_source(HostEnergy, sys=plant_zones(tmp_path, highest="65532610987"))
    counter = tmp_path / POWERCAP / "intel-rapl:0/energy_uj"
    counter.write_text("1000000\n")
    list(source.read(instant(0)))
    counter.write_text(f"{reset_to}\n")
    assert read(source, 10) == {"cpu_power_watts": None}
    spend(tmp_path, _0=50)
    assert read(source, 11) == {"cpu_power_watts": pytest.approx(50.0)}
