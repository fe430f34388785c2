"""Every answer in every format, as it was reviewed. `make goldens` writes them anew; their diff shows a change."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from gpuagent_collector.cli.answers import AnswerCommand
from gpuagent_collector.present.answer import Answer
from gpuagent_collector.query.ask import Ask
from tests.integration.recommend.scenes import PRICES
from tests.support.commands import Collector
from tests.support.goldens import GOLDENS, assert_golden

# Name of the files → the command.
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
}

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
OTHERS = [pytest.param(form, marks=pytest.mark.slow) for form in FORMS if form != QUICK]

# Digits beyond these differ with the processor and the library.
_LONG_NUMBER = re.compile(r"-?\d+\.\d{9,}(?:e[+-]?\d+)?|-?\d\.\d+e-\d+")


@pytest.fixture(scope="module", autouse=True)
def _each_answer_once() -> Iterator[None]:
    """Let each command ask its store once for all formats."""
    found: dict[str, Answer] = {}
    call = AnswerCommand.call

    def call_once(entry: AnswerCommand, ask: Ask, source: str, asked: dict[str, Any]) -> Answer:
        asking = f"{entry.function} {asked}"
        if asking not in found:
            found[asking] = call(entry, ask, source, asked)
        return found[asking]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnswerCommand, "call", call_once)
        yield


@pytest.mark.parametrize("form", [QUICK, *OTHERS])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_as_it_was_reviewed(
    call: Collector, name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PRICES.parent)  # no answer names the folder of this checkout
    output_format, columns = FORMS[form]
    command, *arguments = shlex.split(ANSWERS[name])
    code, out, _ = call(command, *arguments, "--format", output_format, columns=columns)
    assert code == 0
    assert_golden(_LONG_NUMBER.sub(_rounded, out), f"{name}.{form}")


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number.group()):.9g}"


FIRST_SCREENS = ("compare", "plan", "recommend", "recommend-prices", "peers", "outliers", "history")


@pytest.mark.parametrize("name", FIRST_SCREENS)
def test_a_first_screen_fits_into_24_lines(name: str) -> None:
    assert len((GOLDENS / f"{name}.{QUICK}").read_text().strip().splitlines()) < 24
