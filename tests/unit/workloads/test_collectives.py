"""Collectives between real processes over gloo: their values, their bandwidths, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.measuring.setup import Member, bus_bandwidth, bus_factor, run_ranks
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.collectives import OPERATIONS, Config, parse_sizes
from gpuagent_workloads.suite.collectives.measure import exchange, measure, prepare
from tests.support.servers import until
from tests.unit.workloads.runs import assert_gone, of_kind, phases_of, reported, results_of, run_reporting

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


forked_ranks = pytest.mark.usefixtures("forked_ranks")

FEW = ("--calls", "2", "--rounds", "1")


# 1 GB in 0.25 s is 4 GB/s; by hand from nccl-tests' PERFORMANCE.md.
@pytest.mark.parametrize(
    ("operation", "of_2", "of_4", "of_8"),
    [
        ("all-reduce", 4e9, 6e9, 7e9),
        ("all-gather", 2e9, 3e9, 3.5e9),
        ("reduce-scatter", 2e9, 3e9, 3.5e9),
        ("all-to-all", 2e9, 3e9, 3.5e9),
        ("broadcast", 4e9, 4e9, 4e9),
        ("send-recv", 4e9, 4e9, 4e9),
    ],
)
def test_bus_bandwidth_is_nccl_tests_own(operation: str, of_2: float, of_4: float, of_8: float) -> None:
    found = [bus_bandwidth(operation, ranks, 10**9, 0.25) for ranks in (2, 4, 8)]
    assert found == pytest.approx([of_2, of_4, of_8])


def test_every_operation_has_a_factor() -> None:
    assert all(bus_factor(operation, 2) > 0 for operation in OPERATIONS)


def write_outputs(folder: Path, member: Member, _reporter: Reporter) -> None:
    """Do each operation on four values a rank, and write what comes out."""
    found = {}
    for operation in OPERATIONS:
        prepared = prepare(operation, 4 * 4, member)
        prepared.reset()
        prepared.call()
        found[operation] = [prepared.size_bytes, prepared.output.tolist(), prepared.expected.tolist()]
    (folder / f"{member.rank}.json").write_text(json.dumps(found))


@forked_ranks
def test_each_operation_brings_each_rank_its_values(tmp_path: Path) -> None:
    run_ranks("a test", 2, CPU, partial(write_outputs, tmp_path), Reporter(None))
    outputs = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    # Rank 0 has 0, 1, 2, 3, and rank 1 has 7, 8, 9, 10; of an all-gather half of that each.
    by_hand = {
        "all-reduce": ([7, 9, 11, 13], [7, 9, 11, 13]),
        "all-gather": ([0, 1, 7, 8], [0, 1, 7, 8]),
        "reduce-scatter": ([7, 9], [11, 13]),
        "all-to-all": ([0, 1, 7, 8], [2, 3, 9, 10]),
        "broadcast": ([0, 1, 2, 3], [0, 1, 2, 3]),
        "send-recv": ([7, 8, 9, 10], [0, 1, 2, 3]),
    }
    for operation, values in by_hand.items():
        assert [output[operation] for output in outputs] == [[16, own, own] for own in values], operation


@forked_ranks
def test_every_point_is_reported_with_time_and_bandwidth_and_every_pair(tmp_path: Path) -> None:
    events = run_reporting(tmp_path, "collectives", "--device", "cpu", "--ranks", "3", "--sizes", "1000,16K", *FEW)
    assert phases_of(events) == ["setup", "measure", "teardown", "end"]
    results = results_of(events)
    units = {event["name"]: event.get("unit") for event in of_kind(events, "result")}
    points = [f"{operation.replace('-', '_')}_{size}_bytes" for operation in OPERATIONS for size in (1000, 16384)]
    pairs = [f"pair_{pair}_{size}_bytes" for size in (1000, 16384) for pair in ("0_1", "0_2", "1_2")]
    assert {name for name, unit in units.items() if unit == "s"} == {f"{name}_seconds" for name in (*points, *pairs)}
    assert {name for name, unit in units.items() if unit == "bytes/s"} == {
        *(f"{name}_{kind}_bytes_per_second" for name in (*points, *pairs) for kind in ("algorithm", "bus")),
        *(f"pairs_{size}_bytes_bus_bytes_per_second" for size in (1000, 16384)),
    }
    assert (results["ranks"], results["backend"]) == (3, "gloo")
    for operation, size, factor in (("all_reduce", 16384, 4 / 3), ("broadcast", 16384, 1), ("pair_0_1", 16384, 1)):
        name = f"{operation}_{size}_bytes"
        assert results[f"{name}_bus_bytes_per_second"] == pytest.approx(factor * size / results[f"{name}_seconds"])
    assert results["all_reduce_16384_bytes_algorithm_bytes_per_second"] == pytest.approx(
        16384 / results["all_reduce_16384_bytes_seconds"]
    )
    # Three ranks share 250 values unequally, so one of them is left out: 996 bytes.
    rate = results["all_gather_1000_bytes_bus_bytes_per_second"]
    assert rate == pytest.approx(2 / 3 * 996 / results["all_gather_1000_bytes_seconds"])
    # Each rank has the median over its two pairs.
    of_pairs = [results[f"pair_{pair}_1000_bytes_bus_bytes_per_second"] for pair in ("0_1", "0_2", "1_2")]
    assert results["pairs_1000_bytes_bus_bytes_per_second"] == pytest.approx(sum(of_pairs[:2]) / 2)
    others = [json.loads(line) for line in (tmp_path / "events.2.0.jsonl").read_text().splitlines()]
    last = {event["name"]: event["value"] for event in others if event["event"] == "result"}
    assert last["pairs_1000_bytes_bus_bytes_per_second"] == pytest.approx(sum(of_pairs[1:]) / 2)


@forked_ranks
def test_two_ranks_have_no_pairs_beside_send_recv() -> None:
    reporter = Reporter(None)
    measure(Config(device="cpu", ranks=2, operations="send_recv", sizes="4", calls=1, rounds=1), reporter)
    timed = {result.name for result in reporter.results if result.unit}
    figures = ("seconds", "algorithm_bytes_per_second", "bus_bytes_per_second")
    assert timed == {f"send_recv_4_bytes_{figure}" for figure in figures}


def corrupt(member: Member, reporter: Reporter) -> None:
    """Let rank 1 send other values than those that rank 0 expects."""
    from gpuagent_workloads.suite.collectives.measure import _check

    other = 1 - member.rank
    prepared = exchange(64, member, other, other)
    if member.rank == 0:
        prepared.expected[3] += 1
    _check("the exchange", prepared, member)
    reporter.result("is_never_reached", 1)


@forked_ranks
def test_wrong_values_fail_the_run_in_words() -> None:
    reporter = Reporter(None)
    with pytest.raises(WorkloadError, match="gave 1 wrong values") as failed:
        run_ranks("a test", 2, CPU, corrupt, reporter)
    assert "library is faulty" in str(failed.value)
    assert reported(reporter) == {}


def die_after_a_result(member: Member, reporter: Reporter) -> None:
    """Report a process and half of another result, and let rank 1 be killed while rank 0 waits for it."""
    if member.rank == 0:
        reporter.result("process", os.getpid())
        reporter.flush()
        assert reporter.directory is not None
        with (reporter.directory / "results.jsonl").open("a") as file:
            file.write('{"event": "result", "na')
    member.total(0)
    if member.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    member.total(0)


@forked_ranks
def test_a_rank_that_dies_ends_the_run_and_results_before_are_kept() -> None:
    reporter = Reporter(None)
    with pytest.raises(WorkloadError, match="a test over 2 ranks failed"):
        run_ranks("a test", 2, CPU, die_after_a_result, reporter)
    ((name, process),) = reported(reporter).items()
    assert name == "process"
    until(lambda: not psutil.pid_exists(int(process)), "the end of the other rank")


def print_and_wait(member: Member, _reporter: Reporter) -> None:
    """Print this process's number, and wait for its end."""
    os.write(1, f"{os.getpid()}\n".encode())
    member.total(0)
    signal.pause()


