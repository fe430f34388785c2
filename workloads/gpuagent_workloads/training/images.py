"""Training on images: their batches, normalisation and accuracy.

Images are bytes with their channels innermost, as files have them, until they are on the device.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from gpuagent_workloads.data.images import LabelledImages

TEST_BATCH_SIZE = 1000

# Images as bytes, and their labels, both on the device.
Batch = tuple[torch.Tensor, torch.Tensor]


class Normalisation:
    """The conversion of colour images into a network's input."""

    def __init__(
        self, mean: Sequence[float], deviation: Sequence[float], device: torch.device, *, channels_last: bool
    ) -> None:
        """Take the mean and deviation of each channel, on a scale from 0 to 1."""
        self._mean = 255 * torch.tensor(mean, device=device).reshape(3, 1, 1)
        self._deviation = 255 * torch.tensor(deviation, device=device).reshape(3, 1, 1)
        self._format = _memory_format(channels_last)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Turn bytes (count, height, width, 3) into floats (count, 3, height, width)."""
        floats = images.permute(0, 3, 1, 2).to(torch.float32, memory_format=self._format)
        return floats.sub_(self._mean).div_(self._deviation)


def placed(model: nn.Module, device: torch.device, *, channels_last: bool) -> nn.Module:
    """Return `model` on the device, its weights in the memory order of its images."""
    # torch's stubs lack memory_format here.
    return model.to(device, memory_format=_memory_format(channels_last))  # type: ignore[call-overload, no-any-return]


def accuracy_percent(
    model: nn.Module, data: LabelledImages, normalise: Callable[[torch.Tensor], torch.Tensor], device: torch.device
) -> float:
    """Return the percentage of images that `model`, left in evaluation mode, labels correctly."""
    images, labels = torch.from_numpy(data.images), torch.from_numpy(data.labels)
    model.eval()
    with torch.inference_mode():
        guesses = [model(normalise(some.to(device))).argmax(dim=1).cpu() for some in images.split(TEST_BATCH_SIZE)]
    return 100 * (torch.cat(guesses) == labels).double().mean().item()


def train_accuracies(scores: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the percentages of labels with the highest score, and with one of the five highest, by result.

    Args:
        scores: of each class, shape (count, classes).
        labels: shape (count,).
    """
    best = scores.topk(min(5, scores.shape[1]), dim=1).indices
    right = best == labels[:, None]
    first, five = 100 * torch.stack([right[:, 0].sum(), right.sum()]).double() / len(labels)
    return {"train_accuracy": first, "train_top5_accuracy": five}


def _memory_format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format
