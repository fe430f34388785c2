"""`profile_export_genai_perf.json` of GenAI-Perf, which has neither a version nor a time.

Its metrics are those of aiperf, which comes from it. Its settings are options of the command, side by side, or from
0.0.13 on nested, with the load under `perf_analyzer.stimulus`. The names are those of genai_perf/config/input.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent_collector.exchange.foreign.aiperf import add_figures, make_load, mean_lengths, read_conditions
from gpuagent_collector.exchange.foreign.result import (
    Figures,
    ForeignRun,
    about_lengths,
    as_condition,
    constant,
    number,
    part,
    present,
    remainder,
    text,
    whole,
)

# Settings with a parameter of their own, and those that change nothing that is measured, or say when it ends.
_KNOWN = (
    *("model", "model_names", "formatted_model_name", "endpoint_type", "concurrency", "request_rate", "streaming"),
    *("synthetic_input_tokens_mean", "synthetic_input_tokens_stddev", "output_tokens_mean", "output_tokens_stddev"),
    *("artifact_dir", "profile_export_file", "tokenizer", "tokenizer_revision", "tokenizer_trust_remote_code"),
    *("u", "url", "header", "server_metrics_url", "server_metrics_urls", "verbose", "generate_plots", "subcommand"),
    *("request_count", "measurement_interval", "stability_percentage", "warmup_request_count", "random_seed"),
    *("num_dataset_entries", "output_format", "input_file", "profile_export_filepath", "endpoint"),
    *("backend", "service_kind", "audio_format", "audio_sample_rates", "audio_depths", "audio_num_channels"),
    "image_format",
)

# Every file has all options; these are their defaults, beside 0 and False.
_DEFAULTS = {
    "prompt_source": "synthetic",
    "batch_size_audio": 1,
    "batch_size_image": 1,
    "batch_size_text": 1,
    "model_selection_strategy": "round_robin",
    "prefix_prompt_length": 100,
    "session_turns_mean": 1,
}


def recognise(document: Any) -> bool:
    """Return whether it is such a file; one with a version is aiperf's."""
    if not (isinstance(document, Mapping) and "input_config" in document and "request_throughput" in document):
        return False
    return "schema_version" not in document and "aiperf_version" not in document


def read(document: Mapping[str, Any]) -> Sequence[ForeignRun]:
    """Return the run. Raises ResultError."""
    config = document["input_config"]
    stimulus = part(config, "perf_analyzer", "stimulus")
    if part(config, "loadgen") is not None:
        conditions = read_conditions(config)
    else:
        conditions = _read_options(config) if stimulus is None else _read_nested(config, stimulus)
    figures = Figures()
    failure = add_figures(figures, document)
    figures.add("model", conditions.get("model"))
    return [
        ForeignRun(
            program="genai-perf",
            parameters={**about_lengths(mean_lengths(document)), **conditions},
            figures=figures.found,
            reason=failure,
        )
    ]


def _read_options(config: Any) -> dict[str, Any]:
    lengths = {
        "input": _length(config, "synthetic_input_tokens_mean", "synthetic_input_tokens_stddev"),
        "output": _length(config, "output_tokens_mean", "output_tokens_stddev"),
    }
    # Prompts from a file have the mean that was measured.
    if part(config, "prompt_source") not in (None, "synthetic"):
        lengths = {}
    rest = {name: value for name, value in remainder(config, _KNOWN, _DEFAULTS).items() if value}
    if part(config, "streaming") is False:
        rest["streaming"] = False
    return _conditions(part(config, "model"), config, part(config, "endpoint_type"), lengths, rest)


def _read_nested(config: Mapping[str, Any], stimulus: Any) -> dict[str, Any]:
    given = config.get("input")
    lengths = {
        name: constant(number(part(given, field, "mean"), field), number(part(given, field, "stddev"), field))
        for name, field in (("input", "synthetic_tokens"), ("output", "output_tokens"))
        if (number(max(0, part(given, field, "mean") or 0), field) or 0) > 0
    }
    known = ("synthetic_tokens", "output_tokens", "random_seed", "num_dataset_entries", "header", "prompt_source")
    rest = remainder(given, known)
    if part(config, "endpoint", "streaming") is False:
        rest["streaming"] = False
    kind = part(config, "endpoint", "type")
    return _conditions(config.get("model_names"), stimulus, kind, lengths, rest)


def _conditions(
    model: Any, load: Any, api: Any, lengths: Mapping[str, str | None], rest: Mapping[str, Any]
) -> dict[str, Any]:
    names = [model] if isinstance(model, str) else model or []
    rate, users = number(part(load, "request_rate"), "request_rate"), whole(part(load, "concurrency"), "concurrency")
    found = {
        "model": text(",".join(map(str, names)), "model"),
        "api": text(api, "endpoint_type"),
        **lengths,
        "dataset": as_condition(rest),
    }
    return {**make_load(rate, users, None, None, {}), **present(found)}


def _length(config: Any, mean_name: str, spread_name: str) -> str | None:
    """Return a distribution of lengths; None: the option was not given, which is -1."""
    mean = part(config, mean_name)
    if mean is None or mean == -1:
        return None
    return constant(number(mean, mean_name), number(part(config, spread_name), spread_name))
