"""`python -m tests.fault.collector …`: the collector's command, with a wall clock that can be set.

The clock is set by what the file `clock` in the working directory says, in seconds: at the start, and at SIGUSR1. It is
the one that the collector's own code looks at; DuckDB's `now()` stays as it is.
"""

import signal
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from gpuagent_collector import times
from gpuagent_collector.cli import main
from tests.fault.generator import CLOCK_FILE

_TIME_NS = time.time_ns


class SteppedDatetime(datetime):
    ahead = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + cls.ahead


def _set(*_: object) -> None:
    file = Path(CLOCK_FILE)
    SteppedDatetime.ahead = timedelta(seconds=float(file.read_text() if file.exists() else 0))


if __name__ == "__main__":
    _set()
    signal.signal(signal.SIGUSR1, _set)
    vars(times)["datetime"] = SteppedDatetime
    time.time_ns = lambda: _TIME_NS() + SteppedDatetime.ahead // timedelta(microseconds=1) * 1000
    main()
