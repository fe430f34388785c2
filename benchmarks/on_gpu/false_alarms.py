"""The share of comparisons of equal settings that report a difference, with its exact interval.

`python3 benchmarks/on_gpu/false_alarms.py EXPERIMENT…` compares both sides of each pair of the label `side`, one pair
at a time: each is a family of its own, at 5 %. The collector's address is that of `collector compare`.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from scipy.stats import binomtest


def main(experiments: list[str]) -> int:
    """Print a line a pair, and the count; return the exit code."""
    with ThreadPoolExecutor(8) as pool:
        groups = list(pool.map(_tests, experiments))
        pairs = [(name, test) for name, tests in zip(experiments, groups, strict=True) for test in tests]
        alone = list(pool.map(lambda pair: _test_alone(*pair), pairs))
    for test in alone:
        varied = " ".join(f"{key}={value}" for key, value in test["parameters"].items() if key in _VARIED)
        interval = f"{test['low']:.4f} to {test['high']:.4f}" if test["low"] is not None else "no interval"
        print(
            f"{test['workload']:<10} {varied:<18} {test['pairs'] or 0} pairs  ratio {test['estimate']:.4f}, {interval}"
            f"  p {test['p_value']:.3f}  {test['verdict']}"
        )
    # Fixed in advance: with fewer than six pairs nothing can be called different, so such a comparison does not count.
    counted = [test for test in alone if test["verdict"] != "n too small"]
    alarms = sum(not test["low"] <= 1 <= test["high"] for test in counted)
    equal = sum(test["verdict"] == "=" for test in counted)
    low, high = binomtest(alarms, len(counted)).proportion_ci(0.95, "exact") if counted else (0.0, 1.0)
    print(
        f"{len(counted)} of {len(alone)} comparisons count; intervals without 1: {alarms}, "
        f"{100 * low:.1f} to {100 * high:.1f} % (exact 95 % interval); shown equal: {equal}"
    )
    families = sum(any(test["verdict"] == "differs" for test in tests) for tests in groups)
    print(f"experiments with a false 'differs' in their own answer (Holm): {families} of {len(groups)}")
    return 0


_VARIED = ("batch-size", "model", "layer")


def _test_alone(experiment: str, test: dict[str, Any]) -> dict[str, Any]:
    """Return the test of one pair of sides as a family of its own."""
    given = [f"--param={key}={test['parameters'][key]}" for key in _VARIED if key in test["parameters"]]
    (alone,) = _compare("--experiment", experiment, "--workload", test["workload"], *given)["tests"]
    found: dict[str, Any] = alone
    return found


def _tests(experiment: str) -> list[dict[str, Any]]:
    """Return the tests of an experiment's own answer; none where it has no runs."""
    try:
        found: list[dict[str, Any]] = _compare("--experiment", experiment)["tests"]
    except subprocess.CalledProcessError:  # collector has printed why
        return []
    return found


def _compare(*options: str) -> dict[str, Any]:
    command = ["collector", "compare", "--by", "label:side", "--json", *options]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
