"""Every answer in every format, as it was reviewed. `make goldens` writes them anew; their diff shows a change."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from gpuagent_collector.cli.answers import ANSWERS as REGISTRY
from tests.integration.compare.filled import FILLS, Fill
from tests.integration.recommend.scenes import PRICES
from tests.support.commands import Collector
from tests.support.goldens import GOLDENS, assert_golden

# Name of the files → the command. Answers without a line are asked by their name alone.
ANSWERS = {
    "compare": "compare --by interference",
    "compare-all": "compare --by interference --all --no-series",
    "plan": "plan",
    "scaling": "scaling vgg16",
    "serving": "serving --by parameter:server",
    "profile": "profile bare docker --by environment",
    "roofline": "roofline",
    "recommend": "recommend mnist",
    "recommend-prices": f"recommend mnist --prices {PRICES.name}",
    "show": "show run-1",
    "show-failed": "show run-3",
    "peers": "peers node-9",
    "outliers": "outliers",
    "history": "history",
    "jobs": "jobs --since 7d",
    "jobs-prices": f"jobs --user alice --prices {PRICES.name}",
    "job": "job 4711",
    "job-pod": f"job vision/serve-0 --prices {PRICES.name}",
    "idle": f"idle --prices {PRICES.name}",
    "compare-jobs": "compare --by user --workload train",
    "compare-two-jobs": "compare 4714 4715",
    "peers-jobs": "peers 4715",
    "history-jobs": "history train",
}

COMMANDS = {line.split()[0] for line in ANSWERS.values()}
ANSWERS |= {name: name for name, entry in REGISTRY.items() if name not in COMMANDS and not entry.is_file}

FORMS = {
    "80.txt": ("table", 80),
    "120.txt": ("table", 120),
    "json": ("json", 80),
    "csv": ("csv", 80),
    "md": ("markdown", 80),
    "tex": ("latex", 80),
}

# The others differ from it in their last step alone.
QUICK = "80.txt"

# Answers of which the other forms, or the other width alone, say what these or those of another answer say.
QUICK_ALONE = ("compare", "recommend", "compare-jobs", "compare-two-jobs", "peers-jobs", "history-jobs")
NARROW = ("history", "plan", "serving", "show-failed")

CASES = [
    pytest.param(name, form, marks=() if form == QUICK else pytest.mark.slow)
    for name, form in product(ANSWERS, FORMS)
    if form == QUICK or name not in (QUICK_ALONE if form != "120.txt" else QUICK_ALONE + NARROW)
]

# Of a line of JSON.
WIDTH = 160

# Digits beyond these differ with the processor and the library.
_LONG_NUMBER = re.compile(r"-?\d+\.\d{9,}(?:e[+-]?\d+)?|-?\d\.\d+e-\d+")


@pytest.mark.parametrize(("name", "form"), CASES)
def test_an_answer_is_as_it_was_reviewed(
    call: Collector, filled: Callable[[Fill], Path], name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output_format, columns = FORMS[form]
    command, *arguments = shlex.split(ANSWERS[name])
    store = filled(FILLS.get("nightly" if name.endswith("-jobs") else command, FILLS["compare"]))
    shutil.copy(PRICES, store.parent)
    monkeypatch.chdir(store.parent)  # answers name their store, and no other folder
    code, out, _ = call(command, *arguments, "--format", output_format, columns=columns, store=Path(store.name))
    assert code == 0
    text = _LONG_NUMBER.sub(_rounded, out)
    if form == "json":
        found = json.loads(text)
        assert text == json.dumps(found, indent=2) + "\n"
        text = _folded(found)
    assert_golden(text, f"{name}.{form}")


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number.group()):.9g}"


def _folded(value: object, indent: str = "") -> str:
    """Return JSON with as much in a line as fits: a metric's figures, say, which then are a line of a diff."""
    text = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(text) <= WIDTH or not isinstance(value, dict | list):
        return text
    inner = indent + "  "
    parts = [_folded(each, inner) for each in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {part}" for name, part in zip(value, parts, strict=True)]
    lines = [inner + parts[0]]
    for part in parts[1:]:
        if "\n" in lines[-1] + part or len(lines[-1]) + len(part) > WIDTH:
            lines[-1] += ","
            lines.append(inner + part)
        else:
            lines[-1] += f", {part}"
    return "\n".join([text[0], *lines, indent + text[-1]])


FIRST_SCREENS = [name for name in ANSWERS if name != "compare-all"]


@pytest.mark.parametrize("name", FIRST_SCREENS)
def test_a_first_screen_fits_into_24_lines(name: str) -> None:
    assert len((GOLDENS / f"{name}.{QUICK}").read_text().strip().splitlines()) < 24


def test_every_golden_is_compared() -> None:
    assert {path.name for path in GOLDENS.glob("*.*")} == {"{}.{}".format(*case.values) for case in CASES}
