"""Every command that answers, once: from here come the commands, completion, experiments' answers and notebooks."""

import gc
import inspect
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.choices import WHOLE
from gpuagent_collector.cli.options import (
    WORDS,
    ReaderOptions,
    ReadingCommand,
    facets,
    format_options,
    parse_time,
    reader_options,
    show_sql_option,
    stored_workloads,
)
from gpuagent_collector.cli.printing import asking, print_error
from gpuagent_collector.cli.selection import (
    DELTA,
    EACH,
    EXPERIMENT,
    JOBS,
    LIMITS,
    PLATFORM,
    PRICES,
    RUNS,
    SIDES,
    STATS,
    TESTED,
    UNPAIRED,
    WORKLOAD,
    Decorator,
    Options,
    ask_sides_of_files,
    check_facet,
    draw_instead,
    is_metric,
)
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import MOST, NAME, Number, describe_misuse
from gpuagent_common.errors import GpuAgentError, MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.present.answer import Answer
    from gpuagent_collector.query.ask import Ask
    from gpuagent_collector.query.reader import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCommand:
    """A command that answers.

    Attributes:
        details: its help after the first line, which `COMMANDS` of this package has.
        examples: without the program's name.
        function: MODULE:FUNCTION below gpuagent_collector. It takes an `Ask` and what the options give, and returns an
            `Answer`; one that writes a file takes the source's name too, and prints what it wrote.
        options: of the command, beside those of all.
        output: the parameter that names a file to write; None: it writes none.
        is_file: whether the file is the answer, which then is not printed.
        finds_more: whether `--all` makes the function find more; of others it prints all that they found.
    """

    details: str
    examples: Sequence[str]
    function: str
    options: Sequence[Options | Decorator]
    output: str | None = None
    is_file: bool = False
    finds_more: bool = False

    def declare(self, command: Any) -> Any:
        """Add the options to a command."""
        for each in reversed(self.options if self.is_file else (*self.options, _ALL)):
            for decorator in reversed(each.decorators if isinstance(each, Options) else (each,)):
                command = decorator(command)
        return command

    def change(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return what the function takes, made from what the options give."""
        for each in self.options:
            if isinstance(each, Options) and each.change:
                each.change(given)
        return given

    def call(self, ask: "Ask", source: str, asked: dict[str, Any], place: Sequence[str] = ()) -> "Answer":
        """Return the answer; of one that is a file, which it writes, nothing.

        `source` names what is read for people, and `place` are the words by which commands read the same.
        """
        # An answer is over before much is garbage, and Python would look for it in all runs again and again.
        gc.disable()
        try:
            module, _, function = self.function.partition(":")
            answer: Callable[..., Answer] = getattr(import_module(f"gpuagent_collector.{module}"), function)
            if self.is_file:
                return answer(ask, **asked, source=source, place=place)
            everything = asked["everything"] if self.finds_more else asked.pop("everything")
            return replace(answer(ask, **asked), everything=everything)
        finally:
            gc.enable()


_ALL = click.option("--all", "everything", is_flag=True, help="Show all warnings, tables and explanations.")


def command_of(name: str, summary: str) -> click.Command:
    """Return the command of an answer; `summary` is its help in one line."""
    entry = ANSWERS[name]

    # An answer that is a file has no format.
    def run(
        reader: ReaderOptions,
        show_sql: bool,
        output_format: OutputFormat = OutputFormat.TABLE,
        copy: Path | None = None,
        **given: Any,
    ) -> int:
        from gpuagent_collector.present.files import appearing, check_writable
        from gpuagent_collector.present.rendering import print_answer

        asked = entry.change(given)
        if "no_series" in asked:  # only a terminal draws them
            asked["no_series"] |= output_format is not OutputFormat.TABLE
            asked["brief"] = output_format is OutputFormat.TABLE and not (asked["everything"] or copy)
        force = asked.pop("force", False)
        if copy:
            check_writable(copy, force=force)
        with reader.open() as opened:
            ask_sides_of_files(reader, opened, asked)
            if entry.output and asked[entry.output]:
                check_writable(asked[entry.output], force=force)
            try:
                answer = entry.call(asking(opened, show_sql=show_sql), opened.source, asked, reader.words)
            except GpuAgentError as error:
                from gpuagent_collector.runs.words import read_from

                error.args = (read_from(str(error), reader.words),)
                raise
            if entry.is_file:
                return 0
            answer = add_place(reader.words, answer, opened)
            print_answer(answer, output_format)
            if copy:
                with appearing(copy) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as out:
                    print_answer(answer, _FORMATS[copy.suffix.lower()], out)
        for note in [*answer.notes, *(answer.beside_csv if output_format is OutputFormat.CSV else ())]:
            print_error(note)
        return int(answer.failed)

    epilog = "\n".join(["\b", "Examples:", *(f"  collector {name} {each}".rstrip() for each in entry.examples)])
    shared = show_sql_option(reader_options(run) if entry.is_file else format_options(reader_options(run)))
    if entry.output is None:
        shared = _COPY(_FORCE(shared))
    words = {"help": f"{summary}\n\n{inspect.cleandoc(entry.details)}", "epilog": epilog}
    return click.command(name, ReadingCommand, **words)(entry.declare(shared))


_FORMATS = {
    ".csv": OutputFormat.CSV,
    ".json": OutputFormat.JSON,
    ".md": OutputFormat.MARKDOWN,
    ".tex": OutputFormat.LATEX,
}


def add_place(place: Sequence[str], answer: "Answer", opened: "Reader | None" = None) -> "Answer":
    """Return an answer whose commands read the store or collector that these words name, or that was `opened`."""
    from gpuagent_collector.query.reader import FileReader
    from gpuagent_collector.runs.words import read_from
    from gpuagent_collector.store.spec import DEFAULT_STORE

    caveats = [replace(caveat, remedy=read_from(caveat.remedy, place)) for caveat in answer.caveats]
    further = answer.next and read_from(answer.next, place)
    if further and isinstance(opened, FileReader):
        # Bench and `collector` find it by themselves; of several files, new runs are for that of their platform.
        words = "gpuagent experiment run"
        store: str | Path | None = None if place else DEFAULT_STORE
        if opened.files:
            named = (word for option, word in pairwise(shlex.split(further)) if option == "--platform")
            words, store = "gpuagent (?:bench|experiment run)", next(map(opened.files.get, named), None)
        if store:
            further = re.sub(words, lambda found: f"{found[0]} --store {shlex.quote(str(store))}", further)
    short = answer.short and read_from(answer.short, place)
    return replace(answer, text=read_from(answer.text, place), short=short, next=further, caveats=caveats)


def parse(words: Sequence[str]) -> tuple[AnswerCommand, dict[str, Any]]:
    """Return an answer and what its function takes, from a command as an experiment or a notebook has it.

    Raises MisuseError: no such command answers, or it has an option, facet or metric that does not exist.
    """
    name = words[0] if words else ""
    if name not in ANSWERS:
        raise MisuseError(f"{shlex.join(words)!r} cannot answer an experiment; use {', '.join(sorted(ANSWERS))}")
    entry = ANSWERS[name]
    # Help would be printed among the messages of a protocol.
    command = click.command(name, add_help_option=False)(entry.declare(lambda **_given: None))
    try:
        given = command.make_context(name, list(words[1:])).params
    except click.UsageError as error:
        raise MisuseError(describe_misuse(error)) from error
    if given.get("junit"):
        raise MisuseError("--junit writes a file outside the answer's folder; give it to `collector compare`")
    if entry.output:
        del given["force"]
    return entry, entry.change(given)


_PATH = click.Path(path_type=Path, dir_okay=False)
_STORED_WORKLOAD = click.argument("workload", required=False, shell_complete=stored_workloads)


def _count(name: str, default: int, words: str, **settings: Any) -> Callable[[Any], Any]:
    number = click.IntRange(1, MOST)
    return click.option(name, type=number, default=default, show_default=True, help=words, **settings)


def _facet(*names: str, **settings: Any) -> Callable[[Any], Any]:
    return click.option(*names, metavar="FACET", shell_complete=facets, **settings)


def _by(words: str) -> Callable[[Any], Any]:
    default = ("platform",)
    return _facet("--by", multiple=True, default=default, show_default=True, callback=check_facet, help=words)


def _what_is_drawn(_context: click.Context, _argument: click.Parameter, what: str | None) -> str:
    if what is None:
        raise MisuseError(
            "name what to draw, a metric or a kind: `collector plot throughput -o plot.png`; see: collector plot --help"
        )
    return what


# The endings of a report's name.
_PAGES = (".html", ".htm")
_NO_PAGES = (".md", ".pdf", ".png", ".svg", ".tex", ".txt", ".csv", ".json")


def _take_page(given: dict[str, Any]) -> None:
    """Take the page's name from the words where no option has it: the first word, or the only one that ends so."""
    from gpuagent_collector.runs.arguments import is_path

    values = list(given["values"])
    pages = [value for value in values if value.lower().endswith(_PAGES)]
    # Arguments and labels have values of any ending.
    may_follow = len(pages) == 1 and ":" not in given["by"] and "command" not in given["by"]
    if pages and (may_follow or pages[0] == values[0]):
        if given["path"]:
            raise MisuseError(f"the page is named twice, {pages[0]} and -o {given['path']}; omit one")
        given["path"] = Path(pages[0])
        values.remove(pages[0])
    elif values and (is_path(values[0]) or values[0].lower().endswith(_NO_PAGES)):
        raise MisuseError(f"a report is a page: {values[0]} does not end with {' or '.join(_PAGES)}")
    given["path"], given["values"] = given["path"] or Path("report.html"), tuple(values)


def _instead(path: Path) -> str:
    """Return the command that writes files of an ending that another one does not."""
    page, figure = path.suffix.lower() in _PAGES, path.suffix.lower() in _FIGURES
    return "; `collector report` writes pages" if page else "; `collector plot` draws figures" if figure else ""


_FIGURES = (".png", ".svg", ".pdf")


def _ending_in(*endings: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    def check(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() not in endings:
            raise MisuseError(f"{path} is no name of such a file; end it with {' or '.join(endings)}{_instead(path)}")
        return path

    return check


def _figure(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is None and not context.resilient_parsing:
        given = [context.params["what"], *context.params.get("values", ())]
        words, options = context.meta.get(WORDS, (given, []))
        file = next((word for word in words if Path(word).suffix.lower() in _FIGURES), None)
        instead = _write_plot(context, option, words, options, file)
        raise MisuseError(f"-o names the figure, a .png, .svg or .pdf: `{instead}`")
    return _ending_in(*_FIGURES)(context, option, path)


def _write_plot(
    context: click.Context, option: click.Parameter, words: Sequence[str], options: Sequence[str], file: str | None
) -> str:
    """Return the command that draws what words in another order ask for; without a file's name it has one."""
    from gpuagent_collector.runs.words import write_command

    words = [word for word in words if word != file]
    drawn = [word for word in words if word in WHOLE or is_metric(word.partition(",")[0])]
    what = (drawn or words or ["KIND"])[0]
    sides = [word for word in words if word != what]
    what = next((name for name in what.split(",") if name in WHOLE), what)
    if metric := context.params.get("metric"):
        what, _ = draw_instead(what, metric)
        options = [word for word in options if word not in ("--metric", metric, f"--metric={metric}")]
    stored = stored_workloads(context, option, "") if sides and "--workload" not in options else []
    workloads = [word for word in sides if word in stored]
    if len(workloads) == 1:
        options = [*options, "--workload", *workloads]
        sides.remove(workloads[0])
    name = file or f"{re.split('[,:]', what)[0]}.png"
    return write_command("plot", {}, what, *(word for word in options if word != "--"), "-o", name, sides=sides)


_FORCE = click.option("--force", is_flag=True, help="Replace an existing FILE.")
_COPY = click.option(
    "-o",
    "--output",
    "copy",
    metavar="FILE",
    type=_PATH,
    callback=_ending_in(*_FORMATS),
    help="Write the answer also to FILE.csv, .json, .md or .tex.",
)


def _millimetres(_context: click.Context, _option: click.Parameter, text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]+)?)(?:mm)?", text)
    if match is None or not _LEAST_MM <= float(match[1]) <= _MOST_MM:
        raise MisuseError(f"--width {text} is no width from {_LEAST_MM:g}mm to {_MOST_MM:g}mm, such as 85mm or 180mm")
    return float(match[1])


_LEAST_MM, _MOST_MM = 60.0, 400.0


def _weights(_context: click.Context, _option: click.Parameter, text: str | None) -> dict[str, float] | None:
    """Return the weights in `time=1,cost=2`; a criterion without a number has the weight 1."""
    if text is None:
        return None
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (each.strip() for each in part.partition("="))
        if name not in ("time", "energy", "cost"):
            raise click.BadParameter(f"{name!r} is no criterion; use time, energy or cost")
        if name in weights:
            raise click.BadParameter(f"{name} is given twice")
        try:
            weights[name] = float(number) if equals else 1.0
        except ValueError:
            weights[name] = math.nan
        if not (math.isfinite(weights[name]) and weights[name] > 0):
            raise click.BadParameter(f"a weight must be a number above 0, not {number!r}")
    return weights


_LISTED_JOBS = (
    click.option("--user", type=NAME, metavar="NAME", help="Only jobs of this user."),
    click.option("--project", type=NAME, metavar="NAME", help="Only jobs of this account."),
    click.option(
        "--since",
        metavar="TIME",
        default="30d",
        show_default=True,
        callback=lambda _context, _option, text: parse_time("--since", text),
        help="Only jobs seen in this time before the newest.",
    ),
    PRICES,
)
_COMPARED = (SIDES, WORKLOAD, RUNS, TESTED, STATS, DELTA, UNPAIRED)

# In the order of the help.
ANSWERS: Mapping[str, AnswerCommand] = {
    "show": AnswerCommand(
        details="""
        Prints the hardware, phases, every metric with its median, range and number of runs, curves, kernels,
        and the end of a run's output. RUN is a run's identity, or a unique beginning of it; curves are of the
        median run.
        """,
        examples=(
            "mnist-1f2e3d4c5b",
            "satori --workload biggan --each gpu",
            "layers --max",
            "vgg16 --param batch-size=64",
            "gke-l4 --format markdown > l4.md",
        ),
        function="answers.show:answer_show",
        finds_more=True,
        options=(
            click.argument("names", nargs=-1, metavar="[RUN|PLATFORM|EXPERIMENT|WORKLOAD]"),
            *(WORKLOAD, RUNS, STATS, EACH, PRICES),
        ),
    ),
    "jobs": AnswerCommand(
        details="""
        Lists Slurm's jobs, pods, containers, units and users that agents saw at work, whoever launched them:
        those that run first, then the newest. TIME is such as 12h, 7d or 52w.
        """,
        examples=(
            "",
            "--user alice --since 7d",
            "--project vision --prices prices.yaml",
            "--since 4w --limit 1000 --json",
        ),
        function="answers.jobs:answer_jobs",
        options=(_count("--limit", 100, "Most jobs to list."), *_LISTED_JOBS),
    ),
    "job": AnswerCommand(
        details="""
        Shows what a job used of what it held, on each node and GPU, what it waited for, what it cost, and what to
        ask for instead. ID is a number of Slurm (of an array 4711_3), NAMESPACE/POD, the beginning of a
        container's ID, or NODE/UNIT.
        """,
        examples=("4711", "4711_3 --prices prices.yaml", "vision/train-0 --json"),
        function="answers.job:answer_job",
        options=(click.argument("name", metavar="ID"), PRICES),
    ),
    "idle": AnswerCommand(
        details="""
        Lists the jobs that held GPUs without a kernel for 15 minutes, or for 60 while their CPUs worked. TIME is
        such as 12h, 7d or 52w.
        """,
        examples=("", "--since 7d --prices prices.yaml", "--user alice --json"),
        function="answers.jobs:answer_idle",
        options=_LISTED_JOBS,
    ),
    "compare": AnswerCommand(
        details="""
        Compares runs with the same workload, parameters and circumstances. For the primary metric it reports
        whether the sides differ, are equal (=), are inconclusive (~), or have too few runs; for all other
        metrics it prints 95 % intervals. One side, or --by workload, is described by its values. FACET is
        platform, environment, interference, limits, device, node, nodes, workload, run, all, parameter:KEY or
        label:KEY; for your own programs also argument:NAME, such as argument:--lr, or command; for jobs also user
        or name. A side that begins with a hyphen goes after --, in quotes. Sides may be jobs, such as 4711, or
        names of jobs.

        EVENT is a change that agents saw: driver, cuda, kernel, os, bios, gpu-firmware, image, torch,
        torch-cuda, cudnn, nccl, agent or reboot; EVENT=VALUE is the change to that value. A TIME, such as
        2026-11-29T03:01, is in UTC and the same for all nodes. With --max-regression, an undecided comparison
        does not fail.
        """,
        examples=(
            "satori openshift",
            "--by interference --workload mnist",
            "bare docker --by environment --metric step_seconds",
            "--by platform,environment satori,docker openshift,podman",
            "vm container --where \"started_at > '2026-11-01'\"",
            "--before driver --workload resnet50",
            "--by label:commit main mine --max-regression 3 --junit out.xml",
            "--table throughput,gpu_utilization_percent --max",
            "--table step_seconds --rows device --columns environment",
            "--by device --specs",
            "--by argument:--dtype --all",
            '--by command -- "--lr 0.1" "--lr 0.2"',
            "gke-l4 gke-a100 --format csv > l4-a100.csv",
            "here.duckdb there.duckdb",
            "4711 4712",
            "--by user --workload train --jobs",
        ),
        function="compare.document:answer_compare",
        finds_more=True,
        options=(
            *_COMPARED,
            click.option(
                "--before",
                "--after",
                "event",
                metavar="EVENT|TIME",
                help="Compare each node's runs before and after an event or time.",
            ),
            click.option(
                "--max-regression",
                type=Number(0, 100),
                metavar="PERCENT",
                help="Exit with 1 if a side is shown worse by more.",
            ),
            click.option("--junit", type=_PATH, help="Write JUnit XML; with --max-regression."),
            click.option(
                "--table", metavar="METRIC,...", help="Print one table of these metrics, by workload and side; no test."
            ),
            _facet("--rows", help="Rows of --table.  [default: workload]"),
            _facet("--columns", help="Columns of --table.  [default: that of --by]"),
            EACH,
            JOBS,
            click.option("--specs", is_flag=True, help="Print the hardware and software of the sides alone."),
            click.option("--no-series", is_flag=True, help="With --all, leave out the charts over time."),
            PRICES,
        ),
    ),
    "plot": AnswerCommand(
        details="""
        Of METRICs, dots are medians over runs with 95 % intervals, bars have values, time draws the median runs'
        curves, and steps what runs report by step, such as the loss. KIND is roofline, scaling, serving, frontier
        (time against energy and cost), because (parts of a difference), split (of memory-limit) or collectives.
        Sides and runs are chosen as in `collector compare`. Limits of latency are for serving; without them,
        those of the runs count.
        """,
        examples=(
            "throughput satori openshift -o throughput.pdf",
            "gpu_utilization_percent,cpu_percent --kind time -o curves.png",
            "step_seconds --by device --kind bars --width 85mm -o steps.svg",
            "gpu_utilization_percent --each gpu --max -o gpus.pdf",
            "loss --kind steps --by environment -o loss.pdf",
            "roofline --workload resnet50 -o roofline.pdf",
            "because --by device -o because.pdf",
            "collectives --by node -o links.pdf",
            "serving --by parameter:server --ttft 200 -o serving.pdf",
            "frontier --by device --prices prices.yaml -o frontier.pdf",
        ),
        function="cli.printing:draw",
        options=(
            click.argument("what", metavar="METRIC,...|KIND", required=False, callback=_what_is_drawn),
            # An error that names the right command.
            click.option("--metric", hidden=True),
            SIDES,
            click.option(
                "-o",
                "--output",
                "path",
                metavar="FILE",
                type=_PATH,
                callback=_figure,
                help="The figure: FILE.png, FILE.svg or FILE.pdf.",
            ),
            click.option(
                "--kind",
                type=click.Choice(["dots", "bars", "time", "steps"]),
                help="Kind of a figure of metrics.  [default: by what there is]",
            ),
            *(WORKLOAD, RUNS, STATS, EACH),
            _facet("--rows", default="workload", help="Facet that separates rows.  [default: workload]"),
            _facet("--columns", help="The same as --by."),
            click.option(
                "--width",
                default="180mm",
                show_default=True,
                metavar="MM",
                callback=_millimetres,
                help="Width in print, such as 85mm.",
            ),
            _FORCE,
            LIMITS,
            PRICES,
        ),
        output="path",
        is_file=True,
    ),
    "report": AnswerCommand(
        details="""
        It holds tables, charts, warnings, and the commands that reproduce it. The charts' library is a file
        beside it, one for all pages of a folder; keep both together, or give --inline. Sides and runs are
        chosen as in `collector compare`. The page may be named without -o, before or after the sides.
        """,
        examples=(
            "-o l4-a100.html gke-l4 gke-a100",
            "-o containers.html --by environment --experiment containers",
            "-o costs.html --workload resnet50 --prices prices.yaml",
            "-o two.html here.duckdb there.duckdb",
        ),
        function="cli.printing:report",
        options=(
            *_COMPARED,
            Options(
                (
                    click.option(
                        "-o",
                        "--output",
                        "path",
                        metavar="FILE",
                        type=_PATH,
                        callback=_ending_in(*_PAGES),
                        help="The page: FILE.html.  [default: report.html]",
                    ),
                ),
                _take_page,
            ),
            EACH,
            PRICES,
            click.option("--inline", is_flag=True, help="Put the charts' library (5 MB) into the page."),
            _FORCE,
        ),
        output="path",
        is_file=True,
    ),
    "recommend": AnswerCommand(
        details="""
        Ranks platforms, GPUs or environments by time, energy or cost per item, and shows what limits WORKLOAD
        on each. Sides that the runs cannot distinguish share a place; of one side alone the values are printed.
        Only measured reasons are shown. FACET is one of those of `collector compare --help`, such as device or
        command.
        """,
        examples=(
            "mnist",
            "resnet50 --by device --weigh cost",
            "gpt --weigh time=1,cost=2 --prices prices.yaml --json",
        ),
        function="recommend.answer:answer_recommend",
        options=(
            _STORED_WORKLOAD,
            _by("Facets to choose between, such as device; comma-separated for combinations."),
            click.option(
                "--weigh",
                "weights",
                callback=_weights,
                metavar="NAME[=WEIGHT],...",
                help="Criteria: time, energy (of the GPUs), cost.  [default: time; cost with --prices]",
            ),
            RUNS,
            DELTA,
            PRICES,
        ),
    ),
    "plan": AnswerCommand(
        details="""
        The calculation is based on the spread of existing runs of WORKLOAD, or of all. Its numbers are for a
        new experiment, not for more runs of an old one: runs added until a difference shows find differences
        that do not exist.

        With --why, plans an experiment from side A to side B that changes one fact after the other, such as CPU
        limit, container or network. After it has run, --experiment NAME divides the ratio among the facts.
        """,
        examples=(
            "mnist",
            "resnet18 --metric step_seconds --effect 1 --effect 3",
            "mnist --experiment pilot --comparisons 6 --json",
            "mnist --why bare docker --by environment -o why.yaml",
        ),
        function="answers.plan:answer_plan",
        options=(
            *(_STORED_WORKLOAD, RUNS, TESTED, DELTA),
            click.option(
                "--effect",
                "effect_percents",
                type=Number(0, MOST, min_open=True),
                multiple=True,
                default=(1.0, 2.0, 5.0),
                metavar="PERCENT",
                help="A difference to detect; repeatable.  [default: 1, 2, 5]",
            ),
            click.option(
                "--comparisons",
                type=click.IntRange(1, MOST),
                metavar="N",
                help="Comparisons tested together: workloads × (sides − 1).  [default: those of the next command]",
            ),
            click.option("--why", nargs=2, metavar="A B", help="Separate the facts in which two sides differ."),
            _facet(
                "--by",
                multiple=True,
                callback=lambda context, option, names: check_facet(context, option, names) if names else None,
                help="With --why: facet that separates the sides.  [default: one with A and B]",
            ),
            click.option(
                "-o", "--output", type=_PATH, metavar="FILE", help="Experiment file to write, which makes the runs."
            ),
            _FORCE,
        ),
        output="output",
    ),
    "peers": AnswerCommand(
        details="""
        Peers are runs on other nodes with the same workload, parameters and circumstances on the same GPU
        model. Shows the percentile of each figure, the range of most peers, and the peers by driver, software
        and link where these differ. RUN is a run's identity or a unique beginning of it; of a NODE its newest
        run counts. With --reference, runs are compared with published ones of the same workload, parameters and
        GPU model; without a name these are the newest of each setting. Of a JOB, peers are the jobs of the same
        user and name with as many CPUs, GPUs and nodes.
        """,
        examples=(
            "",
            "resnet50-1f2e3d4c5b",
            "resnet50-1f2e3d4c5b --reference",
            "gpu-node-7 --workload resnet50",
            "4711",
            "resnet50-1f2e3d4c5b --each gpu --json",
        ),
        function="answers.peers:answer_peers",
        finds_more=True,
        options=(
            click.argument("name", required=False, metavar="[RUN|NODE|JOB]"),
            *(WORKLOAD, RUNS, EACH, JOBS),
            click.option("--reference", is_flag=True, help="Compare with the published runs of docs/reference."),
        ),
    ),
    "outliers": AnswerCommand(
        details="""
        Compares throughput, rates that were measured, step time, power, clock, temperature and waiting of each
        node, GPU and rank with all others that ran the same on the same GPU model. Facts in which one differs
        from nearly all others, such as the lanes of its link, and errors of its memory are listed beside. The
        built-in experiment `fleet-check` measures a node for it in three minutes.
        """,
        examples=("", "--experiment fleet-check", "--workload resnet50 --last 1 --json"),
        function="answers.outliers:answer_outliers",
        options=(
            WORKLOAD,
            RUNS,
            _count("--last", 5, "Runs of each node or GPU that count, the newest."),
            click.option(
                "--rate",
                type=Number(0, 100, min_open=True, max_open=True),
                default=5.0,
                show_default=True,
                metavar="PERCENT",
                callback=lambda _context, _option, percent: percent / 100,
                help="Share of false findings to accept, on average.",
            ),
            DELTA,
        ),
    ),
    "history": AnswerCommand(
        details="""
        Shows for each node the levels of a metric, the changes between them, and the facts that changed there:
        driver, kernel, firmware, image, torch and others that agents record. At most 5 % of histories without a
        change show one. WORKLOAD may be a job, such as 4711, or the name of jobs: a history then has those of one
        user with as many CPUs, GPUs and nodes.
        """,
        examples=(
            "resnet50",
            "resnet50 --metric gpu_energy_per_item_joules --where \"platform = 'satori'\"",
            "nightly --format csv > levels.csv",
            "4711",
        ),
        function="answers.history:answer_history",
        options=(_STORED_WORKLOAD, RUNS, TESTED, JOBS),
    ),
    "scaling": AnswerCommand(
        details="""
        A curve is made of runs that differ only in their ranks (or nodes): same workload, place, GPU model and
        parameters. The same batch per rank makes it weak scaling, the same total batch strong scaling. Speed-up
        is relative to the fewest ranks.
        """,
        examples=(
            "vgg16",
            "vgg16 --platform satori --experiment ddp",
            "vgg16 --by nodes",
            "--format csv > scaling.csv",
        ),
        function="answers.scaling:answer_scaling",
        options=(
            _STORED_WORKLOAD,
            PLATFORM,
            EXPERIMENT,
            click.option(
                "--by",
                type=click.Choice(["ranks", "nodes"]),
                default="ranks",
                show_default=True,
                help="The number that grows; all nodes have as many ranks.",
            ),
            PRICES,
        ),
    ),
    "serving": AnswerCommand(
        details="""
        Shows latency and tokens per second at each load of `serve-load`, the load at which two sides cross, and
        for each side the highest load that keeps the limits, with joules and cost of a token there. Without
        limits, those of the runs count.
        """,
        examples=(
            "--by platform --ttft 200",
            "--by parameter:server --ttft 200 --tpot 50 --at 99",
            "h200 l4 --by device --ttft 200 --prices prices.yaml",
        ),
        function="answers.serving:answer_serving",
        options=(SIDES, WORKLOAD, RUNS, LIMITS, PRICES),
    ),
    "roofline": AnswerCommand(
        details="""
        A point is a group of runs that differ only in their repeat: FLOP per byte of memory traffic, and FLOP
        per second. The roofs are those that `ceilings` measured on the same device, and those of its maker. The
        exit code is 1 if a point is above the device's limit, so that a measurement must be wrong.
        """,
        examples=("", "resnet18 gpt --platform gke-l4", "mnist --by label:driver --format csv > roofline.csv"),
        function="answers.roofline:answer_roofline",
        options=(
            click.argument("workloads", nargs=-1, metavar="[WORKLOAD ...]", shell_complete=stored_workloads),
            _by("Facet that separates points, such as platform or label:KEY."),
            PLATFORM,
            EXPERIMENT,
        ),
    ),
    "profile": AnswerCommand(
        details="""
        RUN may be a workload, which is its newest run with a trace; without it, it is the newest run of all.
        OTHER is a run to compare it with. With --by, each side is the run of median throughput among
        traced runs that agree in everything else. FACET is one of those of `collector compare --help`. On a GPU
        built-in workloads take a short trace of kernels; with `--profile` they trace operators too.
        """,
        examples=(
            "mnist-1f2e3d4c5b",
            "mnist-1f2e3d4c5b mnist-5b4c3d2e1f",
            "bare docker --by environment --workload mnist",
        ),
        function="answers.profile:answer_profile",
        options=(
            click.argument("values", nargs=-1, metavar="[RUN [OTHER]]"),
            _facet(
                "--by",
                callback=check_facet,
                help="Facet of which both are values, such as platform.  [default: runs, or platforms]",
            ),
            click.option(
                "--workload",
                type=NAME,
                metavar="WORKLOAD",
                help="With --by, only runs of this workload.",
                shell_complete=stored_workloads,
            ),
            click.option("--experiment", type=NAME, metavar="NAME", help="With --by, only runs of this experiment."),
            _count("--top", 5, "Most operations in a table; JSON, CSV and Markdown have all.", metavar="N"),
            EACH,
        ),
    ),
}
