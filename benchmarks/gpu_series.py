"""A synthetic series of a node of eight H200, of any length, continued from a recording.

The rows are those that an agent sends: ten a second and GPU with twelve figures, one a second with the fifteen of GPM.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpuagent.sources.nvml_gpm import METRICS
from gpuagent_proto.v1.records_pb2 import Records
from tests.support.nvml_replay import NvmlRecording

GPUS = 8
RATE_HZ = 10
GPM = tuple(column for column, _ in METRICS.values())
INTEGERS = (
    "memory_used_bytes",
    "memory_reserved_bytes",
    "memory_total_bytes",
    "throttle_reasons",
    "ecc_errors_uncorrected",
)
FAST = (
    "utilization_percent",
    "memory_utilization_percent",
    *INTEGERS,
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
    "memory_clock_mhz",
)
COLUMNS = (*FAST, *GPM)
POWER_KIND = "instant"
# Numbers of one node, without the text `power_kind`.
VALUES_A_SECOND = GPUS * (RATE_HZ * len(FAST) + len(GPM))

ROWS_A_SECOND = GPUS * (RATE_HZ + 1)

_POWER_LIMIT_WATTS = 700.0
_TOP_CLOCK_MHZ = 1980.0
_CLOCK_STEP_MHZ = 15.0
_SW_POWER_CAP = 4
_PAGE_BYTES = 2 << 20

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one node in the order of time, of all its GPUs.

    Attributes:
        node: its number.
        time_unix_nano: shape (rows,).
        gpu: index of the GPU, shape (rows,).
        columns: of COLUMNS; each of shape (rows,), NaN where absent.
    """

    node: int
    time_unix_nano: Integers
    gpu: Integers
    columns: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.gpu)

    def messages(self, seconds: int) -> Iterator["Rows"]:
        """Yield the rows of consecutive stretches of this many seconds."""
        size = seconds * ROWS_A_SECOND
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Rows(
                node=self.node,
                time_unix_nano=self.time_unix_nano[part],
                gpu=self.gpu[part],
                columns={name: values[part] for name, values in self.columns.items()},
            )

    def device_ids(self) -> Integers:
        """Return the GPUs' keys, spread over 64 bits as hashes are."""
        return (self.gpu + self.node * GPUS + 1) * np.int64(0x1E3779B97F4A7C15)

    def series(self) -> Iterator[tuple[int, str, Integers, Floats]]:
        """Yield GPU, column, times in milliseconds and values of everything that is not absent."""
        millis = self.time_unix_nano // 1_000_000
        for gpu in range(GPUS):
            ours = self.gpu == gpu
            for name, values in self.columns.items():
                there = ours & ~np.isnan(values)
                yield gpu, name, millis[there], values[there]

    def count(self) -> int:
        """Return the number of values."""
        return sum(int(np.count_nonzero(~np.isnan(values))) for values in self.columns.values())

    def total(self) -> float:
        """Return the sum of all values."""
        return float(sum(np.nansum(values) for values in self.columns.values()))


