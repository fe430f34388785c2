"""Patterns of the lines in which training programs print their progress.

A template is the text of a line with a field where a number is, such as `iter {step}: {step_milliseconds}ms`.
Blanks match any blanks, `{}` matches anything, and a field without meaning here is a metric of that name. Matching
takes time in proportion to the line: each part between two `{}` is looked for once, and nothing in it repeats without
bound.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuagent_common.errors import MisuseError

# Fields that are no metrics: progress, and the speed that a program prints of itself.
_PROGRESS = ("step", "epoch", "total", "items", "step_items")
_SPEED = ("step_seconds", "step_milliseconds", "last_seconds", "steps_per_second", "items_per_second")
FIELDS = frozenset((*_PROGRESS, *_SPEED))

MAX_LINE_CHARACTERS = 1000
_MAX_TEMPLATE_CHARACTERS = 500
_MAX_FIELDS = 12

_FIELD = re.compile(r"\{([a-z][a-z0-9_]{0,40})?\}")
_NUMBER = r"'?([-+]?(?:\d{1,18}(?:,\d{3}){0,5}(?:\.\d{0,18})?(?:[eE][-+]?\d{1,3})?|nan|inf))"
_BLANKS, _SOME_BLANKS = r"[ \t]{0,40}", r"[ \t]{1,40}"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a template between two `{}`: one bounded expression, and the names of its numbers."""

    expression: re.Pattern[str]
    names: tuple[str, ...]


class Template:
    """A template in the form in which lines are matched."""

    def __init__(self, text: str) -> None:
        """Compile `text`.

        Raises MisuseError: it has no field, too many, an unknown one, or two without a text between them.
        """
        self.text = text
        pieces = _FIELD.split(text)
        fields = pieces[1::2]
        if len(text) > _MAX_TEMPLATE_CHARACTERS or len(fields) > _MAX_FIELDS:
            raise MisuseError(
                f"a pattern has at most {_MAX_FIELDS} fields and {_MAX_TEMPLATE_CHARACTERS} characters; shorten it"
            )
        if any("{" in literal or "}" in literal for literal in pieces[::2]):
            raise MisuseError(f"the pattern {text!r} has a field whose name is not of a-z, 0-9 and _, such as {{loss}}")
        if not any(fields):
            raise MisuseError(f"the pattern {text!r} has no field; write one as {{step}}, {{loss}} or another name")
        if any(one and other and not text for one, text, other in zip(fields, pieces[2::2], fields[1:], strict=False)):
            raise MisuseError(f"the pattern {text!r} has two fields without a text between them; put one there")
        literals = [word for literal in pieces[::2] for word in literal.split()]
        # A quick test before any expression; the longest word is the least common one.
        self.sign = max(literals, key=len, default="")
        self._parts = _compile(pieces)

    def match(self, line: str) -> dict[str, float] | None:
        """Return the numbers in `line` by field, NaN and infinity included; None: it does not match."""
        if self.sign not in line:
            return None
        found: dict[str, float] = {}
        at = 0
        for part in self._parts:
            matched = part.expression.search(line, at)
            if matched is None:
                return None
            found.update(zip(part.names, (float(text.replace(",", "")) for text in matched.groups()), strict=True))
            at = matched.end()
        return found


def _compile(pieces: list[str]) -> list[_Part]:
    parts: list[_Part] = []
    expression, names = "", []
    for index, literal in enumerate(pieces[::2]):
        words = literal.split()
        if index and pieces[2 * index - 1]:
            # After a blank alone at least one, or two numbers could share their digits.
            expression += (_BLANKS if pieces[2 * index - 2].strip() else _SOME_BLANKS if expression else "") + _NUMBER
            names.append(pieces[2 * index - 1])
        elif index:
            parts.append(_Part(re.compile(expression), tuple(names)))
            expression, names = "", []
        if words:
            expression += (_BLANKS if expression else "") + _SOME_BLANKS.join(map(re.escape, words))
    parts.append(_Part(re.compile(expression), tuple(names)))
    return [part for part in parts if part.expression.pattern]


