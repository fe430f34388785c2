"""A few of the faults that `python -m tests.fault.trials` tries by the hundred."""

from contextlib import closing
from pathlib import Path
from random import Random

from tests.fault.faults import FAULTS
from tests.fault.site import Site

_TRIED = {"cut", "lose-acknowledgements", "reset-in-mid-frame", "strand", "kill-agent"}


def test_whatever_happens_in_a_row_everything_durable_is_stored_once_and_nothing_is_left(tmp_path: Path) -> None:
    tried = [fault for fault in FAULTS if fault.name in _TRIED]
    assert len(tried) == len(_TRIED)
    with closing(Site(tmp_path)) as site:
        for fault in tried:
            fault.happen(site, Random(1))
            site.settle()
            assert site.findings().are_none, f"{fault.name}: {site.findings()}"
        assert site.leftovers() == []
