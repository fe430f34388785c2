import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.integration.watch.terminals import FakeTerminal
from tests.support.recent import fill
from tests.support.servers import Node
from tests.support.stores import open_store

pytestmark = pytest.mark.slow

Watching = tuple[FakeTerminal, "subprocess.Popen[bytes]"]

SUMMARY = "3 nodes · 1 silent · 2 GPUs · 1 held back · 1 run under way"


@pytest.fixture
def filled(node: Node) -> Node:
    with open_store(str(node.store)) as store:
        fill(store)
    return node


@pytest.fixture
def watching(filled: Node) -> Iterator[Watching]:
    terminal = FakeTerminal()
    command = ("collector", "watch", "--store", str(filled.store))
    process = terminal.start(*command, environment=filled.environment, folder=filled.folder)
    terminal.shows("q quit")
    yield terminal, process
    terminal.close(process)


def test_keys_choose_sort_and_filter_and_hostile_names_do_nothing(watching: Watching) -> None:
    terminal, process = watching
    terminal.press("3ssr")
    terminal.shows("GPUs, by # reversed")
    terminal.press("/heat\r")
    terminal.shows("filter: heat")
    terminal.press("q")
    assert terminal.ended(process) == 0
    assert terminal.is_restored()
    assert rb"evil\x1b[31m\x9b2J" in terminal.sent
    assert b"evil\x1b" not in terminal.sent
    assert "\u202e".encode() not in terminal.sent


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda terminal, _: terminal.press("\x03"), 130),
        (lambda _, process: process.terminate(), 128 + signal.SIGTERM),
        (lambda _, process: process.send_signal(signal.SIGINT), 130),
    ],
    ids=["Ctrl-C", "SIGTERM", "SIGINT"],
)
def test_the_terminal_is_restored_after_the_view(watching: Watching, leave: Callable[..., None], code: int) -> None:
    terminal, process = watching
    leave(terminal, process)
    assert terminal.ended(process) == code
    assert terminal.is_restored()
    assert b"Traceback" not in terminal.sent


def test_a_collector_that_goes_and_comes_back_is_waited_for(node: Node) -> None:
    collector = node.serve()
    terminal = FakeTerminal()
    command = ("collector", "watch", "--interval", "0.5")
    process = terminal.start(*command, environment=node.environment, folder=node.folder)
    terminal.shows("no node has delivered in the last hour")
    node.stop(collector)
    terminal.shows("trying again")
    node.serve(listen=node.environment["GPUAGENT_COLLECTOR"])
    terminal.shows("q quit")
    terminal.press("q")
    assert terminal.ended(process) == 0
    terminal.close(process)


def test_without_a_terminal_one_snapshot_is_printed_in_any_format(filled: Node) -> None:
    done = filled.run("collector", "watch", "--store", str(filled.store))
    lines = done.stdout.splitlines()
    assert lines[0] == SUMMARY
    assert not any(character in done.stdout for character in "\x1b\x9b\u202e")
    assert max(map(len, lines)) <= 80
    for output_format, beginning in (("csv", '"node",'), ("markdown", "| node |"), ("json", "{")):
        done = filled.collector("watch", "--store", str(filled.store), "--format", output_format)
        assert done.stdout.startswith(beginning)
