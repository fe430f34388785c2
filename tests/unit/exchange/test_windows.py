from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.exchange.tables import Window, join_windows, subtract_windows

WINDOWS = st.lists(
    st.builds(
        lambda node_id, start, length: Window(node_id=node_id, start_micros=start, end_micros=start + length),
        st.integers(1, 2),
        st.integers(0, 30),
        st.integers(1, 10),
    ),
    max_size=8,
)


def moments(windows: list[Window]) -> set[tuple[int, int]]:
    return {(each.node_id, moment) for each in windows for moment in range(each.start_micros, each.end_micros)}


def check_apart(windows: list[Window]) -> None:
    for one, other in pairwise(windows):
        assert (one.node_id, one.end_micros) < (other.node_id, other.start_micros)


@given(WINDOWS)
def test_joined_windows_hold_the_same_time_and_do_not_touch(windows: list[Window]) -> None:
    assert moments(join_windows(windows)) == moments(windows)
    check_apart(join_windows(windows))


@given(WINDOWS, WINDOWS)
def test_what_is_left_is_in_none_of_the_others(windows: list[Window], others: list[Window]) -> None:
    assert moments(subtract_windows(windows, others)) == moments(windows) - moments(others)
    check_apart(subtract_windows(windows, others))
