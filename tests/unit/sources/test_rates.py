from gpuagent.sources.support.rates import Rates, increase, total
from tests.support.trees import instant


def test_a_rate_is_the_rise_by_the_time_between() -> None:
    rates = Rates[str]()
    assert rates.per_second({"bytes": 900}, instant(10)) == {}
    assert rates.per_second({"bytes": 1000}, instant(10)) == {}
    assert rates.per_second({"bytes": 1500}, instant(12)) == {"bytes": 250.0}


def test_a_counter_that_fell_or_is_absent_has_no_rate() -> None:
    rates = Rates[str]()
    rates.per_second({"reset": 1000, "gone": 5, "new": None}, instant(0))
    absent = dict.fromkeys(("reset", "gone", "new"))
    assert rates.per_second({"reset": 10, "gone": None, "new": 5}, instant(1)) == absent
    assert rates.per_second({"reset": 11, "gone": 5, "new": 6}, instant(2)) == {"reset": 1.0, "gone": None, "new": 1.0}


def test_a_total_with_a_missing_part_is_absent() -> None:
    assert total({"sda": 1.0, "sdb": 2.0}) == 3.0
    assert total({"sda": 1.0, "sdb": None}) is None
    assert total({}) is None


def test_an_increase_is_never_negative() -> None:
    assert increase(3, 7) == 4
    assert increase(7, 3) is None
    assert increase(None, 3) is None
