"""NVML's clock event reasons: those that throttle clocks, and their names.

Idle, application clocks, sync boost and display clocks are reasons too, but no throttling: somebody wanted them. A
hardware slowdown comes with the bit of its cause, where the GPU knows it. Source: nvml.h, nvmlClocksEventReason….
"""

POWER_CAP, HARDWARE, SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 4, 8, 32, 64, 128
THERMAL = SOFTWARE_THERMAL | HARDWARE_THERMAL
# All bits under which a GPU runs slower than it could.
HOLDING = POWER_CAP | HARDWARE | THERMAL | POWER_BRAKE

# Bits → cause of throttling, the gravest first.
_NAMES = ((THERMAL, "heat"), (POWER_BRAKE, "power brake"), (HARDWARE, "hardware"), (POWER_CAP, "power cap"))


def held_back_by(reasons: int | None) -> str | None:
    """Return the gravest cause of throttling; None: none, or unknown."""
    return next((name for bits, name in _NAMES if reasons and reasons & bits), None)