class LossLine(Template):
    """A line with the number of a step or an epoch and then its loss, however a program writes them."""

    def __init__(self, words: str) -> None:
        """Compile the expressions for lines that count with one of `words`, which are separated by `|`."""
        others = "".join(rf"(?<!{other}[ _-])" for other in ("val", "valid", "validation", "dev", "eval", "test"))
        # Of `loss` and `Loss`.
        self.sign = "oss"
        self._parts = [
            _Part(re.compile(rf"(?<![a-z])(?:{words})['\" \t:=#\[(]{{1,9}}{_NUMBER}\b", re.IGNORECASE), ("step",)),
            _Part(re.compile(rf"(?<![a-z]){others}loss['\" \t:=(]{{1,9}}{_NUMBER}", re.IGNORECASE), ("loss",)),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The lines of one kind of program.

    Attributes:
        name: as --pattern takes it, and as it is reported.
        steps: alternatives for a line of progress.
        metrics: further lines with metrics.
        is_bar: any program may print such bars, for other work than training too.
        rank: of several that fit, those of the lowest rank count.
        asked: the value of --pattern that chose it; None: it was found without one.
    """

    name: str
    steps: tuple[Template, ...]
    metrics: tuple[Template, ...] = ()
    is_bar: bool = False
    rank: int = 0
    asked: str | None = None


def _pattern(name: str, *steps: str, metrics: tuple[str, ...] = ()) -> Pattern:
    return Pattern(name=name, steps=tuple(map(Template, steps)), metrics=tuple(map(Template, metrics)))


# Sources of the formats are beside the excerpts in tests/fixtures/printed. Where a program states the time of one step
# as the host saw it, which may be ahead of the GPU, the times of its lines are used instead.
READY: tuple[Pattern, ...] = (
    _pattern(
        "nanogpt",
        "iter {step}: loss {loss}, time {iteration_milliseconds}ms, mfu {mfu_percent}%",
        metrics=("step {step}: train loss {train_loss}, val loss {val_loss}",),
    ),
    _pattern(
        "pytorch-mnist",
        "Train Epoch: {epoch} [{items}/{total} ({}%)] Loss: {loss}",
        metrics=("Test set: Average loss: {test_loss}, Accuracy: {}/{} ({accuracy}%)",),
    ),
    _pattern(
        "pytorch-imagenet",
        "Epoch: [{epoch}][{step}/{total}] Time {}) Data {}) Loss {loss} ({}Acc@1 {train_accuracy} (",
        metrics=("* Acc@1 {accuracy} Acc@5 {accuracy_top5}",),
    ),
    _pattern("torchtitan", "step: {step} loss: {loss} {}memory: {memory_gib}GiB({}tps: {tokens_per_gpu_second}"),
    _pattern(
        "timm",
        "Train: {epoch} [{step}/{total} ({}%)] Loss: {loss} ({}) Time: {last_seconds}s, {items_per_second}/s",
        metrics=("Test: [{}/{}] Time: {}Loss: {test_loss} ({}Acc@1: {accuracy} (",),
    ),
    _pattern(
        "megatron",
        "iteration {step}/{total} |{}elapsed time per iteration (ms): {step_milliseconds} |"
        "{}global batch size: {step_items} |{}loss: {loss} |",
    ),
    _pattern("keras", "{step}/{total} ━{}loss: {loss}", "{step}/{total} [{}=] -{}loss: {loss}"),
    _pattern(
        "yolo",
        "{epoch}/{} {}G {box_loss} {cls_loss} {dfl_loss} {}: {}%|{}| {step}/{total} [",
        "{epoch}/{} {}G {box_loss} {cls_loss} {dfl_loss} {}: {}% {}━ {step}/{total} ",
    ),
    _pattern("lightning", "Epoch {epoch}: {}%|{}| {step}/{total} ["),
    Pattern(name="steps", steps=(LossLine("step|iter|iteration|batch"),), rank=1),
    replace(
        _pattern(
            "tqdm",
            "%|{}| {step}/{total} [{}<{}it/s",
            "%|{}| {step}/{total} [{}<{}s/it",
            metrics=(
                # The Trainer of Hugging Face.
                "'loss': {loss}{}'learning_rate': {learning_rate}{}'epoch': {epoch}",
                "'eval_loss': {eval_loss}{}'epoch': {epoch}",
            ),
        ),
        is_bar=True,
        rank=2,
    ),
    # An epoch is no step, and there are few of them.
    Pattern(name="epochs", steps=(), metrics=(LossLine("epoch"),), rank=3),
)

# Takes no steps from the output.
NO_PATTERN = "none"


def find_patterns(given: str) -> tuple[Pattern, ...]:
    """Return the patterns to try: all ready ones, the one of that name, or the template that is given.

    Raises MisuseError: it is neither the name of a ready pattern nor a template.
    """
    if given == NO_PATTERN:
        return ()
    if not given:
        return READY
    known = {pattern.name: pattern for pattern in READY}
    if given in known:
        return (replace(known[given], asked=given),)
    if "{" not in given:
        raise MisuseError(
            f"there is no pattern {given!r}; give a template such as 'step {{step}} loss {{loss}}', {NO_PATTERN}, "
            f"or one of: {', '.join(known)}"
        )
    return (Pattern(name="given", steps=(Template(given),), asked=given),)


def metrics_of(values: Mapping[str, float]) -> dict[str, float]:
    """Return the finite numbers of a line that are metrics."""
    return {name: value for name, value in values.items() if name not in FIELDS and math.isfinite(value)}
