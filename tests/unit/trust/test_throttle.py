import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gpuagent_collector.server.throttle import Share, Throttle


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    now = [0.0]
    throttle = Throttle(rate=10.0, burst=5.0, monotonic=lambda: now[0])
    assert [throttle.delay_seconds() for _ in range(5)] == [0.0] * 5
    for _ in range(20):
        now[0] += throttle.delay_seconds()
    assert now[0] == 20 / 10.0
    now[0] = 1000.0
    assert [throttle.delay_seconds() > 0 for _ in range(7)] == [False] * 5 + [True] * 2


@given(
    sizes=st.lists(st.integers(1, 150), min_size=1, max_size=30),
    given_up=st.sets(st.integers(0, 29)),
    turns=st.integers(0, 5),
)
async def test_of_a_share_no_more_is_taken_than_there_is_and_who_asked_first_goes_first(
    sizes: list[int], given_up: set[int], turns: int
) -> None:
    share = Share(max_messages=3, max_bytes=100)
    order: list[int] = []

    async def send(place: int) -> None:
        await share.take(sizes[place])
        order.append(place)
        assert share.messages <= 3
        assert share.size_bytes <= 100 or share.messages == 1
        try:
            await asyncio.sleep(0)
        finally:
            share.give_back(sizes[place])

    tasks = [asyncio.create_task(send(place)) for place in range(len(sizes))]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in (task for place, task in enumerate(tasks) if place in given_up):
        task.cancel()
    await asyncio.gather(*(task for place, task in enumerate(tasks) if place not in given_up))
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == sorted(order)
    assert set(range(len(sizes))) - given_up <= set(order)
    assert (share.messages, share.size_bytes) == (0, 0)
