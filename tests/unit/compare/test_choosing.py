"""The experiment that is compared where a store has several of one program."""

from datetime import datetime

import pytest

from gpuagent_collector.compare.choosing import rank_experiments
from gpuagent_collector.runs.cells import lay_out
from gpuagent_collector.runs.facets import find_facet
from tests.support.bare_runs import bare_run


@pytest.mark.parametrize(
    ("experiments", "expected"),
    [
        ({"one": "aabb"}, []),
        ({"small": "ab", "large": "aabb"}, ["large", "small"]),
        # Of one command alone nothing can be compared, however many runs it has.
        ({"pair": "ab", "repeats": "aaaaaa"}, ["pair"]),
        ({"first": "aaa", "second": "bbb"}, []),
    ],
)
def test_of_several_experiments_the_one_with_most_runs_is_chosen(
    experiments: dict[str, str], expected: list[str]
) -> None:
    runs = []
    for name, commands in experiments.items():
        for number, command in enumerate(commands):
            known = {"status": "succeeded", "side": "vm", "workload": "train.py", "experiment": name}
            runs.append(bare_run(f"{name}-{number}", command=("python", "train.py", command), **known))
    layout = lay_out(runs, find_facet("platform"), ("vm",))
    assert [name for name, _ in rank_experiments(layout)] == expected


def test_of_experiments_with_as_many_runs_the_newest_is_chosen_and_one_without_times_is_the_oldest() -> None:
    runs = []
    for name, day in {"timeless": None, "old": 1, "new": 2}.items():
        for command in "ab":
            started = day and datetime(2026, 11, day)  # noqa: DTZ001 - as the store's
            known = {"status": "succeeded", "side": "vm", "experiment": name, "started_at": started}
            runs.append(bare_run(f"{name}-{command}", command=("train.py", command), **known))
    assert rank_experiments(lay_out(runs, find_facet("platform"), ("vm",))) == [("new", 2), ("old", 2), ("timeless", 2)]
    without_old = [run for run in runs if run.experiment != "old"]
    assert rank_experiments(lay_out(without_old, find_facet("platform"), ("vm",)))[0][0] == "new"


def test_the_chosen_experiment_has_the_arguments_that_are_asked_for() -> None:
    runs = []
    for name, lines in {
        "large": ("--lr 1", "--lr 2", "--lr 2"),
        "small": ("--lr 1 --seed 1", "--lr 2 --seed 1"),
    }.items():
        for number, line in enumerate(lines):
            values = dict(zip(line.split()[::2], line.split()[1::2], strict=True))
            side = " · ".join(values.get(option, "not given") for option in ("--lr", "--seed"))
            known = {"status": "succeeded", "side": side, "workload": "train.py", "experiment": name}
            runs.append(bare_run(f"{name}-{number}", command=("python", "train.py", *line.split()), **known))
    sides = tuple(dict.fromkeys(str(run.side) for run in runs))
    layout = lay_out(runs, find_facet("argument:lr,argument:seed"), sides)
    assert rank_experiments(layout) == [("small", 2)]
