"""Reports of a training program about itself; see docs/your-program.md.

    import gpuagent_report

    with gpuagent_report.report() as run:
        for batch in batches:
            train(batch)
            run.step(items=len(batch))

Outside a run of gpuagent nothing is written. Only the standard library is needed, from Python 3.8 on.
"""

from __future__ import annotations

import math
import os
from typing import Any

from gpuagent_report import observe
from gpuagent_report.steps import StepRecorder

__all__ = ["Run", "report"]


def report() -> Run:
    """Return the reports of this process; one process of each rank reports, others stay silent."""
    recorder = observe.hand_over() or StepRecorder(os.environ.get("GPUAGENT_RUN_DIR"))
    if recorder.file is None:
        recorder.found_by = None
    return Run(recorder)


class Run:
    """The reports of one process. As a context manager it writes everything on exit."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._recorder = recorder
        self._reason: str | None = None
        self._steps = 0

    def step(self, *, items: float | None = None) -> None:
        """Report that an optimizer step has ended.

        Args:
            items: samples or tokens that this process took in it; None: throughput is in steps.
        """
        self._recorder.end_step(items, self._reason)
        self._reason = None
        self._steps += 1

    def gap(self, reason: str) -> None:
        """Report that the time since the last step is no step's alone, such as for a checkpoint or a validation."""
        self._reason = reason

    def metric(self, name: str, value: float, *, step: int | None = None) -> None:
        """Report a figure of a step, such as the loss; of the last one unless given. NaN and infinity are refused."""
        if self._is_open() and self._is_finite(name, value):
            self._recorder.write("metric", name=name, step=self._steps if step is None else step, value=float(value))

    def result(self, name: str, value: float | str, *, unit: str | None = None) -> None:
        """Report a figure or a text of the whole run. NaN and infinity are refused."""
        if self._is_open() and (isinstance(value, str) or self._is_finite(name, value)):
            self._recorder.write("result", name=name, value=value, unit=unit)

    def finish(self) -> None:
        """Write everything and end the reports."""
        self._recorder.finish()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: Any) -> None:
        self.finish()

    def _is_finite(self, name: str, value: float) -> bool:
        """Return whether a store takes a figure; report it if not, so that its run says so."""
        is_finite = math.isfinite(value)
        if not is_finite:
            self._recorder.write("refused", name=name, value=str(float(value)))
        return is_finite

    def _is_open(self) -> bool:
        return self._recorder.file is not None or self._recorder.open()
