"""Matrix products for a share of the time; its options are `Config` in `__init__.py`."""

import time
from collections.abc import Callable

import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.measuring.setup import free_gpu_bytes, set_up_device, tf32_set, type_of, why_not
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.gpu_burn import Config
from gpuagent_workloads.training.timing import median_seconds

# Of the square matrices: so large that even a slow host launches products faster than a fast GPU computes them (an
# H200 takes 0.2 ms for one), and on most GPUs done in far less than a period.
SIDE = 4096

# The clocks rise and settle before a product is timed.
_HEAT_SECONDS = 1.0

# Work and rest alternate this fast: well below the sixth of a second over which the driver averages utilisation.
PERIOD_SECONDS = 0.05


def burn(config: Config, reporter: Reporter) -> None:
    """Run the workload from its device to the achieved load.

    Raises:
        MisuseError: there is no GPU, or it lacks the memory or the precision.
        WorkloadError: this torch was not built for the GPU.
    """
    if not torch.cuda.is_available():
        raise MisuseError(f"gpu-burn needs a GPU, and torch {torch.__version__} finds none here")
    device = set_up_device("cuda", reporter)
    if config.precision == "auto":
        # GPUs before 7.0 have no tensor cores, and some of them hardly any arithmetic of 16 bits.
        precision = "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"
    else:
        reason = why_not(config.precision, device)
        if reason:
            raise MisuseError(reason)
        precision = config.precision
    reporter.result("precision", precision)
    held = hold(config.memory_bytes or 0, device)
    with tf32_set(precision):
        burner = Burner(type_of(precision), device)
        reporter.phase("warmup")
        burner.calibrate()
        try:
            reporter.phase("measure")
            burner.go_on(config.load / 100, config.duration)
        finally:
            reporter.phase("teardown")
            reporter.result("held_bytes", held.nbytes, unit="bytes")
            burner.report(reporter)


def hold(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Return memory of that size on the GPU. Raises MisuseError where less is free."""
    free_bytes = free_gpu_bytes(device)
    if size_bytes > free_bytes:
        raise MisuseError(f"--memory-bytes {size_bytes} is more than the {free_bytes} free bytes of the GPU")
    return torch.zeros(size_bytes, dtype=torch.uint8, device=device)


class Burner:
    """A loop of products of random matrices that counts its work."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._device = device
        # Random, since a GPU draws less power, and so clocks higher, on zeros.
        self._left, self._right = (torch.randn(SIDE, SIDE, device=device).to(dtype) for _ in range(2))
        self._product = torch.empty_like(self._left)
        self._product_seconds = 0.0
        self._products = 0
        self._began_seconds = time.perf_counter()
        # The host sleeps while it waits for this; by default it would keep a core busy, too.
        self._done = torch.cuda.Event(blocking=True)

    def calibrate(self) -> None:
        """Measure the time of a product when nothing else uses the GPU."""
        until_seconds = time.perf_counter() + _HEAT_SECONDS
        while time.perf_counter() < until_seconds:
            self._multiply(100)
        self._product_seconds = median_seconds(lambda: self._enqueue(20), self._device, repeats=20) / 20

    def go_on(self, share: float, duration_seconds: float | None) -> None:
        """Multiply for `share` of the time until it is up; None: for ever."""
        products, period = pace(share, self._product_seconds)
        self._products, self._began_seconds = 0, time.perf_counter()
        until_seconds = self._began_seconds + duration_seconds if duration_seconds else float("inf")
        alternate(lambda: self._multiply(products), period, lambda: time.perf_counter() >= until_seconds)

    def report(self, reporter: Reporter) -> None:
        """Report the achieved share of the idle GPU's rate."""
        seconds = time.perf_counter() - self._began_seconds
        reporter.result("achieved_load", 100 * self._products * self._product_seconds / seconds, unit="%")
        reporter.result("achieved_flops_per_second", self._products * 2 * SIDE**3 / seconds, unit="FLOP/s")
        reporter.result("idle_flops_per_second", 2 * SIDE**3 / self._product_seconds, unit="FLOP/s")

    def _multiply(self, products: int) -> None:
        self._enqueue(products)
        self._done.record()
        self._done.synchronize()
        self._products += products

    def _enqueue(self, products: int) -> None:
        for _ in range(products):
            torch.mm(self._left, self._right, out=self._product)


def pace(share: float, product_seconds: float) -> tuple[int, float]:
    """Return the number of products, at least one, and the period in which they take `share`.

    The period is `PERIOD_SECONDS`, but for rounding to whole products.

    Args:
        share: from 0 to 1.
        product_seconds: the time of one on the idle GPU.
    """
    products = max(1, round(share * PERIOD_SECONDS / product_seconds))
    return products, products * product_seconds / share


def alternate(
    work: Callable[[], None],
    period: float,
    is_enough: Callable[[], bool],
    now_seconds: Callable[[], float] = time.perf_counter,
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """Work once a period, and rest for the remainder, until `is_enough()`.

    When the work takes longer than a period, as on a shared GPU, the next begins at once; lost time is not made up for.
    """
    ends_seconds = now_seconds()
    while not is_enough():
        ends_seconds = max(ends_seconds, now_seconds()) + period
        work()
        left_seconds = ends_seconds - now_seconds()
        if left_seconds > 0:
            rest(left_seconds)
