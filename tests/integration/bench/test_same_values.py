"""What `make bench-ingest` compares is the same: it sees that every database has every value afterwards."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.ingest.__main__ import measure
from benchmarks.ingest.contender import Contender
from benchmarks.ingest.ours import PLAIN
from benchmarks.ingest.prometheus import PROMETHEUS
from benchmarks.ingest.victoria_metrics import JSON_LINES

pytestmark = pytest.mark.slow

OTHERS = pytest.mark.needs("victoria-metrics", "prometheus")


@pytest.mark.parametrize(
    "contenders",
    [
        pytest.param((PLAIN,), id="ours"),
        # What Prometheus gets is what VictoriaMetrics gets by remote write.
        pytest.param((JSON_LINES, PROMETHEUS), id="others", marks=OTHERS),
    ],
)
def test_every_value_that_is_sent_is_in_the_database(contenders: Sequence[Contender], tmp_path: Path) -> None:
    measured = measure(tmp_path, 20, 1, node_count=2, contenders=contenders)
    assert measured.keys() == {*(each.name for each in contenders), "DuckDB alone"}
    for each in measured.values():
        assert each.per_second > 0
        assert min(each.left_bytes + each.compacted_bytes) > 0
