"""Output of NVIDIA's programs: ncu's CSV and lists of metrics, dcgmi's tables. An input's first byte selects one."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuagent.sources import dcgm
from gpuagent_workloads.counters import core_flops, dram_bytes, flops_metrics, parse, tensor_flops
from gpuagent_workloads.errors import WorkloadError
from tests.fuzz.tally import Attempt

TOKENS = (
    b'"ID",~"Metric Name",~"Metric Value"~==ERROR== ~==PROF== ~dram__bytes_read.sum~n/a~"~'
    b"dram__bytes_write.sum~sm__ops_path_tensor_src_fp16~1,024~inf~1e400~GPU 0 ~Device UUID: ~| 0 |~| 1002 |~N/A~0.5~"
    b"ERR_NVGPUCTRPERM"
).split(b"~")


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Parse."""

    def attempt(data: bytes) -> None:
        parse_text = _PARSERS[data[0] % len(_PARSERS)] if data else _ncu
        parse_text(data[1:].decode(errors="replace"))

    yield attempt


def _ncu(text: str) -> None:
    with suppress(WorkloadError):
        readings = parse(text.splitlines(keepends=True))
        assert readings and all(math.isfinite(reading.value) for reading in readings)
        assert isinstance(core_flops(readings, "fp32") + tensor_flops(readings), int)
        assert isinstance(dram_bytes(readings), int)


def _ncu_metrics(text: str) -> None:
    assert all(" " not in name for name in flops_metrics(text))


def _dcgm_row(text: str) -> None:
    for line in text.splitlines():
        row = dcgm.parse_row(line, list(dcgm.COLUMNS)[:3])
        assert row is None or all(math.isfinite(value) for value in row[1].values())


def _dcgm_gpus(text: str) -> None:
    assert all(number.isdecimal() or not number for number in dcgm.parse_gpus(text).values())


def _dcgm_fields(text: str) -> None:
    assert all(0 <= field < 10**9 for field in dcgm.parse_fields(text))


def _dcgm_complaint(text: str) -> None:
    assert "\n" not in dcgm.complaint(text.splitlines())


# By the first byte modulo their number: `a` is the second, `b` the third.
_PARSERS: tuple[Callable[[str], None], ...] = (
    *(_dcgm_complaint, _ncu, _ncu_metrics, _dcgm_row, _dcgm_gpus, _dcgm_fields),
)
