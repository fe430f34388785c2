"""Steps in what programs print."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.runs.events import EventTailer
from gpuagent.runs.printed import PRINTED_FILE, PrintedSteps
from gpuagent_common.errors import MisuseError
from gpuagent_common.patterns import READY, Template, find_patterns

PRINTED = Path(__file__).resolve().parents[2] / "fixtures/printed"
STARTED = 1_800_000_000_000_000_000
SECOND = 1_000_000_000


def read_slowly(folder: Path, lines: list[bytes], given: str = "", items_per_step: float | None = None) -> EventTailer:
    """Print a line each second, read after each, and return the events that follow."""
    printed = PrintedSteps(folder, find_patterns(given), items_per_step)
    (folder / "stderr").touch()
    with (folder / "stdout").open("ab", buffering=0) as stdout:
        for second, line in enumerate(lines):
            stdout.write(line)
            os.utime(folder / "stdout", ns=(0, STARTED + second * SECOND))
            printed.read()
    printed.finish()
    tailer = EventTailer("a-run", folder)
    tailer.read_all()
    return tailer


def excerpt(name: str) -> list[bytes]:
    return [line + b"\n" for line in (PRINTED / f"{name}.txt").read_bytes().replace(b"\r", b"\n").split(b"\n") if line]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nanogpt", "90 measured steps of 100 ms (pattern nanogpt)"),
        ("pytorch-mnist", "5,120 items, 640 items/s (pattern pytorch-mnist)"),
        ("pytorch-imagenet", "80 measured steps of 100 ms (pattern pytorch-imagenet)"),
        ("torchtitan", "40 measured steps of 100 ms (pattern torchtitan)"),
        ("timm", "250 measured steps of 20 ms (pattern timm)"),
        ("megatron", "80 measured steps of 1.3 s (pattern megatron)"),
        ("keras", "700 measured steps of 10 ms (pattern keras)"),
        ("yolo", "4 measured steps of 1 s (pattern yolo)"),
        ("lightning", "600 measured steps of 10 ms (pattern lightning)"),
        ("huggingface", "35 measured steps of 200 ms (pattern tqdm)"),
        ("tqdm", "91 measured steps of 76.9 ms (pattern tqdm)"),
        ("steps", "170 measured steps of 100 ms (pattern steps)"),
    ],
)
def test_the_steps_of_each_program_are_found_by_its_own_pattern(name: str, words: str, tmp_path: Path) -> None:
    assert str(read_slowly(tmp_path, excerpt(name)).digest.steps) == words


def test_every_ready_pattern_has_an_excerpt() -> None:
    assert {pattern.name for pattern in READY} <= {path.stem for path in PRINTED.glob("*.txt")}


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("step 0 loss 3.99", (0, 3.99)),
        ("iter 10: loss=2.3e-1, time 3ms", (10, 0.23)),
        ("Epoch [1/5], Step [100/600], Loss: 0.1234", (100, 0.1234)),
        ("global_step=10 val_loss=0.6 train_loss=0.5", (10, 0.5)),
        ("Iteration 1,200 | avg Loss (0.3)", (1200, 0.3)),
        ('{"step": 3, "loss": 0.5}', (3, 0.5)),
        ("step 250 val loss 1.9", None),
        ("step 250 val-loss 1.9", None),
        ("batch size 32 loss 1", None),
        ("stepping 3 loss 4", None),
        ("3ms/step - loss: 0.5", None),
        ("step 12 glossary 3", None),
    ],
)
def test_a_step_and_its_loss_are_found_however_they_are_written(line: str, numbers: tuple[float, float] | None) -> None:
    (template,) = next(pattern.steps for pattern in READY if pattern.name == "steps")
    assert template.match(line) == (dict(zip(("step", "loss"), numbers, strict=True)) if numbers else None)


def test_times_of_lines_are_means_over_more_than_the_kernel_rounds_them_by(tmp_path: Path) -> None:
    printed = PrintedSteps(tmp_path, find_patterns(""), None)
    (tmp_path / "stderr").touch()
    with (tmp_path / "stdout").open("ab", buffering=0) as stdout:
        for step in range(200):
            stdout.write(f"step {step} loss 1\n".encode())
            # Steps of 10 ms, which end at multiples of 4 ms.
            os.utime(tmp_path / "stdout", ns=(0, STARTED + step * 10_000_000 // 4_000_000 * 4_000_000))
            printed.read()
    printed.finish()
    events = [json.loads(line) for line in (tmp_path / PRINTED_FILE).read_text().splitlines()]
    seconds = [each for event in events if event["event"] == "steps" for each in event["wall_seconds"]]
    assert len(seconds) == 199
    assert all(each == pytest.approx(0.01, rel=0.15) for each in seconds)
    assert all(each == pytest.approx(0.01, rel=0.02) for each in seconds[5:])


def test_equal_steps_are_equal_whatever_the_last_digits_of_the_clock(tmp_path: Path) -> None:
    seconds = []
    for name, noise in (("exact", 0), ("late", 40_000)):
        (folder := tmp_path / name).mkdir()
        (folder / "stderr").touch()
        printed = PrintedSteps(folder, find_patterns(""), None)
        with (folder / "stdout").open("ab", buffering=0) as stdout:
            for step in range(40):
                stdout.write(f"step {step} loss 1\n".encode())
                os.utime(folder / "stdout", ns=(0, STARTED + step * 20_000_000 + step % 3 * noise))
                printed.read()
        printed.finish()
        seconds.append([each for event in events_of(folder, "steps") for each in event["wall_seconds"]])
    assert len(seconds[0]) == 39
    assert seconds[0] == seconds[1]


def test_epochs_have_a_loss_and_are_no_steps(tmp_path: Path) -> None:
    tailer = read_slowly(tmp_path, excerpt("epochs"))
    assert tailer.digest.results["loss"] == 0.4
    assert not str(tailer.digest.steps)


def test_the_loss_is_a_metric_with_its_step_and_a_result(tmp_path: Path) -> None:
    tailer = read_slowly(tmp_path, excerpt("nanogpt"))
    events = [json.loads(line) for line in (tmp_path / PRINTED_FILE).read_text().splitlines()]
    losses = {
        event["step"]: event["value"] for event in events if event["event"] == "metric" and event["name"] == "loss"
    }
    assert losses[100] == 4.0
    assert tailer.digest.results["loss"] == 4.0
    assert {"val_loss", "mfu_percent"} <= {event["name"] for event in events if event["event"] == "metric"}


def test_megatron_prints_the_samples_of_a_step(tmp_path: Path) -> None:
    results = read_slowly(tmp_path, excerpt("megatron")).digest.results
    assert results["throughput"] == pytest.approx(128 / 1.2945, rel=0.01)


def test_items_of_a_step_make_samples_into_steps(tmp_path: Path) -> None:
    digest = read_slowly(tmp_path, excerpt("pytorch-mnist"), items_per_step=64).digest
    assert str(digest.steps) == "80 measured steps of 100 ms (pattern pytorch-mnist)"
    assert digest.results["throughput"] == pytest.approx(640)


def test_numbers_of_hugging_face_are_read_as_numbers_and_as_texts(tmp_path: Path) -> None:
    assert read_slowly(tmp_path, excerpt("huggingface")).digest.results["loss"] == 0.4123


def test_a_given_pattern_names_its_own_fields(tmp_path: Path) -> None:
    lines = [f"[{i:03d}] gen={i}  fitness= {i / 10:.2f} took 12.5ms\n".encode() for i in range(20)]
    digest = read_slowly(tmp_path, lines, "gen={step} fitness= {fitness} took {step_milliseconds}ms").digest
    assert str(digest.steps) == "14 measured steps of 12.5 ms (pattern given)"
    assert digest.results["throughput"] == pytest.approx(80)
    assert digest.units["throughput"] == "steps/s"


def test_a_validation_between_two_lines_is_no_step_time(tmp_path: Path) -> None:
    lines = [b"step %d\n" % number for number in range(10)]
    lines[6:6] = [b"validating\n"] * 20
    digest = read_slowly(tmp_path, lines, "step {step}").digest
    assert str(digest.steps) == "4 measured steps of 1 s (pattern given)"


def test_lines_that_were_read_together_count_as_one_reading(tmp_path: Path) -> None:
    chunks = [b"".join(b"step %d\n" % number for number in range(at, at + 10)) for at in range(0, 100, 10)]
    assert (
        str(read_slowly(tmp_path, chunks, "step {step}").digest.steps) == "80 measured steps of 100 ms (pattern given)"
    )


def test_steps_of_a_program_that_reports_them_itself_are_not_counted_twice(tmp_path: Path) -> None:
    (tmp_path / "events.0.0.jsonl").write_text('{"t": 1, "event": "phase", "name": "setup"}\n')
    tailer = read_slowly(tmp_path, excerpt("nanogpt"))
    assert str(tailer.digest.steps) == ""
    assert tailer.digest.results["loss"] == 4.0


def test_nothing_is_found_in_other_output(tmp_path: Path) -> None:
    lines = [b"Downloading: 100%|#| 10.2M/10.2M [00:01<00:00, 9.1MB/s]\n", b"done in 3 s\n"] * 20
    assert str(read_slowly(tmp_path, lines).digest.steps) == ""
    assert not (tmp_path / PRINTED_FILE).exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nanogtp", "there is no pattern 'nanogtp'"),
        ("step {}", "has no field"),
        ("{step}{loss}", "two fields without a text"),
        ("{Step}", "not of a-z"),
        ("a {b" * 200, "at most 12 fields"),
    ],
)
def test_a_wrong_pattern_is_refused_with_its_mistake(text: str, words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        find_patterns(text)


def test_a_line_made_to_be_slow_takes_no_longer_than_its_length_allows(tmp_path: Path) -> None:
    # A backtracking expression of this form would take longer than the limit of a test.
    hard = b"a 1,111 " * 100_000 + b"\n"
    pattern = "a {one}{}a {two}{}a {three}{}a {four}{}a {five}{}zzz {step}"
    assert str(read_slowly(tmp_path, [hard] * 20, pattern).digest.steps) == ""


@given(st.binary(max_size=2000))
def test_no_output_stops_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / "stdout").write_bytes(data)
    ended = threading.Event()
    ended.set()
    PrintedSteps(folder, READY, None).run(ended)
    # What it writes, others can read.
    assert EventTailer("a-run", folder).read_all().malformed == 0


def test_a_template_takes_not_a_number_as_a_step_without_that_metric() -> None:
    assert str(Template("step {step}: loss {loss}").match("step 3: loss nan")) == "{'step': 3.0, 'loss': nan}"


def events_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (folder / PRINTED_FILE).read_text().splitlines()]
    return [event for event in events if event["event"] == kind]


def groups(lines: list[bytes], size: int) -> list[bytes]:
    """Return lines as a reader finds them that looks less often than they are printed."""
    return [b"".join(lines[at : at + size]) for at in range(0, len(lines), size)]


def test_every_metric_is_kept_of_lines_that_were_read_together(tmp_path: Path) -> None:
    lines = [b"step %d: loss %d\n" % (number, 100 - number) for number in range(40)]
    read_slowly(tmp_path, groups(lines, 6), "step {step}: loss {loss}")
    losses = {event["step"]: event["value"] for event in events_of(tmp_path, "metric")}
    assert losses == {number: 100 - number for number in range(40)}
    assert events_of(tmp_path, "thinned") == []


def test_lines_that_were_all_read_at_once_have_metrics_and_no_times(tmp_path: Path) -> None:
    """As of a short program whose reader had no time before its end."""
    lines = [b"step %d: loss %d\n" % (number, 40 - number) for number in range(40)]
    tailer = read_slowly(tmp_path, [b"".join(lines)], "step {step}: loss {loss}")
    assert str(tailer.digest.steps) == ""
    assert tailer.digest.results["loss"] == 1
    assert len(events_of(tmp_path, "metric")) == 40


def test_a_bar_with_times_goes_before_own_lines_that_were_all_read_at_once(tmp_path: Path) -> None:
    together = b"".join(excerpt("pytorch-mnist"))
    assert str(read_slowly(tmp_path, [*excerpt("tqdm"), together]).digest.steps).endswith("(pattern tqdm)")


def test_beyond_the_bound_lines_are_dropped_evenly_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent.runs.printed.MAX_LINES", 8)
    lines = [b"step %d: loss %d\n" % (number, 100 - number) for number in range(40)]
    tailer = read_slowly(tmp_path, groups(lines, 6), "step {step}: loss {loss}")
    assert [event["step"] for event in events_of(tmp_path, "metric")] == [0, 8, 16, 24, 32]
    (thinned,) = events_of(tmp_path, "thinned")
    assert {name: thinned[name] for name in ("every", "lines", "kept", "metrics")} == {
        "every": 8,
        "lines": 40,
        "kept": 5,
        "metrics": ["loss"],
    }
    assert tailer.digest.results["loss"] == 61  # the last one


def test_metrics_of_a_program_that_counts_each_epoch_from_0_have_steps_of_their_own(tmp_path: Path) -> None:
    lines = [b"epoch %d step %d/4 loss %d\n" % (epoch, step, epoch) for epoch in range(3) for step in range(4)]
    read_slowly(tmp_path, lines, "epoch {epoch} step {step}/{total} loss {loss}")
    assert [event["step"] for event in events_of(tmp_path, "metric")] == list(range(12))


def test_metrics_that_ranks_print_side_by_side_keep_their_steps(tmp_path: Path) -> None:
    steps = [10, 10, 11, 11, 13, 12, 14, 13, 15]
    read_slowly(tmp_path, [b"step %d loss 1\n" % step for step in steps], "step {step} loss {loss}")
    assert [event["step"] for event in events_of(tmp_path, "metric")] == steps


def test_metrics_of_a_program_that_prints_some_steps_of_each_epoch_go_on_too(tmp_path: Path) -> None:
    lines = [b"step %d loss 1\n" % step for step in (100, 200, 300, 100, 200, 300)]
    read_slowly(tmp_path, lines, "step {step} loss {loss}")
    assert [event["step"] for event in events_of(tmp_path, "metric")] == [100, 200, 300, 401, 501, 601]


def test_lines_without_a_number_are_a_step_each_however_many_were_read_together(tmp_path: Path) -> None:
    chunks = groups([b"loss %d\n" % number for number in range(100)], 10)
    assert (
        str(read_slowly(tmp_path, chunks, "loss {loss}").digest.steps) == "80 measured steps of 100 ms (pattern given)"
    )


def test_what_is_read_late_has_the_time_of_the_look_before(tmp_path: Path) -> None:
    """The reader takes a tenth of a core, and so falls behind a program that prints much."""
    printed = PrintedSteps(tmp_path, find_patterns("step {step}: loss {loss}"), None)
    with (tmp_path / "stdout").open("ab", buffering=0) as stdout:
        for second in range(4):
            stdout.write(b"step %d: loss 1 %s\n" % (second, b"." * 1_000_000))
            os.utime(tmp_path / "stdout", ns=(0, STARTED + second * SECOND))
            printed.read(0)
    printed.read()
    printed.finish()
    times = [(event["step"], event["t"]) for event in events_of(tmp_path, "metric")]
    assert times == [(second, STARTED + second * SECOND) for second in range(4)]


def test_output_without_a_text_of_any_pattern_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(Template, "match", lambda _self, line: looked_at.append(line))
    debugging = b"DEBUG queue=17 latency=0.00123 status=ok\n" * 1000
    read_slowly(tmp_path, [debugging + b"\x1b[1mst\x1b[0mep 7\r" + debugging], "step {step}")
    assert looked_at == ["step 7"]


def test_a_program_that_never_left_its_warm_up_has_no_measured_steps(tmp_path: Path) -> None:
    steps = [{"t": 1, "event": "step", "phase": "warmup", "step": number, "wall_seconds": 1} for number in range(3)]
    (tmp_path / "events.0.0.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    assert str(EventTailer("a-run", tmp_path).read_all().steps) == "3 steps, none after the warm-up"


class EndedLater(threading.Event):
    """The end of a program that prints a line each 50 ms and ends after the last; waiting for it passes the time."""

    def __init__(self, folder: Path, lines: int) -> None:
        super().__init__()
        self.stdout = folder / "stdout"
        self.lines, self.printed, self.passed_seconds = lines, 0, 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.passed_seconds += timeout or 0.0
        with self.stdout.open("a") as stdout:
            while self.printed < min(self.lines, round(self.passed_seconds / 0.05)):
                self.printed += 1
                stdout.write(f"step {self.printed} loss 1.0\n")
        os.utime(self.stdout, ns=(0, STARTED + round(0.05 * self.printed * SECOND)))
        return self.passed_seconds >= 0.05 * self.lines


def test_a_program_of_half_a_second_has_all_the_steps_that_it_prints(tmp_path: Path) -> None:
    PrintedSteps(tmp_path, find_patterns("step {step} loss {loss}"), None).run(EndedLater(tmp_path, 10))
    tailer = EventTailer("a-run", tmp_path)
    assert str(tailer.read_all().steps) == "5 measured steps of 50 ms (pattern given)"


def test_items_that_do_not_grow_are_those_of_each_step(tmp_path: Path) -> None:
    # The last batch of each epoch is smaller.
    lines = [f"step {i} samples {17 if i % 10 == 9 else 32}\n".encode() for i in range(30)]
    digest = read_slowly(tmp_path, lines, "step {step} samples {items}").digest
    assert digest.units["throughput"] == "items/s"
    assert digest.results["throughput"] == pytest.approx(30.5, rel=0.05)


@pytest.mark.parametrize("fields", ["batch {step}: {items_per_second}", "batch {}: {items_per_second}"])
def test_a_printed_speed_without_a_step_time_is_the_throughput(fields: str, tmp_path: Path) -> None:
    lines = [b"batch %d: %d images/s\n" % (i, 390 + i % 2 * 20) for i in range(30)]
    digest = read_slowly(tmp_path, lines, f"{fields} images/s").digest
    assert digest.units["throughput"] == "items/s"
    assert digest.results["throughput"] == pytest.approx(400, rel=0.01)


def test_counted_items_go_before_a_printed_speed(tmp_path: Path) -> None:
    lines = [b"%d images, 999 images/s\n" % (i * 8) for i in range(30)]
    digest = read_slowly(tmp_path, lines, "{items} images, {items_per_second} images/s").digest
    assert digest.results["throughput"] == pytest.approx(8)


@pytest.mark.parametrize(("lines", "measured"), [(3, 1), (5, 3), (6, 3), (7, 3), (10, 5), (12, 6)])
def test_of_few_steps_some_are_measured(tmp_path: Path, lines: int, measured: int) -> None:
    printed = [f"step {number} loss 1.0\n".encode() for number in range(lines)]
    assert f"{measured} measured step" in str(read_slowly(tmp_path, printed).digest.steps)
