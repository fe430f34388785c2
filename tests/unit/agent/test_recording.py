"""What an agent records of a run's request."""

from gpuagent.runs.recording import shorten_command


def test_a_long_command_is_recorded_as_far_as_a_collector_takes_it() -> None:
    words = ["convert", *(f"{number:06}.jpg" for number in range(40_000))]
    short = shorten_command(words)
    assert shorten_command(words[:100]) == words[:100]
    assert short[:-1] == words[: len(short) - 1]
    assert short[-1] == f"… {len(words) - len(short) + 1} more words"
    assert len("".join(short)) < 40_000
