"""Notifications of systemd by sd_notify(3); without systemd they do nothing."""

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Notify systemd of a state: READY=1, WATCHDOG=1 or STOPPING=1."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # An abstract address begins with a NUL, which an environment variable cannot contain.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, suppress(OSError):
        sender.sendto(state.encode(), target)


def watchdog_seconds() -> float | None:
    """Return the interval of WATCHDOG=1, half of systemd's time limit; None: no watchdog."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    is_for_us = os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
    return int(microseconds) / 2e6 if is_for_us and microseconds.isdecimal() and int(microseconds) else None
