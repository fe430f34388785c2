"""What the driver tells of a GPU as it happens, such as Xid errors."""

import contextlib
from typing import Any

# A GPU that fails again and again would else never be done telling; the rest comes with the next look.
_MOST_AT_ONCE = 100


class DriverEvents:
    """The events of one GPU since this was made, through pynvml; what pynvml raises is passed on."""

    def __init__(self, pynvml: Any, handle: Any, kinds: int) -> None:
        """Listen for `kinds`, bits of nvmlEventType…"""
        self._pynvml = pynvml
        self._set = pynvml.nvmlEventSetCreate()
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, kinds, self._set)
        except pynvml.NVMLError:
            self.release()
            raise

    def drain(self) -> list[tuple[int, int]]:
        """Return kind and number of what has happened and was not told yet; never waits."""
        happened: list[tuple[int, int]] = []
        while len(happened) < _MOST_AT_ONCE:
            try:
                event = self._pynvml.nvmlEventSetWait_v2(self._set, 0)
            except self._pynvml.NVMLError as error:
                # A GPU that fell off the bus tells so before it is lost; the loss itself comes with the next look.
                if happened or error.value == self._pynvml.NVML_ERROR_TIMEOUT:
                    break
                raise
            happened.append((event.eventType, event.eventData))
        return happened

    def release(self) -> None:
        """Stop listening; this is of no use after that."""
        with contextlib.suppress(self._pynvml.NVMLError):
            self._pynvml.nvmlEventSetFree(self._set)
