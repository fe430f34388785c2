"""`collector logs` without a collector: the stored end of the output."""

import json
from pathlib import Path

from tests.support.commands import made_up
from tests.unit.cli_collector.conftest import Collector

WHOLE = "".join(f"line {number}\n" for number in range(2000))


def test_a_store_has_the_end_of_an_ended_runs_output_in_whole_lines(collector: Collector, tmp_path: Path) -> None:
    place = str(tmp_path / "a.duckdb")
    with made_up(place) as store:
        node = store.node("alder-node", "alder")
        for run, text in (("short-1", "one line\n"), ("long-1", WHOLE[-8192:])):
            store.run(run, node, start_seconds=0)
            output = {"event": "output", "name": "stdout", "detail": json.dumps({"tail": text})}
            store.rows["run_events"].append({**node.at(5), "run_id": run, **output})
    short = collector("logs", "short", "--store", place)
    assert (short.code, short.out, short.err) == (0, "one line\n", "")
    long = collector("logs", "long", "--store", place)
    assert long.out == WHOLE[-8192:].partition("\n")[2]
    assert "--all" in long.err
    for words in (["long", "--all"], ["nobody"]):
        refused = collector("logs", *words, "--store", place)
        assert (refused.code > 0, refused.out, refused.err.count("\n")) == (True, "", 1)


def test_a_name_of_several_runs_is_refused_with_the_command_that_lists_them(
    collector: Collector, tmp_path: Path
) -> None:
    place = str(tmp_path / "a.duckdb")
    with made_up(place) as store:
        node = store.node("alder-node", "alder")
        for run in ("train.py-1", "train.py-2"):
            store.run(run, node, start_seconds=0)
    refused = collector("logs", "train.py", "--store", place)
    begins = "several runs begin with train.py: train.py-1, train.py-2"
    assert refused.err == f"collector: {begins}; `collector runs --workload train.py` lists them\n"
    assert "; give more of its name\n" in collector("logs", "train", "--store", place).err
