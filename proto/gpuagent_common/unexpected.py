"""Exceptions that nobody expected, in one line and in a private file, and the form of logs."""

import logging
import os
import sys
import threading
from types import TracebackType
from typing import Any

from gpuagent_common.text import harmless

# Set to 1, tracebacks are printed as well.
DEBUG = "GPUAGENT_DEBUG"

_MOST_CHARACTERS = 300


def is_debugging() -> bool:
    """Return whether the user wants tracebacks."""
    return os.environ.get(DEBUG) == "1"


def describe_unexpected(program: str, error: BaseException) -> str:
    """Return one line about an error, which names the file that its details were written to."""
    if isinstance(error, MemoryError):
        return "memory ran out; close other programs, or raise the limit (ulimit -v)"
    try:
        import traceback  # as below, rarely needed and slow to import

        details = "".join(traceback.format_exception(error))
        if is_debugging():
            _print(details.encode("ascii", "backslashreplace").decode())
        place = _keep(program, details)
    except Exception:  # noqa: BLE001 - whatever fails here must not hide the error itself
        place = f"what {DEBUG}=1 adds"
    return f"unexpected {name_error(error)}; please report it with {place}"


def name_error(error: BaseException) -> str:
    """Return the kind and the text of an error on one line of bounded length."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    text = " ".join(str(error).split())
    shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return harmless(f"{name}: {shown}" if shown else name)


def _keep(program: str, details: str) -> str:
    import platform
    import tempfile

    about = f"{program}, Python {platform.python_version()} on {platform.platform()}\n"
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"{program}-error-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(about + details)
        return file.name


def replace_hooks(program: str) -> None:
    """Let errors of threads, and of what Python cleans up, be one line as well."""

    def report_thread(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None and failed.exc_type is not SystemExit:
            _print(f"{program}: {describe_unexpected(program, failed.exc_value)}")

    def report_ignored(ignored: Any) -> None:
        # A pipe that nobody reads any more is no fault of ours.
        if is_debugging() and not isinstance(ignored.exc_value, BrokenPipeError):
            _print(f"{program}: ignored {name_error(ignored.exc_value)}")

    threading.excepthook = report_thread
    sys.unraisablehook = report_ignored


def _print(line: str) -> None:
    try:
        sys.stderr.write(f"{line}\n")
    except (OSError, ValueError, AttributeError):  # closed, or never opened
        return


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
