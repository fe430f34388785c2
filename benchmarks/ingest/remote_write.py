"""Prometheus remote write, version 1: https://prometheus.io/docs/concepts/remote_write_spec/.

message WriteRequest { repeated TimeSeries timeseries = 1; }
message TimeSeries { repeated Label labels = 1; repeated Sample samples = 2; }
message Label { string name = 1; string value = 2; }
message Sample { double value = 1; int64 timestamp = 2; }
"""

from collections.abc import Iterator

import numpy as np

from benchmarks.gpu_series import POWER_KIND, Floats, Integers, Rows

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

# A varint of milliseconds since 1970 has six bytes from 2004 to 2109, so that every sample has the same size.
_TIMESTAMP_BYTES = 6

_SAMPLE = np.dtype(
    [
        ("field", "u1"),
        ("size", "u1"),
        ("value_field", "u1"),
        ("value", "<f8"),
        ("timestamp_field", "u1"),
        ("timestamp", "u1", (_TIMESTAMP_BYTES,)),
    ]
)
_LITERAL = 1 << 16


def labels_of(rows: Rows, gpu: int, column: str) -> dict[str, str]:
    """Return the labels of a series; our texts become labels."""
    kind = {"power_kind": POWER_KIND} if column == "power_watts" else {}
    return {"__name__": f"gpu_{column}", "gpu": str(gpu), "node": f"node-{rows.node}", **kind}


def write_request(rows: Rows) -> bytes:
    """Return a compressed WriteRequest of everything that is not absent."""
    return _snappy(b"".join(_field(1, series) for series in _all_series(rows)))


def _all_series(rows: Rows) -> Iterator[bytes]:
    for gpu, column, millis, values in rows.series():
        labels = b"".join(
            _field(1, _field(1, name.encode()) + _field(2, value.encode()))
            for name, value in labels_of(rows, gpu, column).items()
        )
        yield labels + _samples(millis, values)


def _samples(millis: Integers, values: Floats) -> bytes:
    samples = np.empty(len(values), _SAMPLE)
    samples["field"], samples["size"] = 2 << 3 | 2, _SAMPLE.itemsize - 2
    samples["value_field"], samples["value"] = 1 << 3 | 1, values
    samples["timestamp_field"] = 2 << 3
    for place in range(_TIMESTAMP_BYTES):
        more = 0x80 if place < _TIMESTAMP_BYTES - 1 else 0
        samples["timestamp"][:, place] = millis >> 7 * place & 0x7F | more
    return samples.tobytes()


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    pieces = bytearray()
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])


def _snappy(content: bytes) -> bytes:
    """Frame without compressing, which the format allows: a server unpacks it at almost no cost."""
    pieces = [_varint(len(content))]
    for start in range(0, len(content), _LITERAL):
        literal = content[start : start + _LITERAL]
        pieces += [bytes([61 << 2]), (len(literal) - 1).to_bytes(2, "little"), literal]
    return b"".join(pieces)