def test_no_rank_survives_a_killed_run() -> None:
    program = (
        "from functools import partial; import torch\n"
        "from gpuagent_workloads.measuring.setup import run_ranks\n"
        "from gpuagent_workloads.report import Reporter\n"
        "from tests.unit.workloads.test_collectives import print_and_wait\n"
        "if __name__ == '__main__': run_ranks('a test', 2, torch.device('cpu'), print_and_wait, Reporter(None))\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        ranks = [psutil.Process(int(process.stdout.readline())) for _ in range(2)]
        process.kill()
    assert_gone(ranks)


@pytest.mark.parametrize(
    ("text", "sizes"), [("4", [4]), ("1G, 1k,16MiB", [1 << 10, 16 << 20, 1 << 30]), ("1024,1K,1KB", [1024])]
)
def test_sizes_are_read_ascending_and_once(text: str, sizes: list[int]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"operations": "all-reduce,gather"}, r"--operations has gather: choose from all-reduce, all-gather, "),
        ({"operations": ""}, "--operations has an empty name"),
        ({"sizes": "1K,x"}, "--sizes has x: give sizes from 4 to 4G, such as 1K,16M"),
        ({"sizes": "3"}, "--sizes has 3: "),
        ({"sizes": "5G"}, "--sizes has 5G: "),
        ({"sizes": "1K,"}, "--sizes has an empty size"),
        ({"ranks": 1}, "--ranks must be at least 2 and at most 64, not 1"),
        ({"rounds": 0}, "--rounds must be at least 1"),
    ],
)
def test_wrong_parameters_are_misuse_in_words(parameters: dict[str, object], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        Config(device="cpu", **parameters)  # type: ignore[arg-type]


def offer(available: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=available))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("8", "all-gather over 3 ranks needs 12 or more"),
        ("64K", "--sizes has 65536 bytes, and with 8 such buffers 21845 fit: give less"),
    ],
)
def test_sizes_that_do_not_fit_are_misuse(sizes: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(1 << 20, monkeypatch)
    with pytest.raises(MisuseError, match=words):
        measure(Config(device="cpu", ranks=3, sizes=sizes), Reporter(None))


@pytest.mark.parametrize("ranks", [2, 3])
def test_memory_in_which_no_size_fits_is_misuse(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(ranks * 16 * 1023, monkeypatch)
    with pytest.raises(MisuseError, match="not even 1024 bytes"):
        measure(Config(device="cpu", ranks=ranks), Reporter(None))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_misuse() -> None:
    with pytest.raises(MisuseError, match="--device cuda"):
        measure(Config(device="cuda"), Reporter(None))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_gpus_exchange_over_nccl(tmp_path: Path) -> None:
    events = run_reporting(tmp_path, "collectives", "--device", "cuda", "--sizes", "4K,1M", *FEW)
    results = results_of(events)
    assert (results["backend"], results["ranks"]) == ("nccl", torch.cuda.device_count())
    assert results["all_reduce_1048576_bytes_bus_bytes_per_second"] > 0