def node_rows(node: int, seconds: int, start_unix_nano: int) -> Rows:
    """Return the node's series of this many seconds; the same for the same arguments."""
    random = np.random.default_rng(node)
    ticks = seconds * RATE_HZ
    fast = _fast_figures(random, ticks)
    counters = _counters(random, seconds)
    # The agent's lanes are some 80 µs late, as its own measurements say.
    late_nano = np.abs(random.normal(80_000, 20_000, ticks)).astype(np.int64)
    tick_nano = start_unix_nano + np.arange(ticks) * (10**9 // RATE_HZ) + late_nano
    second_nano = tick_nano[::RATE_HZ] + 40_000_000
    time = np.concatenate([np.repeat(tick_nano, GPUS), np.repeat(second_nano, GPUS)])
    gpu = np.concatenate([np.tile(np.arange(GPUS), ticks), np.tile(np.arange(GPUS), seconds)])
    order = np.argsort(time, kind="stable")
    absent_fast, absent_counters = np.full(ticks * GPUS, np.nan), np.full(seconds * GPUS, np.nan)
    columns = {name: np.concatenate([values.T.ravel(), absent_counters])[order] for name, values in fast.items()}
    columns |= {name: np.concatenate([absent_fast, values.T.ravel()])[order] for name, values in counters.items()}
    return Rows(
        node=node, time_unix_nano=time[order], gpu=gpu[order], columns={name: columns[name] for name in COLUMNS}
    )


def records(rows: Rows) -> bytes:
    """Return the rows as an agent sends them."""
    message = Records()
    table = message.tables.add(name="gpu_samples", rows=len(rows))
    table.columns.add(name="time", integers=rows.time_unix_nano.tobytes())
    table.columns.add(name="device_id", integers=rows.device_ids().tobytes())
    for name, values in rows.columns.items():
        there = ~np.isnan(values)
        column = table.columns.add(name=name)
        column.validity = b"" if there.all() else np.packbits(there, bitorder="little").tobytes()
        filled = np.where(there, values, 0)
        if name in INTEGERS:
            column.integers = filled.astype(np.int64).tobytes()
        else:
            column.doubles = filled.tobytes()
    _add_power_kind(table, ~np.isnan(rows.columns["power_watts"]))
    return message.SerializeToString()


def arrow(rows: Rows) -> pa.Table:
    """Return the rows as the collector inserts them."""
    constant = np.full(len(rows), rows.node)
    columns: dict[str, Any] = {
        "session_id": constant,
        "node_id": constant,
        "time": pa.array(rows.time_unix_nano // 1000, pa.timestamp("us")),
        "device_id": rows.device_ids(),
    }
    for name, values in rows.columns.items():
        array = pa.array(values, from_pandas=True)
        columns[name] = array.cast(pa.int64()) if name in INTEGERS else array
    there = ~np.isnan(rows.columns["power_watts"])
    columns["power_kind"] = pa.array(np.where(there, POWER_KIND, None), pa.string())  # type: ignore[call-overload]
    return pa.table(columns)


def _add_power_kind(table: Any, there: npt.NDArray[np.bool_]) -> None:
    column = table.columns.add(name="power_kind")
    column.validity = np.packbits(there, bitorder="little").tobytes()
    offsets = np.concatenate([[0], np.cumsum(there) * len(POWER_KIND)]).astype(np.int32)
    column.texts.offsets, column.texts.utf8 = offsets.tobytes(), POWER_KIND.encode() * int(there.sum())


def _fast_figures(random: np.random.Generator, ticks: int) -> dict[str, Floats]:
    """Return the figures of each tick, of shape (GPUS, ticks). Rarely updated values stay for some ticks."""
    shape = (GPUS, ticks)
    recorded = _recorded()
    load = random.uniform(0.5, 2.1, (GPUS, 1))
    utilization = np.repeat(random.choice(recorded.utilization, (GPUS, ticks // 2 + 1)), 2, axis=1)[:, :ticks]
    utilization = np.clip(np.round(utilization * np.minimum(load, 1.5)), 0, 100)
    watts = recorded.power_watts * load
    wanted = watts.mean(axis=1, keepdims=True) + _wander(random, shape, recorded.persistence) * watts.std(
        axis=1, keepdims=True
    )
    excess = np.maximum(wanted - _POWER_LIMIT_WATTS, 0)
    clock = _TOP_CLOCK_MHZ - _CLOCK_STEP_MHZ * np.ceil(excess / 10)
    allocated = np.cumsum(random.random(shape) < 0.01, axis=1) * random.integers(-3, 4, (GPUS, 1)) % 512
    power = np.round(np.minimum(wanted, _POWER_LIMIT_WATTS + _wander(random, shape, 0.5)), 3)
    return {
        "utilization_percent": utilization,
        "memory_utilization_percent": np.round(utilization * 0.27 + random.normal(0, 0.3, shape)),
        "memory_used_bytes": recorded.memory_used_bytes + allocated * _PAGE_BYTES,
        "memory_reserved_bytes": np.full(shape, recorded.memory_reserved_bytes),
        "memory_total_bytes": np.full(shape, recorded.memory_total_bytes),
        "power_watts": power,
        "temperature_celsius": np.round(
            30 + 0.055 * power.mean(axis=1, keepdims=True) + _wander(random, shape, 0.9995)
        ),
        "sm_clock_mhz": clock,
        "memory_clock_mhz": np.full(shape, 3201.0),
        "throttle_reasons": np.where(excess > 0, _SW_POWER_CAP, 0).astype(np.float64),
        "ecc_errors_uncorrected": np.zeros(shape),
    }


def _counters(random: np.random.Generator, seconds: int) -> dict[str, Floats]:
    """Return GPM's figures of each second, of shape (GPUS, seconds), with all the digits that it gives."""
    shape = (GPUS, seconds)
    means = _recorded().counters
    return {
        name: np.abs(mean * (1 + 0.05 * _wander(random, shape, 0.8))) if mean else np.zeros(shape)
        for name, mean in means.items()
    }


def _wander(random: np.random.Generator, shape: tuple[int, int], persistence: float) -> Floats:
    """Return noise of variance one with this autocorrelation."""
    # It takes longest to import, and processes that only send do not need it.
    from scipy.signal import lfilter

    noise = random.normal(0, np.sqrt(1 - persistence**2), shape)
    wandered: Floats = lfilter([1.0], [1.0, -persistence], noise, axis=1)
    return wandered


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """The answers of a real H200 during a training."""

    utilization: Floats
    power_watts: Floats
    # Correlation of a power reading with the one 0.1 s before.
    persistence: float
    memory_used_bytes: float
    memory_reserved_bytes: float
    memory_total_bytes: float
    counters: Mapping[str, float]


def _recorded() -> _Recorded:
    answers: dict[str, list[Any]] = {
        call: [outcome["answer"] for outcome in outcomes if "answer" in outcome]
        for call, outcomes in NvmlRecording.load("h200_busy").outcomes.items()
    }
    watts = np.array(_of(answers, "nvmlDeviceGetFieldValues"), dtype=np.float64) / 1000
    rates = _of(answers, "nvmlDeviceGetUtilizationRates")
    memory = next(said[-1] for said in _all_of(answers, "nvmlDeviceGetMemoryInfo") if "reserved" in said[-1])
    figures = _of(answers, "gpm")[-1]
    return _Recorded(
        utilization=np.array([each["gpu"] for each in rates], dtype=np.float64),
        power_watts=watts,
        persistence=float(np.corrcoef(watts[:-1], watts[1:])[0, 1]),
        memory_used_bytes=memory["used"],
        memory_reserved_bytes=memory["reserved"],
        memory_total_bytes=memory["total"],
        counters={column: figures[str(number)] * factor for number, (column, factor) in METRICS.items()},
    )


def _of(answers: Mapping[str, list[Any]], function: str) -> list[Any]:
    return next(_all_of(answers, function))


def _all_of(answers: Mapping[str, list[Any]], function: str) -> Iterator[list[Any]]:
    return (said for call, said in answers.items() if call.startswith(f"{function}("))
