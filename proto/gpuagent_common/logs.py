"""Lines of a log."""

import logging
from types import TracebackType

from gpuagent_common.text import harmless
from gpuagent_common.unexpected import DEBUG, is_debugging, name_error

_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LineFormatter(logging.Formatter):
    """A formatter of messages as one escaped line each, because others supply parts of some.

    An error that was logged with its traceback is named at the end; the traceback follows only where it is wanted.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record."""
        line = super().formatMessage(record)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not is_debugging():
            line += f": {name_error(error)} ({DEBUG}=1 shows where)"
        return harmless(line)

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - logging's name
        """Return the traceback where it is wanted."""
        return super().formatException(ei) if is_debugging() else ""
