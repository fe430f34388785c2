"""`collector watch` on a terminal."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from gpuagent_collector.store import Store
from gpuagent_collector.watch.terminal import Terminal
from tests.integration.watch.terminals import FakeTerminal
from tests.support.recent import fill
from tests.support.servers import Node

Watching = tuple[FakeTerminal, "subprocess.Popen[bytes]"]


@pytest.fixture
def watching(node: Node) -> Iterator[Watching]:
    """`collector watch` on a store with two nodes, and the terminal it runs on."""
    with Store.open(str(node.store)) as store:
        fill(store)
    terminal = FakeTerminal()
    command = ("collector", "watch", "--store", str(node.store))
    process = terminal.start(*command, environment=node.environment, folder=node.folder)
    terminal.shows(lambda lines: lines[-1].startswith("q quit"))
    yield terminal, process
    terminal.close(process)


def begins(row: int, *words: str) -> Callable[[Sequence[str]], bool]:
    return lambda lines: lines[row].split()[: len(words)] == list(words)


def test_keys_choose_lists_sort_and_filter_and_q_leaves_the_terminal_as_it_was(watching: Watching) -> None:
    terminal, process = watching
    assert terminal.screen()[1].endswith("3 nodes · 1 silent · 2 GPUs · 1 held back · 1 run under way")
    terminal.press("3")
    terminal.shows(begins(3, "alder", "0"))
    terminal.press("ssr\x1b[A")
    terminal.shows(lambda lines: lines[-1].endswith("GPUs, by # reversed") and lines[3].split()[1] == "1")
    terminal.press("/heat")
    terminal.shows(lambda lines: lines[-1].startswith("filter: heat") and not lines[4])
    terminal.press("\r?")
    terminal.shows(lambda lines: lines[2].startswith("tab"))
    terminal.press("q")
    assert terminal.ended(process) == 0
    assert terminal.attributes_now() == terminal.attributes
    assert terminal.sent.endswith(b"\x1b[?25h\x1b[?1049l")


def press_interrupt(terminal: FakeTerminal, _process: "subprocess.Popen[bytes]") -> None:
    terminal.press("\x03")


def terminate(_terminal: FakeTerminal, process: "subprocess.Popen[bytes]") -> None:
    process.terminate()


@pytest.mark.parametrize(("leave", "code"), [(press_interrupt, 130), (terminate, 128 + signal.SIGTERM)])
def test_the_terminal_is_as_it_was_however_the_view_is_left(
    watching: Watching, leave: Callable[..., None], code: int
) -> None:
    terminal, process = watching
    leave(terminal, process)
    assert terminal.ended(process) == code
    assert terminal.attributes_now() == terminal.attributes
    assert terminal.sent.strip().endswith(b"\x1b[?25h\x1b[?1049l")


def test_a_resized_terminal_is_filled_anew(watching: Watching) -> None:
    terminal, _ = watching
    terminal.resize(160, 10)
    lines = terminal.shows(lambda lines: lines[9].startswith("q quit") and lines[9].endswith("of 12"))
    assert {"CPUs", "load"} <= set(lines[2].split())


def test_hostile_names_do_nothing_to_the_terminal(watching: Watching) -> None:
    terminal, _ = watching
    assert r"evil\x1b[31m\x9b2J" in "\n".join(terminal.screen())
    assert b"evil\x1b" not in terminal.sent
    assert "\u202e".encode() not in terminal.sent


def test_a_collector_that_goes_and_comes_back_is_waited_for(node: Node) -> None:
    collector = node.serve()
    terminal = FakeTerminal()
    command = ("collector", "watch", "--interval", "0.5")
    process = terminal.start(*command, environment=node.environment, folder=node.folder)
    terminal.shows(lambda lines: "no node has delivered in the last hour" in lines)
    node.stop(collector)
    terminal.shows(lambda lines: "trying again" in lines[-1] or "cannot be reached" in lines[-1])
    node.serve(listen=node.environment["GPUAGENT_COLLECTOR"])
    terminal.shows(lambda lines: lines[-1].startswith("q quit"))
    terminal.press("q")
    assert terminal.ended(process) == 0
    terminal.close()


def test_only_lines_that_changed_are_sent() -> None:
    fake = FakeTerminal(columns=40, rows=4)
    with (
        open(fake._slave, "w", closefd=False) as out,
        Terminal(fake._slave, Console(file=out, force_terminal=True, color_system=None)) as terminal,
    ):
        terminal.paint([Text("first"), Text("second"), Text("x" * 50)])
        while fake.read(0.0):
            pass
        terminal.paint([Text("first"), Text("other"), Text("x" * 50)])
        assert fake.read(1.0) == b"\x1b[2;1H" + b"other".ljust(40)
        terminal.paint([Text("first"), Text("other"), Text("x" * 50)])
        assert fake.read(0.0) == b""
    assert fake.screen()[:3] == ["first", "other", "x" * 39 + "…"]
    fake.close()


def test_where_there_is_no_terminal_one_snapshot_is_printed(node: Node) -> None:
    with Store.open(str(node.store)) as store:
        fill(store)
    done = node.run("collector", "watch", "--store", str(node.store))
    lines = done.stdout.splitlines()
    assert lines[0] == "3 nodes · 1 silent · 2 GPUs · 1 held back · 1 run under way"
    assert not any(character in done.stdout for character in "\x1b\x9b\u202e")
    assert max(map(len, lines)) <= 80
    assert Path(node.store).exists()
