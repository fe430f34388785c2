"""The size and the build, push and pull times of a run's container image."""

from gpuagent_collector.metrics.metric import Better, StoredMetric
from gpuagent_collector.metrics.metric_sources import IMAGES


def _image(column: str, title: str, unit: str) -> StoredMetric:
    """Return the metric that is a column of the table images, as it was for the run."""
    return StoredMetric(
        name=f"image_{column}",
        title=title,
        unit=unit,
        group="Image",
        better=Better.LOWER,
        source=IMAGES,
        reading=column,
        in_part="max({})",
        over_parts="max",
    )


IMAGE_METRICS: tuple[StoredMetric, ...] = (
    _image("size_bytes", "Image on disk", "bytes"),
    _image("layers", "Image layers", ""),
    _image("build_seconds", "Image build", "seconds"),
    _image("push_seconds", "Image push", "seconds"),
    _image("pull_seconds", "Image pull", "seconds"),
)
