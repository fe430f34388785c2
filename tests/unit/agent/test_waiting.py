"""The line of a long wait, and its absence in a short one."""

import pytest

from gpuagent_common.clocks import describe_offset, is_clock_wrong
from gpuagent_common.waiting import waiting_for
from tests.support.servers import until


def test_a_long_wait_says_what_it_is_for_and_a_short_one_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with waiting_for("gpuagent", "nothing", after_seconds=600):
        pass
    printed = ""

    def has_printed() -> bool:
        nonlocal printed
        printed += capfd.readouterr().err
        return "the moon" in printed

    with waiting_for("gpuagent", "the moon", after_seconds=0):
        until(has_printed, "the line")
    assert "nothing" not in printed


@pytest.mark.parametrize(
    ("offset_seconds", "words", "is_wrong"),
    [
        (172_799.999, "2 d behind", True),
        (-75.0, "75 s ahead", True),
        (3.0, "3 s behind", True),
        (-0.001, "0 s ahead", False),
    ],
)
def test_the_sign_of_a_clock_is_that_of_the_collector_s_less_the_node_s(
    offset_seconds: float, words: str, is_wrong: bool
) -> None:
    assert describe_offset(offset_seconds) == words
    assert is_clock_wrong(offset_seconds) is is_wrong
